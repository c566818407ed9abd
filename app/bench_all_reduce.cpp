#include "app/bench_all_reduce.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <stdexcept>

#include <fmt/format.h>

#include "app/console.hpp"
#include "app/figures.hpp"
#include "app/placement.hpp"
#include "app/report.hpp"
#include "app/snapshot.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/reduction.hpp"
#include "io/durable_file.hpp"
#include "io/metrics_log.hpp"
#include "model/backend.hpp"

namespace lockstep::app {

namespace {

constexpr double kBatchSeconds = 2e-3;
constexpr std::int64_t kMostSums = 200;

/// A way to sum, with memory for the largest size.
class Way {
 public:
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  virtual std::string name() const = 0;
  virtual std::string description() const = 0;
  virtual comm::Communicator& communicator() = 0;
  /// Collective: sums the first `count` elements so many times over, and waits for the last sum.
  virtual void sum(std::size_t count, std::int64_t times) = 0;
  /// What must have happened so often before a batch runs as fast as it does from then on.
  virtual int slow_batches() const { return 0; }
  virtual void load(std::span<const float> values) = 0;
  virtual void fetch(std::span<float> values) = 0;

 protected:
  Way() = default;
};

class HostWay final : public Way {
 public:
  HostWay(std::unique_ptr<comm::Communicator> communicator, std::size_t count)
      : communicator_(std::move(communicator)),
        memory_(communicator_->reduction_memory(count * sizeof(float))),
        values_(count, memory_.get()) {}

  std::string name() const override { return std::string(communicator_->transport_name()); }
  std::string description() const override { return {}; }
  comm::Communicator& communicator() override { return *communicator_; }
  void sum(std::size_t count, std::int64_t times) override {
    for (std::int64_t i = 0; i < times; ++i) communicator_->all_reduce_sum(std::span(values_).first(count));
  }
  void load(std::span<const float> values) override { std::copy(values.begin(), values.end(), values_.begin()); }
  void fetch(std::span<float> values) override { std::copy_n(values_.begin(), values.size(), values.begin()); }

 private:
  std::unique_ptr<comm::Communicator> communicator_;
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::pmr::vector<float> values_;
};

class DeviceWay final : public Way {
 public:
  DeviceWay(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
            const ExecutionOptions& options, std::size_t count)
      : communicator_(communicator), count_(count), graphs_(options.graphs) {
    comm::all_succeed(communicator_, [&] { backend_ = make_backend(place, options); });
    reduction_ = make_reduction(session, communicator_, place, *backend_, options);
    comm::all_succeed(communicator_, [&] {
      values_ = static_cast<float*>(backend_->memory()->allocate(count_ * sizeof(float), kAlignment));
    });
  }
  ~DeviceWay() override {
    // In order, the recorded sums go before what they were recorded from. After an error the sums go first: whatever
    // frees memory would wait for those that are still waiting for a peer.
    if (std::uncaught_exceptions() > 0) reduction_.reset();
    if (values_ != nullptr) backend_->memory()->deallocate(values_, count_ * sizeof(float), kAlignment);
    backend_.reset();
  }

  std::string name() const override { return std::string(reduction_->transport_name()); }
  std::string description() const override {
    const std::string of_sums = reduction_->description();
    return backend_->description() + (of_sums.empty() ? "" : "\n") + of_sums;
  }
  comm::Communicator& communicator() override { return communicator_; }
  void sum(std::size_t count, std::int64_t times) override {
    const std::array<std::int64_t, 2> key{static_cast<std::int64_t>(count), times};
    backend_->repeat(key, [&] {
      for (std::int64_t i = 0; i < times; ++i) reduction_->sum(std::span(values_, count));
      reduction_->join();
    });
    reduction_->wait("a sum", -1);
  }
  int slow_batches() const override { return graphs_ ? 2 : 0; }  // one to come to know it, one to record it
  void load(std::span<const float> values) override {
    backend_->forget_recordings();  // of the size before: a backend keeps so many and no more
    backend_->upload(values, tensor(values.size()));
  }
  void fetch(std::span<float> values) override { backend_->download(tensor(values.size()), values); }

 private:
  static constexpr std::size_t kAlignment = 256;

  model::Tensor tensor(std::size_t count) {
    return {values_, model::ElementType::float32, 1, static_cast<std::int64_t>(count)};
  }

  comm::Communicator& communicator_;
  std::size_t count_;
  bool graphs_;
  std::unique_ptr<model::Backend> backend_;
  std::unique_ptr<comm::Reduction> reduction_;
  float* values_ = nullptr;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Collective: for each of this rank's times, the largest on any rank.
std::vector<double> slowest(comm::Communicator& communicator, const std::vector<double>& own) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all(own.size() * ranks, 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) all[i * ranks + static_cast<std::size_t>(communicator.rank())] = own[i];
  communicator.all_reduce_sum(all);
  std::vector<double> result;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * ranks);
    result.push_back(*std::max_element(first, first + static_cast<std::ptrdiff_t>(ranks)));
  }
  return result;
}

