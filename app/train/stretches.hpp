/// \file
/// The life of a training job between its start and its end: one stretch of steps, and another one after each return to
/// a checkpoint (--roll-back).
#pragma once

#include <memory>
#include <optional>

#include "app/engine/divergence.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/signals.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/train/course.hpp"
#include "app/train/resume.hpp"
#include "app/train/run.hpp"
#include "app/train/wall_time.hpp"
#include "comm/communicator.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

class Stretches {
 public:
  /// Collective. Restores what `origin` holds, or begins anew, and takes the memory of a run; the plan begins there.
  /// All but `time_left` must outlive this. `speed`: what part of its own this rank computes at (Slowdown). Throws
  /// comm::AgreedError.
  Stretches(Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Origin& origin,
            const WallTime& time_left, double speed = 1);
  ~Stretches();
  Stretches(const Stretches&) = delete;
  Stretches& operator=(const Stretches&) = delete;

  /// Collective. `folder`: rank 0's, where it owns it already. The exit code. Throws Divergence where the run may not
  /// go back, comm::AgreedError where it went back too often.
  int train(std::optional<io::RunFolder> folder, StopSignals& signals);

 private:
  /// From a start or a checkpoint to the end, or to where training comes apart.
  class Stretch;

  io::TrainingRecord restore();
  void begin();
  void look_for_roll_back();
  void begin_servers();
  void open_folder(std::optional<io::RunFolder> folder, bool continues);
  void go_back(const Divergence& divergence);

  Plan& plan_;
  comm::Communicator& communicator_;
  Console& console_;
  Engine& engine_;
  Origin& origin_;
  WallTime time_left_;
  double speed_;
  io::TrainingRecord from_;  ///< rank 0's is the whole one
  Course course_;
  bool continues_, new_optimizer_ = false, new_batch_ = false;
  bool going_on_;                       ///< in this folder, and nothing has been restored yet
  std::optional<RollBack> unrecorded_;  ///< rank 0: that no checkpoint knows of
  std::unique_ptr<Stretch> stretch_;
};

}  // namespace lockstep::app
