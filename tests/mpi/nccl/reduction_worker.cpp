/// \file
/// Device sums on a pretended GPU, for nccl.sh: reduction_worker CONDUCT. Deadlines are 4 s. Exit 0: all was as it
/// should be; 3: refused at the start in the same words on all ranks; otherwise it ends as lockstep does.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/reduction.hpp"
#include "mpi/nccl/pretended_gpu.hpp"

namespace {

using namespace lockstep::comm;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

class Job {
 public:
  Job(MpiSession& session, Communicator& host, bool ring)
      : host_(host),
        reduction_(make_device_reduction(session, host,
                                         {.stream = stream_,
                                          .device = 0,
                                          .device_name = "Pretender 1",
                                          .deadline_seconds = 4,
                                          .ring = ring,
                                          .processors = 4})) {
    for (std::size_t i = 0; i < floats_.size(); ++i) floats_[i] = static_cast<float>(i % 1000);
  }

  Reduction& reduction() { return *reduction_; }

  void sum() {
    reduction_->sum(std::span(floats_));
    reduction_->sum(std::span(doubles_));
    reduction_->join();
  }
  void wait(std::int64_t step) { reduction_->wait("backward", step); }

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
    reduction_->join();  // nothing to join
    wait(1);
    check(ranks * ranks);
    wait(2);  // nothing to wait for
    std::vector<std::uint16_t> halves(10, 3);
    reduction_->sum_bf16(halves);
    reduction_->sum(std::span(floats_).first(0));
    reduction_->join();
    wait(3);
    require(halves[9] == 3 * host_.size(), "bfloat16");
    require(reduction_->exposed_seconds() >= 0 && reduction_->exposed_seconds() < 1, "exposed time");
    require(pretended::aborts() == 0, "no abort");
  }

  /// What this rank owns of floats_: equal parts but for the last rank's, in whole cache lines.
  std::span<float> own() {
    const Slice slice = shard_of(floats_.size(), host_.rank(), host_.size());
    return std::span(floats_).subspan(slice.offset, slice.count);
  }
  /// A step of a shared update: owners add up their parts, change them, bring them to the others.
  void halves() {
    reduction_->scatter_sum(floats_, {});
    reduction_->join();
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
      reduction_->gather(floats_);
      reduction_->join();
      wait(1);
      for (std::size_t i = 0; i < size; ++i) {
        require(floats_[i] == static_cast<float>(i % 1000) * static_cast<float>(ranks),
                fmt::format("gathered float {} of {} is {}", i, size, floats_[i]));
      }
    }
    // Recorded and replayed.
    floats_.assign(1000, 1.0f);
    pretended::begin_capture(stream_);
    halves();
    reduction_->gather(floats_);
    reduction_->join();
    pretended::end_capture(stream_);
    for (int i = 0; i < 2; ++i) {
      pretended::replay(stream_);
      wait(2 + i);
      const double expected = i == 0 ? ranks : ranks * ranks;
      for (const float value : floats_) require(value == expected, fmt::format("replay {}: {}", i, value));
    }
    bool refused = false;
    try {
      reduction_->scatter_sum(floats_, {.bf16 = true});
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    require(refused, "bfloat16 is refused");
    require(pretended::aborts() == 0, "no abort");
  }

  void graph() {
    const double ranks = host_.size();
    sum();
    wait(0);
    pretended::begin_capture(stream_);
    sum();
    pretended::end_capture(stream_);
    check(ranks);  // recorded, not run
    const double before = reduction_->exposed_seconds();
    wait(1);
    require(reduction_->exposed_seconds() == before, "a graph that was not launched takes no time");
    double times = ranks;
    for (int i = 0; i < 3; ++i) {
      const double exposed = reduction_->exposed_seconds();
      pretended::replay(stream_);
      wait(2 + i);
      times *= ranks;
      check(times);
      require(reduction_->exposed_seconds() > exposed, "a launched graph takes time");
    }
    const double after = reduction_->exposed_seconds();
    sum();
    wait(9);
    require(reduction_->exposed_seconds() > after, "so does what is not recorded");
  }

 private:
  Communicator& host_;
  const std::unique_ptr<void, void (*)(void*)> owned_{pretended::make_stream(), pretended::destroy_stream};
  void* const stream_ = owned_.get();
  std::vector<float> floats_ = std::vector<float>(10'000);
  std::vector<double> doubles_ = std::vector<double>(9, 0.5);
  std::unique_ptr<Reduction> reduction_;
};

void work(MpiSession& session, Communicator& host, const std::string& conduct) {
  const bool second = session.rank() == 1;
  if (second && conduct == "init-fails") pretended::faults().init_fails = true;
  if (second && conduct == "first-sum-wrong") pretended::faults().first_sum_wrong = true;
  if (conduct == "first-sum-stands-still") pretended::faults().sums_stand_still = true;
  Job job(session, host, conduct != "tree");
  fmt::print("rank {}: {}\n", session.rank(), job.reduction().description());
  if (conduct == "sums" || conduct == "tree") return job.sums();
  if (conduct == "graph") return job.graph();
  if (conduct == "shards") return job.shards();
  host.note_activity("forward", 7);
  if (second && conduct == "does-not-come") std::this_thread::sleep_for(std::chrono::seconds(20));
  if (second && conduct == "dies") _exit(0);
  if (second && conduct == "is-busy") {
    const LongOperation operation(host, "writing a checkpoint");
    std::this_thread::sleep_for(std::chrono::seconds(6));
  }
  if (conduct == "stands-still") pretended::faults().sums_stand_still = true;
  host.note_activity("backward", 7);
  job.sum();
  if (session.rank() == 0 && conduct == "nccl-fails") pretended::faults().asynchronous_error = true;
  if (session.rank() == 0 && conduct == "device-fails") pretended::faults().device_fails = true;
  job.wait(7);
  host.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  if (argc != 3) return 2;
  try {
    const auto host = make_communicator(
        session,
        {.transport = argv[1] == std::string("ring") ? Transport::ring : Transport::automatic, .deadline_seconds = 4});
    try {
      work(session, *host, argv[2]);
      return 0;
    } catch (const AgreedError& error) {
      for (const std::string& other : host->all_gather_text(error.what())) require(other == error.what(), "same words");
      fmt::print("rank {}: refused: {}\n", session.rank(), error.what());
      host->barrier();
      return 3;
    }
  } catch (const PeerError& error) {
    session.abort(1,
                  fmt::format("error on rank {} (aborts: {}): {}", session.rank(), pretended::aborts(), error.what()));
  } catch (const std::exception& error) {
    session.abort(4, fmt::format("error on rank {}: {}", session.rank(), error.what()));
  }
}