/// Collective: seconds of so many sums on the slowest rank, all starting together.
double time_sums(Way& way, std::size_t count, std::int64_t times) {
  way.communicator().barrier();
  StopWatch watch;
  way.sum(count, times);
  return slowest(way.communicator(), {watch.seconds()}).front();
}

/// Collective.
AllReduceRow measure(Way& way, std::size_t count, const BenchAllReduceOptions& options) {
  comm::Communicator& communicator = way.communicator();
  communicator.note_activity("timing sums", -1);  // no steps here
  AllReduceRow row{.transport = way.name(), .ranks = communicator.size(), .count = static_cast<std::int64_t>(count)};

  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = bench_term(i, communicator.rank(), communicator.size());
  way.load(values);
  way.sum(count, 1);
  way.fetch(values);
  double wrong = static_cast<double>(count_wrong(values, communicator.size()));
  communicator.all_reduce_sum(std::span(&wrong, 1));
  row.wrong = std::llround(wrong);

  // From here on the values grow beyond all bounds, which takes as long as any other addition.
  if (options.warmup > 0) time_sums(way, count, options.warmup);
  for (int i = 0; i < way.slow_batches(); ++i) time_sums(way, count, 1);
  const double estimate = time_sums(way, count, 1);  // the same on every rank
  row.sums =
      std::clamp(static_cast<std::int64_t>(kBatchSeconds / std::max(estimate, 1e-9)), std::int64_t{1}, kMostSums);
  for (int i = 0; i < way.slow_batches(); ++i) time_sums(way, count, row.sums);
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    communicator.barrier();
    StopWatch watch;
    way.sum(count, row.sums);
    seconds.push_back(watch.seconds() / static_cast<double>(row.sums));
  }
  seconds = slowest(communicator, seconds);
  row.seconds = median(seconds);
  row.least_seconds = *std::min_element(seconds.begin(), seconds.end());
  return row;
}

/// Rows for another program, written by rank 0, where a file is named. It is opened before anything is timed, and holds
/// each row as soon as it is shown. The constructor and write() are collective.
class RowFile {
 public:
  RowFile(comm::Communicator& communicator, const std::filesystem::path& file)
      : communicator_(communicator), file_(file) {
    on_rank_0([&] { descriptor_ = io::open_file(file_, O_WRONLY | O_CREAT | O_TRUNC, "write"); });
  }
  void write(const std::string& text) {
    on_rank_0([&] { io::write_all(descriptor_, text, file_); });
  }

 private:
  void on_rank_0(const std::function<void()>& work) {
    if (file_.empty()) return;  // on all ranks alike
    comm::all_succeed(communicator_, [&] {
      if (communicator_.rank() == 0) work();
    });
  }

  comm::Communicator& communicator_;
  std::filesystem::path file_;
  io::Descriptor descriptor_;
};

std::string json_line(const AllReduceRow& row) {
  return io::to_json_line({{"bench", std::string("all-reduce")},
                           {"transport", row.transport},
                           {"world", row.ranks},
                           {"type", std::string("float32")},
                           {"count", row.count},
                           {"bytes", static_cast<std::int64_t>(row.bytes())},
                           {"time_us", 1e6 * row.seconds},
                           {"time_us_min", 1e6 * row.least_seconds},
                           {"sums_per_batch", row.sums},
                           {"algorithm_bandwidth", row.algorithm_bandwidth()},
                           {"bus_bandwidth", row.bus_bandwidth()},
                           {"wrong", row.wrong}}) +
         "\n";
}

}  // namespace

std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = min; size<max; size = size> max / factor ? max : size * factor) sizes.push_back(size);
  sizes.push_back(max);
  return sizes;
}

namespace {

constexpr int kOffsets = 16;

/// Up to a limit that leaves room for the sum over all ranks in the 24 bits of a float.
std::uint32_t base_of(std::size_t index, int ranks) {
  std::uint64_t bits = (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93u;
  bits ^= bits >> 32;
  const std::uint32_t limit = std::max(1u, (1u << 23) / static_cast<std::uint32_t>(ranks));
  return 1 + static_cast<std::uint32_t>(bits % limit);
}

}  // namespace

float bench_term(std::size_t index, int rank, int ranks) {
  return static_cast<float>(base_of(index, ranks) + static_cast<std::uint32_t>(rank % kOffsets));
}

float bench_sum(std::size_t index, int ranks) {
  const auto all = static_cast<std::uint32_t>(ranks), rounds = all / kOffsets, rest = all % kOffsets;
  const std::uint32_t offsets = rounds * (kOffsets * (kOffsets - 1) / 2) + (rest > 0 ? rest * (rest - 1) / 2 : 0);
  return static_cast<float>(all * base_of(index, ranks) + offsets);
}

std::size_t count_wrong(std::span<const float> sums, int ranks) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] == bench_sum(i, ranks) ? 0 : 1;
  return wrong;
}

