/// \file
/// Texts that are UTF-8, and names that may not be: files, folders and cells are bytes, JSON is UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::io {

/// Bytes of the UTF-8 code point that `text` begins with; 0: it is none; nullopt: it is cut off.
std::optional<std::size_t> code_point_bytes(std::string_view text) noexcept;

/// The position of the first byte that no UTF-8 has there; a code point that is cut off is one.
std::optional<std::size_t> first_not_utf8(std::string_view text) noexcept;

/// For people: bytes that are no UTF-8 as \xE9, the rest as it is.
std::string readable(std::string_view text);

}  // namespace lockstep::io
