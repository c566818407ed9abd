/// \file
/// A byte pair tokenizer in files, as others write and read it. A folder holds one of
///
/// - tokenizer.json, as the package `tokenizers` writes it. Only what works as GPT-2's tokenizer does is accepted;
/// - vocab.json (text of each token, in the letters of byte_letters.hpp -> token) and merges.txt (a line "#version",
/// then
///   "LEFT RIGHT", the lowest rank first), or OpenAI's names of the same, encoder.json and vocab.bpe. Tokens that are
///   neither bytes nor made by a merge, such as <|endoftext|>, are added tokens: a text has them as a whole.
#pragma once

#include <filesystem>

#include "io/text/token_info.hpp"

namespace lockstep::io {

/// Of kind "bpe", without counts. Throws FileError: a file is missing, larger than 64 MiB, damaged (with its line
/// where it has lines), or of a tokenizer that works otherwise.
TokenInfo read_tokenizer_files(const std::filesystem::path& folder);

/// vocab.json and merges.txt, in a folder that may be there already; each is complete or as it was before. Throws
/// FileError.
void write_tokenizer_files(const std::filesystem::path& folder, const TokenInfo& info);

}  // namespace lockstep::io
