#include "app/exchange/import_options.hpp"

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kImportUsage =
    "Usage: lockstep import FILE.safetensors --out CHECKPOINT [options]\n"
    "\n"
    "Converts weights to a checkpoint: GPT-2 in Hugging Face's format, or a file from `lockstep export`.\n"
    "`lockstep eval`, `predict`, `export` and `train --initialize-from` read the checkpoint.\n";
constexpr std::string_view kImportExamples =
    "\n"
    "Examples\n"
    "  lockstep import gpt2/model.safetensors --out gpt2.h5\n"
    "  lockstep eval gpt2.h5 --data shards/tokens\n";

}  // namespace

ImportOptions parse_import(const std::vector<std::string>& arguments) {
  ImportOptions options;
  OptionTable table("lockstep import");
  table.group("Input and output");
  table.add("file", options.file, "FILE", "file to read; the name --file may be omitted").positional();
  static const std::vector<Choice<std::optional<ImportFormat>>> formats{
      {"auto", std::nullopt}, {"gpt2-safetensors", ImportFormat::gpt2}, {"safetensors", ImportFormat::safetensors}};
  table.add_choice("format", options.format, "FORMAT",
                   "file format: gpt2-safetensors (GPT-2 with Hugging Face's tensor names) or safetensors (as "
                   "`lockstep export` writes it); auto: by the names of the tensors",
                   formats);
  table.add("out", options.out, "CHECKPOINT", "checkpoint to write");
  table
      .add("heads", options.heads, "N",
           "gpt2-safetensors: attention heads, which the tensors do not contain; 0: one for every 64 columns")
      .at_least(0);
  table.add("force", options.force, "replace --out if it exists");
  read_options(table, arguments, kImportUsage, kImportExamples);
  table.check_relations();
  table.require("file", "name the file to read");
  table.require("out", "name the checkpoint to write");
  return options;
}

}  // namespace lockstep::app
