#include "model/state/owned_parts.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::size_t kStateAlignment = 64;  // elements

std::size_t padded(std::size_t count) { return (count + kStateAlignment - 1) / kStateAlignment * kStateAlignment; }

/// Returns the parameters within `range`, clipped to it, in the table's order.
std::vector<UpdateSlice> slices_within(const ParameterTable& table, const Slice& range) {
  std::vector<UpdateSlice> slices;
  for (const Parameter& parameter : table.all()) {
    const std::size_t begin = std::max(parameter.offset, range.offset);
    const std::size_t end = std::min(parameter.offset + parameter.count, range.offset + range.count);
    if (begin >= end) continue;
    slices.push_back({.offset = begin - range.offset,
                      .count = end - begin,
                      .decayed = parameter.decay == Decay::yes,
                      .statistic = parameter.role == Role::statistic,
                      .rate_scale = parameter.rate_scale});
  }
  return slices;
}

}  // namespace

OwnedParts::OwnedParts(const ParameterTable& table, std::span<const Slice> ranges)
    : whole_(ranges.empty()), state_elements_(state_elements(table, ranges)) {
  const Slice all{.offset = 0, .count = table.updated_elements()};
  std::size_t end = 0, state = 0;
  for (const Slice& range : whole_ ? std::span(&all, 1) : ranges) {
    if (range.offset < end || range.offset > all.count || range.count > all.count - range.offset) {
      throw std::invalid_argument(fmt::format("owned parts of the arenas: {}+{} after {}, of {} elements", range.offset,
                                              range.count, end, all.count));
    }
    end = range.offset + range.count;
    const std::size_t trained = std::max(std::min(end, table.trained_elements()), range.offset) - range.offset;
    parts_.push_back(
        {.range = range, .state_offset = state, .trained = trained, .slices = slices_within(table, range)});
    state += padded(range.count);
  }
}

std::size_t OwnedParts::state_elements(const ParameterTable& table, std::span<const Slice> ranges) {
  if (ranges.empty()) return table.updated_elements();
  std::size_t elements = 0;
  for (const Slice& range : ranges) elements += padded(range.count);
  return elements;
}

std::optional<std::size_t> OwnedParts::state_offset(const Slice& range) const noexcept {
  for (const Part& part : parts_) {
    if (range.offset < part.range.offset) continue;
    const std::size_t within = range.offset - part.range.offset;
    if (within <= part.range.count && range.count <= part.range.count - within) return part.state_offset + within;
  }
  return std::nullopt;
}

}  // namespace lockstep::model
