#include "app/data/token_inputs.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "app/options/usage_error.hpp"
#include "io/files/file_error.hpp"
#include "io/text/tokenizer.hpp"

namespace lockstep::app {

bool are_tokens(const model::Network& network, std::int64_t first) {
  const std::vector<model::TokenRange> ranges = network.token_ranges();
  return std::ranges::find(ranges, first, &model::TokenRange::first) != ranges.end();
}

std::vector<io::TokenNumbers> tokens_of(const model::Network& network, const io::DatasetInfo& info,
                                        const std::filesystem::path& path) {
  std::vector<io::TokenNumbers> tokens;
  for (const model::TokenRange& range : network.token_ranges()) {
    const auto input = std::ranges::find(info.inputs, range.first, &io::FieldRange::first);
    const bool is_one = input == info.inputs.end();
    tokens.push_back({.input = is_one ? info.x.name : input->field.name,
                      .first = range.first,
                      .count = range.count,
                      .vocabulary = range.vocabulary,
                      .are_lengths = range.are_lengths});
    // The range of packed bytes is that of their type.
    if ((is_one ? info.x.type : input->field.type) == io::FileType::uint8) continue;
    if (is_one ? !info.has_statistics : !input->has_statistics) continue;
    for (const double end : {is_one ? info.value_min : input->value_min, is_one ? info.value_max : input->value_max}) {
      if (tokens.back().takes(end)) continue;
      throw UsageError(fmt::format("{}: {}", path.string(), tokens.back().objection(end)));
    }
  }
  return tokens;
}

std::int32_t token_with_text(const std::string& text, const io::DatasetInfo& info, const std::filesystem::path& path) {
  if (!info.tokens) throw UsageError(fmt::format("{} has no tokens", path.string()));
  try {
    const io::Tokenizer tokenizer(*info.tokens);
    const std::vector<std::int32_t> tokens = tokenizer.encode(text);
    if (tokens.size() == 1 && (tokens[0] != info.tokens->unknown || text == io::kUnknownText)) return tokens[0];
    throw UsageError(fmt::format("{} has no single token with this text", path.string()));
  } catch (const io::FileError& error) {
    throw UsageError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace lockstep::app
