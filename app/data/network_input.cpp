#include "app/data/network_input.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

model::ElementType element_type(io::FileType type) {
  switch (type) {
    case io::FileType::uint8:
      return model::ElementType::uint8;
    case io::FileType::float32:
      return model::ElementType::float32;
    case io::FileType::float64:
      return model::ElementType::float64;
    case io::FileType::int32:
      return model::ElementType::int32;
    default:
      throw std::invalid_argument(fmt::format("no model takes samples of type {}", io::name_of(type)));
  }
}

model::Tensor tensor_of(std::span<const std::byte> elements, io::FileType type, std::int64_t count) {
  const model::ElementType as = element_type(type);
  const auto columns =
      static_cast<std::int64_t>(elements.size() / model::size_of(as)) / std::max<std::int64_t>(1, count);
  return {const_cast<std::byte*>(elements.data()), as, count, columns};
}

model::InputTransform input_transform(const Normalization& normalize, const io::DatasetInfo& info) {
  using Kind = Normalization::Kind;
  if (!info.inputs.empty() && (normalize.kind == Kind::range || normalize.kind == Kind::standard)) {
    throw UsageError(
        fmt::format("--normalize {} knows one scale for all numbers, and the samples have {} inputs: "
                    "per-feature gives each its own",
                    normalize.kind == Kind::range ? "range" : "standard", info.inputs.size()));
  }
  if (normalize.kind == Normalization::Kind::affine) return normalize.affine;
  const bool range = normalize.kind == Normalization::Kind::range ||
                     (normalize.kind == Normalization::Kind::automatic && info.x.type == io::FileType::uint8);
  const bool is_range_known = info.has_statistics || info.value_min != 0 || info.value_max != 1;
  if (normalize.kind == Normalization::Kind::range && !is_range_known && !info.tokens) {
    throw UsageError(
        "--normalize range needs the range of the values, which packed shards have, and bytes: run `lockstep pack`, or "
        "give --normalize per-feature or affine(SCALE,SHIFT)");
  }
  model::InputTransform transform;
  if (range && info.value_max > info.value_min) {
    transform.scale = static_cast<float>(1 / (info.value_max - info.value_min));
    transform.shift = static_cast<float>((0 - info.value_min) / (info.value_max - info.value_min));
  } else if (normalize.kind == Normalization::Kind::standard) {
    if (!info.has_statistics) {
      throw UsageError(
          "--normalize standard needs mean and deviation, which only packed shards have: run `lockstep pack`, or "
          "give --normalize affine(SCALE,SHIFT)");
    }
    const double deviation = info.standard_deviation > 0 ? info.standard_deviation : 1;
    transform.scale = static_cast<float>(1 / deviation);
    transform.shift = static_cast<float>(-info.mean / deviation);
  }
  return transform;
}

bool may_lack_classes(const io::DatasetInfo& info, const model::ModelOptions& options) {
  if (!info.has_masks()) return false;
  return info.ignored_label.has_value() || (options.augmentation && options.augmentation->shows_outside());
}

namespace {

/// Returns the shape of samples of [height, width], [height, width, channels] or [depth, height, width, channels];
/// nullopt for other samples.
std::optional<model::ImageShape> image_shape(const io::Field& x) {
  const std::vector<std::int64_t>& shape = x.sample_shape;
  if (shape.size() == 2) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = 1};
  if (shape.size() == 3) return model::ImageShape{.height = shape[0], .width = shape[1], .channels = shape[2]};
  if (shape.size() == 4) {
    return model::ImageShape{.height = shape[1], .width = shape[2], .channels = shape[3], .depth = shape[0]};
  }
  return std::nullopt;
}

/// Returns the shape of samples for augmentation: a volume may be stored without the extent of its single channel.
std::optional<model::ImageShape> shape_to_augment(const io::Field& x, const FieldAxes& axes) {
  if (!axes.is_volume() || axes.positions[0] == 1) return image_shape(x);
  return model::ImageShape{
      .height = axes.positions[1], .width = axes.positions[2], .channels = axes.channels, .depth = axes.positions[0]};
}

/// Returns the extents of a mask for `image`: its extents without channels. `image` is a sample of `x`, perhaps
/// cropped.
std::vector<std::int64_t> places_of(const io::Field& x, const model::ImageShape& image) {
  if (x.sample_shape.size() == 4 || image.depth > 1) return {image.depth, image.height, image.width};
  return {image.height, image.width};
}

}  // namespace

