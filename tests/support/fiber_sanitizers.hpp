/// \file
/// Tells AddressSanitizer and ThreadSanitizer which stack is in use when fibers are switched; nothing without them.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep::test {

/// Of one fiber, or of the thread's own stack (which needs no prepare()).
class FiberSanitizers {
#if defined(__SANITIZE_ADDRESS__)
 public:
  void prepare(const void* stack, std::size_t bytes) { stack_ = stack, bytes_ = bytes, fake_ = nullptr; }
  /// The next thing is the switch to `to`.
  void leave(FiberSanitizers& to) {
    to.from_ = this;
    __sanitizer_start_switch_fiber(&fake_, to.stack_, to.bytes_);
  }
  /// The first thing after a switch to this one.
  void arrive() {
    __sanitizer_finish_switch_fiber(fake_, &from_->stack_, &from_->bytes_);
    fake_ = nullptr;
  }
  /// The stack will be used afresh.
  void abandon(const void* stack, std::size_t bytes) { __asan_unpoison_memory_region(stack, bytes); }

 private:
  const void* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* fake_ = nullptr;
  FiberSanitizers* from_ = nullptr;
#elif defined(__SANITIZE_THREAD__)
 public:
  FiberSanitizers() = default;
  FiberSanitizers(const FiberSanitizers&) = delete;
  FiberSanitizers& operator=(const FiberSanitizers&) = delete;
  ~FiberSanitizers() { forget(); }
  void prepare(const void*, std::size_t) {
    forget();
    fiber_ = __tsan_create_fiber(0);
    is_own_ = true;
  }
  void leave(FiberSanitizers& to) {
    if (fiber_ == nullptr) fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.fiber_, 0);
  }
  void arrive() {}
  void abandon(const void*, std::size_t) {}

 private:
  void forget() {
    if (is_own_) __tsan_destroy_fiber(fiber_);
    is_own_ = false;
  }
  void* fiber_ = nullptr;
  bool is_own_ = false;
#else
 public:
  void prepare(const void*, std::size_t) {}
  void leave(FiberSanitizers&) {}
  void arrive() {}
  void abandon(const void*, std::size_t) {}
#endif
};

}  // namespace lockstep::test
