/// \file
/// The options of `lockstep export`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/checkpoint_choice.hpp"

namespace lockstep::app {

enum class ExportFormat { onnx, safetensors };

struct ExportOptions {
  CheckpointChoice checkpoint;
  std::optional<ExportFormat> format;  ///< set by parse_export(), from the name of `out` unless the user gives one
  std::filesystem::path out;
  std::optional<bool> average;  ///< use the averaged weights; nullopt: as in training
  bool force = false;           ///< replace an existing `out`
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
ExportOptions parse_export(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