std::string format_head() {
  return fmt::format("{:>12}{:>12}{:>9}{:>12}{:>12}{:>10}{:>10}{:>8}\n{:>12}{:>12}{:>9}{:>12}{:>12}{:>10}{:>10}",
                     "size", "count", "type", "time", "least", "algbw", "busbw", "#wrong", "(B)", "(elements)", "",
                     "(us)", "(us)", "(GB/s)", "(GB/s)");
}

std::string format_row(const AllReduceRow& row) {
  return fmt::format("{:>12.0f}{:>12}{:>9}{:>12.2f}{:>12.2f}{:>10.3f}{:>10.3f}{:>8}", row.bytes(), row.count, "float32",
                     1e6 * row.seconds, 1e6 * row.least_seconds, row.algorithm_bandwidth() / 1e9,
                     row.bus_bandwidth() / 1e9, row.wrong);
}

std::string csv_head() {
  return "transport,ranks,bytes,count,type,time_us,time_us_min,algbw_gb_per_s,busbw_gb_per_s,wrong";
}

std::string csv_row(const AllReduceRow& row) {
  return fmt::format("{},{},{:.0f},{},float32,{:.3f},{:.3f},{:.6f},{:.6f},{}", row.transport, row.ranks, row.bytes(),
                     row.count, 1e6 * row.seconds, 1e6 * row.least_seconds, row.algorithm_bandwidth() / 1e9,
                     row.bus_bandwidth() / 1e9, row.wrong);
}

double mean_bus_bandwidth(std::span<const AllReduceRow> rows) {
  double sum = 0;
  for (const AllReduceRow& row : rows) sum += row.bus_bandwidth();
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto over = [&](comm::Transport transport) {
    return comm::make_communicator(session, {.transport = transport, .deadline_seconds = execution.deadline});
  };
  const auto control = over(parse_transport(execution.transport));
  Console console(control->rank() == 0);
  const Place place = find_place(*control, execution);
  if (!place.note.empty()) console.info(place.note);
  const auto most = static_cast<std::size_t>(options.max);
  require_host_memory(*control, 2 * most * sizeof(float));  // what is summed, and what it is filled from
  RowFile csv(*control, options.csv), json(*control, options.json);
  csv.write(csv_head() + "\n");

  using MakeWay = std::function<std::unique_ptr<Way>()>;
  std::vector<MakeWay> ways;
  if (execution.device != "gpu") {
    const auto add_host = [&](comm::Transport transport) {
      ways.push_back([&, transport] { return std::make_unique<HostWay>(over(transport), most); });
    };
    const bool share_memory = control->transport_name() == "shared memory";
    if (share_memory) add_host(comm::Transport::shared_memory);
    if (!share_memory || execution.transport == "auto") add_host(comm::Transport::ring);
  }
  if (place.gpu) {
    ways.push_back([&] { return std::make_unique<DeviceWay>(session, *control, place, execution, most); });
  }

  std::vector<AllReduceRow> all;
  for (const MakeWay& make : ways) {
    const std::unique_ptr<Way> way = make();
    const std::string description = way->description();
    console.info(fmt::format("{}, {}, in place; times of the slowest rank{}{}\n{}", way->name(),
                             counted(control->size(), "rank"), description.empty() ? "" : "\n", description,
                             format_head()));
    std::vector<AllReduceRow> rows;
    for (const std::int64_t size : bench_sizes(options.min, options.max, options.factor)) {
      rows.push_back(measure(*way, static_cast<std::size_t>(size), options));
      console.info(format_row(rows.back()));
      csv.write(csv_row(rows.back()) + "\n");
      json.write(json_line(rows.back()));
    }
    console.info(fmt::format("average bus bandwidth: {:.3f} GB/s\n", mean_bus_bandwidth(rows) / 1e9));
    all.insert(all.end(), rows.begin(), rows.end());
  }

  std::int64_t wrong = 0;
  for (const AllReduceRow& row : all) wrong += row.wrong;
  if (wrong > 0) {
    throw comm::AgreedError(
        fmt::format("{} of the sums are wrong (see #wrong above): a device, a link or a library computes wrongly",
                    with_commas(wrong)));
  }
  return 0;
}

}  // namespace lockstep::app
