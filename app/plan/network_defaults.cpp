#include "app/plan/network_defaults.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/network_input.hpp"

namespace lockstep::app {

namespace {

/// Minimum ratio of the shorter side of an image to its padding.
constexpr std::int64_t kSidePerPad = 6;

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

void fit_to_images(const io::Field& x, TrainOptions& options, std::vector<std::string>& left_out) {
  const std::vector<std::int64_t>& shape = x.sample_shape;
  const std::int64_t height = shape[0], width = shape[1], channels = shape.size() > 2 ? shape[2] : 1;
  const std::int64_t side = std::min(height, width), longer = std::max(height, width);
  const bool photo = channels >= 3 && channels <= kMaxPhotoChannels;
  const std::string size = fmt::format("images of {} x {}", height, width);
  const std::string kind = fmt::format("{} channel{}", channels, channels == 1 ? "" : "s");
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
    if (shape.size() == 2 || has_channels(x)) {
      left_out.push_back(fmt::format("--normalize per-image ({}: per-feature keeps how bright an image is)", kind));
      options.data.normalize.kind = Normalization::Kind::per_feature;
    } else {
      left_out.push_back(fmt::format("--normalize per-image ({})", kind));
      forget_network_defaults(options, {"normalize"});
    }
  }
}

}  // namespace

std::string fit_network_defaults(const io::DatasetInfo& info, model::LossKind loss, TrainOptions& options) {
  if (info.tokens || options.from_network.empty()) return "";
  const std::size_t extents = info.x.sample_shape.size();
  std::vector<std::string> left_out;
  const bool of_user =
      options.network.source != nullptr;  // a user's network file, which chooses its own training options
  if (model::is_of_numbers(loss)) {
    if (!of_user) fit_to_numbers(options, left_out);
  } else if (extents == 2 || extents == 3) {
    fit_to_images(info.x, options, left_out);
  }
  if (left_out.empty()) return "";
  return fmt::format("left out of the defaults of {}: {}", model::network_kind(options.network).name,
                     fmt::join(left_out, "; "));
}

}  // namespace lockstep::app
