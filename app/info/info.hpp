/// \file
/// `lockstep info`: what a shard folder, an HDF5 data file, a checkpoint or a run folder holds.
#pragma once

#include <filesystem>
#include <string>

#include "app/options/options.hpp"
#include "app/report/console.hpp"
#include "io/datasets/sharded_dataset.hpp"

namespace lockstep::app {

/// Runs as one process. Returns the exit code: 0, or 1 when something is damaged. Throws io::FileError for what cannot
/// be read at all.
int run_info(const InfoOptions& options);

/// Layout, values, shards; with `verify` the checksums of every shard and the count of each class. False when a shard
/// is damaged; its line says how, and the others are verified all the same. Throws io::FileError.
bool describe_dataset(Console& console, const io::DatasetOptions& data, bool verify);
/// What `pack` would make of a CSV file, and what it would refuse. Throws io::FileError.
void describe_table_file(Console& console, const std::filesystem::path& file);
/// The record and a table of tensors. Always verified: it is read whole. Throws io::FileError when it is damaged.
bool describe_checkpoint(Console& console, const std::filesystem::path& file);
/// One line for each checkpoint in the folder; with `verify` each is read. False when one is damaged.
bool describe_checkpoints(Console& console, const std::filesystem::path& folder, bool verify);
/// How the ranks of a run agree, where not all of them do in every step: "local=32, islands 4"; else "".
std::string agreement_text(const TrainOptions& options);
/// Configuration in brief, last metrics, checkpoints, owner. False when a checkpoint is damaged.
bool describe_run(Console& console, const std::filesystem::path& folder, bool verify);

}  // namespace lockstep::app
