/// \file
/// `lockstep info`: describes a shard folder, an HDF5 data file, a checkpoint, a run folder or a network.
#pragma once

#include <filesystem>
#include <string>

#include "app/info/info_options.hpp"
#include "app/report/console.hpp"
#include "io/datasets/sharded_dataset.hpp"

namespace lockstep::app {

/// Runs in one process. Returns the exit code: 0, or 1 if something is damaged. Throws io::FileError if the file or
/// folder cannot be read at all.
int run_info(const InfoOptions& options);

/// Describes layout, values and shards. With `verify`, also verifies the checksums of every shard and counts each
/// class. Returns false if a shard is damaged; the line of that shard describes the damage, and the others are still
/// verified. Throws io::FileError.
bool describe_dataset(Console& console, const io::DatasetOptions& data, bool verify);
/// Describes the result of `pack` for a CSV file, and what it would refuse. Throws io::FileError.
void describe_table_file(Console& console, const std::filesystem::path& file);
/// Prints the record and a table of tensors. Always verifies, because it reads the whole file. Throws io::FileError if
/// the file is damaged.
bool describe_checkpoint(Console& console, const std::filesystem::path& file);
/// Prints the network of a user's file for the samples that the options describe: operations, shapes, parameters and
/// memory. Throws UsageError for a network that cannot be built.
void describe_network_file(Console& console, const InfoOptions& options);
/// Prints one line for each checkpoint in the folder. With `verify`, reads each one. Returns false if one is damaged.
bool describe_checkpoints(Console& console, const std::filesystem::path& folder, bool verify);
/// Prints a short configuration, last metrics, checkpoints and owner. Returns false if a checkpoint is damaged.
bool describe_run(Console& console, const std::filesystem::path& folder, bool verify);

}  // namespace lockstep::app
