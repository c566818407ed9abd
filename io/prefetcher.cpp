#include "io/prefetcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

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

struct Slot {
  Buffer x, y;
  InputBatch batch;
  std::exception_ptr error;
};

}  // namespace

/// Slots form a ring. The reading thread fills slot filled_ % depth while filled_ < released_ + depth; the consumer has
/// slot taken_ - 1 until it asks for the next one.
struct Prefetcher::Reader {
  const ShardedDataset& dataset;
  PrefetcherOptions options;
  std::vector<Slot> slots;

  std::mutex mutex;
  std::condition_variable slot_filled, slot_free;
  std::int64_t filled = 0, taken = 0, released = 0;
  bool stopping = false;
  double stall_seconds = 0;
  std::thread thread;

  Reader(const ShardedDataset& data, PrefetcherOptions chosen) : dataset(data), options(std::move(chosen)) {
    const DatasetInfo& info = dataset.info();
    if (options.global_batch < 1 || options.accumulate < 1 || options.world < 1 || options.rank < 0 ||
        options.rank >= options.world || options.depth < 2 || options.first_epoch < 0 || options.first_position < 0 ||
        options.first_position > info.samples) {
      throw std::invalid_argument(fmt::format(
          "a prefetcher cannot read global batches of {} in {} parts for rank {} of {} with {} buffers from "
          "position {} of {}",
          options.global_batch, options.accumulate, options.rank, options.world, options.depth, options.first_position,
          info.samples));
    }
    options.order.shard_counts.clear();
    for (const ShardInfo& shard : dataset.shards()) options.order.shard_counts.push_back(shard.count);
    options.order.sample_bytes = info.x.bytes() + (dataset.y_bytes() > 0 ? info.y.bytes() : 0);
    options.order.block_multiple = dataset.block_multiple();

    std::pmr::memory_resource* memory = options.memory != nullptr ? options.memory : std::pmr::get_default_resource();
    const std::int64_t step = std::min(options.global_batch, info.samples);
    const std::int64_t part = (step + options.world - 1) / options.world;
    const auto most = static_cast<std::size_t>((part + options.accumulate - 1) / options.accumulate);
    for (int i = 0; i < options.depth; ++i) {
      slots.push_back(
          {Buffer(memory, most * dataset.x_bytes()), Buffer(memory, most * dataset.y_bytes()), {}, nullptr});
    }
    thread = std::thread([this] { run(); });
  }

  ~Reader() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    slot_free.notify_all();
    thread.join();
  }

  /// nullptr: stop.
  Slot* next_free() {
    std::unique_lock lock(mutex);
    slot_free.wait(lock, [this] { return stopping || filled < released + options.depth; });
    return stopping ? nullptr : &slots[static_cast<std::size_t>(filled % options.depth)];
  }

  void publish() {
    {
      const std::lock_guard lock(mutex);
      ++filled;
    }
    slot_filled.notify_one();
  }

  void run() {
    try {
      read_for_ever();
    } catch (...) {
      Slot* slot = next_free();
      if (slot == nullptr) return;
      slot->error = std::current_exception();
      publish();
    }
  }

  void read_for_ever() {
    std::int64_t position = options.first_position;
    std::vector<std::int64_t> part;
    bool begin = true;
    for (std::int64_t epoch = options.first_epoch;; ++epoch, position = 0) {
      const SampleOrder order(options.order, epoch);
      while (position < order.samples()) {
        const std::int64_t count = std::min(options.global_batch, order.samples() - position);
        order.part(position, count, options.rank, options.world, part);
        for (const SampleRange& range : order.upcoming(position, count, options.rank, options.world, begin)) {
          dataset.will_need(range.first, range.count);
        }
        begin = false;
        for (std::int64_t micro = 0; micro < options.accumulate; ++micro) {
          Slot* slot = next_free();
          if (slot == nullptr) return;
          slot->batch = {.x = {},
                         .y = {},
                         .count = 0,
                         .step_count = count,
                         .epoch = epoch,
                         .position = position,
                         .next_position = position + count,
                         .micro = micro};
          read_micro_batch(part, *slot);
          publish();
        }
        position += count;
      }
      begin = true;
    }
  }

  void read_micro_batch(const std::vector<std::int64_t>& part, Slot& slot) const {
    const auto size = static_cast<std::int64_t>(part.size());
    const std::int64_t first = size * slot.batch.micro / options.accumulate;
    const std::int64_t end = size * (slot.batch.micro + 1) / options.accumulate;
    const auto count = static_cast<std::size_t>(end - first);
    const std::span<std::byte> x = slot.x.first(count * dataset.x_bytes());
    const std::span<std::byte> y = slot.y.first(count * dataset.y_bytes());
    dataset.read(std::span(part).subspan(static_cast<std::size_t>(first), count), x, y);
    slot.batch.x = x;
    slot.batch.y = y;
    slot.batch.count = end - first;
  }

  const InputBatch& next() {
    std::unique_lock lock(mutex);
    if (taken > released) {  // the caller is done with the one before
      ++released;
      slot_free.notify_one();
    }
    if (filled == taken) {
      const auto begin = std::chrono::steady_clock::now();
      slot_filled.wait(lock, [this] { return filled > taken; });
      stall_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    const Slot& slot = slots[static_cast<std::size_t>(taken % options.depth)];
    if (slot.error) std::rethrow_exception(slot.error);  // stays: the next call meets it again
    ++taken;
    return slot.batch;
  }
};

Prefetcher::Prefetcher(const ShardedDataset& dataset, PrefetcherOptions options)
    : reader_(std::make_unique<Reader>(dataset, std::move(options))) {}
Prefetcher::~Prefetcher() = default;

const InputBatch& Prefetcher::next() { return reader_->next(); }
double Prefetcher::stall_seconds() const noexcept { return reader_->stall_seconds; }

}  // namespace lockstep::io
