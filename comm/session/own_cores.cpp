#include "comm/session/own_cores.hpp"

#include <cerrno>
#include <memory>

#include <sched.h>

namespace lockstep::comm {

std::vector<int> own_cores() {
  // The kernel refuses a mask shorter than its own, and the C library's type ends at 1,024 cores.
  constexpr int kMax = 1 << 20;
  std::vector<int> cores;
  for (int count = CPU_SETSIZE; count <= kMax; count *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(CPU_ALLOC(count),
                                                                [](cpu_set_t* set) { CPU_FREE(set); });
    if (mask == nullptr) break;
    CPU_ZERO_S(bytes, mask.get());
    if (sched_getaffinity(0, bytes, mask.get()) == 0) {
      for (int core = 0; core < count; ++core) {
        if (CPU_ISSET_S(core, bytes, mask.get())) cores.push_back(core);
      }
      break;
    }
    if (errno != EINVAL) break;
  }
  return cores;
}

}  // namespace lockstep::comm
