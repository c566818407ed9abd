/// \file
/// The device communicator on a GPU and an NCCL that are stand-ins, for nccl.sh: reduction_worker TRANSPORT CONDUCT.
/// Deadlines are 4 s. Exit 0: all is as expected; 3: refused at the start with the same message on all ranks; otherwise
/// it ends as lockstep does.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/device_communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/messages.hpp"
#include "comm/nccl/device_handles.hpp"
#include "comm/nccl/nccl_handle.hpp"
#include "mpi/nccl/nccl_on_cpu.hpp"
#include "support/runtime_on_cpu.hpp"

namespace {

using namespace lockstep::comm;
namespace test = lockstep::test;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

void require(cudaError_t error) { require(error == cudaSuccess, cuda_text(error)); }

void begin_capture(cudaStream_t stream) { require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); }

struct DestroyGraph {
  void operator()(CUgraphExec_st* graph) const noexcept { cudaGraphExecDestroy(graph); }
};

class Job {
 public:
  Job(MpiSession& session, Communicator& host, bool ring, WireFormat wire = WireFormat::fp32)
      : host_(host),
        communicator_(make_device_communicator(session, host,
                                               {.stream = stream_,
                                                .device = 0,
                                                .device_name = "Pretender 1",
                                                .wire = wire,
                                                // Rounding 64 MiB takes long beside other tests.
                                                .deadline_seconds = wire == WireFormat::bf16 ? 60.0 : 4.0,
                                                .ring = ring,
                                                .processors = 4})) {
    for (std::size_t i = 0; i < floats_.size(); ++i) floats_[i] = static_cast<float>(i % 1000);
  }

  Communicator& communicator() { return *communicator_; }

  void sum() {
    communicator_->all_reduce(std::span(floats_));
    communicator_->all_reduce(std::span(doubles_));
    communicator_->join();
  }
  void wait(std::int64_t step) { communicator_->wait("backward", step); }

  void check(double times) const {
    for (std::size_t i = 0; i < floats_.size(); ++i) {
      require(floats_[i] == static_cast<float>(i % 1000) * times, fmt::format("float {} is {}", i, floats_[i]));
    }
    for (const double value : doubles_) require(value == 0.5 * times, fmt::format("double is {}", value));
  }

  void sums() {
    const double ranks = host_.size();
    sum();
    wait(0);
    check(ranks);
    sum();
    communicator_->join();  // nothing to join
    wait(1);
    check(ranks * ranks);
    wait(2);  // nothing to wait for
    communicator_->all_reduce(std::span(floats_).first(0));
    communicator_->join();
    wait(3);
    std::vector<std::byte> bytes(100, static_cast<std::byte>(host_.rank()));
    communicator_->broadcast(bytes, host_.size() - 1);
    communicator_->barrier();
    communicator_->wait();
    require(bytes[99] == static_cast<std::byte>(host_.size() - 1), "broadcast");
    const auto memory = communicator_->reduction_memory(1000);
    communicator_->all_reduce(std::span(static_cast<float*>(memory->allocate(1000, 256)), 250));
    communicator_->wait();
    require(communicator_->exposed_seconds() >= 0 && communicator_->exposed_seconds() < 1, "exposed time");
    require(test::nccl_aborts() == 0, "no abort");
  }

  /// This rank's part of floats_: equal parts in whole cache lines, but for the last rank's.
  std::span<float> own() {
    const Slice slice = slice_of(floats_.size(), host_.rank(), host_.size());
    return std::span(floats_).subspan(slice.offset, slice.count);
  }
  /// A step of a shared update: owners add up their parts, change them and distribute them.
  void halves() {
    communicator_->reduce_scatter(floats_);
    communicator_->join();
  }
  void check_own(double times) {
    const auto offset = static_cast<std::size_t>(own().data() - floats_.data());
    for (std::size_t i = 0; i < own().size(); ++i) {
      const double expected = static_cast<double>((offset + i) % 1000) * times;
      require(own()[i] == static_cast<float>(expected), fmt::format("own float {} is {}", offset + i, own()[i]));
    }
  }
  void forget_others() {
    const std::vector<float> kept(own().begin(), own().end());
    std::ranges::fill(floats_, -1.0f);
    std::ranges::copy(kept, own().begin());
  }

