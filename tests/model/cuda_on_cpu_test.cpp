// Tests the executor of tests/support/cuda_on_cpu.hpp: correct kernels run correctly, and it detects each documented
// kind of broken kernel.
#include "support/cuda_on_cpu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "support/fiber_sanitizers.hpp"

namespace lockstep::model::cuda {
namespace {

using lockstep::test::KernelFault;
using lockstep::test::order_threads;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kThreads = 96;

struct Floats {
  float values[kThreads];
};

/// Adds the numbers of a block by halving; correct.
__global__ void sum_by_halving(const float* in, float* out) {
  auto& all = shared<Floats>();
  all.values[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half && threadIdx.x + half < blockDim.x)
      all.values[threadIdx.x] += all.values[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = all.values[0];
}

/// The same without the first barrier.
__global__ void sum_without_barrier(const float* in, float* out) {
  auto& all = shared<Floats>();
  all.values[threadIdx.x] = in[threadIdx.x];
  for (unsigned half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half && threadIdx.x + half < blockDim.x)
      all.values[threadIdx.x] += all.values[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = all.values[0];
}

/// Four neighbours in one access, from element `first` on.
__global__ void write_pack(float* out, int first) { store_pack(Pack<float, 4>{{1, 2, 3, 4}}, true, out + first); }
__global__ void read_pack(float* out, int first) { out[0] = load_pack<4>(out + first, true).values[0]; }

/// Half of the threads skip the barrier.
__global__ void barrier_in_a_branch(float* out) {
  if (threadIdx.x < kThreads / 2) __syncthreads();
  out[threadIdx.x] = 1;
}

/// All threads reach a barrier, but not the same one.
__global__ void two_barriers(float* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void shuffle_without_all(float* out) {
  const auto value = static_cast<float>(threadIdx.x);
  if (threadIdx.x % kWarp != 5) out[threadIdx.x] = __shfl_xor_sync(kWholeWarp, value, 1);
}

__global__ void write_past_shared_memory() { shared<Floats>().values[0 + threadIdx.x * 2] = 1; }

/// A block reads what the previous block left in shared memory.
__global__ void read_what_was_left(float* out) {
  auto& all = shared<Floats>();
  if (blockIdx.x == 0) all.values[threadIdx.x] = 1;
  out[blockIdx.x * blockDim.x + threadIdx.x] = all.values[threadIdx.x];
}

__global__ void last_block_wins(float* out) {
  if (threadIdx.x == 0) *out = static_cast<float>(blockIdx.x);
}

/// Exchanges between the lanes of a warp.
__global__ void exchanges(int* out) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  int* const to = out + threadIdx.x * 6;
  to[0] = __shfl_xor_sync(kWholeWarp, lane, 5);
  to[1] = __shfl_down_sync(kWholeWarp, lane, 8);
  to[2] = __shfl_sync(kWholeWarp, lane * lane, 7);
  to[3] = static_cast<int>(__ballot_sync(kWholeWarp, lane % 3 == 0));
  __syncwarp();
  to[4] = __any_sync(kWholeWarp, lane == 40) + 2 * __all_sync(kWholeWarp, lane < 40);
  to[5] = static_cast<int>(__shfl_down_sync(kWholeWarp, lane + 0.5, 1) * 2);
}

__global__ void all_indices(unsigned* out) {
  out[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] =
      threadIdx.x + 100 * blockIdx.x + 10000 * blockIdx.y + 1000000 * gridDim.y;
}

/// Warps pass a number through shared memory twice. Without the second barrier, a fast warp overwrites a number that a
/// slow warp has not read.
template <bool kBarrier>
__global__ void pass_on(float* out) {
  auto& all = shared<Floats>();
  float value = static_cast<float>(threadIdx.x);
  for (int round = 0; round < 2; ++round) {
    value = __shfl_sync(kWholeWarp, value, 0) + 1;
    if (threadIdx.x % kWarp == 0) all.values[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = all.values[0] + all.values[1] + all.values[2];
    if constexpr (kBarrier) __syncthreads();
  }
  out[threadIdx.x] = value;
}

/// ThreadSanitizer ends the process with this code.
constexpr int kDataRace = 66;

TEST(CudaOnCpu, ShowsAWarpThatOverwritesWhatAnotherHasNotRead) {
  const auto results = [](void (*kernel)(float*)) {
    std::set<std::vector<float>> all;
    for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
      order_threads(seed);
      std::vector<float> out(kThreads);
      launch("pass_on", kernel, {.threads = kThreads, .shared_bytes = sizeof(Floats)}, nullptr, out.data());
      all.insert(out);
    }
    order_threads(0);
    return all;
  };
  EXPECT_EQ(results(pass_on<true>).size(), 1u);
  if (lockstep::test::kThreadSanitizer) {
    EXPECT_EXIT((results(pass_on<false>), std::exit(0)), testing::ExitedWithCode(kDataRace), "data race");
    return;
  }
  EXPECT_GT(results(pass_on<false>).size(), 1u);
}

TEST(CudaOnCpu, RunsEveryThreadOfEveryBlockInAnyOrder) {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    order_threads(seed);
    std::vector<unsigned> out(3 * 2 * 40);
    launch("all_indices", all_indices, {.blocks = 3, .parts = 2, .threads = 40}, nullptr, out.data());
    for (unsigned i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], i % 40 + 100 * (i / 40 % 3) + 10000 * (i / 120) + 2000000) << i;
    }
  }
  order_threads(0);
}

TEST(CudaOnCpu, RunsBarriersAndSharedMemory) {
  std::vector<float> in(5 * kThreads), out(5);
  std::iota(in.begin(), in.end(), 1.0f);
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    order_threads(seed);
    launch("sum_by_halving", sum_by_halving, {.blocks = 5, .threads = kThreads, .shared_bytes = sizeof(Floats)},
           nullptr, in.data(), out.data());
    for (std::size_t b = 0; b < 5; ++b) {
      const auto begin = in.begin() + static_cast<std::ptrdiff_t>(b * kThreads);
      EXPECT_EQ(out[b], std::accumulate(begin, begin + kThreads, 0.0f));
    }
  }
  order_threads(0);
}

