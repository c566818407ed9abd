/// \file
/// Initial values, keyed by (seed, parameter name, index): the same at any world size and in any order of
/// initialisation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::model {

/// A scheme and its number. `value` is the constant, the half-width (uniform) or the standard deviation (normal,
/// truncated_normal). xavier_*: Glorot & Bengio 2010; he_*: He et al. 2015; lecun_normal: LeCun 1998; truncated_normal
/// redraws beyond two standard deviations, like TensorFlow's tf.truncated_normal; fan_in_uniform is U(-1/sqrt(fan_in),
/// 1/sqrt(fan_in)), PyTorch's default for linear layers.
struct Initializer {
  enum class Scheme {
    zeros,
    constant,
    uniform,
    normal,
    truncated_normal,
    xavier_uniform,
    xavier_normal,
    he_uniform,
    he_normal,
    lecun_normal,
    fan_in_uniform
  };
  Scheme scheme = Scheme::zeros;
  double value = 0;
  bool operator==(const Initializer&) const = default;
};

/// Parses "he_normal", "truncated_normal(0.1)", "constant(0.1)". Throws std::invalid_argument listing the valid names.
Initializer parse_initializer(std::string_view text);
std::string to_string(const Initializer& initializer);

/// Initializers of a network's layers.
struct Initializers {
  std::optional<Initializer> all;                           ///< for layers not named; nullopt: the network's defaults
  std::vector<std::pair<std::string, Initializer>> layers;  ///< by name, "dense_1"
  bool operator==(const Initializers&) const = default;
};

/// Parses "he_normal", "dense_1=normal(0.0357),dense_3=constant(1)", or both, comma-separated. Throws
/// std::invalid_argument for an unknown initializer, a layer named twice, or two initializers for all layers.
Initializers parse_initializers(std::string_view text);
std::string to_string(const Initializers& initializers);

void initialize(std::span<float> values, const Initializer& initializer, std::int64_t fan_in, std::int64_t fan_out,
                std::uint64_t seed, std::string_view parameter_name);

}  // namespace lockstep::model
