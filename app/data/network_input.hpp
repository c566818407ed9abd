/// \file
/// Describes stored samples as input of a network: element type, shape, and conversion of the numbers. Functions that
/// take options and data throw UsageError if the two do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "app/data/field_axes.hpp"
#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Converts the type of stored samples to the model's type. Throws std::invalid_argument if no model accepts it.
model::ElementType element_type(io::FileType type);
/// Returns a view of `count` samples or targets in host memory. The callee must not write to it.
model::Tensor tensor_of(std::span<const std::byte> elements, io::FileType type, std::int64_t count);

/// True if positions of masks may have no class: their label is ignored, or augmentation shows pixels outside of
/// images.
bool may_lack_classes(const io::DatasetInfo& info, const model::ModelOptions& options);

model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info);
/// Returns the conversion of images and series to a network's input; nullopt if the options request none, and for
/// tokens.
std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info,
                                                std::span<const FieldAxes> inputs);
/// Throws UsageError if the augmentation mixes the channels of series: only steps may be mirrored or cut.
void require_channels_kept(const AugmentOptions& options, const model::Augmentation& spec, const FieldAxes& axes);
/// Returns the shape of a network's input: of images after augmentation, of tokens as windows.
model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation);

/// Returns the shape of samples that a network file with several inputs declares, without data; nullopt for other
/// networks. Throws UsageError if the file leaves an extent to the data.
std::optional<model::SampleShape> shape_of_inputs(const model::NetworkOptions& network, std::int64_t outputs);

/// Returns "fields of 64 x 64 with 2 channels".
std::string fields_text(std::span<const std::int64_t> positions, std::int64_t channels);

/// True if the network has recurrent state: samples of a step then continue the sequences of the previous step.
bool is_recurrent(const model::Network& network) noexcept;

}  // namespace lockstep::app
