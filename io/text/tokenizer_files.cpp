#include "io/text/tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/files/durable_file.hpp"
#include "io/files/json_text.hpp"
#include "io/text/byte_letters.hpp"
#include "io/text/byte_pair_encoder.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
constexpr const char* kJsonName = "tokenizer.json";
constexpr std::string_view kMergesHeader = "#version: 0.2\n";

struct Names {
  const char *vocabulary, *merges;
};
constexpr std::array<Names, 2> kPairs = {{{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}}};

bool is_there(const fs::path& file) {
  std::error_code unknown;
  return fs::exists(file, unknown);
}

std::string content_of(const fs::path& file) {
  std::error_code unreadable;
  const std::uint64_t bytes = fs::file_size(file, unreadable);
  if (!unreadable && bytes > kMaxBytes) {
    throw FileError(fmt::format("{}: has {}; no tokenizer has more than {}: name the right folder", file.string(),
                                size_text(bytes), size_text(kMaxBytes)));
  }
  std::optional<std::string> content = read_whole(file);
  if (!content) throw FileError(fmt::format("{}: is not there", file.string()));
  return *std::move(content);
}

/// A tokenizer that works otherwise than GPT-2's.
class OtherTokenizer : public FileError {
 public:
  using FileError::FileError;
};

/// Runs `work`, and adds the file's name and a remedy to its errors.
template <class Work>
auto about(const fs::path& file, Work work) {
  try {
    return work();
  } catch (const OtherTokenizer& error) {
    throw FileError(fmt::format(
        "{}: {}; tokenize with the program that it belongs to, and `lockstep pack --format tokens` takes the tokens",
        file.string(), error.what()));
  } catch (const FileError& error) {
    throw FileError(fmt::format("{}: {}; copy it again from where it comes from", file.string(), error.what()));
  }
}

/// Adds the entries of an object {text: token}. `texts` never grows beyond the total number of entries.
void take_texts(const json& vocabulary, std::size_t entries, std::vector<std::string>& texts,
                std::vector<bool>& known) {
  if (!vocabulary.is_object()) throw FileError("it is no table of texts and tokens");
  texts.resize(entries);
  known.resize(entries);
  for (const auto& [text, token] : vocabulary.items()) {
    const bool fits = token.is_number_integer() && token >= 0 && token < entries;
    if (!fits) {
      throw FileError(fmt::format("the token of '{}' is none of 0 to {}, as its {} texts need", readable(text),
                                  entries - 1, entries));
    }
    const auto at = token.get<std::size_t>();
    if (known[at]) {
      throw FileError(fmt::format("'{}' and '{}' have the same token {}", readable(texts[at]), readable(text), at));
    }
    known[at] = true;
    texts[at] = text;
  }
}

std::vector<std::string> merges_of(std::string_view text) {
  std::vector<std::string> merges;
  std::int64_t line = 0;
  while (!text.empty()) {
    ++line;
    std::string_view words = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(words.size() + 1, text.size()));
    if (words.ends_with('\r')) words.remove_suffix(1);
    if (words.empty() || (line == 1 && words.starts_with("#version"))) continue;
    const std::size_t blank = words.find(' ');
    if (first_not_utf8(words) || blank == 0 || blank == std::string_view::npos || blank + 1 == words.size() ||
        words.find(' ', blank + 1) != std::string_view::npos) {
      throw FileError(fmt::format("line {} is not two texts with a blank between them", line));
    }
    merges.emplace_back(words);
  }
  return merges;
}

/// Tokens that are neither bytes nor results of a merge.
std::vector<std::int64_t> never_made(const TokenInfo& info) {
  std::unordered_set<std::string> made;
  for (const std::uint8_t byte : bytes_by_letter()) {
    const char letter = static_cast<char>(byte);
    made.insert(letters_of({&letter, 1}));
  }
  for (std::string merge : info.merges) {
    merge.erase(merge.find(' '), 1);
    made.insert(std::move(merge));
  }
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0; i < info.texts.size(); ++i) {
    if (!made.contains(info.texts[i])) tokens.push_back(static_cast<std::int64_t>(i));
  }
  return tokens;
}

TokenInfo read_pair(const fs::path& vocabulary, const fs::path& merges) {
  TokenInfo info{.kind = "bpe"};
  about(vocabulary, [&] {
    const json entries = parse_json(content_of(vocabulary));
    std::vector<bool> known;
    take_texts(entries, entries.size(), info.texts, known);
  });
  about(merges, [&] { info.merges = merges_of(content_of(merges)); });
  info.added = never_made(info);
  return info;
}

bool is_absent(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || *found == false || *found == "" ||
         (found->is_structured() && found->empty());
}

