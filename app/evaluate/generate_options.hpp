/// \file
/// The options of `lockstep generate`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/options/checkpoint_choice.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

struct GenerateOptions {
  CheckpointChoice checkpoint;
  std::string prompt = "\n";
  std::int64_t tokens = 500;
  double temperature = 1;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;  ///< draw only among this number of likeliest tokens
  double top_p = 1;        ///< draw only among the likeliest tokens that together have this probability
  std::int64_t samples = 1;
  std::string stop;  ///< stop text; "": the text ends after `tokens` tokens
  std::uint64_t seed = 1;
  std::filesystem::path tokenizer_files;  ///< "": the checkpoint's own vocabulary
  bool average = false;                   ///< use the averaged weights
  ExecutionOptions execution;
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
GenerateOptions parse_generate(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
