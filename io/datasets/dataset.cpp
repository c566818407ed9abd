#include "io/datasets/dataset.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::io {

std::int64_t DatasetInfo::target_count() const noexcept {
  std::int64_t positions = 1;
  for (const std::int64_t extent : field) positions *= extent;
  return y.elements() / positions;
}

std::vector<std::string> names_of_numbers(std::span<const FieldRange> fields) {
  std::vector<std::string> names;
  for (const FieldRange& range : fields) {
    const std::int64_t numbers = range.field.elements();
    for (std::int64_t i = 0; i < numbers; ++i) {
      names.push_back(numbers == 1 ? range.field.name : fmt::format("{}_{}", range.field.name, i));
    }
  }
  return names;
}

void Dataset::read_ids(std::span<const std::int64_t>, std::span<std::byte>) const {
  throw std::logic_error("samples without names");
}

}  // namespace lockstep::io
