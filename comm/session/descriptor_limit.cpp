#include "comm/session/descriptor_limit.hpp"

#include <sys/resource.h>

namespace lockstep::comm {

std::uint64_t raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit all{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &all) == 0 ? all.rlim_cur : limit.rlim_cur;
}

}  // namespace lockstep::comm
