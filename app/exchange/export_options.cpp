#include "app/exchange/export_options.hpp"

#include "app/options/train_rows.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kExportUsage =
    "Usage: lockstep export RUN --format onnx|safetensors --out FILE [options]\n"
    "\n"
    "Exports a checkpoint for other programs: onnx (network and weights) or safetensors (weights).\n";
constexpr std::string_view kExportExamples =
    "\n"
    "Examples\n"
    "  lockstep export runs/adam --format onnx --out fashion.onnx\n"
    "      export the best checkpoint of a run, with the weights that `lockstep eval` would use\n"
    "  lockstep export runs/gpt --checkpoint latest --weights raw --out gpt.safetensors\n";

/// The format for the file's extension; nullopt for other extensions.
std::optional<ExportFormat> format_of_name(const std::filesystem::path& file) {
  const std::string end = file.extension().string();
  if (end == ".onnx") return ExportFormat::onnx;
  if (end == ".safetensors") return ExportFormat::safetensors;
  return std::nullopt;
}

}  // namespace

ExportOptions parse_export(const std::vector<std::string>& arguments) {
  ExportOptions options;
  OptionTable table("lockstep export");
  table.group("Input and output");
  const CheckpointRows checkpoint(table);
  static const std::vector<Choice<std::optional<ExportFormat>>> formats{{"onnx", ExportFormat::onnx},
                                                                        {"safetensors", ExportFormat::safetensors}};
  table.add_choice("format", options.format, "FORMAT", "file format; default: by the extension of --out", formats);
  table.add("out", options.out, "FILE", "file to write");
  static const std::vector<Choice<std::optional<bool>>> weights{{"average", true}, {"raw", false}};
  table.add_choice("weights", options.average, "WHICH",
                   "weights to write: average (the averaged weights) or raw (those of the last step); default: those "
                   "that the run validated with",
                   weights);
  table.add("force", options.force, "replace --out if it exists");
  read_options(table, arguments, kExportUsage, kExportExamples);
  table.check_relations();
  options.checkpoint = checkpoint.chosen();
  table.require("out", "name the file to write");
  if (!options.format) options.format = format_of_name(options.out);
  if (!options.format) table.require("format", "the end of --out does not say which: onnx or safetensors");
  return options;
}

}  // namespace lockstep::app
