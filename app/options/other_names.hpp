/// \file
/// Names of options in other programs: "--num-epochs", "--gpus", "--output".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

/// The end of the sentence about an unknown option: "; did you mean --epochs?", or the equivalent in Lockstep. `word`
/// has no dashes. Only `valid` options are named, with `prefix` before them. "" if the command has no equivalent;
/// nullopt for a name that no program is known to use.
std::optional<std::string> hint_from_other_programs(std::string_view word, std::span<const std::string> valid,
                                                    std::string_view prefix = "");

/// All known names.
std::vector<std::string_view> names_in_other_programs();

}  // namespace lockstep::app
