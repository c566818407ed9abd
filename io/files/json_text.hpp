/// \file
/// JSON in files, with errors in our words: the library's exceptions end here. No error names the file: who has opened
/// it does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Throws FileError: "it is no JSON: line 3, column 7"; nested over 64 deep, as no file of ours or of a tokenizer is.
nlohmann::json parse_json(std::string_view text);

/// One line, or indented by so many blanks. Throws FileError for texts that are no UTF-8.
std::string to_text(const nlohmann::json& json, int indent = -1);

/// The entry of an object. Throws FileError: there is none.
const nlohmann::json& entry(const nlohmann::json& object, const char* key);

// The entry as a value. Throw FileError: there is none, it is of another kind, or does not fit.
std::string text_entry(const nlohmann::json& object, const char* key);
std::int64_t integer_entry(const nlohmann::json& object, const char* key);
double real_entry(const nlohmann::json& object, const char* key);
std::vector<std::string> texts_entry(const nlohmann::json& object, const char* key);
std::vector<std::int64_t> integers_entry(const nlohmann::json& object, const char* key);
std::vector<double> reals_entry(const nlohmann::json& object, const char* key);
/// Throws FileError: there is none, or it is no list.
const nlohmann::json& list_entry(const nlohmann::json& object, const char* key);

}  // namespace lockstep::io
