#include "app/info/info_options.hpp"

#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kInfoUsage =
    "Usage: lockstep info PATH [options]\n"
    "\n"
    "Describes a shard folder, an HDF5 data file, a checkpoint or a run folder, and verifies checksums.\n"
    "Exit code 1 means damage. For a network (FILE.yaml), shows the operations for samples of --features\n"
    "or --image, and accepts the options of the network.\n";

}  // namespace

InfoOptions parse_info(const std::vector<std::string>& arguments) {
  InfoOptions options;
  for (const std::string& argument : arguments) {
    std::error_code unknown;
    const bool is_network = argument.ends_with(".yaml") || argument.ends_with(".yml");
    if (options.network.source != nullptr || argument.starts_with("-") || !is_network) continue;
    if (!std::filesystem::is_regular_file(argument, unknown)) continue;
    options.network.source = read_network_file(argument);
    options.network.name = argument;
  }
  OptionTable table("lockstep info");
  table.group("Input");
  table
      .add("path", options.path, "PATH",
           "shard folder, HDF5 file, checkpoint, run folder or network (FILE.yaml); the name --path may be omitted")
      .positional();
  table.add("x", options.x, "NAME", "HDF5 dataset of the samples, for files from other programs").check(reject_empty);
  table.add("y", options.y, "NAME", "HDF5 dataset of the labels or targets, for files from other programs")
      .check(reject_empty);
  add_allow_fill(table, options.allow_fill);
  table.add("verify", options.verify, "recompute the checksums");
  table.group("Networks (FILE.yaml)");
  table.add("features", options.features, "N", "numbers per sample").at_least(1);
  table.add("outputs", options.outputs, "N", "classes, words of the vocabulary, or numbers to predict").at_least(1);
  add_image_option(table, options.image, "shape of samples that are images; instead of --features");
  table.add("svg", options.svg, "FILE", "draw the network's operations in FILE");
  if (options.network.source != nullptr) {
    add_options_of_file(table, options.network);
    require_fitting_names(table, *options.network.source);
  }
  read_options(table, arguments, kInfoUsage, "");
  table.require("path", "name a shard folder, a checkpoint or a run folder");
  if (!options.svg.empty() && options.network.source == nullptr) {
    throw UsageError("--svg draws a network: name its file (FILE.yaml)");
  }
  if (options.network.source != nullptr) settle_network_options(table, options.network);
  return options;
}

}  // namespace lockstep::app
