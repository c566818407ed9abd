#include "comm/summation_tree.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::comm {
namespace {

using Step = SummationTree::Step;

/// Steps of a stack machine: leaves are pushed, nodes add the two sums on top.
class Program {
 public:
  void push() { steps_.push_back({.additions = 0, .place = depth_++}); }
  void add() {
    ++steps_.back().additions;
    steps_.back().place = --depth_ - 1;
  }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  std::vector<Step> steps_;
  int depth_ = 0;
};

struct Node {
  int first, count;
  Node left() const { return {first, (count + 1) / 2}; }
  Node right() const { return {first + (count + 1) / 2, count / 2}; }
};

/// Writes the part of the tree under `node` that is within [begin, end).
void write_steps(Program& program, Node node, int begin, int end) {
  if (node.first >= end || node.first + node.count <= begin) return;
  if (node.count == 1) return program.push();
  write_steps(program, node.left(), begin, end);
  write_steps(program, node.right(), begin, end);
  if (node.first >= begin && node.first + node.count <= end) program.add();
}

/// Writes the part above the subtrees of the ranks.
void write_steps_above(Program& program, Node node, const SummationTree& tree) {
  for (int rank = 0; rank < tree.ranks(); ++rank) {
    const int begin = tree.first_term(rank), end = begin + tree.term_count(rank);
    if (node.first >= begin && node.first + node.count <= end) return program.push();
  }
  write_steps_above(program, node.left(), tree);
  write_steps_above(program, node.right(), tree);
  program.add();
}

}  // namespace

SummationTree::SummationTree(int terms, int ranks) : terms_(terms), ranks_(ranks) {
  if (ranks < 1 || terms < ranks || terms > kMaxTerms) {
    throw std::invalid_argument(fmt::format("a sum of {} terms over {} ranks", terms, ranks));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    Program program;
    write_steps(program, {0, terms}, first_term(rank), first_term(rank + 1));
    steps_.push_back(program.take());
    for (const Step& step : steps_.back()) most_kept_ = std::max(most_kept_, step.place + step.additions);
  }
  Program program;
  write_steps_above(program, {0, terms}, *this);
  over_subtrees_ = program.take();
}

}  // namespace lockstep::comm
