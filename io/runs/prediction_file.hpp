/// \file
/// One HDF5 file with a network's predictions for each sample of a dataset, in the order of the data.
///
/// | object | type | holds |
/// | --- | --- | --- |
/// | `/scores` | float32 [samples, outputs] | probabilities of classes or labels, or predicted numbers |
/// | `/class` | int32 [samples] | the likeliest class, the first of equals; only with classes |
/// | `/target` | int32 [samples] or float32 as `/scores` | the target, if the data have one |
/// | `/index` | int64 [samples] | index of the sample among those predicted: 0, 1, ... |
/// | `/row` | int64 [samples] | index of the sample among all samples, if those predicted are a part of the data |
/// | `/id` | uint8 [samples, bytes] | name of the sample, padded with zeros; if samples have names |
///
/// For masks, `/class` and `/target` are int32 [samples, extents of a mask], with -1 in `/target` for no class, and
/// there is no `/scores`. For fields, `/scores` and `/target` are float32 [samples, extents of a field]. The attributes
/// of `/` are texts: those of the caller, and `class_names`, `target_names` and `id_column` if known.
///
/// The content does not depend on the number of processes that computed it, nor on time or hosts.
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
  std::int64_t outputs = 0;  ///< scores per sample
  bool classes = false;
  bool targets = false;
  std::vector<std::int64_t> mask = {};   ///< extents of masks, which have a class at each position; empty: no masks
  std::vector<std::int64_t> field = {};  ///< extents of fields, with `outputs` numbers in all; empty: rows
  std::vector<std::string> class_names = {};   ///< may be empty
  std::vector<std::string> target_names = {};  ///< names of the numbers, if there are no classes
  std::string id_name = {};                    ///< name of the identifier column; "": samples have no names
  std::int64_t id_bytes = 0;                   ///< bytes per name
  /// Reads the names of samples from `first` on, as many as fit, padded with zeros.
  std::function<void(std::int64_t first, std::span<std::byte> ids)> read_ids = {};
  /// Set for a part of the data: index of a sample among all samples.
  std::function<std::int64_t(std::int64_t sample)> row_of = {};
  std::vector<std::pair<std::string, std::string>> about = {};  ///< attributes of `/`: name, text
};

/// Destination of predictions.
struct PredictionOutput {
  enum class Existing { refuse, replace };
  std::filesystem::path file;
  std::filesystem::path csv = {};  ///< the same content as text; "": none
  Existing existing = Existing::refuse;
  IoDeadline* deadline = nullptr;  ///< limit of each operation on these files; outlives the writer
};

/// Writes FILE.partial, and renames it when it is complete. A killed process leaves FILE.partial and
/// FILE.partial.progress, which states how many samples are safe. The next process continues from there if its content
/// is the same.
class PredictionWriter {
 public:
  /// Throws FileError: the file exists and may not be replaced, another process is writing it, the disk is full.
  PredictionWriter(PredictionOutput output, PredictionContent content);

  /// Number of samples that an earlier process completed: write() continues after them.
  std::int64_t done() const noexcept { return done_; }
  /// The reason why an earlier process's samples are not used, one sentence; "": they are used, or there are none.
  const std::string& refused() const noexcept { return refused_; }
  /// Appends samples: `outputs` scores each and, with targets, one int32 (classes) or `outputs` float32 each.
  /// Throws FileError.
  void write(std::span<const float> scores, std::span<const std::byte> targets);
  /// Appends masks: the class of each position and, with targets, as many int32. Throws FileError.
  void write_masks(std::span<const std::int32_t> classes, std::span<const std::byte> targets);
  /// Flushes the samples written so far to the device and records them, so that a later process continues after them.
  /// write() does this about every second. Throws FileError.
  void note_progress();
  /// Completes the files after the last sample: on the device, also as text if requested, and under their final names.
  /// If the text cannot be written (a full disk), nothing is lost: the next process writes it. Throws FileError.
  void finish();

 private:
  void lock();
  bool take_over();
  std::int64_t noted() const;
  void create();
  void locate();
  void add(std::size_t samples);
  std::uint64_t bytes() const noexcept;

  PredictionOutput output_;
  std::filesystem::path partial_, progress_;
  PredictionContent content_;
  std::string identity_;  ///< equal text, equal content
  std::string refused_;
  std::size_t positions_ = 1;     ///< classes of a sample
  std::size_t target_bytes_ = 0;  ///< bytes per sample
  Descriptor values_, lock_;
  std::uint64_t scores_ = 0, classes_ = 0, targets_ = 0;  ///< byte offsets in the file
  std::int64_t done_ = 0;
  double noted_at_ = 0;  ///< time of the last note, seconds of the steady clock
};

}  // namespace lockstep::io
