/// \file
/// One training step of many ranks in SimGrid's SMPI: the gradient reducer's buckets travel by the ring's own
/// RingSum over a described network. Time is simulated, memory is not touched, nothing is added.
///
///   smpirun ... simulated_step schedule=FILE key=value ...
///
/// The schedule is text: "forward SECONDS", then for each layer in the order of the backward pass "layer SECONDS END
/// ...": the time of its backward pass, and the ends of its gradients' slices in the arena (elements).
///
///   transport=NAME      owner of the bucket rule: ring, nccl ... (comm::BucketRule)
///   algorithm=ring      segments around all ranks, as comm::RingSum sends them
///   algorithm=slices    the ring of the textbook: a step's part as one message, one step after the other
///   algorithm=two-level a ring across hosts for each rank of a host, which reduces and broadcasts its part in the host
///   ranks=N             ranks of the job, for the bucket rule; default: all simulated ones
///   bucket=N            elements of a bucket instead of the rule's
///   local=N             ranks per host
///   rings=1             simulates only the first rank of each host, and its ring (two-level): all rings are alike, and
///                       a network of 1/local of the bandwidth is one ring's share
///   memory=BYTES        bandwidth of a host per second, shared by its ranks (two-level)
///   add=BYTES           received terms that are added per second; 0: in no time
///   sync=SECONDS        duration of a barrier of the ranks of a host (two-level)
///   halving=BYTES       largest sum that goes by halving; larger ones go round the ring
///   poll=SECONDS        cost of a poll that finds something
///   sleep=SECONDS       first sleep of a rank that waits, later ones are twice and four times as long, as
///                       comm::FailureDetector sleeps beside computation: it sees messages only after its sleep; 0: it
///                       polls
///   overlap=1           a bucket travels once it is ready; 0: all of them after the backward pass
///   places=N            each ring goes round N places instead of all, with parts of the same size: a long ring is
///                       extrapolated from it (bytes=)
///   length=N            positions of the ring that these ranks represent: halving's rounds go at most half round the
///                       simulated ones, rings (places=) are extrapolated from some of them
///   list=1              prints the buckets and the times when they are ready, and stops
///   bytes=N,N,...       instead of a schedule: all-reduces of these sizes, each alone
///
/// A rank is one simulated process, the one that communicates: computation is its clock. This models a communication
/// thread as long as neither slows the other.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <mpi.h>
#include <simgrid/s4u.hpp>
#include <smpi/smpi.h>
#include <sys/mman.h>

#undef sleep  // a macro of SMPI's

#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/host/halving_rounds.hpp"
#include "comm/session/mpi_state.hpp"

namespace {

/// Stands for a schedule's polls. A poll would cost simulated time and much real time, so none is made: requests are
/// recorded and reported as pending. When the schedule can do no more, the rank sleeps until one of these requests is
/// complete, and the next poll of that one succeeds.
class Polls {
 public:
  int test(MPI_Request* request, int* complete, MPI_Status* status) {
    *complete = arrived_ == request;
    if (*complete) {
      arrived_ = nullptr;
      *request = MPI_REQUEST_NULL;
      if (status != MPI_STATUS_IGNORE) *status = status_;
    } else {
      asked_[count_++ % asked_.size()] = request;
    }
    return MPI_SUCCESS;
  }
  /// Forgets the requests, before the schedule polls again.
  void forget() { count_ = 0; }
  /// Waits until one of the requests since forget() is complete.
  void wait() {
    if (count_ == 0 || count_ > asked_.size()) throw std::logic_error("nothing, or too much, to wait for");
    std::array<MPI_Request, 4> requests;
    for (std::size_t i = 0; i < count_; ++i) requests[i] = *asked_[i];
    int which = 0;
    MPI_Waitany(static_cast<int>(count_), requests.data(), &which, &status_);
    arrived_ = asked_[static_cast<std::size_t>(which)];
  }

 private:
  std::array<MPI_Request*, 4> asked_{};
  std::size_t count_ = 0;
  MPI_Request* arrived_ = nullptr;
  MPI_Status status_{};
};

/// One per simulated process: they share one address space, and every MPI call may let another one run.
std::vector<Polls> all_polls;

Polls& own_polls() {
  const auto process = static_cast<std::size_t>(simgrid::s4u::this_actor::get_pid());
  if (process >= all_polls.size()) throw std::logic_error("more processes than ranks");
  return all_polls[process];
}

int noted_test(MPI_Request* request, int* complete, MPI_Status* status) {
  return own_polls().test(request, complete, status);
}

}  // namespace

