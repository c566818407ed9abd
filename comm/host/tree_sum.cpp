#include "comm/host/tree_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/host/summation.hpp"

namespace lockstep::comm {

void tree_sum_into(std::span<float* const> destinations, std::span<const float* const> subtrees,
                   const SummationTree& tree, std::size_t begin, std::size_t end) {
  constexpr std::size_t kBlock = 512;  // elements: the stack stays in the first-level cache
  alignas(64) std::array<std::array<float, kBlock>, SummationTree::kMaxDepth> stack;
  const std::span<const SummationTree::Step> steps = tree.steps_over_subtrees();
  for (std::size_t at = begin; at < end; at += kBlock) {
    const std::size_t count = std::min(kBlock, end - at);
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const auto place = static_cast<std::size_t>(steps[k].place),
                 top = place + static_cast<std::size_t>(steps[k].additions);
      std::memcpy(stack[top].data(), subtrees[k] + at, count * sizeof(float));
      for (std::size_t i = top; i > place; --i) add_to(stack[i - 1].data(), stack[i].data(), count);
    }
    for (float* const destination : destinations) std::memcpy(destination + at, stack[0].data(), count * sizeof(float));
  }
}

}  // namespace lockstep::comm
