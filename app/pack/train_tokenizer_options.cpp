#include "app/pack/train_tokenizer_options.hpp"

// The options of `lockstep tokenizer train`.
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kTokenizerUsage =
    "Usage: lockstep tokenizer train --vocabulary N --out FOLDER TEXT... [options]\n"
    "\n"
    "Learns a byte pair vocabulary from texts and writes it as vocab.json and merges.txt, for\n"
    "`lockstep pack --tokenizer bpe --tokenizer-files FOLDER` and other programs. Runs as one process.\n";
constexpr std::string_view kTokenizerExamples =
    "\n"
    "Examples\n"
    "  lockstep tokenizer train --vocabulary 4096 --out tokenizers/shakespeare input.txt\n"
    "  lockstep pack --x input.txt --tokenizer bpe \\\n"
    "      --tokenizer-files tokenizers/shakespeare --out shards/bpe\n";

}  // namespace

TokenizerOptions parse_tokenizer_train(const std::vector<std::string>& arguments) {
  TokenizerOptions options;
  OptionTable table("lockstep tokenizer train");
  table.group("Input and output");
  table
      .add_free(
          "text", Option::Shape::value, "FILE",
          "text to learn from, also .gz; give several one after another, without --text",
          [&options](const Option&, const std::string& text) {
            if (!text.empty()) options.texts.emplace_back(text);
            return std::string();
          },
          [&options] { return options.texts.empty() ? std::string() : options.texts.back().string(); })
      .positional()
      .several();
  table
      .add("vocabulary", options.vocabulary, "N",
           "tokens in total: 256 bytes, merged pairs and <|endoftext|>; fewer if no pair occurs twice")
      .at_most(1 << 24);
  table.add("out", options.out, "FOLDER", "folder for vocab.json and merges.txt");
  table.add("force", options.force, "replace them if they exist");
  read_options(table, arguments, kTokenizerUsage, kTokenizerExamples);
  table.require("text", "name a text to learn from");
  if (options.vocabulary < 257) {
    throw UsageError("--vocabulary is missing or too small: at least 257, the 256 bytes and <|endoftext|>");
  }
  table.require("out", "name the folder to write to");
  return options;
}

}  // namespace lockstep::app