#define MPI_Test noted_test
#include "comm/host/ring_sum.hpp"
#undef MPI_Test

namespace lockstep::comm {

namespace {

void pause(double seconds) {
  if (seconds > 0) simgrid::s4u::this_actor::sleep_for(seconds);
}

double added_per_second = 0;  // bytes; the same on all ranks

}  // namespace

void add_to(float*, const float*, std::size_t count) {
  if (added_per_second > 0) pause(static_cast<double>(count * sizeof(float)) / added_per_second);
}

/// Nothing fails in a simulation.
void call_back(std::span<MPI_Request>) noexcept {}
void check(int code, const char* call, const MpiSession::State&, int) {
  if (code != MPI_SUCCESS) throw std::runtime_error(call);
}

namespace {

struct Options {
  std::string schedule, algorithm = "ring";
  Transport transport = Transport::ring;
  int ranks = 0, local = 1, places = 0, length = 0;
  std::size_t bucket_elements = 0;
  double memory = 1e11, add = 0, sync = 1e-6, poll = 0, sleep = 0;
  bool overlap = true, list = false, one_ring = false;
  std::size_t halving = 0;
  std::vector<std::size_t> bytes;
};

Transport transport_named(const std::string& name) {
  for (const Transport transport :
       {Transport::serial, Transport::shared_memory, Transport::two_level, Transport::ring, Transport::nccl}) {
    if (name_of(transport) == name) return transport;
  }
  throw std::invalid_argument("no transport: " + name);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "schedule")
      options.schedule = value;
    else if (key == "transport")
      options.transport = transport_named(value);
    else if (key == "algorithm")
      options.algorithm = value;
    else if (key == "ranks")
      options.ranks = std::stoi(value);
    else if (key == "local")
      options.local = std::stoi(value);
    else if (key == "bucket")
      options.bucket_elements = std::stoul(value);
    else if (key == "places")
      options.places = std::stoi(value);
    else if (key == "length")
      options.length = std::stoi(value);
    else if (key == "memory")
      options.memory = std::stod(value);
    else if (key == "add")
      options.add = std::stod(value);
    else if (key == "sync")
      options.sync = std::stod(value);
    else if (key == "poll")
      options.poll = std::stod(value);
    else if (key == "sleep")
      options.sleep = std::stod(value);
    else if (key == "overlap")
      options.overlap = value == "1";
    else if (key == "rings")
      options.one_ring = value == "1";
    else if (key == "halving")
      options.halving = std::stoul(value);
    else if (key == "list")
      options.list = value == "1";
    else if (key == "bytes") {
      std::istringstream sizes(value);
      for (std::string size; std::getline(sizes, size, ',');) options.bytes.push_back(std::stoul(size));
    } else
      throw std::invalid_argument("unknown argument " + word);
  }
  return options;
}

struct Bucket {
  Slice slice;
  double ready = 0;  ///< seconds after the step began
};

struct Schedule {
  std::vector<Bucket> buckets;
  double compute = 0;  ///< seconds, forward and backward
};

/// The buckets are the reducer's; a bucket is ready when the layer with its last slice is.
Schedule read_schedule(const Options& options) {
  std::ifstream file(options.schedule);
  Schedule schedule;
  std::vector<std::size_t> ends;
  std::vector<double> finished;  // for each of them
  for (std::string line, word; std::getline(file, line);) {
    std::istringstream words(line);
    double seconds = 0;
    if (!(words >> word >> seconds) || (word != "forward" && word != "layer"))
      throw std::invalid_argument(options.schedule + ": not understood: " + line);
    schedule.compute += seconds;
    for (std::size_t end = 0; words >> end; finished.push_back(schedule.compute)) ends.push_back(end);
  }
  if (ends.empty()) throw std::invalid_argument(options.schedule + ": no slices");
  const int ring_length = options.transport == Transport::two_level ? options.ranks / options.local : options.ranks;
  for (const Slice& slice :
       BucketRule(options.transport, options.ranks, ring_length, options.bucket_elements).cut(ends)) {
    const auto last = std::lower_bound(ends.begin(), ends.end(), slice.offset + slice.count) - ends.begin();
    const double ready = options.overlap ? finished[static_cast<std::size_t>(last)] : schedule.compute;
    schedule.buckets.push_back({slice, ready});
  }
  return schedule;
}

