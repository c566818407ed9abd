/// \file
/// Plural forms of nouns after numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::io {

/// "class" for one, "classes" for any other number; by the rules of regular nouns.
std::string plural_unless_one(std::int64_t count, std::string_view noun);
/// "1 column", "1200 columns".
std::string count_of(std::int64_t count, std::string_view noun);

}  // namespace lockstep::io
