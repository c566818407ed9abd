/// \file
/// Nouns beside numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::io {

/// "class" of one, "classes" of any other number; by the rules of regular nouns.
std::string plural_unless_one(std::int64_t count, std::string_view noun);
/// "1 column", "1200 columns".
std::string count_of(std::int64_t count, std::string_view noun);

}  // namespace lockstep::io