/// A ring's share of the work within its host: it reads terms from all buffers of the host and writes to one, and reads
/// results from one and writes to all.
class HostHandler final : public SegmentHandler {
 public:
  explicit HostHandler(const Options& options) : options_(options) {}
  void load(Slice slice) override { touch(slice, options_.local + 1); }
  void unload(Slice slice) override { touch(slice, options_.local); }

 private:
  void touch(Slice slice, int times) const {
    pause(static_cast<double>(slice.count * sizeof(float)) * times * options_.local / options_.memory);
  }
  const Options& options_;
};

/// One rank's part in the all-reduce.
class Rank {
 public:
  Rank(const Options& options, std::span<float> arena) : options_(options), arena_(arena) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    state_.data = MPI_COMM_WORLD;
    ring_rank_ = rank_, ring_size_ = size_;
    if (two_level() && !options.one_ring) {
      if (size_ % options.local != 0) throw std::invalid_argument("ranks do not fill their hosts");
      ring_rank_ = rank_ / options.local, ring_size_ = size_ / options.local;
      MPI_Comm_split(MPI_COMM_WORLD, rank_ % options.local, rank_, &state_.data);
    }
    if (options.places > 0 && ring_size_ % options.places != 0)
      throw std::invalid_argument("places do not divide the ring");
    memory_.staging.reset(reinterpret_cast<std::byte*>(arena.data()));
    memory_.staging_bytes = arena.size_bytes();
  }
  ~Rank() { static_cast<void>(memory_.staging.release()); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  void all_reduce(Slice slice) {
    if (two_level()) {
      HostHandler handler(options_);
      pause(options_.sync);  // all terms are written
      // All of the host's elements fall into equal rings.
      travel({.offset = slice.offset, .count = slice.count / static_cast<std::size_t>(options_.local)}, handler);
      pause(options_.sync);  // all results are written
    } else if (options_.algorithm == "ring") {
      SegmentHandler handler;
      travel(slice, handler);
    } else {
      travel_plainly(slice);
    }
  }

  /// The small all-reduce of each step, for loss, flags and votes, by doubling. With two levels, one rank of each host
  /// runs it, and the others wait for that.
  void control_sum() {
    constexpr int kBytes = 80;
    if (two_level()) pause(2 * options_.sync);
    if (two_level() && !options_.one_ring && rank_ % options_.local != 0) return;
    for (int distance = 1; distance < length(); distance *= 2) {
      MPI_Sendrecv(arena_.data(), kBytes, MPI_BYTE, ring_neighbour(-distance), kControlTag, arena_.data(), kBytes,
                   MPI_BYTE, ring_neighbour(distance), kControlTag, state_.data, MPI_STATUS_IGNORE);
    }
  }

  void pause_until(double time) { pause(time - MPI_Wtime()); }

 private:
  static constexpr int kControlTag = 3;

  bool two_level() const { return options_.algorithm == "two-level"; }
  int ring_neighbour(int distance) const {
    const int near = std::clamp(distance, -ring_size_ / 2, ring_size_ / 2);
    return ((ring_rank_ + (length() > ring_size_ ? near : distance)) % ring_size_ + ring_size_) % ring_size_;
  }
  /// Length of the simulated ring, or of the ring that it represents.
  int length() const { return options_.length > 0 ? options_.length : ring_size_; }
  int places() const { return options_.places > 0 ? options_.places : ring_size_; }
  /// With fewer places, those of a smaller whole: parts keep their size.
  Slice part(Slice whole, int place) const {
    const std::size_t count = whole.count / static_cast<std::size_t>(length()) * static_cast<std::size_t>(places());
    Slice own = slice_of(places() == length() ? whole.count : count, place, places());
    own.offset += whole.offset;
    return own;
  }

  void travel(Slice whole, SegmentHandler& handler) {
    parts_.clear();
    for (int place = 0; place < places(); ++place) {
      parts_.add(part(whole, place));
      parts_.end_position();
    }
    if (ring_size_ == 1) {
      handler.load(whole), handler.unload(whole);
      return;
    }
    if (whole.count * sizeof(float) <= options_.halving) return travel_by_halving(whole, handler);
    // Places repeat along the ring: each still has the next one as its neighbour.
    const RingPosition ring{.size = places(),
                            .position = ring_rank_ % places(),
                            .previous = ring_neighbour(-1),
                            .following = ring_neighbour(1),
                            .window = kMaxWindowBytes};  // the value for fast networks
    RingSum<float, float> sum(ring, state_, arena_, {}, parts_, handler, RingPhases::all_reduce, memory_);
    Polls& polls = own_polls();
    for (;;) {
      polls.forget();
      const Progress made = sum.advance();
      if (made == Progress::done) break;
      if (made == Progress::some) continue;
      const double begin = MPI_Wtime();
      polls.wait();
      pause(seconds_until_seen(MPI_Wtime() - begin));
    }
  }

  /// Like comm::HalvingSum: a round's blocks leave together, and are added on arrival. Each round's is one message
  /// here: its pieces follow each other without waiting. A block that is sent by doubling is small enough that both
  /// take equally long.
  void travel_by_halving(Slice whole, SegmentHandler& handler) {
    const std::vector<HalvingRound> rounds = halving_rounds(length());
    const std::size_t block = whole.count / static_cast<std::size_t>(length());
    const auto blocks = [&](int count) {
      return Slice{.offset = whole.offset, .count = block * static_cast<std::size_t>(count)};
    };
    int loaded = length();
    for (const HalvingRound& round : rounds) {
      if (loaded > round.skip) handler.load(blocks(loaded - round.skip)), loaded = round.skip;
      exchange(round.skip, blocks(round.blocks), [&] {
        if (loaded > 0) handler.load(blocks(loaded)), loaded = 0;
      });
      add_to(arena_.data(), static_cast<const float*>(arena_.data()), blocks(round.blocks).count);
    }
    handler.unload(blocks(1));
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
      exchange(-round->skip, blocks(round->blocks), [] {});
      handler.unload(blocks(round->blocks));
    }
  }

  template <class Meanwhile>
  void exchange(int distance, Slice data, Meanwhile meanwhile) {
    const auto bytes = static_cast<int>(data.count * sizeof(float));
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(arena_.data(), bytes, MPI_BYTE, ring_neighbour(-distance), kDataTag, state_.data, &requests[0]);
    MPI_Isend(arena_.data(), bytes, MPI_BYTE, ring_neighbour(distance), kDataTag, state_.data, &requests[1]);
    meanwhile();
    const double begin = MPI_Wtime();
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
    pause(seconds_until_seen(MPI_Wtime() - begin));
  }

  /// The delay until a waiting rank sees a message that arrived `waited` seconds after the wait began.
  double seconds_until_seen(double waited) const {
    if (options_.sleep <= 0) return options_.poll;
    double awake = options_.sleep;
    for (int sleeps = 1; awake < waited; ++sleeps) awake += options_.sleep * (1 << std::min(sleeps, 2));
    return awake - waited + options_.poll;
  }

  void travel_plainly(Slice whole) {
    const auto bytes = [&](int behind) {
      return static_cast<int>(part(whole, ((ring_rank_ - behind) % places() + places()) % places()).count *
                              sizeof(float));
    };
    for (int step = 0; step < 2 * (places() - 1); ++step) {
      MPI_Sendrecv(arena_.data(), bytes(step + 1), MPI_BYTE, ring_neighbour(1), kDataTag, arena_.data(),
                   bytes(step + 2), MPI_BYTE, ring_neighbour(-1), kDataTag, state_.data, MPI_STATUS_IGNORE);
    }
  }

  const Options& options_;
  std::span<float> arena_;
  MpiSession::State state_;
  RingParts parts_;
  RingMemory memory_;  ///< addresses of the arena
  int rank_ = 0, size_ = 1, ring_rank_ = 0, ring_size_ = 1;
};

