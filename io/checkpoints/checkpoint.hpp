/// \file
/// Checkpoints. Each is one HDF5 file, or one file with parts beside it that several processes wrote
/// (checkpoint_format.md). The writer gives a checkpoint a temporary name, syncs it, reads it back, verifies it and
/// renames it. Then it syncs the folder and moves `latest` and `best`. It never deletes the newest verified checkpoint.
/// kill -9 at any instant leaves the last good one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoints/checkpoint_parts.hpp"
#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Identifies the network of a checkpoint's tensors.
struct NetworkIdentity {
  std::string kind;                        ///< name of the kind, in users' terms: "gpt"
  std::string signature;                   ///< the network and its options in one line; equal text, equal network
  std::int64_t features = 0, outputs = 0;  ///< extents of a sample; for tokens, the context and the vocabulary
  /// Height, width, channels, and depth of a volume; empty: not an image (formats 1 and 2: unknown)
  std::vector<std::int64_t> image = {};
  bool tokens = false;  ///< samples are tokens
  bool operator==(const NetworkIdentity&) const = default;
};
/// For messages: "784 -> 10: mlp 784-512-10 relu".
std::string to_text(const NetworkIdentity& network);

/// The state of a run, besides its tensors.
struct TrainingRecord {
  std::int64_t step = 0;      ///< updates done
  std::int64_t epoch = 0;     ///< epoch of the next sample
  std::int64_t position = 0;  ///< position of the next sample within that epoch
  std::uint64_t seed = 0;
  int world_size = 1;         ///< world size of the writer, for information; 0: the file is the same for any
  NetworkIdentity network;    ///< a checkpoint of another network is refused
  std::string optimizer;      ///< optimiser name: decides which state groups follow
  std::string dataset;        ///< dataset fingerprint
  std::string configuration;  ///< effective configuration, INI
  std::string program_version;
  double best_metric = 0;            ///< best validation metric so far; NaN: none
  std::int64_t validated_step = -1;  ///< step of the last validation; -1: none
  std::string metrics;               ///< history, JSON lines
  /// Vocabulary of a language model, as JSON (token_info.hpp), so that a checkpoint alone can generate text. Otherwise
  /// "".
  std::string vocabulary = {};
  /// Description of the training data, as JSON (data_description.hpp). "": unknown (formats 1 to 4, imports).
  std::string data_description = {};
  /// Text of the network (YAML), if a user's file describes it. "": a shipped network (and formats 1 to 6).
  std::string network_text = {};
};

