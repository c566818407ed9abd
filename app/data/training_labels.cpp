#include "app/data/training_labels.hpp"

#include <fmt/format.h>

#include "app/options/usage_error.hpp"

namespace lockstep::app {

void require_classes(std::string_view option, const io::DatasetInfo& info) {
  if (info.tokens) {
    throw UsageError(fmt::format("--{} needs samples of classes, and the data are a corpus of tokens", option));
  }
  if (info.labels_are_classes) return;
  throw UsageError(fmt::format("--{} needs samples of which each has one class, and the data hold {}", option,
                               info.targets_are_binary ? "labels, any of which a sample has" : "numbers to predict"));
}

std::vector<std::int32_t> read_labels(comm::Communicator& communicator, const io::Dataset& data) {
  return read_everywhere<std::int32_t>(communicator, data.info().samples, "reading the labels",
                                       [&](std::span<const std::int64_t> numbers, std::span<std::int32_t> labels) {
                                         data.read(numbers, io::kNoEpoch, {}, std::as_writable_bytes(labels));
                                       });
}

}  // namespace lockstep::app
