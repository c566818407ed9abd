#include "io/datasets/prefetcher.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/files/allocation.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kAlignment = 256;

/// Memory for one micro-batch, from the caller's resource.
class Buffer {
 public:
  Buffer(std::pmr::memory_resource* memory, std::size_t bytes)
      : memory_(memory),
        bytes_(bytes),
        data_(bytes == 0 ? nullptr : static_cast<std::byte*>(memory->allocate(bytes, kAlignment))) {}
  ~Buffer() {
    if (data_ != nullptr) memory_->deallocate(data_, bytes_, kAlignment);
  }
  Buffer(Buffer&& other) noexcept
      : memory_(other.memory_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  std::span<std::byte> first(std::size_t bytes) const noexcept { return {data_, bytes}; }

 private:
  std::pmr::memory_resource* memory_;
  std::size_t bytes_;
  std::byte* data_;
};

/// A position in the data where a step begins or an epoch ends.
struct Place {
  std::int64_t epoch, position;
};

struct Slot {
  Buffer x, y;
  std::vector<std::int64_t> samples, of_step;
  InputBatch batch;
  std::exception_ptr error;
};

}  // namespace

/// Slots form a ring. The reading thread fills slot filled_ % depth while filled_ < released_ + depth. The consumer
/// holds slot taken_ - 1 until it asks for the next one.
struct Prefetcher::Reader {
  const Dataset& dataset;
  PrefetcherOptions options;
  std::vector<Slot> slots;

  std::mutex mutex;
  std::condition_variable slot_filled, slot_free;
  std::int64_t filled = 0, taken = 0, released = 0;
  bool stopping = false;
  std::optional<Place> elsewhere;  ///< new position for the thread; batches read before it notices are dropped
  double stall_seconds = 0;
  std::vector<std::int64_t> part;     ///< this rank's part of the step being read
  std::vector<std::int64_t> of_step;  ///< all its parts, with foresees_steps
  std::thread thread;

  Reader(const Dataset& data, PrefetcherOptions chosen) : dataset(data), options(std::move(chosen)) {
    check_options();
    options.order.shard_counts = dataset.shard_counts();
    options.order.sample_bytes = dataset.stored_bytes();
    options.order.block_multiple = dataset.block_multiple();

    std::pmr::memory_resource* memory = options.memory != nullptr ? options.memory : std::pmr::get_default_resource();
    const std::int64_t step = std::min(options.global_batch, dataset.info().samples);
    const std::int64_t share = (step + options.world - 1) / options.world;
    const auto most = static_cast<std::size_t>((share + options.accumulate - 1) / options.accumulate);
    const std::size_t bytes = most * (dataset.x_bytes() + dataset.y_bytes()) * static_cast<std::size_t>(options.depth);
    allocating(dataset.shards().front().file, fmt::format("{} input batches of {} samples", options.depth, most), bytes,
               [&] { make_slots(memory, most); });
    thread = std::thread([this] { run(); });
  }

  void make_slots(std::pmr::memory_resource* memory, std::size_t most) {
    for (int i = 0; i < options.depth; ++i) {
      slots.push_back(
          {Buffer(memory, most * dataset.x_bytes()), Buffer(memory, most * dataset.y_bytes()), {}, {}, {}, nullptr});
      slots.back().samples.reserve(most);
    }
  }

  void check_options() const {
    const std::int64_t samples = dataset.info().samples;
    const std::int64_t epoch =
        epoch_samples(samples, std::max<std::int64_t>(1, options.global_batch), options.stateful);
    if (options.global_batch < 1 || options.accumulate < 1 || options.world < 1 || options.rank < 0 ||
        options.parts < 1 || options.rank + options.parts > options.world ||
        (options.parts > 1 && options.accumulate > 1) || options.depth < 2 || options.first_epoch < 0 ||
        options.first_position < 0 || (options.first_position > epoch && epoch > 0)) {
      throw std::invalid_argument(fmt::format(
          "a prefetcher cannot read global batches of {} in {} parts for rank {} of {} with {} buffers from "
          "position {} of {}",
          options.global_batch, options.accumulate, options.rank, options.world, options.depth, options.first_position,
          epoch));
    }
    if (!options.stateful) return;
    if (epoch == 0) {
      throw std::invalid_argument(fmt::format("stateful batches of {} need as many samples at least; there are {}",
                                              options.global_batch, samples));
    }
    if (options.first_position % options.global_batch != 0) {
      throw std::invalid_argument(
          fmt::format("stateful batches of {} cannot go on at position {}: each step has one sample of "
                      "every stream",
                      options.global_batch, options.first_position));
    }
  }

