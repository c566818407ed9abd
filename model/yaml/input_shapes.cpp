#include "model/yaml/input_shapes.hpp"

#include <cstddef>

#include "model/input_extents.hpp"

namespace lockstep::model {

Shape shape_of_only_input(const NetworkKind& kind, const SampleShape& sample, const DeclaredInput& declared) {
  const std::size_t count = declared.extents.size();
  const bool any = kind.reads == Reads::any;
  if (!sample.image || count == 1 || (!any && kind.reads != Reads::images)) {
    return count == 2 && any ? Shape({sample.features, 1}) : Shape({sample.features});
  }
  const ImageShape& image = *sample.image;
  if (image.depth > 1) return {image.depth, image.height, image.width, image.channels};
  if (count == 2 && image.channels == 1) return {image.height, image.width};
  if (count == 4) return {image.height, image.width, image.channels, 1};
  return Shape(image);
}

bool has_extents(const Shape& shape, const DeclaredInput& declared) {
  if (declared.extents.empty()) return true;
  if (shape.count() != declared.extents.size()) return false;
  for (std::size_t i = 0; i < shape.count(); ++i) {
    if (declared.extents[i] != 0 && declared.extents[i] != shape.extents()[i]) return false;
  }
  return true;
}

std::optional<Shape> shape_of_input(const DeclaredInput& declared, const SampleInput& input) {
  std::vector<std::int64_t> extents = input.extents;
  const std::size_t count = declared.extents.size();
  if (extents.empty()) extents = {1};
  if (extents.size() + 1 == count) extents.push_back(1);
  if (extents.size() == count + 1 && extents.back() == 1) extents.pop_back();
  if (extents.size() != count) return std::nullopt;
  const Shape shape(extents);
  return has_extents(shape, declared) ? std::optional(shape) : std::nullopt;
}

std::vector<std::vector<std::int64_t>> input_extents(const NetworkOptions& options, const SampleShape& shape) {
  const NetworkKind& kind = network_kind(options);
  const std::vector<DeclaredInput> declared = declared_inputs(kind);
  const auto extents_of = [](const Shape& read) {
    return std::vector<std::int64_t>(read.extents().begin(), read.extents().end());
  };
  if (shape.inputs.empty()) {
    if (shape.features <= 0) return {{}};
    const DeclaredInput only = declared.size() == 1 ? declared[0] : DeclaredInput{};
    const Shape read = shape_of_only_input(kind, shape, only);
    if (declared.size() > 1 || !has_extents(read, only)) return {{}};
    return {extents_of(read)};
  }
  std::vector<std::vector<std::int64_t>> extents(shape.inputs.size());
  for (std::size_t i = 0; declared.size() == extents.size() && i < extents.size(); ++i) {
    if (const auto read = shape_of_input(declared[i], shape.inputs[i])) extents[i] = extents_of(*read);
  }
  return extents;
}

}  // namespace lockstep::model
