#include "app/engine/weight_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep::app {

namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr const char *kTable = "wte.weight", *kHead = "lm_head.weight";

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr std::array<NamePair, 4> kOutsideBlocks{{{kTable, "embedding/tokens"},
                                                  {"wpe.weight", "embedding/positions"},
                                                  {"ln_f.weight", "norm/scale"},
                                                  {"ln_f.bias", "norm/shift"}}};
/// Linear weights are [inputs, outputs] in GPT-2 and in Lockstep, and the joint projection is [query | key | value] in
/// both.
constexpr std::array<NamePair, 14> kInBlocks{{{"ln_1.weight", "norm_1/scale"},
                                              {"ln_1.bias", "norm_1/shift"},
                                              {"attn.c_attn.weight", "attention/joint/weight"},
                                              {"attn.c_attn.bias", "attention/joint/bias"},
                                              {"attn.c_proj.weight", "attention/output/weight"},
                                              {"attn.c_proj.bias", "attention/output/bias"},
                                              {"ln_2.weight", "norm_2/scale"},
                                              {"ln_2.bias", "norm_2/shift"},
                                              {"mlp.c_fc.weight", "feed_forward/expand/weight"},
                                              {"mlp.c_fc.bias", "feed_forward/expand/bias"},
                                              {"mlp.c_proj.weight", "feed_forward/contract/weight"},
                                              {"mlp.c_proj.bias", "feed_forward/contract/bias"},
                                              {"attn.bias", ""},
                                              {"attn.masked_bias", ""}}};

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

/// [rows, columns] -> [columns, rows].
std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> result(values.size());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      result[column * rows + row] = values[row * columns + column];
    }
  }
  return result;
}

void add_head(const io::SafetensorsFile& file, const io::SafetensorsEntry& entry, io::Checkpoint& checkpoint) {
  if (entry.shape.size() != 2) {
    throw io::FileError({.file = file.file(), .what = fmt::format("{} is no matrix", entry.name)});
  }
  const io::StoredTensor* const table = checkpoint.find("parameters", "embedding/tokens");
  const std::vector<float> values = file.read(entry);
  if (table != nullptr && table->shape == entry.shape && table->values == values) return;
  checkpoint.tensors.push_back({.group = "parameters",
                                .name = "head/weight",
                                .shape = {entry.shape[1], entry.shape[0]},
                                .values = transposed(values, static_cast<std::size_t>(entry.shape[0]),
                                                     static_cast<std::size_t>(entry.shape[1]))});
  checkpoint.tensors.push_back({.group = "parameters",
                                .name = "head/bias",
                                .shape = {entry.shape[0]},
                                .values = std::vector<float>(static_cast<std::size_t>(entry.shape[0]))});
}

}  // namespace

bool names_gpt2(const io::SafetensorsFile& file) {
  return std::ranges::any_of(file.entries(),
                             [](const io::SafetensorsEntry& entry) { return without_prefix(entry.name) == kTable; });
}

std::string name_of_gpt2_tensor(const std::string& name) {
  const std::string_view bare = without_prefix(name);
  for (const auto& [theirs, ours] : kOutsideBlocks) {
    if (bare == theirs) return std::string(ours);
  }
  if (bare.starts_with("h.")) {
    const std::string_view rest = bare.substr(2);
    std::uint16_t block = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), block);
    const std::string_view part = rest.substr(static_cast<std::size_t>(end - rest.data()));
    for (const auto& [theirs, ours] : kInBlocks) {
      if (error != std::errc() || !part.starts_with('.') || part.substr(1) != theirs) continue;
      return ours.empty() ? "" : fmt::format("block_{}/{}", block + 1, ours);
    }
  }
  throw io::FileError(fmt::format("{} is no tensor of GPT-2 as Hugging Face names them", name));
}

io::Checkpoint read_weight_file(const io::SafetensorsFile& file) {
  io::Checkpoint checkpoint;
  const bool gpt2 = names_gpt2(file);
  const io::SafetensorsEntry* head = nullptr;
  std::set<std::string> names;
  for (const io::SafetensorsEntry& entry : file.entries()) {
    std::string name = entry.name;
    if (gpt2 && entry.name == kHead) {
      head = &entry;
      continue;
    }
    try {
      if (gpt2) name = name_of_gpt2_tensor(entry.name);
    } catch (const io::FileError& error) {
      throw io::FileError({.file = file.file(), .what = error.what()});
    }
    if (name.empty()) continue;
    if (!names.insert(name).second) {
      throw io::FileError({.file = file.file(), .what = fmt::format("{} is there twice", entry.name)});
    }
    checkpoint.tensors.push_back(
        {.group = "parameters", .name = name, .shape = entry.shape, .values = file.read(entry)});
  }
  if (head != nullptr) add_head(file, *head, checkpoint);
  return checkpoint;
}

}  // namespace lockstep::app
