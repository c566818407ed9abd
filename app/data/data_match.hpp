/// \file
/// Compares data with the data that a network was trained on: classes, targets, inputs and ranges of numbers. A
/// difference is mapped if the mapping is certain, causes a warning if it is probably an error, and is refused if it is
/// certainly one.
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

/// Describes the training data of a run for its checkpoints. `settings`: options without automatic values.
io::DataDescription describe_data(const io::DatasetInfo& info, const DataOptions& settings);

/// True if both describe the same samples with the same meaning, in files of any name. False if contents are unknown.
bool is_same_data(const io::DataDescription& a, const io::DataDescription& b);
/// The differences between the data of a run at its beginning and now, one phrase each: "its classes are a, b now, and
/// were a, c".
std::vector<std::string> changes_of(const io::DataDescription& before, const io::DataDescription& now);

struct ValueRange {
  double least = 0, greatest = 0;
};
/// Returns the range of the samples' numbers if it is known without reading them, otherwise nullopt.
std::optional<ValueRange> known_range(const io::DatasetInfo& info);
/// Measures the range of up to 256 samples that are spread evenly over the data. Reads about 16 MiB at most.
ValueRange measured_range(const io::Dataset& dataset);

/// Map from the classes of data to the outputs of a network.
struct ClassMatch {
  std::vector<std::int32_t> output_of_class;  ///< empty: class i is output i
  std::string note;                           ///< the mapping, one sentence; "": none
  std::string warning;                        ///< comparisons that were not possible, one sentence; "": none missing
};
/// Matches classes by name if both sides have names, otherwise by number. Names that are whole numbers are compared as
/// numbers: an unnamed class 2 matches "2", "2.0" and "+2". `trained_on`: names of the network's outputs, may be empty.
/// Throws UsageError if the data have a class that the network does not know, or if a name occurs twice.
ClassMatch match_classes(const std::vector<std::string>& trained_on, std::int64_t outputs, const io::DatasetInfo& data,
                         const std::filesystem::path& path);
/// Returns `data` with the network's class numbers. `outputs`: number of classes that the network knows.
std::unique_ptr<io::Dataset> relabelled(std::unique_ptr<io::Dataset> data, const ClassMatch& match,
                                        const std::vector<std::string>& trained_on, std::int64_t outputs);

/// Throws UsageError unless the targets have the names of the network's targets, in the same order. Does nothing if the
/// data have a single target. `network`: empty if the names are unknown.
void require_same_targets(std::span<const std::string> network, std::span<const io::FieldRange> data,
                          const std::filesystem::path& path);
/// Throws UsageError if samples have as many elements as the network's samples but other extents: the elements would be
/// in another order. Ignores extents of 1, and samples or networks that are flat.
void require_same_extents(const io::Field& network, const io::Field& data, const std::string& layout,
                          const std::filesystem::path& path);

/// Throws UsageError with both lists unless the data have the inputs that the network reads, in the same order and with
/// the same extents. Names are compared if the network knows the name of any input of the data.
void require_same_inputs(std::span<const io::FieldRange> network, std::span<const io::FieldRange> data,
                         const std::filesystem::path& path);

/// Throws UsageError unless the data have the inputs and targets that the network was trained on. Checks only fields of
/// which there are several.
void require_same_fields(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                         const std::filesystem::path& path);
/// Checks fields (require_same_fields()) and extents (require_same_extents()). The UsageError includes the remedy.
void require_same_samples(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path);
/// Remedy for data whose range differs from that of the training data.
inline constexpr const char* kScaleThem =
    "--normalize says how they become its input (affine(1,0) for numbers that are ready), or pack both alike";
/// Compares the range of the data with that of the training data. Returns a warning of one sentence if the difference
/// is probably an error, otherwise "". Throws UsageError if it is certainly an error.
std::string compare_ranges(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                           const std::optional<ValueRange>& range, const std::filesystem::path& path,
                           const std::string& remedy = kScaleThem);
/// Compares the units of inputs and targets, where both sides know them. Returns a warning of one sentence for each
/// difference: two texts may be spellings of one unit.
std::vector<std::string> compare_units(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                                       const std::filesystem::path& path);
/// Like compare_ranges(), for corpora: compares the vocabulary of the checkpoint with that of the data.
std::string compare_vocabularies(const io::TokenInfo& trained_on, const io::TokenInfo& data,
                                 const std::filesystem::path& path);

}  // namespace lockstep::app
