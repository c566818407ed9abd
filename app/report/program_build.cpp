#include "app/report/program_build.hpp"

namespace lockstep::app {

std::string program_version() { return LOCKSTEP_VERSION; }

std::string program_compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__ ", " LOCKSTEP_BUILD_TYPE;
#elif defined(__GNUC__)
  return "GCC " __VERSION__ ", " LOCKSTEP_BUILD_TYPE;
#else
  return LOCKSTEP_BUILD_TYPE;
#endif
}

}  // namespace lockstep::app
