/// \file
/// `lockstep tokenizer train`: makes a byte pair vocabulary from texts.
#pragma once

#include "app/pack/train_tokenizer_options.hpp"

namespace lockstep::app {

/// Throws io::FileError and UsageError.
int run_tokenizer_train(const TokenizerOptions& options);

}  // namespace lockstep::app
