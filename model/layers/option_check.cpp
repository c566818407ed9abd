#include "model/layers/option_check.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

void require_known_options(const NetworkOptions& options, std::initializer_list<std::string_view> known) {
  const std::pair<std::string_view, bool> given[] = {{"hidden", !options.hidden.empty()},
                                                     {"depth", options.depth != 0},
                                                     {"layers", options.layers != 0},
                                                     {"width", options.width != 0},
                                                     {"heads", options.heads != 0},
                                                     {"dropout", options.dropout != 0},
                                                     {"tied", options.tied.has_value()},
                                                     {"synchronize_batch_norm", options.synchronize_batch_norm},
                                                     {"activation", options.activation != Activation::relu}};
  for (const auto& [option, is_given] : given) {
    if (is_given && std::find(known.begin(), known.end(), option) == known.end()) {
      throw std::invalid_argument(
          fmt::format("network {} has no option {}{}", options.name, option,
                      known.size() == 0 ? std::string() : fmt::format("; it knows: {}", fmt::join(known, ", "))));
    }
  }
}

ImageShape require_image(std::string_view network, const SampleShape& shape) {
  if (!shape.image) {
    throw std::invalid_argument(
        fmt::format("network {} takes images: samples of shape height x width x channels, or height x width", network));
  }
  if (shape.outputs <= 0) {
    throw std::invalid_argument(fmt::format("a network needs at least one output, not {}", shape.outputs));
  }
  return *shape.image;
}

void require_tokens(std::string_view network, const SampleShape& shape) {
  if (!shape.tokens) throw std::invalid_argument(fmt::format("network {} takes tokens", network));
  if (shape.features <= 0 || shape.outputs <= 0) {
    throw std::invalid_argument(fmt::format("network {}: context {} and vocabulary {} must be positive", network,
                                            shape.features, shape.outputs));
  }
}

}  // namespace lockstep::model
