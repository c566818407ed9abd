#include <string_view>

#include "app/options/options.hpp"
#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kGenerateUsage =
    "Usage: lockstep generate RUN [options]\n"
    "\n"
    "Writes text with a language model (--model gpt or lstm) that `lockstep train` has trained.\n";
constexpr std::string_view kGenerateExamples =
    "\n"
    "Examples\n"
    "  lockstep generate runs/shakespeare --prompt \"ROMEO:\" --tokens 300\n"
    "  lockstep generate runs/shakespeare --temperature 0.8 --top-k 40 --seed 7\n";

}  // namespace

GenerateOptions parse_generate(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  OptionTable table("lockstep generate");
  table.group("What");
  CheckpointRows checkpoint(table);
  table.add("prompt", options.prompt, "TEXT", "what the text begins with; default: a line break");
  table.add("tokens", options.tokens, "N", "tokens to write").at_least(1);
  table.add("average", options.average, "write with the averaged weights");
  table.group("Sampling");
  table
      .add("temperature", options.temperature, "T",
           "below 1: likely tokens come more often; above 1: less often; 0: always the likeliest token")
      .at_least(0);
  table.add("top-k", options.top_k, "K", "choose among the K likeliest tokens only; 0: among all").at_least(0);
  table.add("seed", options.seed, "N", "the same seed writes the same text");
  add_execution_options(table, options.execution);
  read_options(table, arguments, kGenerateUsage, kGenerateExamples);
  table.check_relations();
  options.checkpoint = checkpoint.chosen();
  return options;
}

}  // namespace lockstep::app
