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
  /// Collective. Restores the checkpoint of `origin`, or starts at step 0, and allocates the memory of a run; the plan
  /// begins there. All references must outlive this object. `speed`: fraction of this rank's own speed (Slowdown).
  /// Throws comm::AgreedError.
  Stretches(Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Origin& origin,
            const WallTime& time_left, double speed = 1);
  ~Stretches();
  Stretches(const Stretches&) = delete;
  Stretches& operator=(const Stretches&) = delete;

  /// Collective. `folder`: rank 0's, if it owns it already. Returns the exit code. Throws Divergence if the run may not
  /// roll back, comm::AgreedError if it has rolled back too often.
  int train(std::optional<io::RunFolder> folder, StopSignals& signals);

 private:
  /// The steps from a start or a checkpoint to the end, or to a divergence.
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
  io::TrainingRecord from_;  ///< complete on rank 0 only
  Course course_;
  bool continues_, new_optimizer_ = false, new_batch_ = false;
  bool going_on_;                       ///< the run continues in its folder, and nothing has been restored yet
  std::optional<RollBack> unrecorded_;  ///< rank 0: a roll-back that no checkpoint contains
  std::unique_ptr<Stretch> stretch_;
};

}  // namespace lockstep::app
