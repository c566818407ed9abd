/// \file
/// The options of `lockstep info`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/augmentation.hpp"
#include "model/network.hpp"

namespace lockstep::app {

struct InfoOptions {
  std::filesystem::path path;
  std::string x = "x", y = "y";                 ///< dataset names, for files made by other programs
  bool allow_fill = false;                      ///< accept unwritten elements, with their fill value
  bool verify = true;                           ///< verify checksums
  model::NetworkOptions network = {};           ///< a network from a file, and its options
  std::int64_t features = 784, outputs = 10;    ///< extents of the samples for that network
  std::optional<model::ImageShape> image = {};  ///< images instead of features
  std::filesystem::path svg = {};               ///< file for a drawing of that network
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested. Reads the file
/// of a network.
InfoOptions parse_info(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
