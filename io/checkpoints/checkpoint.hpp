/// \file
/// Checkpoints: one HDF5 file each, or one with parts beside it that several processes have written
/// (checkpoint_format.md). Written to a temporary name, synced, read back and verified,
/// renamed, folder synced, then `latest` and `best` moved; keep-N never deletes the newest verified one. kill -9 at any
/// instant leaves the last good one.
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

/// The network that the tensors of a checkpoint belong to.
struct NetworkIdentity {
  std::string kind;                        ///< as users name it: "gpt"
  std::string signature;                   ///< the network and its options in a line; equal text, equal network
  std::int64_t features = 0, outputs = 0;  ///< of a sample; of tokens: the context and the vocabulary
  std::vector<std::int64_t> image = {};    ///< height, width, channels; empty: no image (formats 1 and 2: not known)
  bool tokens = false;                     ///< samples are tokens
  bool operator==(const NetworkIdentity&) const = default;
};
/// For messages: "784 -> 10: mlp 784-512-10 relu".
std::string to_text(const NetworkIdentity& network);

/// Where a run stands, besides its tensors.
struct TrainingRecord {
  std::int64_t step = 0;      ///< updates done
  std::int64_t epoch = 0;     ///< epoch of the next sample
  std::int64_t position = 0;  ///< position of the next sample within that epoch
  std::uint64_t seed = 0;
  int world_size = 1;         ///< of the writer, for information; 0: the file would be the same at any other
  NetworkIdentity network;    ///< a checkpoint of another network is refused
  std::string optimizer;      ///< optimiser name: tells which state groups follow
  std::string dataset;        ///< dataset fingerprint
  std::string configuration;  ///< effective configuration, INI
  std::string program_version;
  double best_metric = 0;            ///< best validation metric so far; NaN when none
  std::int64_t validated_step = -1;  ///< step of the last validation; -1: there was none
  std::string metrics;               ///< history, JSON lines
  /// Of a language model, as JSON (token_info.hpp): with it, a checkpoint alone makes text. Or "".
  std::string vocabulary = {};
  /// What the network was trained on, as JSON (data_description.hpp). "": not known (formats 1 to 4, imports).
  std::string data_description = {};
};

struct TensorView {
  std::string group;  ///< "parameters", "first_moment" …; no '/', not "state"
  std::string name;   ///< may have parts: "dense_1/weight"
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
/// format (5)". Parts are read, too: nobody who reads needs to know of them.
Checkpoint read_checkpoint(const std::filesystem::path& file);
/// The same checks and the same reading; nothing kept but the record and, for a moment each, the tensors.
TrainingRecord verify_checkpoint(const std::filesystem::path& file);

struct FoundCheckpoint {
  std::filesystem::path file;
  std::int64_t step = 0;
};
/// step-*.h5 in the folder, newest first; no file is opened.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder);
/// The newest that verifies; `rejected` receives one sentence for each newer one that did not. nullopt: none there.
/// `latest` plays no part: it is for people and other tools.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& rejected);
/// What `best` in the folder points at; empty: there is no such link. The file may be gone: somebody removed it.
std::filesystem::path best_checkpoint(const std::filesystem::path& folder);

/// Bytes on the disk, with the parts; 0 where nobody knows.
std::uintmax_t checkpoint_bytes(const std::filesystem::path& file) noexcept;
/// The record as the file says it, without its tensors; nothing is verified. Throws FileError.
TrainingRecord stored_record(const std::filesystem::path& file);
/// The checksum of the state as the file says it, 16 hex digits. Throws FileError.
std::string stored_checksum(const std::filesystem::path& file);
/// An HDF5 file that says so of itself. Throws FileError where it is no HDF5 file.
bool is_checkpoint(const std::filesystem::path& file);

/// One checkpoint outside a run, under any name; what is there is replaced. The file appears whole, on the device and
/// read back, or not at all. Throws FileError (disk full: says bytes needed and free).
void write_checkpoint(const std::filesystem::path& file, const TrainingRecord& record,
                      std::span<const TensorView> tensors);

struct CheckpointWriterOptions {
  std::filesystem::path folder = {};  ///< RUN/checkpoints
  int keep = 3;                       ///< how many are kept, the one just written among them; >= 1
  std::int64_t goes_on_from = -1;     ///< the step whose checkpoint in this folder a resumed run begins with
  int keep_best = 0;                  ///< how many of those with the best validation metrics stay besides
  /// Of two metrics, the first is better; wanted where keep_best > 0. Of equal ones the lower loss is, then the
  /// earlier.
  std::function<bool(double, double)> is_better = {};
  std::map<std::int64_t, double> metrics = {};  ///< of the validations that lie behind a resumed run, by step
  std::map<std::int64_t, double> losses = {};   ///< likewise
  /// Whether a checkpoint of this step whose history is this lies behind a resumed run; one of a branch that the run
  /// has left does not. None: all up to goes_on_from do.
  std::function<bool(std::int64_t step, const std::string& history)> lies_behind = {};
  /// Throws when this process no longer owns the run; called before each change. None: nobody else is expected.
  std::function<void()> still_owner = {};
};

/// What lies on disk at each moment of write() (checkpoint_format.md has the reasons):
///
///   .step-N.h5.PID-HEX.tmp     space reserved, written, closed, synced, read back and verified
///   step-N.h5                  by rename; then the folder is synced
///   latest -> step-N.h5        a symbolic link, replaced by rename; absent where the file system has no links
///   best -> step-M.h5          likewise: of those that are there, the one with the best validation metric; absent
///                              where none has one, and with keep_best 0
///   older step-*.h5            removed but for the newest keep - 1 and the best keep_best; files of later steps are
///                              neither counted nor removed (after a resume from an older checkpoint they may be the
///                              better ones)
///   step-*.parts-*             removed where no checkpoint refers to them any more
///
/// A failure at any point removes the temporary and leaves the rest as it was.

class CheckpointWriter {
 public:
  /// The folder must exist. Removes what earlier writers left unfinished, temporaries and parts, and moves `latest` to
  /// the checkpoint that the run goes on from, which one of them may not have come to: who constructs a writer owns
  /// the run.
  explicit CheckpointWriter(CheckpointWriterOptions options);
  /// Blocks until the checkpoint is on the device; calls from several threads take turns. A checkpoint of the same step
  /// is replaced. `split`: what parts that are written already hold besides. Returns the final path. Throws FileError
  /// (disk full: says bytes needed and free); older checkpoints are intact.
  std::filesystem::path write(const TrainingRecord& record, std::span<const TensorView> tensors,
                              const SplitState& split = {});
  /// The weights of this step have this metric (NaN: as if they had not been validated) and this loss (NaN: not known):
  /// counts from the next write() on. From any thread, waits for no write.
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
  std::set<std::int64_t> own_;       ///< steps whose files are of this run, not of a branch that it has left
  mutable std::mutex metrics_lock_;  ///< of options_.metrics and options_.losses
};

}  // namespace lockstep::io
