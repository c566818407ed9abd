#include "model/parameters.hpp"

#include <algorithm>
#include <cmath>
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
  if (laid_out_) throw std::invalid_argument(fmt::format("parameter {} added after the table was laid out", spec.name));
  if (spec.name.empty()) throw std::invalid_argument("a parameter needs a name");
  if (spec.shape.empty()) throw std::invalid_argument(fmt::format("parameter {} has no shape", spec.name));
  Parameter parameter{std::move(spec), 0, 1, false, 1};
  if (parameter.role == Role::statistic) parameter.decay = Decay::no;
  for (const std::int64_t extent : parameter.shape) {
    if (extent <= 0) {
      throw std::invalid_argument(fmt::format("parameter {} has shape [{}]: every extent must be positive",
                                              parameter.name, fmt::join(parameter.shape, ", ")));
    }
    if (static_cast<std::size_t>(extent) > kMaxParameterElements / parameter.count) {
      throw std::invalid_argument(fmt::format("parameter {} has shape [{}]: more than 2^40 elements", parameter.name,
                                              fmt::join(parameter.shape, ", ")));
    }
    parameter.count *= static_cast<std::size_t>(extent);
  }
  if (!names_.insert(parameter.name).second)
    throw std::invalid_argument(fmt::format("parameter {} declared twice", parameter.name));
  parameters_.push_back(std::move(parameter));
  return parameters_.size() - 1;
}

void ParameterTable::lay_out() {
  std::size_t offset = 0;
  for (const bool frozen : {false, true}) {
    for (const Role role : {Role::weight, Role::statistic}) {
      for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
        if (parameter->role != role || parameter->frozen != frozen) continue;
        parameter->offset = offset;
        offset = parameter->end();
      }
      if (!frozen) (role == Role::weight ? trained_elements_ : updated_elements_) = offset;
    }
  }
  arena_elements_ = offset;
  const auto first = std::ranges::find_if(
      parameters_, [](const Parameter& each) { return each.role == Role::weight && !each.frozen; });
  first_trained_ = static_cast<std::size_t>(first - parameters_.begin());
  laid_out_ = true;
}

void ParameterTable::freeze(std::span<const std::size_t> indices) {
  for (const std::size_t index : indices) parameters_.at(index).frozen = true;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.frozen_with) continue;
    const Parameter& other = parameters_.at(*parameter.frozen_with);
    if (parameter.frozen == other.frozen) continue;
    throw std::invalid_argument(
        fmt::format("{} is frozen and {} is not: a batch normalisation is frozen as a whole, with its running "
                    "statistics",
                    (parameter.frozen ? parameter : other).name, (parameter.frozen ? other : parameter).name));
  }
  lay_out();
  if (trained_elements_ == 0) throw std::invalid_argument("all parameters are frozen: nothing is left to train");
}

void ParameterTable::set_rate_scale(std::size_t index, double scale) {
  Parameter& parameter = parameters_.at(index);
  if (!std::isfinite(scale) || scale <= 0 || parameter.role != Role::weight || parameter.frozen) {
    throw std::invalid_argument(
        fmt::format("{} takes no learning rate times {}: it must be trained, and the factor finite and positive",
                    parameter.name, scale));
  }
  parameter.rate_scale = static_cast<float>(scale);
}

std::size_t ParameterTable::gradients_end(std::size_t first) const noexcept {
  for (std::size_t i = first; i < parameters_.size(); ++i) {
    if (parameters_[i].role == Role::weight && !parameters_[i].frozen) return parameters_[i].end();
  }
  return 0;
}

std::int64_t ParameterTable::parameter_count() const noexcept {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.role == Role::weight ? parameter.count : 0;
  return static_cast<std::int64_t>(count);
}

std::int64_t ParameterTable::trained_count() const noexcept {
  std::size_t count = 0;
  for (const Parameter& parameter : parameters_) {
    count += parameter.role == Role::weight && !parameter.frozen ? parameter.count : 0;
  }
  return static_cast<std::int64_t>(count);
}

std::vector<std::size_t> ParameterTable::slice_ends() const {
  std::vector<std::size_t> ends;
  ends.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) {
    if (!parameter.frozen) ends.push_back(parameter.end());
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
