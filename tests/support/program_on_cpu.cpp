// Gives lockstep the GPU stand-ins of this folder: eight devices, and an order of streams with the seed LOCKSTEP_ORDER
// plus the rank. LOCKSTEP_PLANT injects faults: with "events", nothing waits for events; with "refusals", cuBLASLt
// refuses the algorithms that it proposes. If the stand-ins find a fault, the program ends with exit code 97.
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
