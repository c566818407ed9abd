/// \file
/// Exit codes of the program.
#pragma once

namespace lockstep::app {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitWrongUsage = 2;
inline constexpr int kExitStoppedEarly = 75;  ///< EX_TEMPFAIL: requeue me

}  // namespace lockstep::app
