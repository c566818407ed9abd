#include "comm/summation_tree.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using Sums = std::vector<std::string>;

/// The results of the steps on `terms`: sums as texts, with their brackets.
Sums carried_out(std::span<const SummationTree::Step> steps, const Sums& terms) {
  Sums stack;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::string sum = terms.at(i);
    for (int k = 0; k < steps[i].additions; ++k) {
      sum = "(" + stack.back() + "+" + sum + ")";
      stack.pop_back();
    }
    EXPECT_EQ(static_cast<int>(stack.size()), steps[i].place);
    stack.push_back(sum);
  }
  return stack;
}

std::string sum_over(int terms, int ranks) {
  const SummationTree tree(terms, ranks);
  Sums subtrees;
  for (int rank = 0; rank < ranks; ++rank) {
    Sums own;
    for (int i = 0; i < tree.term_count(rank); ++i) own.push_back(std::to_string(tree.first_term(rank) + i));
    const Sums sums = carried_out(tree.steps(rank), own);
    EXPECT_EQ(static_cast<int>(sums.size()), tree.subtrees(rank));
    EXPECT_LE(static_cast<int>(sums.size()), tree.most_kept() + 1);
    subtrees.insert(subtrees.end(), sums.begin(), sums.end());
  }
  const Sums whole = carried_out(tree.steps_over_subtrees(), subtrees);
  EXPECT_EQ(whole.size(), 1u);
  return whole.at(0);
}

TEST(SummationTree, HalvesItsTerms) {
  EXPECT_EQ(sum_over(1, 1), "0");
  EXPECT_EQ(sum_over(5, 1), "(((0+1)+2)+(3+4))");
  EXPECT_EQ(sum_over(8, 1), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(SummationTree, IsTheSameHoweverManyRanksShareIt) {
  for (const int terms : {2, 3, 7, 12, 24, 25, 48, 100}) {
    const std::string alone = sum_over(terms, 1);
    for (int ranks = 2; ranks <= terms; ++ranks) EXPECT_EQ(sum_over(terms, ranks), alone) << ranks << " ranks";
  }
}

TEST(SummationTree, LeavesOneSumToEachOfTheUsualNumbersOfRanks) {
  for (const int ranks : {1, 2, 4, 8}) {
    const SummationTree tree(24, ranks);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(tree.subtrees(rank), 1) << ranks << " ranks";
  }
}

TEST(SummationTree, IsNoHigherThanItSays) {
  const SummationTree tree(SummationTree::kMaxTerms, 7);
  for (const SummationTree::Step& step : tree.steps_over_subtrees()) {
    EXPECT_LT(step.place + step.additions, SummationTree::kMaxDepth);
  }
}

TEST(SummationTree, WantsATermForEachRank) {
  EXPECT_THROW(SummationTree(3, 4), std::invalid_argument);
  EXPECT_THROW(SummationTree(3, 0), std::invalid_argument);
  EXPECT_THROW(SummationTree(SummationTree::kMaxTerms + 1, 1), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