std::optional<model::Augmentation> augmentation(const DataOptions& options, const io::DatasetInfo& info,
                                                std::span<const FieldAxes> inputs) {
  const bool per_image = options.normalize.kind == Normalization::Kind::per_image;
  if (info.tokens || (options.augment == AugmentOptions{} && !per_image)) return std::nullopt;
  if (!info.inputs.empty()) {
    throw UsageError(fmt::format("--{} needs samples of one image each, and these have {} inputs: leave it out",
                                 per_image ? "normalize per-image" : "augment", info.inputs.size()));
  }
  const auto image = shape_to_augment(info.x, inputs[0]);
  if (!image) {
    throw UsageError(fmt::format("--{} needs images or volumes, and the samples have {}: pack them so, or leave it out",
                                 per_image ? "normalize per-image" : "augment",
                                 counted(std::ssize(info.x.sample_shape), "extent")));
  }
  model::Augmentation spec = augmentation_of(options.augment, *image);
  spec.per_image = per_image;
  if (!info.field.empty() && spec.moves_pixels()) {
    throw UsageError(
        "--augment moves the pixels of samples, and not the numbers at the positions of their fields: leave flips and "
        "crops out");
  }
  const std::vector<std::int64_t> places = places_of(info.x, *image);
  if (info.has_masks() && spec.moves_pixels() && info.y.sample_shape != places) {
    throw UsageError(
        fmt::format("--augment moves the pixels of samples and of their masks alike, and masks of [{}] have "
                    "other extents than samples of {}: leave flips and crops out",
                    fmt::join(info.y.sample_shape, ", "), fmt::join(places, " x ")));
  }
  const model::InputTransform transform = input_transform(options.normalize, info);
  spec.scale.fill(transform.scale);
  spec.shift.fill(transform.shift);
  return spec;
}

void require_channels_kept(const AugmentOptions& options, const model::Augmentation& spec, const FieldAxes& axes) {
  if (!axes.is_series()) return;
  const AugmentOptions none;
  const bool mixes = (spec.flip && axes.channels > 1) || spec.turns || spec.pad > 0 || spec.minimum_area < 1 ||
                     spec.out.width != spec.in.width;
  const bool changes_light =
      axes.channels > 1 && (options.contrast_low != none.contrast_low || options.contrast_high != none.contrast_high);
  if (!mixes && !changes_light) return;
  const std::int64_t steps = axes.positions[0];
  throw UsageError(fmt::format(
      "--augment {} is for images, and the network reads series of {} with {}, which it would mix: flip=h mirrors the "
      "steps, crop={}x{} cuts a part of them; leave the rest out",
      to_text(options), counted(steps, "step"), counted(axes.channels, "channel"), steps - steps / 4, axes.channels));
}

model::SampleShape sample_shape(const io::DatasetInfo& info, const std::optional<model::Augmentation>& augmentation) {
  if (info.tokens) {
    return {.features = info.x.elements(), .outputs = info.tokens->vocabulary, .image = {}, .tokens = true};
  }
  model::SampleShape shape{.features = info.x.elements(),
                           .outputs = info.labels_are_classes ? info.classes : info.target_count(),
                           .image = image_shape(info.x)};
  for (const io::FieldRange& input : info.inputs) {
    shape.inputs.push_back({.name = input.field.name, .extents = input.field.sample_shape});
  }
  shape.grid = info.has_masks() ? info.y.sample_shape : info.field;
  shape.is_field = !info.field.empty();
  if (augmentation) {
    if (!shape.grid.empty() && augmentation->moves_pixels()) {
      shape.grid = places_of(info.x, augmentation->out);
    }
    shape.image = augmentation->out;
    shape.features = augmentation->out.elements();
  }
  return shape;
}

std::optional<model::SampleShape> shape_of_inputs(const model::NetworkOptions& network, std::int64_t outputs) {
  model::SampleShape shape{.outputs = outputs, .inputs = model::inputs_of(network)};
  if (shape.inputs.size() < 2) return std::nullopt;
  for (const model::SampleInput& input : shape.inputs) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : input.extents) elements *= extent;
    if (elements == 0) {
      throw UsageError(
          fmt::format("{}: the input {} takes an extent from the data (any), and there are none here: put "
                      "numbers in its place",
                      network.name, input.name));
    }
    shape.features += elements;
  }
  return shape;
}

std::string fields_text(std::span<const std::int64_t> positions, std::int64_t channels) {
  return fmt::format("fields of {} with {}", fmt::join(positions, " x "), counted(channels, "channel"));
}

bool is_recurrent(const model::Network& network) noexcept { return !network.recurrent_state().all().empty(); }

}  // namespace lockstep::app
