/// \file
/// The options of `lockstep tokenizer train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::app {

struct TokenizerOptions {
  std::vector<std::filesystem::path> texts;
  std::int64_t vocabulary = 0;  ///< maximum number of tokens
  std::filesystem::path out;    ///< a folder
  bool force = false;           ///< replace existing tokenizer files
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
TokenizerOptions parse_tokenizer_train(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
