/// \file
/// "did you mean …?": the valid name closest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::model {

/// Number of letters to insert, delete, replace or swap with a neighbour to turn one text into the other (Damerau 1964,
/// the optimal string alignment variant). Case and the difference between '_' and '-' are ignored. O(|a| |b|).
int edit_distance(std::string_view a, std::string_view b);

/// Returns the valid name that `word` most likely means, or "" if none is near. It tries, in this order: a name with
/// these initials ("lr" -> "learning-rate"); the nearest name within an edit distance of a third of the word's letters,
/// where the longer common prefix breaks ties; a name that is a prefix of the word or has it as a prefix ("batch-size"
/// -> "batch").
std::string nearest_name(std::string_view word, std::span<const std::string> valid);

/// "; did you mean PREFIXname?", or "" when nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> valid, std::string_view prefix = "");

/// "a, b or c".
std::string list_names(std::span<const std::string> names, std::string_view last_joint = "or");

}  // namespace lockstep::model