// Ranks share one address space and take turns in it: this is common to all.
struct Shared {
  std::span<float> arena;  ///< addresses, never touched
  double begin = 0, end = 0;
} shared;

void copy_nothing(smx_activity_t, void*, size_t) {}

/// Links give their whole bandwidth to one message after the other, like a network card. By default SimGrid shares it:
/// messages would arrive together and continue together, in convoys that leave links idle between them. A link that
/// represents several passes several at once.
void pass_messages_in_order(int local) {
  const std::vector<simgrid::s4u::Link*> links = simgrid::s4u::Engine::get_instance()->get_all_links();
  const auto is_loopback = [](const simgrid::s4u::Link* link) {
    return link->get_name().find("loopback") != std::string::npos;
  };
  double one = std::numeric_limits<double>::infinity();
  for (const simgrid::s4u::Link* const link : links) {
    if (!is_loopback(link)) one = std::min(one, link->get_bandwidth());
  }
  for (simgrid::s4u::Link* const link : links) {
    // Messages between ranks of one host pass one link, at full rate for each of `local` senders.
    link->set_concurrency_limit(is_loopback(link) ? local : static_cast<int>(std::lround(link->get_bandwidth() / one)));
  }
}

/// Makes all ranks leave at the same instant; returns that time.
double leave_together(Rank& rank) {
  MPI_Barrier(MPI_COMM_WORLD);
  shared.begin = std::max(shared.begin, MPI_Wtime());
  MPI_Barrier(MPI_COMM_WORLD);  // all have told the time
  const double begin = shared.begin + 0.001;
  rank.pause_until(begin);
  return begin;
}

