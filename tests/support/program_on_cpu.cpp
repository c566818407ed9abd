// Gives lockstep the stand-ins of this folder as GPUs: eight to choose from, an order of streams with the number in
// LOCKSTEP_ORDER, and planted faults with LOCKSTEP_PLANT ("events": nothing waits for any; "refusals": cuBLASLt refuses
// all its proposals). A fault that the stand-ins find ends the program with 97.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/cublaslt_on_cpu.hpp"
#include "support/runtime_on_cpu.hpp"

namespace {

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Verdict {
 public:
  Verdict() {
    lockstep::test::tell_faults();
    lockstep::test::pretend_devices(8);
    lockstep::test::order_streams(std::strtoull(variable("LOCKSTEP_ORDER"), nullptr, 10) +
                                  std::strtoull(variable("OMPI_COMM_WORLD_RANK"), nullptr, 10));
    lockstep::test::ignore_events(std::string_view(variable("LOCKSTEP_PLANT")) == "events");
    lockstep::test::refuse_proposals(std::string_view(variable("LOCKSTEP_PLANT")) == "refusals" ? 8 : 0);
  }
  Verdict(const Verdict&) = delete;
  Verdict& operator=(const Verdict&) = delete;
  ~Verdict() {
    const auto refusals = lockstep::test::take_refusals();
    for (const auto& why : refusals) std::fprintf(stderr, "found on the stand-ins: a product with %s\n", why.c_str());
    const bool found = !refusals.empty() || !lockstep::test::take_stream_faults().empty();
    if (found) std::_Exit(97);
  }
};
const Verdict verdict;

}  // namespace
