/// \file
/// Stored samples as a network's input: their type, their shape, and the conversion of their numbers. Functions of
/// options and data throw UsageError if the two do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// The model's name for a type of stored samples; throws std::invalid_argument on types that no model accepts.
model::ElementType element_type(io::FileType type);
/// View of `count` samples or targets in host memory that is only read.
model::Tensor tensor_of(std::span<const std::byte> elements, io::FileType type, std::int64_t count);

/// True for masks some of whose positions may belong to no class: ignored labels, or pixels from outside of images.
bool may_lack_classes(const io::DatasetInfo& info, const model::ModelOptions& options);

model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info);
/// Conversion of images to a network's input; nullopt for plain numbers.
std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info);
/// Shape of a network's input: images after augmentation, tokens as windows.
model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation);

/// Shape of samples that are in no file, for a network file with several inputs; nullopt for other networks. Throws
/// UsageError if the file leaves an extent to the data.
std::optional<model::SampleShape> shape_of_inputs(const model::NetworkOptions& network, std::int64_t outputs);

inline constexpr std::int64_t kMaxPhotoChannels = 4;
/// True if the last of three extents of a sample counts channels: up to 4, or few compared with height and width.
/// Otherwise the samples are volumes, whose numbers are all of one kind.
bool has_channels(const io::Field& x);

/// True if samples of a step follow those of the previous step, sequence by sequence: recurrent state needs it.
bool is_recurrent(const model::Network& network) noexcept;

}  // namespace lockstep::app