/// Seconds until the last rank arrived here.
double arrive_together(double begin) {
  shared.end = std::max(shared.end, MPI_Wtime());
  MPI_Barrier(MPI_COMM_WORLD);
  return shared.end - begin;
}

void time_sums(Rank& rank, const Options& options) {
  for (const std::size_t bytes : options.bytes) {
    const double begin = leave_together(rank);
    rank.all_reduce({.offset = 0, .count = bytes / sizeof(float)});
    const double seconds = arrive_together(begin);
    if (rank.rank() == 0) std::printf("all_reduce bytes=%zu seconds=%.9f\n", bytes, seconds);
  }
  const double begin = leave_together(rank);
  rank.control_sum();
  const double seconds = arrive_together(begin);
  if (rank.rank() == 0) std::printf("control seconds=%.9f\n", seconds);
}

void time_step(Rank& rank, const Schedule& schedule) {
  const double begin = leave_together(rank);
  for (const Bucket& bucket : schedule.buckets) {
    rank.pause_until(begin + bucket.ready);
    rank.all_reduce(bucket.slice);
  }
  rank.pause_until(begin + schedule.compute);
  rank.control_sum();
  const double seconds = arrive_together(begin);
  if (rank.rank() == 0) std::printf("step seconds=%.9f compute=%.9f\n", seconds, schedule.compute);
}

void run(int argc, char** argv) {
  Options options = parse(argc, argv);
  if (options.ranks == 0) MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
  const Schedule schedule = options.bytes.empty() ? read_schedule(options) : Schedule{};
  if (shared.arena.empty()) {
    std::size_t elements = kMaxWindowBytes / sizeof(float);
    for (const Bucket& bucket : schedule.buckets)
      elements = std::max(elements, bucket.slice.offset + bucket.slice.count);
    for (const std::size_t bytes : options.bytes) elements = std::max(elements, bytes / sizeof(float));
    void* const memory =
        mmap(nullptr, elements * sizeof(float), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no addresses for the gradients");
    shared.arena = {static_cast<float*>(memory), elements};
  }
  Rank rank(options, shared.arena);
  added_per_second = options.add;
  if (options.list) {
    for (const Bucket& bucket : schedule.buckets) {
      if (rank.rank() == 0)
        std::printf("bucket bytes=%zu ready=%.9f\n", bucket.slice.count * sizeof(float), bucket.ready);
    }
    const int ring_length = options.transport == Transport::two_level ? options.ranks / options.local : options.ranks;
    if (rank.rank() == 0) std::printf("limits halving=%zu\n", AllReduceLimits::usual(ring_length).halving);
    return;
  }
  if (all_polls.empty()) all_polls.resize(static_cast<std::size_t>(rank.size()) + 2);  // processes count from 1
  if (rank.rank() == 0) pass_messages_in_order(options.local);
  MPI_Barrier(MPI_COMM_WORLD);
  smpi_comm_set_copy_data_callback(copy_nothing);  // received data are not read from here on
  options.bytes.empty() ? time_step(rank, schedule) : time_sums(rank, options);
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    lockstep::comm::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated_step: %s\n", error.what());
    std::_Exit(1);  // ends all ranks
  }
  MPI_Finalize();
}
