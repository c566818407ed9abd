/// \file
/// Tells AddressSanitizer and ThreadSanitizer which stack is in use when fibers are switched; does nothing without
/// them. To ThreadSanitizer fibers are threads. A switch does not order them; hand_over() and take_over() do.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace lockstep::test {

/// The state of one fiber, or of the thread's own stack (which needs no prepare()).
class FiberSanitizers {
#if defined(__SANITIZE_ADDRESS__)
 public:
  void prepare(const void* stack, std::size_t bytes) { stack_ = stack, bytes_ = bytes, fake_ = nullptr; }
  /// Call it immediately before the switch to `to`.
  void leave(FiberSanitizers& to) {
    to.from_ = this;
    __sanitizer_start_switch_fiber(&fake_, to.stack_, to.bytes_);
  }
  /// Call it immediately after a switch to this fiber.
  void arrive() {
    __sanitizer_finish_switch_fiber(fake_, &from_->stack_, &from_->bytes_);
    fake_ = nullptr;
  }
  /// Announces that the stack will be reused.
  void abandon(const void* stack, std::size_t bytes) { __asan_unpoison_memory_region(stack, bytes); }

 private:
  const void* stack_ = nullptr;
  std::size_t bytes_ = 0;
  void* fake_ = nullptr;
  FiberSanitizers* from_ = nullptr;
#elif defined(__SANITIZE_THREAD__)
 public:
  /// Never released: a fiber that waits forever may not be destroyed.
  void prepare(const void*, std::size_t) { fiber_ = __tsan_create_fiber(0); }
  void leave(FiberSanitizers& to) {
    if (fiber_ == nullptr) fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.fiber_, __tsan_switch_to_fiber_no_sync);
  }
  void arrive() {}
  void abandon(const void*, std::size_t) {}

 private:
  void* fiber_ = nullptr;
#else
 public:
  void prepare(const void*, std::size_t) {}
  void leave(FiberSanitizers&) {}
  void arrive() {}
  void abandon(const void*, std::size_t) {}
#endif
};

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
/// Orders this fiber's accesses so far before those of a fiber that takes over `thing` later.
inline void hand_over(char& thing) { __tsan_release(&thing); }
inline void take_over(char& thing) { __tsan_acquire(&thing); }
/// During its lifetime, ThreadSanitizer ignores this fiber's reads and writes.
class Unwatched {
 public:
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};
#else
inline constexpr bool kThreadSanitizer = false;
inline void hand_over(char&) {}
inline void take_over(char&) {}
struct Unwatched {
  Unwatched() {}
  ~Unwatched() {}
};
#endif

}  // namespace lockstep::test
