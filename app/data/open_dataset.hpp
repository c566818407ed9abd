/// \file
/// Opens the data of a job: their folders, which of their datasets a network reads, samples in whole, in part and as
/// windows.
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

/// Folders of the samples.
struct DataPaths {
  std::filesystem::path training;
  std::filesystem::path validation;  ///< empty: none
};
/// True for data made by `lockstep pack`, whose datasets are x and y.
bool is_packed_data(const std::filesystem::path& path);
/// A folder that contains train/ stands for its train/ and, if present, its validation/ or test/.
DataPaths resolve_data_paths(const DataOptions& options);

/// The datasets that a network reads: the same for training, validation and evaluation.
struct DataFormat {
  std::string network = {};               ///< name of the network in messages
  std::int64_t context = 0;               ///< tokens of a sample; 0: samples are read as they are stored
  std::string x, y;                       ///< HDF5 dataset names; y is "" for tokens
  std::vector<std::string> inputs = {};   ///< names that the network has for its inputs, in its order
  std::vector<std::string> targets = {};  ///< targets that the network has learnt; empty: those of the data
  std::string weight = {};                ///< likewise; "": none
  io::Unlabelled unlabelled = io::Unlabelled::refused;
  io::Gaps gaps = {};
  std::uint64_t seed = 1;  ///< seed for the beginnings of samples of tokens
  bool shift_windows = true;
  bool is_windowed = false;  ///< windows will be made of the samples (windowed())
  io::Layouts layout = {};
  io::LabelMeaning labels =
      io::LabelMeaning::automatic;                 ///< meaning of labels in data made by other programs, if known
  std::optional<std::int64_t> ignored_label = {};  ///< masks: label of positions that belong to no class
};
/// `before`: the checkpoint that the run resumes, or whose network it uses: labels keep the meaning they have there.
DataFormat data_format(const TrainOptions& options, const io::DataDescription* before = nullptr);
/// Inspects data made by other programs before this process opens them, in a separate process of this program. Throws
/// io::FileError.
void inspect_data(const DataFormat& format, const std::filesystem::path& path);
/// Opens samples, or a corpus for a network that reads tokens. Targets are not converted and may be float64: a caller
/// that trains on them puts a StandardizedDataset in front. Throws UsageError if one is needed and the other is
/// present. `deadline` outlives the dataset; nullptr: none.
std::unique_ptr<io::Dataset> open_dataset(const DataFormat& format, const std::filesystem::path& path,
                                          io::IoDeadline* deadline = nullptr, const SharedData& shared = {});

/// Windows over the series in `data`, as the options want them; `data` itself without --window. to_the_end: see
/// io::WindowOptions.
std::unique_ptr<io::Dataset> windowed(const DataOptions& options, std::unique_ptr<io::Dataset> data,
                                      const std::filesystem::path& path, bool to_the_end = false);
/// Part of the samples of `data`: by time where they are windows, else by chance.
std::unique_ptr<io::Dataset> part_of(std::shared_ptr<io::Dataset> data, double share, io::SplitDataset::Part part);
/// Throws UsageError if the data at `path` have samples only: nothing to learn from or to compare with.
void require_labels(const io::DatasetInfo& info, const std::filesystem::path& path);

}  // namespace lockstep::app
