/// \file
/// "did you mean …?": the valid name closest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::model {

/// Number of letters to insert, delete, replace or swap with their neighbour to turn one text into the other (Damerau
/// 1964, the optimal string alignment variant). Case and the difference between '_' and '-' are ignored. O(|a| |b|).
int edit_distance(std::string_view a, std::string_view b);

/// The valid name that a person who wrote `word` most likely meant, or "" if none is near. Candidates in this order: a
/// name with these initials ("lr" -> "learning-rate"); the nearest name within a third of the word's letters, a longer
/// common beginning deciding ties; a name that begins with the word or the other way round ("batch-size" -> "batch").
std::string nearest_name(std::string_view word, std::span<const std::string> valid);

/// "; did you mean PREFIXname?", or "" when nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> valid, std::string_view prefix = "");

/// "a, b or c".
std::string list_names(std::span<const std::string> names, std::string_view last_joint = "or");

}  // namespace lockstep::model
