/// \file
/// JSON in files, with our own errors instead of the library's exceptions. The errors do not name the file; the code
/// that opened it adds the name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Throws FileError: "it is no JSON: line 3, column 7". Also refuses more than 64 levels, which neither our files nor
/// those of tokenizers have.
nlohmann::json parse_json(std::string_view text);

/// JSON in one line, or indented by `indent` blanks. Throws FileError for text that is not UTF-8.
std::string to_text(const nlohmann::json& json, int indent = -1);

/// The entry of an object. Throws FileError if it is missing.
const nlohmann::json& entry(const nlohmann::json& object, const char* key);

// The entry as a value. These throw FileError if it is missing, of another kind, or out of range.
std::string text_entry(const nlohmann::json& object, const char* key);
std::int64_t integer_entry(const nlohmann::json& object, const char* key);
double real_entry(const nlohmann::json& object, const char* key);
std::vector<std::string> texts_entry(const nlohmann::json& object, const char* key);
std::vector<std::int64_t> integers_entry(const nlohmann::json& object, const char* key);
std::vector<double> reals_entry(const nlohmann::json& object, const char* key);
/// The entry as a list. Throws FileError if it is missing or not a list.
const nlohmann::json& list_entry(const nlohmann::json& object, const char* key);

}  // namespace lockstep::io