  void shards() {
    const double ranks = host_.size();
    for (const std::size_t size : {std::size_t{10'000}, std::size_t{4800}, std::size_t{17}, std::size_t{0}}) {
      floats_.resize(size);
      for (std::size_t i = 0; i < size; ++i) floats_[i] = static_cast<float>(i % 1000);
      halves();
      wait(0);
      check_own(ranks);
      forget_others();
      communicator_->all_gather(std::span(floats_));
      communicator_->join();
      wait(1);
      for (std::size_t i = 0; i < size; ++i) {
        require(floats_[i] == static_cast<float>(i % 1000) * static_cast<float>(ranks),
                fmt::format("gathered float {} of {} is {}", i, size, floats_[i]));
      }
    }
    // Recorded and replayed.
    floats_.assign(1000, 1.0f);
    begin_capture(stream_);
    halves();
    communicator_->all_gather(std::span(floats_));
    communicator_->join();
    end_capture();
    for (int i = 0; i < 2; ++i) {
      replay();
      wait(2 + i);
      const double expected = i == 0 ? ranks : ranks * ranks;
      for (const float value : floats_) require(value == expected, fmt::format("replay {}: {}", i, value));
    }
    require(test::nccl_aborts() == 0, "no abort");
  }

  /// Sums larger than the staging buffer, with elements and sums that bfloat16 holds or rounds.
  void bf16() {
    require(communicator_->wire_format() == WireFormat::bf16, "the wire format");
    const auto ranks = static_cast<float>(host_.size());
    const std::size_t most = kDeviceStagingBytes / sizeof(std::uint16_t);
    large_.resize(most + 1001);
    const auto value = [](std::size_t i) { return i % 2 == 0 ? static_cast<float>(i % 64) : 257.0f; };  // 257: to 256
    for (std::size_t i = 0; i < large_.size(); ++i) large_[i] = value(i);
    communicator_->all_reduce(std::span(large_));
    wait(0);
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{63}, most - 1, most, large_.size() - 1}) {
      const float expected = (i % 2 == 0 ? value(i) : 256.0f) * ranks;
      require(large_[i] == expected, fmt::format("value {} is {}", i, large_[i]));
    }
    communicator_->all_reduce(std::span(doubles_));
    halves();
    wait(1);
    check_own(ranks);  // halves of sums travel unchanged
    for (const double sum : doubles_) require(sum == 0.5 * ranks, "doubles travel as they are");
    floats_.assign(1000, 257.0f);
    begin_capture(stream_);
    communicator_->all_reduce(std::span(floats_));
    communicator_->join();
    end_capture();
    require(floats_[0] == 257.0f, "recorded, not run");
    replay();
    wait(2);
    for (const float sum : floats_) require(sum == 256.0f * ranks, fmt::format("replayed sum {}", sum));
    require(test::nccl_aborts() == 0, "no abort");
  }

  /// A log that NCCL writes all the time needs no growing memory.
  void chatter() {
    for (int i = 0; i < 8; ++i) {
      test::chatter(10'000);
      sum();
      wait(i);
    }
    bool found = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      if (std::filesystem::read_symlink(entry.path(), closed).string().find("lockstep-nccl-log") == std::string::npos) {
        continue;
      }
      struct stat file {};
      require(stat(entry.path().c_str(), &file) == 0, "a look at the log");
      require(file.st_size > 4 << 20, fmt::format("{} bytes were written", file.st_size));
      require(file.st_blocks * 512 < 1 << 20, fmt::format("{} blocks are kept", file.st_blocks));
      found = true;
    }
    require(found, "a log");
  }