struct TensorView {
  std::string group;  ///< "parameters", "first_moment" …; no '/', not "state"
  std::string name;   ///< may contain '/': "dense_1/weight"
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

struct StoredTensor {
  std::string group, name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

struct Checkpoint {
  TrainingRecord record;
  std::vector<StoredTensor> tensors;
  /// nullptr when absent.
  const StoredTensor* find(std::string_view group, std::string_view name) const noexcept;
};

/// Reads and verifies everything (every tensor's checksum, the record's checksum, the format version). Throws
/// FileError: "checkpoints/step-10.h5 is corrupted: tensor parameters/dense_1/weight …", "… was written by a newer
/// format (5)". Parts are read, too, so that readers need not know about them.
Checkpoint read_checkpoint(const std::filesystem::path& file);
/// As read_checkpoint(), but keeps only the record. Each tensor is in memory for a moment.
TrainingRecord verify_checkpoint(const std::filesystem::path& file);

struct FoundCheckpoint {
  std::filesystem::path file;
  std::int64_t step = 0;
};
/// step-*.h5 in the folder, newest first. Opens no file.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);
/// The newest checkpoint that verifies; nullopt: none. `rejected` receives one sentence for each newer one that fails.
/// `latest` is not used: it is for people and other tools.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& rejected);
/// The target of the link `best` in the folder; empty: no such link. The file itself may have been removed.
std::filesystem::path best_checkpoint(const std::filesystem::path& folder);

/// Bytes on the disk, parts included; 0: unknown.
std::uintmax_t checkpoint_bytes(const std::filesystem::path& file) noexcept;
/// The record as stored, without its tensors. Verifies nothing. Throws FileError.
TrainingRecord stored_record(const std::filesystem::path& file);
/// The checksum of the state as stored, 16 hex digits. Throws FileError.
std::string stored_checksum(const std::filesystem::path& file);
/// True for an HDF5 file that is marked as a checkpoint. Throws FileError if it is not an HDF5 file.
bool is_checkpoint(const std::filesystem::path& file);

/// Writes one checkpoint outside a run, under any name; an existing file is replaced. The file appears whole, on the
/// device and read back, or not at all. Throws FileError (disk full: states bytes needed and free).
void write_checkpoint(const std::filesystem::path& file, const TrainingRecord& record,
                      std::span<const TensorView> tensors);

struct CheckpointWriterOptions {
  std::filesystem::path folder = {};  ///< RUN/checkpoints
  int keep = 3;                       ///< number of checkpoints kept, including the newest; >= 1
  std::int64_t goes_on_from = -1;  ///< step of the checkpoint in this folder from which a resumed run starts; -1: none
  int keep_best = 0;               ///< number of additional checkpoints kept for their validation metrics
  /// Returns true if the first metric is better; required if keep_best > 0. Ties are won by the lower loss, then by the
  /// earlier step.
  std::function<bool(double, double)> is_better = {};
  std::map<std::int64_t, double> metrics = {};  ///< metrics of a resumed run's earlier validations, by step
  std::map<std::int64_t, double> losses = {};   ///< losses of the same validations
  /// Returns true if a checkpoint of this step with this history belongs to a resumed run's past, and false for a
  /// branch that the run has left. Empty: all checkpoints up to goes_on_from belong to it.
  std::function<bool(std::int64_t step, const std::string& history)> lies_behind = {};
  /// Throws if this process no longer owns the run; called before each change. Empty: no other owner is possible.
  std::function<void()> still_owner = {};
};

/// Files on the disk at each moment of write() (checkpoint_format.md has the reasons):
///
///   .step-N.h5.PID-HEX.tmp     space reserved, written, closed, synced, read back and verified
///   step-N.h5                  by rename; then the folder is synced
///   latest -> step-N.h5        a symbolic link, replaced by rename; absent if the file system has no links
///   best -> step-M.h5          likewise: the existing checkpoint with the best validation metric; absent without any
///                              metric, and with keep_best 0
///   older step-*.h5            removed, except the newest keep - 1 and the best keep_best; files of later steps are
///                              neither counted nor removed (after a resume from an older checkpoint they may be the
///                              better ones)
///   step-*.parts-*             removed when no checkpoint refers to them any more
///
/// A failure at any point removes the temporary and leaves the rest as it was.

class CheckpointWriter {
 public:
  /// The folder must exist, and the caller must own the run. Removes unfinished files of earlier writers, temporaries
  /// and parts. Moves the links and removes older checkpoints up to the one from which the run continues, as write()
  /// does: an earlier writer may have died before it could do so, and a run that has no step left writes no other.
  explicit CheckpointWriter(CheckpointWriterOptions options);
  /// Blocks until the checkpoint is on the device; calls from several threads take turns. A checkpoint of the same step
  /// is replaced. `split`: the rest of the state, in parts that are already written. Returns the final path. Throws
  /// FileError (disk full: states bytes needed and free); older checkpoints are intact.
  std::filesystem::path write(const TrainingRecord& record, std::span<const TensorView> tensors,
                              const SplitState& split = {});
  /// Sets the metric (NaN: not validated) and the loss (NaN: unknown) of the weights of this step, from the next
  /// write() on. Any thread may call it; it waits for no write.
  void validated(std::int64_t step, double metric, double loss = std::numeric_limits<double>::quiet_NaN());

 private:
  std::vector<std::filesystem::path> best(std::int64_t last_step) const;
  void move_best(std::span<const std::filesystem::path> best) const;
  void move_link(const char* link, const std::filesystem::path& file) const;
  bool lies_behind(const FoundCheckpoint& found) const;
  void prune(std::int64_t written_step, std::span<const std::filesystem::path> best) const;
  void remove_orphaned_parts(std::int64_t last_step) const;
  void check_owner() const;

  CheckpointWriterOptions options_;
  std::mutex writing_;
  std::set<std::int64_t> own_;       ///< steps whose files belong to this run, not to a branch that it has left
  mutable std::mutex metrics_lock_;  ///< guards options_.metrics and options_.losses
};

}  // namespace lockstep::io
