#include "comm/failure/shared_control.hpp"

#include <cstring>

#include <fmt/format.h>

namespace lockstep::comm {
namespace {

/// Copies as many bytes as fit, the last of them 0.
template <std::size_t kWords>
void store_text(std::array<std::atomic<std::uint64_t>, kWords>& words, std::string_view text) noexcept {
  char bytes[8 * kWords] = {};
  text.copy(bytes, sizeof(bytes) - 1);
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    words[i].store(word, std::memory_order_relaxed);
  }
}

template <std::size_t kWords>
std::string load_text(const std::array<std::atomic<std::uint64_t>, kWords>& words) {
  char bytes[8 * kWords + 1] = {};
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
  }
  return bytes;
}

}  // namespace

const char* with_article(Collective operation) {
  switch (operation) {
    case Collective::all_reduce:
      return "an all-reduce";
    case Collective::reduce_scatter:
      return "a reduce-scatter";
    case Collective::all_gather:
      return "an all-gather";
    case Collective::broadcast:
      return "a broadcast";
    case Collective::memory:
      return "taking reduction memory";
    case Collective::barrier:
      break;
  }
  return "a barrier";
}

std::string CollectiveCall::describe() const {
  return fmt::format("{} ({} elements of {} bytes{})", with_article(operation), count, element_bytes,
                     address == 0 ? "" : fmt::format(", at place {:#x} of the reduction memory", address));
}

void SharedControl::set_call(std::uint32_t barrier, const CollectiveCall& own) noexcept {
  auto& words = call[barrier % 2];
  words[0].store(static_cast<std::uint64_t>(own.operation) << 8 | own.element_bytes, std::memory_order_relaxed);
  words[1].store(own.count, std::memory_order_relaxed);
  words[2].store(own.address, std::memory_order_relaxed);
}

CollectiveCall SharedControl::call_at(std::uint32_t barrier) const noexcept {
  const auto& words = call[barrier % 2];
  const std::uint64_t kind = words[0].load(std::memory_order_relaxed);
  return {.operation = static_cast<Collective>(kind >> 8),
          .element_bytes = static_cast<std::uint8_t>(kind & 0xff),
          .count = words[1].load(std::memory_order_relaxed),
          .address = words[2].load(std::memory_order_relaxed)};
}

void SharedControl::set_activity(const char* what) noexcept { store_text(activity, what); }
void SharedControl::set_wait(std::string_view text) noexcept { store_text(wait, text); }
std::string SharedControl::wait_text() const { return load_text(wait); }

std::string SharedControl::last_seen() const {
  const std::string text = load_text(activity);
  if (text.empty()) return "the start";
  const std::int64_t at = step.load(std::memory_order_relaxed);
  return at < 0 ? text : fmt::format("step {}: {}", at, text);
}

}  // namespace lockstep::comm
