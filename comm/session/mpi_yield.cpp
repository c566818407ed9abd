#include "comm/session/mpi_yield.hpp"

#include <dlfcn.h>

namespace lockstep::comm {

// Open MPI has no public function for this. The internal one exists in all versions from 1.3 to 5.
MpiYield::MpiYield()
    : set_(reinterpret_cast<Set*>(dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"))),
      usual_(set_ != nullptr && set_(false)) {}

MpiYield::~MpiYield() {
  if (set_ != nullptr) set_(usual_);
}

MpiYield::WhileBlocking::WhileBlocking(const MpiYield* yield) noexcept
    : yield_(yield != nullptr && yield->set_ != nullptr ? yield : nullptr) {
  if (yield_ != nullptr) yield_->set_(yield_->usual_);
}

MpiYield::WhileBlocking::~WhileBlocking() {
  if (yield_ != nullptr) yield_->set_(false);
}

}  // namespace lockstep::comm
