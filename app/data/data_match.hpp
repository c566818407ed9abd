/// \file
/// Comparison of data with those that a network was trained on: classes and the meaning of the numbers. A difference is
/// mapped if the mapping is certain, reported if it is likely to be an error, and refused if it is one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

/// Describes the training data of a run for its checkpoints. `settings`: options with automatic values decided.
io::DataDescription describe_data(const io::DatasetInfo& info, const DataOptions& settings);

struct ValueRange {
  double least = 0, greatest = 0;
};
/// Range of the data's numbers, as far as it is known without reading them.
std::optional<ValueRange> known_range(const io::DatasetInfo& info);
/// Range of some samples, spread over the data; at most 16 MiB of them are read.
ValueRange measured_range(const io::Dataset& dataset);

/// Map from the classes of data to the outputs of a network.
struct ClassMatch {
  std::vector<std::int32_t> output_of_class;  ///< empty: class i is output i
  std::string note;                           ///< the mapping, one sentence; "": none
  std::string warning;                        ///< comparisons that were not possible, one sentence; "": none missing
};
/// Matches by name if both sides have names, otherwise by number. Names that are whole numbers are compared as numbers:
/// class 2 without a name is 2, 2.0 and "+2". `trained_on`: names of the network's outputs, may be empty. Throws
/// UsageError if the data have a class that the network does not know.
ClassMatch match_classes(const std::vector<std::string>& trained_on, std::int64_t outputs, const io::DatasetInfo& data,
                         const std::filesystem::path& path);
/// The data with the network's numbers for its classes. `outputs`: number of classes that the network knows.
std::unique_ptr<io::Dataset> relabelled(std::unique_ptr<io::Dataset> data, const ClassMatch& match,
                                        const std::vector<std::string>& trained_on, std::int64_t outputs);

/// Throws UsageError unless several targets have the names that the network learns, in its order. `network`: empty if
/// they are unknown.
void require_same_targets(std::span<const std::string> network, std::span<const io::FieldRange> data,
                          const std::filesystem::path& path);
/// Throws UsageError if samples have the numbers of the network's samples and other extents.
void require_same_extents(const io::Field& network, const io::Field& data, const std::string& layout,
                          const std::filesystem::path& path);

/// Throws UsageError with both lists unless the data have the inputs that the network reads, in its order. Names are
/// compared where the same set of them is on both sides.
void require_same_inputs(std::span<const io::FieldRange> network, std::span<const io::FieldRange> data,
                         const std::filesystem::path& path);

/// Throws UsageError unless the data have the inputs and targets, if there are several, that a network was trained on.
void require_same_fields(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                         const std::filesystem::path& path);
/// Checks that shape and targets of samples have the meaning that they had in training. Throws UsageError that says
/// what to do.
void require_same_samples(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path);
/// The remedy for data of another range than the network's.
inline constexpr const char* kScaleThem =
    "--normalize says how they become its input (affine(1,0) for numbers that are ready), or pack both alike";
/// Compares the range of the data with that of the training data. Returns a likely error as one sentence, or "". Throws
/// UsageError if it is certainly an error.
std::string compare_ranges(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                           const std::optional<ValueRange>& range, const std::filesystem::path& path,
                           const std::string& remedy = kScaleThem);
/// The same for corpora: compares the checkpoint's vocabulary with that of the data.
std::string compare_vocabularies(const io::TokenInfo& trained_on, const io::TokenInfo& data,
                                 const std::filesystem::path& path);

}  // namespace lockstep::app
