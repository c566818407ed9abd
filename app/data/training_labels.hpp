/// \file
/// Reads the labels of training samples. Each rank reads a part, and every rank gets all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Throws UsageError unless each sample has one class. `option`: the option that needs classes, for the message.
void require_classes(std::string_view option, const io::DatasetInfo& info);

/// Collective. Returns one value for each sample, on every rank. Each rank reads a part with read(sample numbers, span
/// for their values) and broadcasts it. `what` names the operation in messages. Throws comm::ConsensusError if reading
/// fails.
template <class Value, class Read>
std::vector<Value> read_everywhere(comm::Communicator& communicator, std::int64_t samples, const char* what,
                                   const Read& read) {
  constexpr std::int64_t kRead = 65'536;  // samples per read
  const std::int64_t size = communicator.size();
  std::vector<Value> values(static_cast<std::size_t>(samples));
  const auto first_of = [&](std::int64_t rank) { return samples * rank / size; };
  const auto between = [&](std::int64_t begin, std::int64_t end) {
    return std::span(values).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  };
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation reading(communicator, what);
    const std::int64_t end = first_of(communicator.rank() + 1);
    std::vector<std::int64_t> numbers;
    for (std::int64_t at = first_of(communicator.rank()); at < end; at += kRead) {
      numbers.clear();
      for (std::int64_t number = at; number < std::min(at + kRead, end); ++number) numbers.push_back(number);
      read(std::span<const std::int64_t>(numbers), between(at, at + std::ssize(numbers)));
    }
  });
  for (int rank = 0; rank < size; ++rank) {
    communicator.broadcast(std::as_writable_bytes(between(first_of(rank), first_of(rank + 1))), rank);
    communicator.wait(what);
  }
  return values;
}

/// Collective. Returns the class of each sample, on every rank.
std::vector<std::int32_t> read_labels(comm::Communicator& communicator, const io::Dataset& data);

}  // namespace lockstep::app
