/// \file
/// Fits the shape of samples to the inputs that a network file declares. An extent of 1, for a single channel, may be
/// missing in the data or in the declaration.
#pragma once

#include <optional>

#include "model/graph/shape.hpp"
#include "model/network.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

/// Returns the shape of the only input with as many extents as `declared` has, if possible; without a declaration, as
/// stored. The caller compares the extents.
Shape shape_of_only_input(const NetworkKind& kind, const SampleShape& shape, const DeclaredInput& declared);
/// True if the shape has the extents that the file declares.
bool has_extents(const Shape& shape, const DeclaredInput& declared);
/// Returns the shape of one of several inputs; nullopt: it does not have the declared extents.
std::optional<Shape> shape_of_input(const DeclaredInput& declared, const SampleInput& input);

}  // namespace lockstep::model
