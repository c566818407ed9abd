/// \file
/// Opens the data of a job: finds their folders, selects the datasets that a network reads, and takes parts of the
/// samples or windows over them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/data/shared_data.hpp"
#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

/// Folders or files with the samples.
struct DataPaths {
  std::filesystem::path training;
  std::filesystem::path validation;  ///< empty: none
};
/// True if `path` was made by `lockstep pack`; its datasets are x and y.
bool is_packed_data(const std::filesystem::path& path);
/// Finds the data of --data and --validation. A folder that contains train/ is replaced by its train/ and, if present,
/// its validation/ or test/. Throws UsageError without --data.
DataPaths resolve_data_paths(const DataOptions& options);

/// The datasets that a network reads: the same for training, validation and evaluation.
struct DataFormat {
  std::string network = {};               ///< name of the network in messages
  std::int64_t context = 0;               ///< tokens per sample; 0: samples are not tokens
  std::string x, y;                       ///< HDF5 dataset names; y is "" for tokens
  std::vector<std::string> inputs = {};   ///< the network's names of its inputs, in its order
  std::vector<std::string> targets = {};  ///< targets that the network learns; empty: those of the data
  std::string weight = {};                ///< name of the weights of the samples; "": none
  io::Unlabelled unlabelled = io::Unlabelled::refused;
  io::Gaps gaps = {};
  std::uint64_t seed = 1;  ///< seed for the first tokens of samples in training
  bool shift_windows = true;
  bool is_windowed = false;  ///< the caller will cut the samples into windows (windowed())
  io::Layouts layout = {};
  io::LabelMeaning labels = io::LabelMeaning::automatic;  ///< meaning of labels in files of other programs, if known
  std::size_t extents = 0;                                ///< io::DatasetOptions::extents
  std::optional<std::int64_t> ignored_label = {};         ///< masks: label of positions that belong to no class
};
/// Returns the format that a learning problem requests. `before`: training data of the checkpoint that the run resumes
/// or whose network it uses; labels and inputs keep their meaning. Throws UsageError for --window with a language
/// model.
DataFormat data_format(const LearningProblem& problem, const io::DataDescription* before = nullptr);
/// Inspects files of other programs in a child process, before this process opens them. Throws io::FileError.
void inspect_data(const DataFormat& format, const std::filesystem::path& path);
/// Opens samples, or a corpus if the network reads tokens. Targets are not converted and may be float64: a caller that
/// trains on them wraps the dataset in a StandardizedDataset. Throws UsageError if the network reads samples and the
/// data are a corpus. `deadline` must outlive the dataset; nullptr: none.
std::unique_ptr<io::Dataset> open_dataset(const DataFormat& format, const std::filesystem::path& path,
                                          io::IoDeadline* deadline = nullptr, const SharedData& shared = {});

/// Returns windows over the series in `data`, or `data` itself without --window. to_the_end: see io::WindowOptions.
std::unique_ptr<io::Dataset> windowed(const DataOptions& options, std::unique_ptr<io::Dataset> data,
                                      const std::filesystem::path& path, bool to_the_end = false);
/// Returns a part of the samples of `data`: windows are split by time, other samples at random.
std::unique_ptr<io::Dataset> part_of(std::shared_ptr<io::Dataset> data, double share, io::SplitDataset::Part part);
/// Throws UsageError if the data at `path` have no labels or targets.
void require_labels(const io::DatasetInfo& info, const std::filesystem::path& path);

}  // namespace lockstep::app