  void graph() {
    const double ranks = host_.size();
    sum();
    wait(0);
    begin_capture(stream_);
    sum();
    end_capture();
    check(ranks);  // recorded, not run
    const double before = communicator_->exposed_seconds();
    wait(1);
    require(communicator_->exposed_seconds() == before, "a graph that was not launched takes no time");
    double times = ranks;
    for (int i = 0; i < 3; ++i) {
      const double exposed = communicator_->exposed_seconds();
      replay();
      wait(2 + i);
      times *= ranks;
      check(times);
      require(communicator_->exposed_seconds() > exposed, "a launched graph takes time");
    }
    const double after = communicator_->exposed_seconds();
    sum();
    wait(9);
    require(communicator_->exposed_seconds() > after, "so does what is not recorded");
    sampled();
  }

  /// A wait for a step excludes later work.
  void steps() {
    const double ranks = host_.size();
    const auto refuses = [&](const auto& call) {
      try {
        call();
      } catch (const std::logic_error&) {
        return true;
      }
      return false;
    };
    require(refuses([&] { communicator_->wait_for_step("a step", 1); }), "there must be a step to wait for");
    communicator_->all_reduce(std::span(floats_));
    communicator_->end_step();
    require(refuses([&] { communicator_->end_step(); }), "one step may be left to wait for");
    require(refuses([&] { communicator_->wait("all", 2); }), "a wait for all wants none");
    communicator_->all_reduce(std::span(doubles_));
    const double before = communicator_->exposed_seconds();
    communicator_->wait_for_step("a step", 1);
    const double between = communicator_->exposed_seconds();
    communicator_->end_step();
    communicator_->wait_for_step("a step", 2);
    require(between > before && communicator_->exposed_seconds() > between, "each step has its exposed time");
    check(ranks);
    wait(3);
  }

  /// An event behind a sum that NCCL has not yet recorded would not wait for it: the stand-in finds that.
  [[noreturn]] static void records_too_early(Communicator& host) {
    const NcclId id = make_nccl_id(host);
    NcclHandle nccl(id, host.rank(), host.size(), 4);
    while (!nccl.ready()) continue;
    const DeviceStream stream = make_urgent_stream();
    const DeviceEvent done = make_event(cudaEventDisableTiming);
    std::vector<float> values(10, 1.0f);
    begin_capture(stream.get());
    nccl.start_sum(values.data(), values.size(), NcclHandle::Element::float32, stream.get());
    cudaEventRecord(done.get(), stream.get());
    std::_Exit(test::take_stream_faults().empty() ? 0 : 99);
  }

  /// After the first 7 steps the communicator reads the times of one step in 7, which stand for the others.
  void sampled() {
    for (int i = 0; i < 9; ++i) wait(10 + i);  // after 6 others: only the last is read, and takes no time
    const auto step = [&](std::int64_t number) {
      const std::size_t read = test::times_read();
      const double before = communicator_->exposed_seconds();
      sum();
      wait(number);
      return std::pair(test::times_read() > read, communicator_->exposed_seconds() - before);
    };
    const auto [first_read, first] = step(19);
    require(!first_read && first == 0, "a step between counts as the last that was read");
    for (int i = 0; i < 5; ++i) step(20 + i);
    const auto [second_read, second] = step(25);
    require(second_read && second > 0, "every 7th is read");
    for (int i = 0; i < 6; ++i) {
      const auto [read, exposed] = step(26 + i);
      require(!read && std::abs(exposed - second) < 1e-12, "the steps between count alike");
    }
    require(step(32).first, "then it is read again");
    require(step(-1).first, "what is no step is read");
  }

