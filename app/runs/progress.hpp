/// \file
/// The horizontal axis of charts of runs.
#pragma once

namespace lockstep::app {

enum class Progress {
  automatic,  ///< steps; epochs if the number of steps in an epoch differs
  steps,
  epochs,
  time,  ///< seconds of training, validation and waiting for checkpoints, without the time between launches
};

}  // namespace lockstep::app
