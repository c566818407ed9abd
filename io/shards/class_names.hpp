/// \file
/// Names of classes. Names that are whole numbers are compared as numbers: 2, 2.0 and +2 are one class, and 10 comes
/// after 9.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// The whole number in a text: "2", "2.0", "+2", "2e0", " 02". nullopt: another text, or beyond 2^53.
std::optional<std::int64_t> class_number(std::string_view text);
/// The canonical name of a class: "2" for a whole number, other texts unchanged.
std::string class_name(std::string_view text);
/// Sorts by number if all names are whole numbers, otherwise by bytes.
void sort_class_names(std::vector<std::string>& names);
/// Names for classes without names: "0", "1", ...
std::vector<std::string> numbered_classes(std::int64_t classes);
/// True if there are names and all of them are whole numbers.
bool all_whole_numbers(const std::vector<std::string>& names);

}  // namespace lockstep::io