 private:
  Communicator& host_;
  void end_capture() {
    cudaGraph_t graph = nullptr;
    require(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable = nullptr;
    require(cudaGraphInstantiate(&executable, graph, 0));
    graph_.reset(executable);
    require(cudaGraphDestroy(graph));
  }
  void replay() { require(cudaGraphLaunch(graph_.get(), stream_)); }

  const DeviceStream owned_ = make_urgent_stream();
  const cudaStream_t stream_ = owned_.get();
  std::unique_ptr<CUgraphExec_st, DestroyGraph> graph_;
  // Longer-lived than the communicator, whose end runs what is still enqueued.
  std::vector<float> floats_ = std::vector<float>(10'000), large_;
  std::vector<double> doubles_ = std::vector<double>(9, 0.5);
  std::unique_ptr<Communicator> communicator_;
};

void work(MpiSession& session, Communicator& host, const std::string& conduct) {
  const bool second = session.rank() == 1;
  if (second && conduct == "init-fails") {
    test::nccl_faults().init_fails = true;
    test::nccl_faults().warning = "Call to ibv_create_qp failed";
  }
  if (second && conduct == "first-sum-wrong") test::nccl_faults().first_sum_wrong = true;
  if (conduct == "first-sum-stands-still") test::nccl_faults().sums_stand_still = true;
  if (conduct == "records-too-early") Job::records_too_early(host);
  Job job(session, host, conduct != "tree", conduct == "bf16" ? WireFormat::bf16 : WireFormat::fp32);
  fmt::print("rank {}: {}\n", session.rank(), job.communicator().description());
  const char* const nvls = std::getenv("NCCL_NVLS_ENABLE");
  require(nvls != nullptr && nvls == std::string_view("0"), "sums that repeat");
  if (conduct == "sums" || conduct == "tree") return job.sums();
  if (conduct == "graph") return job.graph();
  if (conduct == "steps") return job.steps();
  if (conduct == "shards") return job.shards();
  if (conduct == "bf16") return job.bf16();
  if (conduct == "chatter") return job.chatter();
  host.note_activity("forward", 7);
  if (second && conduct == "does-not-come") std::this_thread::sleep_for(std::chrono::seconds(20));
  if (second && conduct == "dies") _exit(0);
  if (second && conduct == "is-busy") {
    const LongOperation operation(host, "writing a checkpoint");
    std::this_thread::sleep_for(std::chrono::seconds(6));
  }
  if (conduct == "stands-still" || conduct == "nccl-fails") {
    test::nccl_faults().warning = "Got completion with error 12";
    test::chatter(20'000);
  }
  if (conduct == "stands-still") test::nccl_faults().sums_stand_still = true;
  host.note_activity("backward", 7);
  job.sum();
  if (session.rank() == 0 && conduct == "nccl-fails") test::nccl_faults().asynchronous_error = true;
  if (session.rank() == 0 && conduct == "device-fails") test::answer_queries(cudaErrorIllegalAddress);
  if (conduct == "device-stands-still") test::answer_queries(cudaErrorNotReady);
  job.wait(7);
  host.barrier();
  host.wait();
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  if (argc != 3) return 2;
  test::tell_faults();
  test::forbid_waits_for_others();
  try {
    const auto host = make_communicator(
        session,
        {.transport = argv[1] == std::string("ring") ? Transport::ring : Transport::automatic, .deadline_seconds = 4});
    try {
      work(session, *host, argv[2]);
      return 0;
    } catch (const ConsensusError& error) {
      for (const std::string& other : all_gather_text(*host, error.what()))
        require(other == error.what(), "same words");
      fmt::print("rank {}: refused: {}\n", session.rank(), error.what());
      host->barrier();
      host->wait();
      return 3;
    }
  } catch (const PeerError& error) {
    session.abort(1,
                  fmt::format("error on rank {} (aborts: {}): {}", session.rank(), test::nccl_aborts(), error.what()));
  } catch (const std::exception& error) {
    session.abort(4, fmt::format("error on rank {}: {}", session.rank(), error.what()));
  }
}
