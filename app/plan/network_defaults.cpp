#include "app/plan/network_defaults.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/data_match.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

/// Minimum ratio of the shorter side of an image to its padding.
constexpr std::int64_t kSidePerPad = 6;
constexpr std::int64_t kMaxPhotoChannels = 4;

/// Drops all defaults for the update of the weights and for changes of samples. A cosine schedule, which ends with the
/// run, suits any optimiser and stays.
void fit_to_numbers(TrainOptions& options, std::vector<std::string>& left_out) {
  std::vector<std::string> names{"augment", "normalize", "l2", "average-decay"};
  if (options.is_from_network("optimizer")) {
    names.insert(names.end(), {"optimizer", "learning-rate"});
    if (options.schedule.kind != model::ScheduleOptions::Kind::cosine) {
      names.insert(names.end(), {"schedule", "decay-rate", "staircase"});
    }
  }
  std::erase_if(names, [&](const std::string& name) { return !options.is_from_network(name); });
  if (names.empty()) return;
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(fmt::format("--{} {}", name, option_text(options, name)));
  forget_network_defaults(options, names);
  left_out.push_back(fmt::format("{} (the data hold numbers to predict, which --optimizer {} learns)",
                                 fmt::join(texts, " "), option_text(options, "optimizer")));
}

/// Range of the numbers of images, as far as it is known without reading all of them.
ValueRange range_of(const io::Dataset& data) {
  const std::optional<ValueRange> known = known_range(data.info());
  return known ? *known : measured_range(data);
}

/// True if images of 3 or 4 channels look like photographs: the channels are then one quantity in one unit. Other
/// channels may be a temperature beside a pressure.
bool are_photographs(io::FileType type, const ValueRange& range) {
  constexpr double kWhite = 255;
  if (type == io::FileType::uint8 || type == io::FileType::uint16) return true;
  return range.least >= 0 && (range.greatest <= 1 || (range.greatest > kWhite / 2 && range.greatest <= kWhite));
}

void fit_to_images(const io::Dataset& data, const FieldAxes& axes, TrainOptions& options,
                   std::vector<std::string>& left_out) {
  const std::int64_t height = axes.positions[0], width = axes.positions[1], channels = axes.channels;
  const std::int64_t side = std::min(height, width), longer = std::max(height, width);
  const io::FileType type = data.info().x.type;
  bool photo = channels >= 3 && channels <= kMaxPhotoChannels;
  std::string kind = counted(channels, "channel");
  if (photo && (options.is_from_network("augment") || options.is_from_network("normalize"))) {
    const ValueRange range = type == io::FileType::uint8 ? ValueRange{} : range_of(data);
    photo = are_photographs(type, range);
    if (!photo) kind += fmt::format(" from {:.4g} to {:.4g}", range.least, range.greatest);
  }
  const std::string size = fmt::format("images of {} x {}", height, width);
  if (options.is_from_network("augment")) {
    AugmentOptions& augment = options.data.augment;
    if (augment.crop && (side < augment.crop->height || longer >= 2 * augment.crop->height)) {
      left_out.push_back(fmt::format("crop={} ({})", augment.crop->height, size));
      augment.crop.reset();
    }
    if (augment.pad > 0 && side < kSidePerPad * augment.pad) {
      left_out.push_back(fmt::format("pad={} ({})", augment.pad, size));
      augment.pad = 0;
    }
    if (!photo && (augment.flip || augment.flip_height || augment.flip_depth)) {
      left_out.push_back(fmt::format("flip ({}: a mirror image may mean something else)", kind));
      augment.flip = augment.flip_height = augment.flip_depth = false;
    }
    const AugmentOptions none;
    if (!photo && (augment.brightness != none.brightness || augment.contrast_low != none.contrast_low ||
                   augment.contrast_high != none.contrast_high)) {
      left_out.push_back(fmt::format("brightness and contrast ({}: they may be what tells classes apart)", kind));
      augment.brightness = none.brightness;
      augment.contrast_low = none.contrast_low;
      augment.contrast_high = none.contrast_high;
    }
  }
  if (!photo && options.is_from_network("normalize") && options.data.normalize.kind == Normalization::Kind::per_image) {
    // The bytes of many channels have one unit, and --normalize auto scales them to [0, 1].
    if (type == io::FileType::uint8 && channels > kMaxPhotoChannels && 4 * channels > side) {
      left_out.push_back(fmt::format("--normalize per-image ({})", kind));
      forget_network_defaults(options, {"normalize"});
    } else {
      left_out.push_back(fmt::format("--normalize per-image ({}: per-feature keeps how bright an image is)", kind));
      options.data.normalize.kind = Normalization::Kind::per_feature;
    }
  }
}

}  // namespace

std::string fit_network_defaults(const io::Dataset& data, std::span<const FieldAxes> inputs, model::LossKind loss,
                                 TrainOptions& options) {
  if (inputs.empty() || options.from_network.empty()) return "";
  std::vector<std::string> left_out;
  const bool of_user =
      options.network.source != nullptr;  // a user's network file, which chooses its own training options
  if (model::is_of_numbers(loss)) {
    if (!of_user) fit_to_numbers(options, left_out);
  } else if (inputs.size() == 1 && inputs[0].is_image()) {
    fit_to_images(data, inputs[0], options, left_out);
  }
  if (left_out.empty()) return "";
  return fmt::format("left out of the defaults of {}: {}", model::network_kind(options.network).name,
                     fmt::join(left_out, "; "));
}

}  // namespace lockstep::app
