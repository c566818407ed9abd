/// \file
/// What runs are drawn along.
#pragma once

namespace lockstep::app {

enum class Progress {
  automatic,  ///< steps, or epochs where the number of steps in an epoch differs
  steps,
  epochs,
  time,  ///< seconds of training, validations and waits for checkpoints, without the time between launches
};

}  // namespace lockstep::app