void require_absent(const json& object, std::string_view of, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (!is_absent(object, key))
      throw OtherTokenizer(fmt::format("{}'s {} is in use, which GPT-2's tokenizer has not", of, key));
  }
}

/// True if the post_processor leaves a text's tokens as they are.
bool adds_no_tokens(const json& after) {
  const std::string type = text_entry(after, "type");
  if (type == "ByteLevel") return true;
  if (type == "Sequence") return std::ranges::all_of(list_entry(after, "processors"), adds_no_tokens);
  if (type != "TemplateProcessing") return false;
  const json& single = list_entry(after, "single");
  return single.size() == 1 && single[0].is_object() && single[0].contains("Sequence");
}

/// Requires GPT-2's values of all settings in tokenizer.json that change the tokens.
void require_as_gpt2(const json& all) {
  require_absent(all, "the tokenizer", {"normalizer"});
  const json& model = entry(all, "model");
  if (text_entry(model, "type") != "BPE") throw OtherTokenizer("its model is not of the type BPE");
  require_absent(
      model, "the model",
      {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"});
  const json& words = entry(all, "pre_tokenizer");
  const bool by_bytes = words.is_object() && text_entry(words, "type") == "ByteLevel";
  if (!by_bytes || (words.contains("use_regex") && words["use_regex"] != true)) {
    throw OtherTokenizer("it cuts words in another way than GPT-2 (its pre_tokenizer is not ByteLevel with use_regex)");
  }
  require_absent(words, "the pre_tokenizer", {"add_prefix_space"});
  const auto after = all.find("post_processor");
  if (after != all.end() && !after->is_null() && !adds_no_tokens(*after)) {
    throw OtherTokenizer("its post_processor adds tokens to every text, which GPT-2's does not");
  }
}

TokenInfo from_json(const json& all) {
  require_as_gpt2(all);
  const json& model = entry(all, "model");
  const json& vocabulary = entry(model, "vocab");
  json beyond = json::object();  // added tokens missing from the model's own vocabulary
  TokenInfo info{.kind = "bpe"};
  if (all.contains("added_tokens") && !all["added_tokens"].is_null()) {
    for (const json& added : list_entry(all, "added_tokens")) {
      require_absent(added, "an added token", {"lstrip", "rstrip", "single_word"});
      const std::string text = text_entry(added, "content");
      const std::int64_t token = integer_entry(added, "id");
      info.added.push_back(token);
      const auto own = vocabulary.find(text);
      if (own == vocabulary.end())
        beyond[text] = token;
      else if (*own != token)
        throw FileError(fmt::format("'{}' has two tokens", readable(text)));
    }
  }
  std::vector<bool> known;
  const std::size_t entries = vocabulary.size() + beyond.size();
  take_texts(vocabulary, entries, info.texts, known);
  take_texts(beyond, entries, info.texts, known);
  for (const json& merge : list_entry(model, "merges")) {
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair && !merge.is_string()) {
      throw FileError(fmt::format("its merge {} is neither a text nor a pair of texts", info.merges.size() + 1));
    }
    info.merges.push_back(pair ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                               : merge.get<std::string>());
  }
  return info;
}

}  // namespace

TokenInfo read_tokenizer_files(const fs::path& place) {
  const fs::path folder = place.filename() == kJsonName ? place.parent_path() : place;
  std::optional<TokenInfo> info;
  const fs::path whole = folder / kJsonName;
  fs::path named = whole;
  if (is_there(whole)) {
    info = about(whole, [&] { return from_json(parse_json(content_of(whole))); });
  }
  for (const auto& [vocabulary, merges] : kPairs) {
    if (info || !is_there(folder / vocabulary)) continue;
    named = folder / merges;
    info = read_pair(folder / vocabulary, named);
  }
  if (!info) {
    throw FileError(
        fmt::format("{}: holds no tokenizer: neither tokenizer.json nor vocab.json and merges.txt", folder.string()));
  }
  about(named, [&] { BytePairEncoder{*info}; });
  info->vocabulary = static_cast<std::int64_t>(info->texts.size());
  return *std::move(info);
}

void write_tokenizer_files(const fs::path& folder, const TokenInfo& info) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw FileError(fmt::format("{}: cannot be made: {}", folder.string(), error.message()));
  std::string vocabulary, merges(kMergesHeader);
  for (std::size_t i = 0; i < info.texts.size(); ++i) {
    vocabulary += fmt::format("{}{}:{}", i == 0 ? '{' : ',', to_text(info.texts[i]), i);
  }
  for (const std::string& merge : info.merges) merges += merge + '\n';
  replace_file(folder / kPairs[0].vocabulary, vocabulary + "}\n");
  replace_file(folder / kPairs[0].merges, merges);
}

}  // namespace lockstep::io
