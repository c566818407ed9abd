/// \file
/// Before the first step: what continues, what all ranks agree on, what the user is told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/console.hpp"
#include "app/options.hpp"
#include "app/placement.hpp"
#include "app/snapshot.hpp"
#include "app/workload.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// --verify auto recomputes the checksums of data up to here.
inline constexpr std::uint64_t kAlwaysVerifiedBytes = std::uint64_t{4} << 30;

/// Version and checksum of the running file: two builds of one version are told apart.
std::string program_fingerprint();

/// Collective. As comm::gather_distinct, without naming the ranks of what all of them say.
std::vector<std::string> gather_said(comm::Communicator& communicator, const std::string& text);

/// Collective. As comm::all_succeed, and a UsageError on any rank becomes a UsageError on all, with each distinct text
/// once.
void all_succeed_or_usage(comm::Communicator& communicator, const std::function<void()>& work);

/// Collective. The checkpoint that --resume stands for, or nothing: no --resume, or `auto` in a run folder that has no
/// checkpoint yet (a job that was requeued before its first one starts anew). A resumed run keeps its global batch
/// unless the user gives another. Also settles the name of a new run's folder.
std::optional<CheckpointOnRank0> find_checkpoint(comm::Communicator& communicator, Console& console,
                                                 TrainOptions& options);

/// `file` lies in the run's own checkpoints folder (a resume from elsewhere begins a new run folder).
bool is_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

/// Collective. Throws comm::AgreedError when the checkpoint is of another network, optimiser or dataset, UsageError
/// when it lacks the average that is asked for; tells of options that changed.
void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const TrainOptions& options, const Workload& workload);

/// Collective: compares the fingerprint over all ranks, prints topology, warnings and the plan on rank 0.
void agree_on_start(comm::Communicator& communicator, Console& console, const TrainOptions& options,
                    const Workload& workload, const Place& place, std::span<const comm::Slice> buckets);

/// Collective: recomputes the checksums of the shards, each by one rank, as --verify says.
void verify_data(comm::Communicator& communicator, Console& console, const TrainOptions& options,
                 const Workload& workload);

}  // namespace lockstep::app
