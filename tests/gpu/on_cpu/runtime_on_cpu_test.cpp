// Tests the asynchronous stand-in for CUDA's runtime: it keeps the order that streams and events require, no more, and
// finds each kind of fault that it is made for. A fault that it finds in any other test of this program fails that
// test.
#include "support/runtime_on_cpu.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/graph_recorder.hpp"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/staging.hpp"
#include "model/cuda/write_ring.hpp"
#include "support/cublaslt_on_cpu.hpp"

namespace lockstep::model::cuda {
namespace {

using lockstep::test::ignore_events;
using lockstep::test::order_streams;
using lockstep::test::take_stream_faults;
using testing::HasSubstr;
using testing::IsEmpty;

/// A new order for each test, from --seed on.
class StreamFaultsFailTests final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { order_streams(model::test::subject().seed + tests_++); }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& fault : take_stream_faults()) ADD_FAILURE() << fault;
    for (const std::string& why : lockstep::test::take_refusals()) ADD_FAILURE() << "a product with " << why;
  }
  std::uint64_t tests_ = 0;
};
[[maybe_unused]] const bool faults_fail_tests =
    (testing::UnitTest::GetInstance()->listeners().Append(new StreamFaultsFailTests), true);

/// Two streams, an event, and numbers in memory of the device and of the host.
class RuntimeOnCpu : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 64;

  void TearDown() override { ignore_events(false); }

  static cudaError_t fill(const Block& block, int value, const Stream& stream) {
    return cudaMemsetAsync(block.data(), value, kBytes, stream.get());
  }
  static cudaError_t copy_up(const Block& to, const Block& host, const Stream& stream) {
    return cudaMemcpyAsync(to.data(), host.data(), kBytes, cudaMemcpyHostToDevice, stream.get());
  }
  static cudaError_t copy_down(const Block& host, const Block& from, const Stream& stream) {
    return cudaMemcpyAsync(host.data(), from.data(), kBytes, cudaMemcpyDeviceToHost, stream.get());
  }
  void wait_for_first() {
    check(cudaEventRecord(event_.get(), first_.get()), "recording");
    check(cudaStreamWaitEvent(second_.get(), event_.get(), 0), "waiting");
  }
  static int byte_of(const Block& block) { return static_cast<const unsigned char*>(block.data())[kBytes - 1]; }
  void begin_capture() { check(cudaStreamBeginCapture(first_.get(), cudaStreamCaptureModeThreadLocal), "capturing"); }
  cudaError_t end_capture() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(first_.get(), &graph);
    graph_.reset(graph);
    return error;
  }

  DeviceMemory memory_{0};
  PinnedMemory pinned_{0};
  Block device_{memory_, kBytes}, other_{memory_, kBytes}, host_{pinned_, kBytes};
  Stream first_ = make_stream(), second_ = make_stream();
  Event event_ = make_event();
  Graph graph_;
};

TEST_F(RuntimeOnCpu, WorkWaitsForItsTurn) {
  order_streams(0);  // as late as possible
  fill(device_, 3, first_);
  copy_down(host_, device_, first_);
  EXPECT_NE(byte_of(host_), 3) << "nobody has waited for it";
  check(cudaStreamSynchronize(first_.get()), "waiting");
  EXPECT_EQ(byte_of(host_), 3);
}

TEST_F(RuntimeOnCpu, StreamsRunInOtherOrdersWhereNothingHoldsThem) {
  std::array<bool, 2> seen{};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    order_streams(3 * seed);
    fill(device_, 1, first_);
    fill(device_, 2, second_);
    check(cudaDeviceSynchronize(), "waiting");
    copy_down(host_, device_, first_);
    check(cudaStreamSynchronize(first_.get()), "waiting");
    seen.at(static_cast<std::size_t>(byte_of(host_) - 1)) = true;
    EXPECT_THAT(take_stream_faults(), testing::Contains(HasSubstr("missing event")));
  }
  EXPECT_TRUE(seen[0] && seen[1]) << "either was last";
}

TEST_F(RuntimeOnCpu, FindsAMissingEvent) {
  fill(device_, 1, first_);
  copy_down(host_, device_, second_);
  EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("a copy reads what a fill writes")));
  fill(device_, 2, first_);  // the second stream may still read this
  EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("a fill writes what a copy reads")));
}

/// The padding between the members of a kernel's argument, here in the word of `flag`, may hold bytes of an earlier
/// call.
struct PaddedArgument {
  void* pointer;
  bool flag;
};
__global__ void write_there(PaddedArgument to) { *static_cast<bool*>(to.pointer) = to.flag; }

