/// \file
/// What a job is going to do: everything that follows from options, data and world, decided once and before any memory
/// is taken. Nobody changes a plan.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/plan/placement.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

struct Plan {
  TrainOptions settings;  ///< the options, with what was decided in the place of what is automatic
  Workload workload;
  Place place;  ///< of this rank
  model::LearningRateSchedule schedule;
  std::vector<comm::Slice> buckets;  ///< of gradients
  model::MemoryPlan memory;          ///< of the rank that takes most
  int checkpoint_writers = 1;        ///< ranks that write a checkpoint together
};

/// What a run begins with, known once its folder has been looked at.
struct RunStart {
  std::filesystem::path folder;                ///< of the run
  const io::TrainingRecord* record = nullptr;  ///< of the checkpoint that it goes on from
  bool takes_folder_over = false;              ///< whatever it holds
  io::IoDeadline* deadline = nullptr;          ///< of the data's files; outlives the plan
};

/// Collective: the one place where options become a plan. A resumed run keeps its global batch unless the user gives
/// another. Throws UsageError and comm::AgreedError, alike on every rank.
Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const RunStart& start);
/// What is left of it once workload and place are known. Throws UsageError.
Plan complete_plan(const comm::Communicator& communicator, TrainOptions settings, Workload workload,
                   const Place& place);

/// The plan as text for rank 0; --dry-run ends after it. Layers, parameters, memory per rank, FLOPs per step,
/// optimiser, learning rate, loss, input, what the network's defaults decided, buckets, the amount of work.
std::string format_plan(const Plan& plan, const comm::Communicator& communicator);

/// A layer as backward meets it.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< of its gradients in the arena, elements, ascending; may be empty
};

/// Layers in the order of the backward pass: after one of them everything up to its last slice end is final. The last
/// one brings what becomes final with the whole pass: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. The same as a file, a JSON object a line. Throws comm::AgreedError where it cannot be written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
