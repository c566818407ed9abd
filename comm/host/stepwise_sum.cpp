#include "comm/host/stepwise_sum.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "comm/host/doubling_sum.hpp"
#include "comm/host/halving_sum.hpp"
#include "comm/host/ring_schedule.hpp"

namespace lockstep::comm {

/// Kept between sums, so that none allocates after the first.
struct StepwiseSum::Parts {
  Parts(FailureDetector& its_detector, std::vector<int> its_ranks)
      : detector(its_detector),
        ranks(std::move(its_ranks)),
        position(static_cast<int>(std::ranges::find(ranks, detector.state().rank) - ranks.begin())),
        doubling(doubling_rounds(size(), position)),
        halving(halving_rounds(size())),
        exchange(detector, kUrgentTag) {}

  int size() const { return static_cast<int>(ranks.size()); }
  int rank_at(int at) const { return ranks[static_cast<std::size_t>((at + size()) % size())]; }

  FailureDetector& detector;
  std::vector<int> ranks;
  int position;
  std::vector<DoublingRound> doubling;
  std::vector<HalvingRound> halving;
  MessageExchange exchange;
  RoundMemory memory;
  RingMemory ring_memory;
  SegmentHandler in_place;
  using Ring = RingSchedule<double, double>;
  std::variant<std::monostate, DoublingSum<double>, HalvingSum<double, double>, Ring> sum;
};

StepwiseSum::StepwiseSum(FailureDetector& detector, std::vector<int> ranks)
    : parts_(std::make_unique<Parts>(detector, std::move(ranks))) {}
StepwiseSum::~StepwiseSum() = default;

void StepwiseSum::start(std::span<double> data, const RingParts& parts, AllReduceSchedule schedule) {
  Parts& own = *parts_;
  constexpr RingWork kWork;
  if (own.size() == 1) {
    own.sum.emplace<std::monostate>();
    return;
  }
  switch (schedule) {
    case AllReduceSchedule::doubling:
      own.sum.emplace<DoublingSum<double>>(own.ranks, own.doubling, data, own.memory, own.exchange, kWork.operation);
      return;
    case AllReduceSchedule::halving:
      own.sum.emplace<HalvingSum<double, double>>(own.ranks, own.halving, own.position, data, std::span<float>(), parts,
                                                  own.in_place, own.memory, own.exchange, kWork);
      return;
    case AllReduceSchedule::ring:
      break;
  }
  const RingPosition ring{.size = own.size(),
                          .position = own.position,
                          .previous = own.rank_at(own.position - 1),
                          .following = own.rank_at(own.position + 1),
                          .tag = kUrgentTag};
  own.detector.await(ring.previous);
  own.sum.emplace<Parts::Ring>(ring, own.detector.state(), data, std::span<float>(), parts, own.in_place, kWork.phases,
                               own.ring_memory);
}

bool StepwiseSum::advance() {
  return std::visit(
      [this](auto& sum) {
        if constexpr (std::is_same_v<std::decay_t<decltype(sum)>, std::monostate>) {
          return false;
        } else {
          try {
            return sum.advance();
          } catch (const LengthError& error) {
            parts_->detector.diverged(RingWork().operation, parts_->rank_at(parts_->position - 1), error.got,
                                      error.expected);
          }
        }
      },
      parts_->sum);
}

bool StepwiseSum::done() const {
  return std::visit(
      [](const auto& sum) {
        if constexpr (std::is_same_v<std::decay_t<decltype(sum)>, std::monostate>) {
          return true;
        } else {
          return sum.done();
        }
      },
      parts_->sum);
}

void StepwiseSum::abandon() noexcept { parts_->sum.emplace<std::monostate>(); }

}  // namespace lockstep::comm
