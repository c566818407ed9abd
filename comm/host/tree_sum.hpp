/// \file
/// The sum of the subtrees of a SummationTree.
#pragma once

#include <cstddef>
#include <span>

#include "comm/summation_tree.hpp"

namespace lockstep::comm {

/// For i in [begin, end): the sum of subtrees[k][i] in the order of tree.steps_over_subtrees(), written to element i of
/// every destination, which may be among the subtrees. Each element is read once and written once per destination.
void tree_sum_into(std::span<float* const> destinations, std::span<const float* const> subtrees,
                   const SummationTree& tree, std::size_t begin, std::size_t end);

}  // namespace lockstep::comm
