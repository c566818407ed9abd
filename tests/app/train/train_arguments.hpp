/// \file
/// Command lines of `lockstep train`, for tests.
#pragma once

#include <string>
#include <vector>

#include "app/train/train_command_line.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {

using Arguments = std::vector<std::string>;

inline TrainOptions parse(Arguments arguments) {
  arguments.insert(arguments.begin(), {"--data", "shards"});
  return parse_train(arguments);
}

/// The message to the user; "" if the options are accepted.
inline std::string complaint(const Arguments& arguments) {
  return test::message_of<UsageError>([&] { parse(arguments); });
}

}  // namespace lockstep::app
