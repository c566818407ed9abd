/// \file
/// The option --all-reduce: the algorithm for sums between hosts, chosen by message size.
#pragma once

#include <string>

#include "app/options/option_table.hpp"
#include "app/options/train_options.hpp"
#include "comm/all_reduce_limits.hpp"

namespace lockstep::app {

void add_all_reduce_option(OptionTable& table, ExecutionOptions& options);
/// Returns the option's text: "auto", "measured", "ring", "16384,1048576".
std::string all_reduce_word(const comm::AllReduceChoice& value);

}  // namespace lockstep::app