TEST(CudaOnCpu, ExchangesBetweenLanes) {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    order_threads(seed);
    std::vector<int> out(kThreads * 6);
    launch("exchanges", exchanges, {.threads = kThreads}, nullptr, out.data());
    for (int t = 0; t < static_cast<int>(kThreads); ++t) {
      const int lane = t % 32;
      const int* const got = out.data() + t * 6;
      EXPECT_EQ(got[0], lane ^ 5);
      EXPECT_EQ(got[1], lane + 8 < 32 ? lane + 8 : lane);
      EXPECT_EQ(got[2], 49);
      EXPECT_EQ(static_cast<unsigned>(got[3]), 0x49249249u);
      EXPECT_EQ(got[4], 2);
      EXPECT_EQ(got[5], 2 * std::min(lane + 1, 31) + 1);
    }
  }
  order_threads(0);
}

/// Returns the distinct sums for several orders of threads; NaN counts as one result.
std::set<std::string> results_of(void (*kernel)(const float*, float*)) {
  std::vector<float> in(kThreads);
  std::iota(in.begin(), in.end(), 1.0f);
  std::set<std::string> results;
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u, 4u}) {
    order_threads(seed);
    float out = 0;
    launch("sum", kernel, {.threads = kThreads, .shared_bytes = sizeof(Floats)}, nullptr, in.data(), &out);
    results.insert(std::isnan(out) ? "nan" : std::to_string(out));
  }
  order_threads(0);
  return results;
}

TEST(CudaOnCpu, ShowsAMissingBarrier) {
  EXPECT_EQ(results_of(sum_by_halving), std::set<std::string>{"4656.000000"});
  if (lockstep::test::kThreadSanitizer) {  // its threads run in any order
    EXPECT_EXIT((results_of(sum_without_barrier), std::exit(0)), testing::ExitedWithCode(kDataRace), "data race");
    return;
  }
  const auto results = results_of(sum_without_barrier);
  EXPECT_GT(results.size(), 1u) << "orders must differ";
  EXPECT_TRUE(results.contains("nan")) << "shared memory that nobody has written must show";
}

