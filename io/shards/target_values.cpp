#include "io/shards/target_values.hpp"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "io/files/element_cast.hpp"

namespace lockstep::io {

const char* name_of(TargetValues values) noexcept {
  switch (values) {
    case TargetValues::any:
      return "any";
    case TargetValues::binary:
      return "binary";
    case TargetValues::one_hot:
      return "one-hot";
  }
  return "";
}

std::optional<TargetValues> target_values_of_name(std::string_view name) noexcept {
  for (const TargetValues values : std::array{TargetValues::any, TargetValues::binary, TargetValues::one_hot}) {
    if (name == name_of(values)) return values;
  }
  return std::nullopt;
}

bool are_shaped_as_masks(std::span<const std::int64_t> x, std::span<const std::int64_t> y) noexcept {
  while (!y.empty() && y.back() == 1) y = y.first(y.size() - 1);
  return x.size() >= 2 && y.size() >= 2;
}

std::vector<std::int64_t> without_trailing_ones(std::vector<std::int64_t> extents) {
  while (!extents.empty() && extents.back() == 1) extents.pop_back();
  return extents;
}

std::string place_text(std::span<const std::int64_t> extents, std::int64_t index) {
  std::vector<std::int64_t> at(extents.size());
  std::int64_t all = 1;
  for (std::size_t i = extents.size(); i-- > 0; index /= extents[i]) {
    at[i] = index % extents[i];
    all *= extents[i];
  }
  return all > 1 ? fmt::format(" at [{}]", fmt::join(at, ", ")) : "";
}

void WholeNumbers::add(FileType type, std::span<const std::byte> values) {
  if (!whole_) return;
  with_elements(type, values, [&](auto elements) {
    for (const auto number : elements) {
      if (ignored_ && static_cast<double>(number) == static_cast<double>(*ignored_)) continue;
      whole_ = whole_ && is_whole(number);
      if (!whole_) return;
      largest_ = std::max(largest_, static_cast<double>(number));
      if (number < kMaxClasses) seen_.set(static_cast<std::size_t>(number));
    }
    count_ += elements.size();
  });
}

bool WholeNumbers::are_classes() const noexcept {
  const std::size_t occur = seen_.count();
  return whole_ && largest_ < kMaxClasses && 2 * occur > static_cast<std::size_t>(largest_) && 2 * occur <= count_;
}

void TargetPattern::add(FileType type, std::span<const std::byte> rows) {
  if (!binary_) return;
  with_elements(type, rows, [&](auto elements) {
    for (std::size_t row = 0; row < elements.size() && binary_; row += columns_) {
      std::size_t ones = 0;
      for (const auto number : elements.subspan(row, columns_)) {
        binary_ = binary_ && (number == 0 || number == 1);
        ones += number == 1 ? 1 : 0;
      }
      single_ = single_ && ones == 1;
    }
  });
}

void TargetPattern::add(TargetValues others) noexcept {
  binary_ = binary_ && others != TargetValues::any;
  single_ = single_ && others == TargetValues::one_hot;
}

TargetValues TargetPattern::values() const noexcept {
  if (!binary_) return TargetValues::any;
  return single_ && columns_ > 1 ? TargetValues::one_hot : TargetValues::binary;
}

}  // namespace lockstep::io
