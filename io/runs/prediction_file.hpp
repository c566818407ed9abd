/// \file
/// What a network says of each sample of a data set: one HDF5 file, in the order of the data.
///
/// | object | type | holds |
/// | --- | --- | --- |
/// | `/scores` | float32 [samples, outputs] | probabilities of the classes or labels, or the predicted numbers |
/// | `/class` | int32 [samples] | the likeliest class, of equal ones the first; only where there are classes |
/// | `/target` | int32 [samples] or float32 [samples, outputs] | what the data say; only where they do |
/// | `/index` | int64 [samples] | the sample's index in the data: 0, 1, ... |
/// | `/id` | uint8 [samples, bytes] | the sample's name, zeros behind it; only where samples have names |
/// | `/`, texts | | what the caller says of it, and `class_names`, `target_names`, `id_column` where they are known |
///
/// Nothing in it depends on how many processes computed it, when or on which hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/files/durable_file.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

struct PredictionContent {
  std::int64_t samples = 0;
  std::int64_t outputs = 0;  ///< scores of a sample
  bool classes = false;
  bool targets = false;
  std::vector<std::string> class_names = {};   ///< may be empty
  std::vector<std::string> target_names = {};  ///< of the numbers, where there are no classes
  std::string id_name = {};                    ///< what the names of the samples are; "": they have none
  std::int64_t id_bytes = 0;                   ///< of a name
  /// Reads the names of samples from `first` on, as many as fit; shorter ones end in zeros.
  std::function<void(std::int64_t first, std::span<std::byte> ids)> read_ids = {};
  std::vector<std::pair<std::string, std::string>> about = {};  ///< attributes of `/`: name, text
};

/// Where predictions go.
struct PredictionOutput {
  enum class Existing { refuse, replace };
  std::filesystem::path file;
  std::filesystem::path csv = {};  ///< the same as text; "": none
  Existing existing = Existing::refuse;
  IoDeadline* deadline = nullptr;  ///< of each operation on these files; outlives the writer
};

/// Written as FILE.partial, and renamed when it is whole. A process that is killed leaves FILE.partial, and beside it
/// FILE.partial.progress, which says how far it is safe: the next one goes on from there where its content is the same.
class PredictionWriter {
 public:
  /// Throws FileError: a file is there already and may not be replaced, another process writes it, the disk is full.
  PredictionWriter(PredictionOutput output, PredictionContent content);

  /// Samples that an earlier process has left: write() goes on behind them.
  std::int64_t done() const noexcept { return done_; }
  /// Why what an earlier process has left is not gone on with, one sentence; "": it is, or there is nothing.
  const std::string& refused() const noexcept { return refused_; }
  /// The next samples: `outputs` scores each, and where there are targets an int32 (classes) or `outputs` float32 each.
  /// Throws FileError.
  void write(std::span<const float> scores, std::span<const std::byte> targets);
  /// What is written so far is on the device, and known to be: a later process goes on behind it. write() does this
  /// every second or so. Throws FileError.
  void note_progress();
  /// All samples are written: on the device, as text, too, where that is wanted, and under their names. Where the text
  /// cannot be written (a full disk) nothing is lost: the next process writes it. Throws FileError.
  void finish();

 private:
  void lock();
  bool take_over();
  std::int64_t noted() const;
  void create();
  void locate();
  std::uint64_t bytes() const noexcept;

  PredictionOutput output_;
  std::filesystem::path partial_, progress_;
  PredictionContent content_;
  std::string identity_;  ///< equal text, equal content
  std::string refused_;
  std::size_t target_bytes_ = 0;  ///< of a sample
  Descriptor values_, lock_;
  std::uint64_t scores_ = 0, classes_ = 0, targets_ = 0;  ///< offsets in the file, bytes
  std::int64_t done_ = 0;
  double noted_at_ = 0;  ///< seconds, of the steady clock
};

}  // namespace lockstep::io
