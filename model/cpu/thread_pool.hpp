/// \file
/// A fixed team of threads for the CPU backend. The division of work into parts is static, so results do not depend on
/// timing. With one thread there are no helpers and no synchronisation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "model/slice.hpp"

namespace lockstep::model::cpu {

/// Returns part `part` of `parts` nearly equal parts of [0, count), aligned to multiples of `granule`.
constexpr Slice part_of(std::size_t count, std::size_t granule, std::size_t part, std::size_t parts) noexcept {
  const std::size_t granules = (count + granule - 1) / granule;
  const auto cut = [&](std::size_t i) {
    const std::size_t end = granules * i / parts * granule;
    return end < count ? end : count;
  };
  return {cut(part), cut(part + 1) - cut(part)};
}

class ThreadPool {
 public:
  /// Starts threads - 1 helpers. The caller is thread 0 of the team.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const noexcept { return helpers_.size() + 1; }

  /// Calls work(part) for every part in [0, size()), each on its own thread, and returns when all are done. `work` must
  /// not throw. Not thread-safe: one caller at a time. Costs a few microseconds. Idle helpers spin for about that long,
  /// then sleep.
  template <class Work>
  void run(const Work& work) {
    if (helpers_.empty()) {
      work(std::size_t{0});
      return;
    }
    start([](const void* context, std::size_t part) { (*static_cast<const Work*>(context))(part); }, &work);
    work(std::size_t{0});
    finish();
  }

  /// Calls work(begin, end) for parts of [0, count), aligned to multiples of `granule`. Uses only the calling thread if
  /// count is below `threshold`.
  template <class Work>
  void split(std::size_t count, std::size_t granule, std::size_t threshold, const Work& work) {
    if (helpers_.empty() || count < threshold) {
      if (count > 0) work(std::size_t{0}, count);
      return;
    }
    run([&](std::size_t part) {
      const Slice range = part_of(count, granule, part, size());
      if (range.count > 0) work(range.offset, range.end());
    });
  }

 private:
  using Call = void (*)(const void* context, std::size_t part);

  void start(Call call, const void* context);
  void finish();
  void serve(std::size_t part);

  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<std::uint32_t> round_{0};  ///< changes for each piece of work; helpers wait for that
  std::atomic<std::uint32_t> busy_{0};   ///< helpers that have not finished this round
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> helpers_;  ///< last: joined before the members that they use are destroyed
};

}  // namespace lockstep::model::cpu
