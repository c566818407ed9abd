/// \file
/// Names of options in other programs, such as "--num-epochs", "--gpus" and "--output", and their equivalents here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

/// Returns the end of the message about an unknown option: "; did you mean --epochs?", or an explanation. `word`: the
/// unknown option without dashes. Suggests only options in `valid`, with `prefix` before them. Returns "" if the
/// command has no equivalent, and nullopt if no program is known to use the name.
std::optional<std::string> hint_from_other_programs(std::string_view word, std::span<const std::string> valid,
                                                    std::string_view prefix = "");

/// Returns all known names.
std::vector<std::string_view> names_in_other_programs();

}  // namespace lockstep::app
