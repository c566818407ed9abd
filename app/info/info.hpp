/// \file
/// `lockstep info`: describes a shard folder, an HDF5 data file, a checkpoint, a run folder or a network.
#pragma once

#include <filesystem>
#include <string>

#include "app/info/info_options.hpp"
#include "app/options/train_options.hpp"
#include "app/report/console.hpp"
#include "io/datasets/sharded_dataset.hpp"

namespace lockstep::app {

/// Runs as one process. Returns the exit code: 0, or 1 if something is damaged. Throws io::FileError if it cannot be
/// read at all.
int run_info(const InfoOptions& options);

/// Describes layout, values and shards; with `verify` also checks the checksums of every shard and counts each class.
/// Returns false if a shard is damaged; its line describes the damage, and the others are verified nevertheless. Throws
/// io::FileError.
bool describe_dataset(Console& console, const io::DatasetOptions& data, bool verify);
/// Describes what `pack` would make of a CSV file, and what it would refuse. Throws io::FileError.
void describe_table_file(Console& console, const std::filesystem::path& file);
/// Prints the record and a table of tensors. Reads the whole file, so it always verifies it. Throws io::FileError if it
/// is damaged.
bool describe_checkpoint(Console& console, const std::filesystem::path& file);
/// Prints the network of a user's file for the samples that the options name: its operations, shapes, parameters and
/// memory. Throws UsageError for a network that cannot be made.
void describe_network_file(Console& console, const InfoOptions& options);
/// Prints one line for each checkpoint in the folder; with `verify` reads each. Returns false if one is damaged.
bool describe_checkpoints(Console& console, const std::filesystem::path& folder, bool verify);
/// Mode of agreement of a run, unless all ranks agree in every step: "local=32, islands 4"; otherwise "".
std::string agreement_text(const TrainOptions& options);
/// Prints a brief configuration, last metrics, checkpoints and owner. Returns false if a checkpoint is damaged.
bool describe_run(Console& console, const std::filesystem::path& folder, bool verify);

}  // namespace lockstep::app
