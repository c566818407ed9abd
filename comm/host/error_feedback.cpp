#include "comm/host/error_feedback.hpp"

#include <algorithm>

namespace lockstep::comm {

const ErrorFeedback::Errors* ErrorFeedback::add(std::span<const std::byte> memory) {
  return &all_.emplace_back(Errors{.memory = memory, .values = std::vector<float>(memory.size() / sizeof(float))});
}

void ErrorFeedback::remove(const Errors* errors) {
  all_.remove_if([errors](const Errors& candidate) { return &candidate == errors; });
}

std::span<float> ErrorFeedback::errors_of(std::span<const float> data) noexcept {
  const std::span<const std::byte> bytes = std::as_bytes(data);
  for (Errors& errors : all_) {
    const std::size_t offset = static_cast<std::size_t>(bytes.data() - errors.memory.data());
    if (bytes.data() < errors.memory.data() || offset + bytes.size() > errors.memory.size()) continue;
    return std::span(errors.values).subspan(offset / sizeof(float), data.size());
  }
  return {};
}

void ErrorFeedback::forget() noexcept {
  for (Errors& errors : all_) std::ranges::fill(errors.values, 0.0f);
}

}  // namespace lockstep::comm
