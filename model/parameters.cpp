#include "model/parameters.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

constexpr std::size_t kSliceAlignment = 64;

std::size_t padded(std::size_t count) { return (count + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment; }

}  // namespace

std::size_t Parameter::end() const noexcept { return offset + padded(count + static_cast<std::size_t>(padding)); }

std::size_t ParameterTable::add(ParameterSpec spec) {
  if (frozen_) throw std::invalid_argument(fmt::format("parameter {} added after the table was frozen", spec.name));
  if (spec.name.empty()) throw std::invalid_argument("a parameter needs a name");
  if (spec.shape.empty()) throw std::invalid_argument(fmt::format("parameter {} has no shape", spec.name));
  Parameter parameter{std::move(spec), 0, 1};
  if (parameter.role == Role::statistic) parameter.decay = Decay::no;
  for (const std::int64_t extent : parameter.shape) {
    if (extent <= 0) {
      throw std::invalid_argument(fmt::format("parameter {} has shape [{}]: every extent must be positive",
                                              parameter.name, fmt::join(parameter.shape, ", ")));
    }
    parameter.count *= static_cast<std::size_t>(extent);
  }
  const bool known = std::any_of(parameters_.begin(), parameters_.end(),
                                 [&](const Parameter& other) { return other.name == parameter.name; });
  if (known) throw std::invalid_argument(fmt::format("parameter {} declared twice", parameter.name));
  parameters_.push_back(std::move(parameter));
  return parameters_.size() - 1;
}

void ParameterTable::freeze() {
  std::size_t offset = 0;
  for (const Role role : {Role::weight, Role::statistic}) {
    for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
      if (parameter->role != role) continue;
      parameter->offset = offset;
      offset = parameter->end();
    }
    if (role == Role::weight) trained_elements_ = offset;
  }
  arena_elements_ = offset;
  frozen_ = true;
}

std::int64_t ParameterTable::parameter_count() const noexcept {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.role == Role::weight ? parameter.count : 0;
  return static_cast<std::int64_t>(count);
}

std::vector<std::size_t> ParameterTable::slice_ends() const {
  std::vector<std::size_t> ends;
  ends.reserve(parameters_.size());
  for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
    ends.push_back(parameter->end());
  }
  std::sort(ends.begin(), ends.end());
  return ends;
}

std::string ParameterTable::signature() const {
  std::string text;
  for (const Parameter& parameter : parameters_) {
    text += fmt::format("{} [{}] @{}\n", parameter.name, fmt::join(parameter.shape, ","), parameter.offset);
  }
  return text;
}

}  // namespace lockstep::model
