#include "comm/host/schedule_times.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

namespace lockstep::comm {
namespace {

constexpr std::array kSchedules{AllReduceSchedule::doubling, AllReduceSchedule::halving, AllReduceSchedule::ring};
constexpr std::size_t kFirstBytes = std::size_t{1} << 10, kLastBytes = std::size_t{4} << 20;
constexpr int kRounds = 5;
constexpr double kBatchSeconds = 2e-3;  // time of a batch of small sums
constexpr std::int64_t kMaxSums = 50;
constexpr double kAllSeconds = 1;  // after this time no larger sums
/// The ring counts as the fastest if it leads by this factor at two sizes.
constexpr double kClearly = 1.25;

using Clock = std::chrono::steady_clock;

class Timing {
 public:
  Timing(Communicator& communicator, const std::function<void(AllReduceSchedule)>& take)
      : communicator_(communicator),
        take_(take),
        memory_(communicator.reduction_memory(kLastBytes)),
        values_(static_cast<float*>(memory_->allocate(kLastBytes, alignof(std::max_align_t)))) {
    std::fill_n(values_, kLastBytes / sizeof(float), 0.0F);
  }
  ~Timing() { memory_->deallocate(values_, kLastBytes, alignof(std::max_align_t)); }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

  /// Seconds per sum, for `sums` consecutive ones; the ranks' mean.
  double seconds(AllReduceSchedule schedule, std::size_t bytes, std::int64_t sums) {
    take_(schedule);
    communicator_.barrier();
    communicator_.wait();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < sums; ++i) {
      communicator_.all_reduce(std::span(values_, bytes / sizeof(float)));
      communicator_.wait();
    }
    double taken = std::chrono::duration<double>(Clock::now() - start).count();
    communicator_.all_reduce(std::span(&taken, 1));
    communicator_.wait();
    return taken / (static_cast<double>(communicator_.size()) * static_cast<double>(sums));
  }

 private:
  Communicator& communicator_;
  const std::function<void(AllReduceSchedule)>& take_;
  std::unique_ptr<std::pmr::memory_resource> memory_;
  float* values_;
};

double median(std::array<double, kRounds> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

}  // namespace

std::vector<ScheduleSeconds> time_schedules(Communicator& communicator,
                                            const std::function<void(AllReduceSchedule)>& take) {
  communicator.note_activity("timing all-reduces", -1);  // -1: no step
  Timing timing(communicator, take);
  std::vector<ScheduleSeconds> sizes;
  double all = 0;
  int ahead = 0;
  for (std::size_t bytes = kFirstBytes; bytes <= kLastBytes && all < kAllSeconds && ahead < 2; bytes *= 2) {
    std::array<std::int64_t, kSchedules.size()> sums{};
    for (std::size_t i = 0; i < kSchedules.size(); ++i) {
      const double once = timing.seconds(kSchedules[i], bytes, 1);
      sums[i] = std::clamp(static_cast<std::int64_t>(kBatchSeconds / std::max(once, 1e-9)), std::int64_t{1}, kMaxSums);
      all += once;
    }
    std::array<std::array<double, kRounds>, kSchedules.size()> seconds{};
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t turn = 0; turn < kSchedules.size(); ++turn) {
        const std::size_t i = (turn + round) % kSchedules.size();
        seconds[i][round] = timing.seconds(kSchedules[i], bytes, sums[i]);
        all += seconds[i][round] * static_cast<double>(sums[i]);
      }
    }
    ScheduleSeconds size{.bytes = bytes, .seconds = {}};
    std::ranges::transform(seconds, size.seconds.begin(), median);
    const double others = std::min(size.by(AllReduceSchedule::doubling), size.by(AllReduceSchedule::halving));
    ahead = others > kClearly * size.by(AllReduceSchedule::ring) ? ahead + 1 : 0;
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace lockstep::comm
