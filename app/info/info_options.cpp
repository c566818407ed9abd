#include "app/info/info_options.hpp"

#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kInfoUsage =
    "Usage: lockstep info PATH [options]\n"
    "\n"
    "Says what a shard folder, an HDF5 data file, a checkpoint or a run folder holds, and verifies its\n"
    "checksums. Exit code 1 when something is damaged. Of a network in a file, FILE.yaml, it shows the\n"
    "operations, for samples of --features or --image; the options of the network are options here, too.\n";

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
  table.group("What");
  table
      .add("path", options.path, "PATH",
           "shard folder, HDF5 file, checkpoint, run folder or network (FILE.yaml); --path itself may be left out")
      .positional();
  table.add("x", options.x, "NAME", "HDF5 dataset that holds the samples, for files made by others")
      .check(reject_empty);
  table.add("y", options.y, "NAME", "HDF5 dataset that holds the labels or targets").check(reject_empty);
  add_allow_fill(table, options.allow_fill);
  table.add("verify", options.verify, "recompute checksums");
  table.group("Networks");
  table.add("features", options.features, "N", "numbers per sample").at_least(1);
  table.add("outputs", options.outputs, "N", "classes, words of a vocabulary, or numbers to predict").at_least(1);
  add_image_option(table, options.image, "samples are images; instead of --features");
  table.add("svg", options.svg, "FILE", "draw the network's operations there");
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
