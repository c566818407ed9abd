#include "comm/host/ring_group.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "comm/host/doubling_sum.hpp"
#include "comm/host/halving_sum.hpp"
#include "comm/host/ring_sum.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {

/// The sum of begin().
struct RingGroup::Begun {
  SegmentHandler in_place;
  std::variant<std::monostate, DoublingSum<double>, HalvingSum<double, double>, RingSum<double, double>> memory;
  StepwiseSum* sum = nullptr;  ///< in `memory`
};

RingGroup::RingGroup(FailureDetector& detector, std::vector<int> ranks, int tag)
    : detector_(detector),
      ranks_(std::move(ranks)),
      position_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), detector.state().rank) - ranks_.begin())),
      tag_(tag),
      doubling_(doubling_rounds(size(), position_)),
      halving_(halving_rounds(size())),
      exchange_(detector, tag),
      window_(kMinWindowBytes),
      begun_(std::make_unique<Begun>()) {}

RingGroup::~RingGroup() = default;

void RingGroup::run(std::span<float> data, const RingParts& parts, const Wire& wire, SegmentHandler& handler,
                    const RingWork& work) {
  switch (wire.format) {
    case WireFormat::fp32:
      return run_as<float, float>(data, {}, parts, handler, work);
    case WireFormat::bf16:
    case WireFormat::bf16_feedback:
      return run_as<float, Bf16>(data, wire.residual, parts, handler, work);
    case WireFormat::int8_feedback:
      return run_as<float, Int8Blocks>(data, wire.residual, parts, handler, work);
  }
}

void RingGroup::run(std::span<double> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work) {
  run_as<double, double>(data, {}, parts, handler, work);
}

void RingGroup::run(std::span<std::byte> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work) {
  run_as<std::byte, std::byte>(data, {}, parts, handler, work);
}

template <class T, class OnWire>
void RingGroup::run_as(std::span<T> data, std::span<float> residual, const RingParts& parts, SegmentHandler& handler,
                       const RingWork& work) {
  if (size() == 1) return;
  if (work.schedule == AllReduceSchedule::ring) return run_ring<T, OnWire>(data, residual, parts, handler, work);
  if constexpr (!std::is_same_v<T, std::byte>) {
    if (work.schedule == AllReduceSchedule::doubling && work.phases != RingPhases::all_gather) {
      return run_doubling(data, parts, handler, work);
    }
  }
  HalvingSum<T, OnWire> sum(ranks_, halving_, position_, data, residual, parts, handler, memory_, exchange_, work);
  drive(sum, work.operation);
}

Progress RingGroup::advance(StepwiseSum& sum, Collective operation) {
  try {
    return sum.advance();
  } catch (const LengthError& error) {
    detector_.diverged(operation, rank_at(position_ - 1), error.got, error.expected);
  }
}

void RingGroup::drive(StepwiseSum& sum, Collective operation) {
  detector_.wait_until_done(operation, [&] { return advance(sum, operation); });
}

RingPosition RingGroup::ring_position() const {
  return {.size = size(),
          .position = position_,
          .previous = rank_at(position_ - 1),
          .following = rank_at(position_ + 1),
          .tag = tag_};
}

template <class T, class OnWire>
void RingGroup::run_ring(std::span<T> data, std::span<float> residual, const RingParts& parts, SegmentHandler& handler,
                         const RingWork& work) {
  RingPosition ring = ring_position();
  if (!detector_.expects_overtaking()) ring.window = window_;
  detector_.await(ring.previous);
  RingSum<T, OnWire> sum(ring, detector_.state(), data, residual, parts, handler, work.phases, ring_memory_);
  drive(sum, work.operation);
  if (const double rate = sum.bytes_per_second(); rate > 0) window_ = window_for(rate);
}

// A sum that the caller polls -----------------------------------------------------------------------------------------

void RingGroup::begin(std::span<double> data, const RingParts& parts, AllReduceSchedule schedule) {
  constexpr RingWork kWork;
  abandon();
  if (size() == 1) return;
  switch (schedule) {
    case AllReduceSchedule::doubling:
      begun_->sum =
          &begun_->memory.emplace<DoublingSum<double>>(ranks_, doubling_, data, memory_, exchange_, kWork.operation);
      return;
    case AllReduceSchedule::halving:
      begun_->sum = &begun_->memory.emplace<HalvingSum<double, double>>(
          ranks_, halving_, position_, data, std::span<float>(), parts, begun_->in_place, memory_, exchange_, kWork);
      return;
    case AllReduceSchedule::ring:
      break;
  }
  const RingPosition ring = ring_position();
  detector_.await(ring.previous);
  begun_->sum = &begun_->memory.emplace<RingSum<double, double>>(ring, detector_.state(), data, std::span<float>(),
                                                                 parts, begun_->in_place, kWork.phases, ring_memory_);
}

Progress RingGroup::advance() {
  return begun_->sum == nullptr ? Progress::done : advance(*begun_->sum, RingWork().operation);
}

void RingGroup::abandon() noexcept {
  begun_->sum = nullptr;
  begun_->memory.emplace<std::monostate>();
}

// Sums in few rounds --------------------------------------------------------------------------------------------------

void RingGroup::sum_small(std::span<float> data, Collective operation) { double_in_place(data, operation); }
void RingGroup::sum_small(std::span<double> data, Collective operation) { double_in_place(data, operation); }

template <class T>
void RingGroup::double_in_place(std::span<T> data, Collective operation) {
  DoublingSum<T> sum(ranks_, doubling_, data, memory_, exchange_, operation);
  drive(sum, operation);
}

template <class T>
void RingGroup::run_doubling(std::span<T> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work) {
  // Visits the slices on this ring in order.
  const auto for_each_slice = [&](auto visit) {
    for (int position = 0; position < size(); ++position) {
      for (const Slice& slice : parts.of(position)) visit(position, slice);
    }
  };
  std::size_t count = 0;
  for_each_slice([&](int, Slice slice) { count += slice.count; });
  memory_.out.resize(count * sizeof(T));
  const std::span<T> sums(reinterpret_cast<T*>(memory_.out.data()), count);
  auto at = sums.begin();
  for_each_slice([&](int, Slice slice) {
    handler.load(slice);
    at = std::ranges::copy(data.subspan(slice.offset, slice.count), at).out;
  });
  double_in_place(sums, work.operation);
  at = sums.begin();
  for_each_slice([&](int position, Slice slice) {
    if (work.phases == RingPhases::all_reduce || position == position_) {
      std::copy_n(at, slice.count, data.subspan(slice.offset).begin());
      handler.unload(slice);
    }
    at += static_cast<std::ptrdiff_t>(slice.count);
  });
}

}  // namespace lockstep::comm