  ~Reader() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    slot_free.notify_all();
    thread.join();
  }

  /// nullptr: stop, or continue elsewhere.
  Slot* next_free() {
    std::unique_lock lock(mutex);
    slot_free.wait(lock, [this] { return stopping || elsewhere || filled < released + options.depth; });
    return stopping || elsewhere ? nullptr : &slots[static_cast<std::size_t>(filled % options.depth)];
  }

  void publish() {
    {
      const std::lock_guard lock(mutex);
      if (elsewhere) return;
      ++filled;
    }
    slot_filled.notify_one();
  }

  void run() {
    for (Place from{options.first_epoch, options.first_position};;) {
      try {
        read_from(from);
      } catch (...) {
        if (Slot* const slot = next_free()) {
          slot->error = std::current_exception();
          publish();
        }
      }
      std::unique_lock lock(mutex);
      slot_free.wait(lock, [this] { return stopping || elsewhere; });
      if (stopping) return;
      from = *std::exchange(elsewhere, std::nullopt);
    }
  }

  /// Reads until it must stop or continue elsewhere.
  void read_from(Place from) {
    for (;; ++from.epoch, from.position = 0) {
      const bool whole =
          options.stateful ? read_stateful(from.epoch, from.position) : read_shuffled(from.epoch, from.position);
      if (!whole) return;
    }
  }

  void go_on_at(Place place) {
    const std::int64_t epoch = epoch_samples(dataset.info().samples, options.global_batch, options.stateful);
    if (place.position >= epoch) place = {place.epoch + 1, 0};
    {
      const std::lock_guard lock(mutex);
      for (released = taken; released < filled; ++released) {  // reuses batches that are already read
        const Slot& slot = slots[static_cast<std::size_t>(released % options.depth)];
        if (!slot.error && slot.batch.epoch == place.epoch && slot.batch.position == place.position &&
            slot.batch.micro == 0) {
          break;
        }
      }
      taken = released;
      if (taken == filled) elsewhere = place;
    }
    slot_free.notify_one();
  }

  /// Reads the rest of an epoch; false: stop, or continue elsewhere.
  bool read_shuffled(std::int64_t epoch, std::int64_t position) {
    const SampleOrder order(options.order, epoch);
    bool begin = true;
    for (std::int64_t count = 0; position < order.samples(); position += count) {
      count = std::min(options.global_batch, order.samples() - position);
      for (int rank = options.rank; rank < options.rank + options.parts; ++rank) {
        for (const Slice& range : order.upcoming(position, count, rank, options.world, begin)) {
          dataset.will_need(range.first, range.count, epoch);
        }
      }
      begin = false;
      of_step.clear();
      for (int i = 0; options.foresees_steps && i < options.parts; ++i) {
        order.part(position, count, options.rank + i, options.world, part);
        of_step.insert(of_step.end(), part.begin(), part.end());
      }
      for (int i = 0; i < options.parts; ++i) {
        order.part(position, count, options.rank + i, options.world, part);
        if (!deliver_part({.epoch = epoch, .position = position, .count = count}, i, 0)) return false;
      }
    }
    return true;
  }

  /// As read_shuffled(), for stateful batches. Reads each sequence from front to back; the kernel is asked for one
  /// piece of it
  /// beyond the piece in use.
  bool read_stateful(std::int64_t epoch, std::int64_t position) {
    const std::int64_t sequences = options.global_batch;
    const std::int64_t length = dataset.info().samples / sequences;
    const auto first_of = [&](int rank) { return sequences * rank / options.world; };
    const std::int64_t first_sequence = first_of(options.rank);
    const std::int64_t end_lane = first_of(options.rank + options.parts);
    const auto stored = static_cast<std::int64_t>(std::max<std::size_t>(1, dataset.stored_bytes()));
    const std::int64_t piece = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlockBytes) / stored);
    std::int64_t asked = position / sequences;  // samples of each sequence requested from the kernel
    for (std::int64_t step = position / sequences; step < length; ++step) {
      if (asked < length && step + piece >= asked) {
        const std::int64_t count = std::min(step + 2 * piece, length) - asked;
        for (std::int64_t sequence = first_sequence; sequence < end_lane; ++sequence)
          dataset.will_need(sequence * length + asked, count, epoch);
        asked += count;
      }
      for (int i = 0; i < options.parts; ++i) {
        part.clear();
        const std::int64_t begin = first_of(options.rank + i), end = first_of(options.rank + i + 1);
        for (std::int64_t sequence = begin; sequence < end; ++sequence) part.push_back(sequence * length + step);
        const Step at{.epoch = epoch, .position = step * sequences, .count = sequences};
        if (!deliver_part(at, i, begin - first_sequence)) return false;
      }
    }
    return true;
  }

  struct Step {
    std::int64_t epoch, position, count;
  };
  /// Delivers `part`, number `index` of a step, in micro-batches; its first sequence is number `first_sequence` of the
  /// reader's own. False: stop, or continue elsewhere.
  bool deliver_part(const Step& step, std::int64_t index, std::int64_t first_sequence) {
    for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
      Slot* slot = next_free();
      if (slot == nullptr) return false;
      slot->error = nullptr;
      slot->batch = {.x = {},
                     .y = {},
                     .count = 0,
                     .step_count = step.count,
                     .epoch = step.epoch,
                     .position = step.position,
                     .next_position = step.position + step.count,
                     .micro = index + micro,
                     .samples = {},
                     .of_step = {},
                     .first_sequence = first_sequence};
      slot->of_step.clear();
      if (slot->batch.micro == 0) slot->of_step = of_step;
      slot->batch.of_step = slot->of_step;
      read_micro_batch(*slot, micro);
      publish();
    }
    return true;
  }

  void read_micro_batch(Slot& slot, std::int64_t micro) const {
    const auto size = static_cast<std::int64_t>(part.size());
    const std::int64_t first = size * micro / options.accumulate;
    const std::int64_t end = size * (micro + 1) / options.accumulate;
    const auto count = static_cast<std::size_t>(end - first);
    const std::span<std::byte> x = slot.x.first(count * dataset.x_bytes());
    const std::span<std::byte> y = slot.y.first(count * dataset.y_bytes());
    slot.samples.assign(part.begin() + first, part.begin() + end);
    dataset.read(slot.samples, slot.batch.epoch, x, y);
    slot.batch.x = x;
    slot.batch.y = y;
    slot.batch.count = end - first;
    slot.batch.samples = slot.samples;
    slot.batch.first_sequence = options.stateful ? slot.batch.first_sequence + first : 0;
  }

  /// Waits up to `limit` (nullopt: for ever); nullptr: the limit has passed.
  const InputBatch* next(std::optional<std::chrono::milliseconds> limit) {
    std::unique_lock lock(mutex);
    if (taken > released) {  // the caller has finished the previous batch
      ++released;
      slot_free.notify_one();
    }
    if (filled == taken) {
      const auto begin = std::chrono::steady_clock::now();
      const auto is_there = [this] { return filled > taken; };
      if (limit) {
        slot_filled.wait_for(lock, *limit, is_there);
      } else {
        slot_filled.wait(lock, is_there);
      }
      stall_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (!is_there()) return nullptr;
    }
    const Slot& slot = slots[static_cast<std::size_t>(taken % options.depth)];
    if (slot.error) std::rethrow_exception(slot.error);  // the error stays: the next call throws it again
    ++taken;
    return &slot.batch;
  }
};

std::int64_t epoch_samples(std::int64_t samples, std::int64_t global_batch, bool stateful) noexcept {
  return stateful ? samples / global_batch * global_batch : samples;
}

Prefetcher::Prefetcher(const Dataset& dataset, PrefetcherOptions options)
    : reader_(std::make_unique<Reader>(dataset, std::move(options))) {}
Prefetcher::~Prefetcher() = default;

const InputBatch& Prefetcher::next() { return *reader_->next(std::nullopt); }
const InputBatch* Prefetcher::next_within(std::chrono::milliseconds limit) { return reader_->next(limit); }
void Prefetcher::go_on_at(std::int64_t epoch, std::int64_t position) { reader_->go_on_at({epoch, position}); }
double Prefetcher::stall_seconds() const noexcept { return reader_->stall_seconds; }

}  // namespace lockstep::io