std::string fault_of(const std::function<void()>& run) {
  for (const std::uint32_t seed : {0u, 1u, 5u}) {
    order_threads(seed);
    try {
      run();
      order_threads(0);
      return "no fault";
    } catch (const KernelFault& fault) {
      order_threads(0);
      if (seed == 5) return fault.what();
    }
  }
  return "unreachable";
}

TEST(CudaOnCpu, FindsABarrierThatNotAllReach) {
  std::vector<float> out(kThreads);
  EXPECT_THAT(fault_of([&] {
                launch("barrier_in_a_branch", barrier_in_a_branch, {.blocks = 2, .threads = kThreads}, nullptr,
                       out.data());
              }),
              AllOf(HasSubstr("kernel barrier_in_a_branch"), HasSubstr("48 ended"),
                    HasSubstr("48 wait at the barrier in cuda_on_cpu_test.cpp:")));
  EXPECT_THAT(fault_of([&] { launch("two_barriers", two_barriers, {.threads = kThreads}, nullptr, out.data()); }),
              HasSubstr("of 96 48 wait at the barrier in"));
  // Kernels run normally after a fault.
  EXPECT_EQ(results_of(sum_by_halving).size(), 1u);
}

TEST(CudaOnCpu, EndsAtAPackThatIsNotAligned) {
  alignas(16) std::array<float, 8> out{};
  launch("write_pack", write_pack, {}, nullptr, out.data(), 4);
  EXPECT_EQ(out[7], 4);
  launch("read_pack", read_pack, {}, nullptr, out.data(), 4);
  EXPECT_EQ(out[0], 1);
  EXPECT_DEATH(launch("write_pack", write_pack, {}, nullptr, out.data(), 2), "a pack that is not aligned");
  EXPECT_DEATH(launch("read_pack", read_pack, {}, nullptr, out.data(), 1), "a pack that is not aligned");
}

TEST(CudaOnCpu, FindsAShuffleThatNotAllReach) {
  std::vector<float> out(kThreads);
  EXPECT_THAT(
      fault_of([&] { launch("shuffle_without_all", shuffle_without_all, {.threads = kThreads}, nullptr, out.data()); }),
      AllOf(HasSubstr("3 ended"), HasSubstr("93 wait at the shuffle in cuda_on_cpu_test.cpp:")));
}

TEST(CudaOnCpu, FindsWritesPastSharedMemory) {
  EXPECT_THAT(fault_of([&] {
                launch("past", write_past_shared_memory, {.threads = kThreads, .shared_bytes = sizeof(Floats)},
                       nullptr);
              }),
              HasSubstr("wrote past its 384 bytes of shared memory"));
}

TEST(CudaOnCpu, KeepsNothingFromBlockToBlock) {
  std::vector<float> out(2 * kThreads);
  launch("left", read_what_was_left, {.blocks = 2, .threads = kThreads, .shared_bytes = sizeof(Floats)}, nullptr,
         out.data());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i >= kThreads) << i;
}

TEST(CudaOnCpu, OrdersBlocksToo) {
  std::set<float> winners;
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u, 4u}) {
    order_threads(seed);
    float out = -1;
    launch("last_block_wins", last_block_wins, {.blocks = 50, .threads = 32}, nullptr, &out);
    winners.insert(out);
  }
  order_threads(0);
  EXPECT_GT(winners.size(), 2u);
}

TEST(CudaOnCpu, RefusesGridsThatAGpuRefuses) {
  float out = 0;
  for (const Grid& grid : {Grid{.blocks = 0, .threads = 32}, Grid{.threads = 1025}, Grid{.threads = 0},
                           Grid{.parts = 65536, .threads = 32}, Grid{.threads = 32, .shared_bytes = 49 * 1024},
                           Grid{.threads = 32, .shared_bytes = 228 * 1024, .shared_limit = SharedLimit::of_device}}) {
    EXPECT_THROW(launch("refused", last_block_wins, grid, nullptr, &out), DeviceError);
  }
  launch("taken", last_block_wins, {.threads = 32, .shared_bytes = 227 * 1024, .shared_limit = SharedLimit::of_device},
         nullptr, &out);
}

}  // namespace
}  // namespace lockstep::model::cuda
