// Programs with this definition do not know their commit. `lockstep` has its own, made by program_commit.cmake.
#include "app/report/program_build.hpp"

const char* lockstep::app::program_commit() noexcept { return ""; }
