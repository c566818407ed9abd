/// \file
/// What users of other programs type for an option: "--num-epochs", "--gpus", "--output".
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

/// The end of the sentence about an unknown option: "; did you mean --epochs?", or how the same is done here. `word`
/// stands without its dashes; only `valid` options are named, with `prefix` before them. "" where the command has
/// nothing of the kind; nullopt for a word that no program is known to use.
std::optional<std::string> hint_from_other_programs(std::string_view word, std::span<const std::string> valid,
                                                    std::string_view prefix = "");

/// All words that are known.
std::vector<std::string_view> names_in_other_programs();

}  // namespace lockstep::app
