/// \file
/// Data beside what a network was trained on: which class is which, and whether the numbers mean the same. Differences
/// are mapped where that is certain, told where they are likely to be a mistake, refused where they are one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

/// What a checkpoint says of the data that a run is trained on. `settings`: with what was decided in the place of what
/// is automatic.
io::DataDescription describe_data(const io::DatasetInfo& info, const TrainOptions& settings);

struct ValueRange {
  double least = 0, greatest = 0;
};
/// Of the numbers of the data, as far as they are known without reading them.
std::optional<ValueRange> known_range(const io::DatasetInfo& info);
/// Of some samples, spread over the data; no more than 16 MiB of them are read.
ValueRange measured_range(const io::Dataset& dataset);

/// How the classes of data become the outputs of a network.
struct ClassMatch {
  std::vector<std::int32_t> output_of_class;  ///< empty: class i is output i
  std::string note;                           ///< what was mapped, one sentence; "": nothing
  std::string warning;                        ///< what could not be compared, one sentence; "": all was, or need not be
};
/// By name, where both know their names; otherwise by number. Names that are whole numbers are compared as numbers:
/// class 2 without a name is 2, 2.0 and "+2". `trained_on`: names of the network's outputs, may be empty. Throws
/// UsageError where the data have a class that the network does not know.
ClassMatch match_classes(const std::vector<std::string>& trained_on, std::int64_t outputs, const io::DatasetInfo& data,
                         const std::filesystem::path& path);
/// The data with the network's numbers for its classes. `outputs`: how many it knows.
std::unique_ptr<io::Dataset> relabelled(std::unique_ptr<io::Dataset> data, const ClassMatch& match,
                                        const std::vector<std::string>& trained_on, std::int64_t outputs);

/// Whether samples mean what those meant that the network was trained on: shape, targets. Throws UsageError that
/// says what to do.
void require_same_samples(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path);
/// Whether numbers of this range can be meant for the network. Returns what is likely to be a mistake, one sentence, or
/// "". Throws UsageError where it is one.
std::string compare_ranges(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                           const std::optional<ValueRange>& range, const std::filesystem::path& path);
/// Likewise of corpora: the checkpoint's vocabulary beside that of the data.
std::string compare_vocabularies(const io::TokenInfo& trained_on, const io::TokenInfo& data,
                                 const std::filesystem::path& path);

}  // namespace lockstep::app
