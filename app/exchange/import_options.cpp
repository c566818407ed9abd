#include "app/exchange/import_options.hpp"

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kImportUsage =
    "Usage: lockstep import FILE.safetensors --out CHECKPOINT [options]\n"
    "\n"
    "Makes a checkpoint of weights that other programs have: GPT-2 as Hugging Face has it, or what\n"
    "`lockstep export` wrote. `lockstep eval`, `predict`, `export` and `train --initialize-from` take it.\n";
constexpr std::string_view kImportExamples =
    "\n"
    "Examples\n"
    "  lockstep import gpt2/model.safetensors --out gpt2.h5\n"
    "  lockstep eval gpt2.h5 --data shards/tokens\n";

}  // namespace

ImportOptions parse_import(const std::vector<std::string>& arguments) {
  ImportOptions options;
  OptionTable table("lockstep import");
  table.group("What");
  table.add("file", options.file, "FILE", "the file to read; --file itself may be left out").positional();
  static const std::vector<Choice<std::optional<ImportFormat>>> formats{
      {"auto", std::nullopt}, {"gpt2-safetensors", ImportFormat::gpt2}, {"safetensors", ImportFormat::safetensors}};
  table.add_choice("format", options.format, "FORMAT",
                   "gpt2-safetensors: GPT-2 under Hugging Face's names; safetensors: as `lockstep export` writes it; "
                   "auto: by the names of the tensors",
                   formats);
  table.add("out", options.out, "CHECKPOINT", "the checkpoint to write");
  table
      .add("heads", options.heads, "N",
           "gpt2-safetensors: heads of an attention, which its tensors do not tell; 0: of 64 columns each")
      .at_least(0);
  table.add("force", options.force, "replace an --out that is there already");
  read_options(table, arguments, kImportUsage, kImportExamples);
  table.check_relations();
  table.require("file", "name the file to read");
  table.require("out", "name the checkpoint to write");
  return options;
}

}  // namespace lockstep::app
