/// \file
/// The files of a byte pair tokenizer, as other programs read and write them. A folder holds one of
///
/// - tokenizer.json of the package `tokenizers`; only tokenizers that work like GPT-2's are accepted;
/// - vocab.json (text of each token, in the letters of byte_letters.hpp -> token) and merges.txt (a line "#version",
///   then "LEFT RIGHT", the lowest rank first), or OpenAI's names for them, encoder.json and vocab.bpe. Tokens that
///   are neither bytes nor results of a merge, such as <|endoftext|>, are added tokens: they replace their whole text.
#pragma once

#include <filesystem>

#include "io/text/token_info.hpp"

namespace lockstep::io {

/// A vocabulary of kind "bpe", without counts. Throws FileError for a file that is missing, larger than 64 MiB or
/// damaged (with the line, if the file has lines), and for a tokenizer that works differently. `place`: the folder, or
/// its tokenizer.json.
TokenInfo read_tokenizer_files(const std::filesystem::path& place);

/// Writes vocab.json and merges.txt into a folder, which may exist. Each file is replaced as a whole or not at all.
/// Throws FileError.
void write_tokenizer_files(const std::filesystem::path& folder, const TokenInfo& info);

}  // namespace lockstep::io
