/// \file
/// The options of `lockstep import`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

enum class ImportFormat { gpt2, safetensors };

struct ImportOptions {
  std::filesystem::path file;
  std::optional<ImportFormat> format;  ///< nullopt: follows from the names of the tensors
  std::filesystem::path out;
  std::int64_t heads = 0;  ///< gpt2: 0 = the width / 64
  bool force = false;      ///< replace an existing `out`
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
ImportOptions parse_import(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
