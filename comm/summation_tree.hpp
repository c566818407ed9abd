/// \file
/// A fixed order of additions. The terms of a sum are the leaves of a binary tree that depends on their number alone,
/// so that the sum has the same bits for any number of ranks.
///
/// THE TREE. A node of n > 1 terms has the first ceil(n / 2) of them on its left and the others on its right; its sum
/// is left + right (pairwise summation; Higham 1993, "The accuracy of floating point summation").
///
/// RANKS. Rank r of R has the terms [n r / R, n (r + 1) / R). It can add, by itself, the largest nodes within its
/// terms: its subtrees, from left to right. It has one subtree if n and R are powers of two times the same number (24
/// terms on 2, 4 or 8 ranks), otherwise O(log n). The nodes above are added where the sums of all subtrees meet.
#pragma once

#include <span>
#include <vector>

namespace lockstep::comm {

class SummationTree {
 public:
  /// Needs at least one term per rank, and at most kMaxTerms. Throws std::invalid_argument.
  SummationTree(int terms, int ranks);

  static constexpr int kMaxTerms = 4096;
  /// Largest number of sums on the stack of steps_over_subtrees(): the height of the tree, including its leaves.
  static constexpr int kMaxDepth = 14;

  int terms() const noexcept { return terms_; }
  int ranks() const noexcept { return ranks_; }
  int first_term(int rank) const noexcept { return static_cast<int>(static_cast<long>(terms_) * rank / ranks_); }
  int term_count(int rank) const noexcept { return first_term(rank + 1) - first_term(rank); }

  /// A rank's action when one of its terms is ready: `additions` times, adds the sum on top of its stack to it; then
  /// pushes it. At the end the stack holds the sums of its subtrees.
  struct Step {
    int additions = 0;
    int place = 0;  ///< index on the stack after the additions; 0 is the bottom
  };
  /// One step for each of the rank's terms.
  std::span<const Step> steps(int rank) const { return steps_.at(static_cast<std::size_t>(rank)); }
  int subtrees(int rank) const { return steps(rank).back().place + 1; }
  /// Largest number of sums, over all ranks, that a rank keeps besides its newest term.
  int most_kept() const noexcept { return most_kept_; }
  /// The steps that add the subtrees of all ranks, in rank order and from left to right: one step per subtree.
  std::span<const Step> steps_over_subtrees() const noexcept { return over_subtrees_; }

 private:
  int terms_, ranks_;
  std::vector<std::vector<Step>> steps_;
  std::vector<Step> over_subtrees_;
  int most_kept_ = 0;
};

}  // namespace lockstep::comm