TEST_F(RuntimeOnCpu, FindsPointersInTheMembersOfArgumentsAlone) {
  PaddedArgument argument{};
  const void* const left = other_.data();  // its last byte is 0, like `flag`
  std::memcpy(reinterpret_cast<std::byte*>(&argument) + sizeof(void*), &left, sizeof left);
  argument.pointer = device_.data();
  fill(other_, 1, first_);
  launch("write_there", write_there, {.blocks = 1, .parts = 1, .threads = 1}, second_.get(), argument);
  EXPECT_THAT(take_stream_faults(), IsEmpty());
  fill(device_, 1, first_);
  EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("a fill writes what write_there writes")));
}

TEST_F(RuntimeOnCpu, WhoAsksForAnEventLetsTimePass) {
  order_streams(0);
  fill(device_, 1, first_);
  fill(device_, 2, first_);
  copy_down(host_, device_, first_);
  check(cudaEventRecord(event_.get(), first_.get()), "recording");
  EXPECT_EQ(cudaEventQuery(event_.get()), cudaErrorNotReady);
  cudaError_t state = cudaErrorNotReady;
  for (int i = 0; i < 10 && state == cudaErrorNotReady; ++i) state = cudaEventQuery(event_.get());
  EXPECT_EQ(state, cudaSuccess);
  EXPECT_EQ(byte_of(host_), 2);
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, WhatOthersFinishHoldsUpItsStreamAlone) {
  bool begun = false, over = false;
  lockstep::test::enqueue_on_cpu(
      first_.get(), "a sum", {{device_.data(), kBytes, true}}, [&] { begun = true; }, [&] { return over; });
  check(cudaEventRecord(event_.get(), first_.get()), "recording");
  fill(other_, 7, second_);
  check(cudaStreamSynchronize(second_.get()), "waiting");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cudaEventQuery(event_.get()), cudaErrorNotReady);
  EXPECT_TRUE(begun);
  over = true;
  check(cudaStreamSynchronize(first_.get()), "waiting");
  EXPECT_EQ(cudaEventQuery(event_.get()), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, AGraphRecordsAnEventForThoseOutside) {
  const Event begin = make_timing_event(), end = make_timing_event();
  EXPECT_NE(cudaEventRecordWithFlags(begin.get(), first_.get(), cudaEventRecordExternal), cudaSuccess)
      << "outside of a capture";
  begin_capture();
  check(cudaEventRecordWithFlags(begin.get(), first_.get(), cudaEventRecordExternal), "recording");
  fill(device_, 1, first_);
  check(cudaEventRecordWithFlags(end.get(), first_.get(), cudaEventRecordExternal), "recording");
  check(end_capture(), "capturing");
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiate(&made, graph_.get(), 0), "preparing");
  const GraphExec executable(made);
  float time = -1;
  EXPECT_NE(cudaEventElapsedTime(&time, begin.get(), end.get()), cudaSuccess) << "never launched";
  check(cudaGraphLaunch(executable.get(), first_.get()), "launching");
  check(cudaStreamSynchronize(first_.get()), "waiting");
  EXPECT_EQ(cudaEventElapsedTime(&time, begin.get(), end.get()), cudaSuccess);
  EXPECT_GE(time, 0);
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, AnEventIsAnOrderInAnyOrderOfRunning) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    order_streams(seed);
    fill(device_, static_cast<int>(seed), first_);
    wait_for_first();
    fill(other_, 99, first_);  // continues without the second
    copy_down(host_, device_, second_);
    check(cudaStreamSynchronize(second_.get()), "waiting");
    EXPECT_EQ(byte_of(host_), static_cast<int>(seed));
    EXPECT_THAT(take_stream_faults(), IsEmpty());
  }
}

TEST_F(RuntimeOnCpu, FindsALateReuseOfPinnedMemory) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    order_streams(seed);
    std::memset(host_.data(), 1, kBytes);
    copy_up(device_, host_, first_);
    std::memset(host_.data(), 2, kBytes);
    check(cudaStreamSynchronize(first_.get()), "waiting");
    EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("late reuse")));
    copy_up(device_, host_, first_);
    check(cudaStreamSynchronize(first_.get()), "waiting");
    std::memset(host_.data(), 3, kBytes);
    check(cudaDeviceSynchronize(), "waiting");
    EXPECT_THAT(take_stream_faults(), IsEmpty());
  }
}

