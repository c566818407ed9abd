/// \file
/// Checks and escapes for UTF-8. JSON must be UTF-8; names of files and folders, and cells, may be any bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::io {

/// Length in bytes of the UTF-8 code point at the start of `text`; 0: not UTF-8; nullopt: cut off.
std::optional<std::size_t> code_point_bytes(std::string_view text) noexcept;

/// Position of the first byte that is not UTF-8; a code point that is cut off counts.
std::optional<std::size_t> first_not_utf8(std::string_view text) noexcept;

/// Printable text: bytes that are not UTF-8 become escapes such as \xE9, the rest stays.
std::string readable(std::string_view text);

}  // namespace lockstep::io
