#include "app/evaluate/generate_options.hpp"

#include <string_view>

#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kGenerateUsage =
    "Usage: lockstep generate RUN [options]\n"
    "\n"
    "Writes text with a language model (gpt, lstm) trained by `lockstep train`.\n";
constexpr std::string_view kGenerateExamples =
    "\n"
    "Examples\n"
    "  lockstep generate runs/shakespeare --prompt \"ROMEO:\" --tokens 300\n"
    "  lockstep generate runs/shakespeare --temperature 0.8 --top-k 40 --seed 7\n"
    "  lockstep generate runs/shakespeare --top-p 0.9 --samples 3 --stop \"ROMEO:\"\n";

}  // namespace

GenerateOptions parse_generate(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  OptionTable table("lockstep generate");
  table.group("Model and text");
  CheckpointRows checkpoint(table);
  table.add("prompt", options.prompt, "TEXT", "text to begin with");
  table.add("tokens", options.tokens, "N", "tokens to write").at_least(1);
  table.add("samples", options.samples, "N", "texts to write, each with its own random numbers").at_least(1);
  table.add("stop", options.stop, "TEXT", "end a text before TEXT, which is not written; default: never");
  table.add("average", options.average, "use the averaged weights");
  table.add("tokenizer-files", options.tokenizer_files, "FOLDER",
            "folder with tokenizer.json, or vocab.json and merges.txt, for a model whose tokens were made by another "
            "program");
  table.group("Sampling");
  table
      .add("temperature", options.temperature, "T",
           "sampling temperature: below 1 prefers likely tokens, above 1 unlikely ones; 0: always the likeliest token")
      .at_least(0);
  table.add("top-k", options.top_k, "K", "choose only among the K likeliest tokens; 0: among all").at_least(0);
  table
      .add("top-p", options.top_p, "P",
           "choose only among the likeliest tokens whose total probability is P, at least one; 1: among all")
      .above(0)
      .at_most(1);
  table.add("seed", options.seed, "N", "random seed; the same seed writes the same text");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kGenerateUsage, kGenerateExamples);
  table.check_relations();
  options.checkpoint = checkpoint.chosen();
  return options;
}

}  // namespace lockstep::app