TEST_F(RuntimeOnCpu, FindsWorkOnTheDefaultStream) {
  EXPECT_NE(fill(device_, 1, nullptr), cudaSuccess);
  EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("default stream")));
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, RefusesWhatACaptureDoesNotAllow) {
  void* block = nullptr;
  std::vector<std::byte> pageable(kBytes);
  const Event outside = make_event();
  check(cudaEventRecord(outside.get(), second_.get()), "recording");
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls{
      {"waiting for a stream", [&] { return cudaStreamSynchronize(second_.get()); }},
      {"waiting for the device", [] { return cudaDeviceSynchronize(); }},
      {"waiting for an event", [&] { return cudaEventSynchronize(outside.get()); }},
      {"allocating", [&] { return cudaMalloc(&block, 1); }},
      {"locking memory", [&] { return cudaHostAlloc(&block, 1, 0); }},
      {"pageable memory",
       [&] { return cudaMemcpyAsync(device_.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, first_.get()); }},
      {"work outside of the capture", [&] { return cudaStreamWaitEvent(first_.get(), outside.get(), 0); }}};
  for (const auto& [what, call] : calls) {
    SCOPED_TRACE(what);
    begin_capture();
    fill(device_, 1, first_);
    EXPECT_NE(call(), cudaSuccess);
    EXPECT_EQ(end_capture(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph_, nullptr);
  }
  begin_capture();
  fill(device_, 1, first_);
  EXPECT_EQ(end_capture(), cudaSuccess) << "and nothing else";
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, FindsAForkThatIsNotJoined) {
  for (const bool joined : {false, true}) {
    begin_capture();
    fill(device_, 1, first_);
    wait_for_first();
    fill(other_, 2, second_);
    if (joined) {
      check(cudaEventRecord(event_.get(), second_.get()), "recording");
      check(cudaStreamWaitEvent(first_.get(), event_.get(), 0), "joining");
    }
    EXPECT_EQ(end_capture(), joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(second_.get(), &status), "asking");
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  }
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, FindsAMissingEventInACapture) {
  begin_capture();
  fill(device_, 1, first_);
  wait_for_first();
  fill(other_, 2, second_);
  copy_down(host_, other_, first_);
  EXPECT_THAT(take_stream_faults(), testing::ElementsAre(HasSubstr("another branch of the capture")));
  EXPECT_EQ(end_capture(), cudaErrorStreamCaptureUnjoined);
  static_cast<void>(cudaGetLastError());
}

TEST_F(RuntimeOnCpu, GraphsAreReplayedInTheirOrder) {
  GraphRecorder recorder(first_.get(), true);
  const Block sum(pinned_, kBytes);
  for (int step = 0; step < 20; ++step) {
    std::memset(host_.data(), step, kBytes);
    recorder.repeat({}, [&] {
      fill(device_, 77, first_);
      wait_for_first();
      copy_up(other_, host_, second_);
      check(cudaEventRecord(event_.get(), second_.get()), "recording");
      check(cudaStreamWaitEvent(first_.get(), event_.get(), 0), "joining");
      copy_down(sum, other_, first_);
    });
    check(cudaStreamSynchronize(first_.get()), "waiting");
    EXPECT_EQ(byte_of(sum), step);
  }
  recorder.forget();
}

// model/cuda waits for these because it must.

TEST_F(RuntimeOnCpu, StagingNeedsItsEvents) {
  for (const bool ignored : {false, true}) {
    ignore_events(ignored);
    Staging staging(memory_, 2, {.x = kBytes});
    for (int step = 0; step < 6; ++step) {
      const Batch batch = staging.stage(
          step % 2, {{host_.data(), ElementType::uint8, 1, static_cast<std::int64_t>(kBytes)}, {}, {}}, first_.get());
      check(cudaMemcpyAsync(device_.data(), batch.x.data, kBytes, cudaMemcpyDeviceToDevice, first_.get()), "using it");
      staging.release(step % 2, first_.get());
    }
    check(cudaDeviceSynchronize(), "waiting");
    const auto faults = take_stream_faults();
    EXPECT_EQ(faults.empty(), !ignored);
    EXPECT_THAT(faults, testing::Each(HasSubstr("missing event")));
  }
}

TEST_F(RuntimeOnCpu, TheWriteRingNeedsItsEvents) {
  order_streams(0);
  const Block many(memory_, 2 * WriteRing::kSlots);
  for (const bool ignored : {false, true}) {
    ignore_events(ignored);
    WriteRing ring(pinned_);
    for (std::size_t i = 0; i < 2 * WriteRing::kSlots; ++i) {
      const std::byte value{static_cast<unsigned char>(i)};
      ring.write(std::span(&value, 1), static_cast<std::byte*>(many.data()) + i, first_.get());
    }
    check(cudaStreamSynchronize(first_.get()), "waiting");
    const auto faults = take_stream_faults();
    EXPECT_EQ(faults.empty(), !ignored);
    EXPECT_THAT(faults, testing::Each(HasSubstr("late reuse")));
  }
}

}  // namespace
}  // namespace lockstep::model::cuda
