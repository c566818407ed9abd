/// \file
/// The state in which steps begin: at step 0, at a checkpoint, or after a return to one.
#pragma once

#include <optional>
#include <vector>

#include "app/engine/divergence.hpp"
#include "app/engine/engine.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/train/course.hpp"
#include "app/train/resume.hpp"
#include "comm/communicator.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

struct Start {
  io::TrainingRecord record;  ///< record of the steps before; complete on rank 0 only
  Course course;
  bool continues = false;               ///< the run's folder has the checkpoint of these steps
  bool rolled_back = false;             ///< this process has made steps before
  std::vector<io::MetricRecord> notes;  ///< events that no checkpoint contains yet
};

/// Collective. Restores the checkpoint of `origin`, which it releases, or initialises the weights; the plan begins
/// there. `before`: the course of this process until its roll-back. Throws comm::AgreedError.
Start restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, Origin& origin,
              const std::optional<Course>& before = {});

/// The course after another roll-back. Throws comm::AgreedError if --roll-back allows no more.
Course course_after(const Divergence& divergence, const Course& before, const RunOptions& options);

}  // namespace lockstep::app
