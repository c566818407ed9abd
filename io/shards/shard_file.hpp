/// \file
/// One HDF5 file of samples, opened for reading: contiguous data in native byte order through a plain descriptor and
/// its file offset (no HDF5 call, no lock), everything else through the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/durable_file.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/files/io_deadline.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/stored_meaning.hpp"

struct stat;

namespace lockstep::io {

/// One dataset: rows are samples.
struct StoredField {
  std::string dataset;
  Field field;  ///< name: "x" or "y"
  std::int64_t count = 0;
  std::optional<std::uint64_t> offset;  ///< set: read by file offset
  std::vector<std::int64_t> chunk;      ///< empty if contiguous
  bool compressed = false;
  bool native_order = true;
  bool in_this_file = true;    ///< false: behind an external link, or in virtual or external storage
  bool text = false;           ///< names of classes; the numbers are those of the names, and field.type is int32
  bool members = false;        ///< these names are members of an enumeration
  StoredMeaning meaning = {};  ///< for other programs' files; field.type is then meaning.numbers
  std::string checksum;        ///< hex; "": the file has none

  /// Bytes of a stored sample in the file.
  std::size_t stored_bytes() const noexcept {
    return static_cast<std::size_t>(field.elements()) * size_of(meaning.matters() ? meaning.stored : field.type);
  }

  /// Samples per chunk, at least 1.
  std::int64_t chunk_rows() const noexcept { return chunk.empty() || chunk[0] < 1 ? 1 : chunk[0]; }
  /// True if a sample's elements are in more than one chunk.
  bool splits_samples() const noexcept;
};

/// A shard's attributes about the whole data set (only in files of `lockstep pack`).
struct ShardAttributes {
  std::int64_t count = 0;
  Labels labels = Labels::none;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  double value_min = 0, value_max = 1;
  std::optional<std::int64_t> ignored_label;
};

/// Splits a text at commas.
std::vector<std::string> names_in(std::string_view text);
/// Names of several datasets for people and networks: the last part of each path; if two of these are equal, the whole
/// paths with _ instead of /.
std::vector<std::string> short_names(const std::vector<std::string>& datasets);

/// Treatment of a file without the given dataset for y.
enum class Unlabelled {
  refused,
  accepted,  ///< read as if y were empty
};

/// Treatment of missing numbers in other programs' files.
struct Gaps {
  /// Numbers that were never written. false: refused (inspect() does it, also for labels that are empty texts); true:
  /// the fill value counts as data.
  bool accept_unwritten = false;
  /// Numbers that are missing by attributes (StoredMeaning). false: reading them is an error; true: they are delivered
  /// as NaN, a missing label as class 0.
  bool deliver_missing = false;
};

class ShardFile {
 public:
  /// Opens the file. Names are paths within it; several have commas between them, unless the file has a dataset with
  /// the whole name. Empty y: the file has no labels. If there is no x (or y) at the top level, the only dataset of
  /// that name in a group is used. Otherwise, if the file has only two datasets and their lengths are equal, the one
  /// with more numbers per sample is x; texts are always y.
  ///
  /// Throws the FileErrors of Hdf5File, and FileError for a missing dataset (listing the existing ones), an unreadable
  /// type, a missing sample dimension, x and y of different lengths, data beyond the end of the file, missing source
  /// files, or a newer schema. One descriptor stays open if both fields are read by file offset. `deadline` limits
  /// opening and reading, and outlives the file.
  ShardFile(const std::filesystem::path& path, const std::string& x, const std::string& y,
            IoDeadline* deadline = nullptr, Unlabelled unlabelled = Unlabelled::refused, Gaps gaps = {});

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::int64_t count() const noexcept { return fields_[0].count; }
  /// The order is: first input, first target (if any), other inputs, other targets.
  const std::vector<StoredField>& fields() const noexcept { return fields_; }
  std::size_t inputs() const noexcept { return inputs_; }  ///< number of inputs
  std::size_t targets() const noexcept { return fields_.size() - inputs_; }
  /// Index in fields() of an input or a target.
  std::size_t input(std::size_t i) const noexcept { return i == 0 || targets() == 0 ? i : i + 1; }
  std::size_t target(std::size_t i) const noexcept { return i == 0 ? 1 : inputs_ + i; }
  const std::optional<ShardAttributes>& attributes() const noexcept { return attributes_; }
  /// A remark for users about datasets used in place of missing names; "": none.
  const std::string& chosen() const noexcept { return chosen_; }
  /// Other files that contain data of x and y: through links, virtual datasets, or external storage.
  std::vector<std::filesystem::path> other_files() const;
  /// The labels if y is text: one per sample, in order.
  const std::vector<std::string>& texts() const noexcept { return texts_; }
  /// Makes read_rows() deliver the index of each text in `names`, which is sorted and contains all texts.
  void number_texts(const std::vector<std::string>& names);

  /// Checks that the file has not changed, by one stat of it and one of each of other_files(). Throws FileError if the
  /// name has another inode, or if size or time of change differ from those at opening. A removed file is not an error,
  /// because an open descriptor can still read it. A removed file among other_files() is an error, because the library
  /// would read fill values instead. Returns true, once, if only the inode's own time is new: permissions have changed,
  /// or a writer has changed the content and restored the old time.
  bool check_unchanged();

  /// Reads elements as stored, in native byte order. Thread-safe. Reads by file offset with one pread. Otherwise each
  /// call opens the file (0.1 ms), so ask for large blocks. Throws FileError, also for a missing number without
  /// deliver_missing.
  void read_rows(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const;
  /// For each number of the rows, true if it is missing: by the attributes, or NaN. Reads the rows.
  std::vector<bool> missing_numbers(std::size_t field, std::int64_t first, std::int64_t rows) const;
  /// Asks the kernel to read ahead (POSIX_FADV_WILLNEED); does nothing for data that goes through the library.
  void will_need(std::size_t field, std::int64_t first, std::int64_t rows) const noexcept;

 private:
  void describe_all(const Hdf5File& file, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& targets);
  /// `role`: "x" or "y", the option that names the dataset.
  StoredField describe(const Hdf5File& file, const std::string& role, const std::string& name,
                       const std::string& dataset, bool may_be_text);
  void note_other_files(const Hdf5File& file, const std::string& dataset);
  void read_labels(const Hdf5File& file, const std::string& dataset);
  void read_stored(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const;
  void choose(const Hdf5File& file, std::string& x, std::string& y, Unlabelled unlabelled);
  void check_promise(const StoredField& stored, const DatasetLayout& layout) const;

  struct Identity {
    std::uint64_t inode = 0, bytes = 0;
    std::int64_t changed = 0;        ///< ns since 1970: time of change of the content (mtime)
    std::int64_t inode_changed = 0;  ///< ns since 1970: time of change of the inode (ctime)
  };
  static Identity identity_of(const struct stat& status) noexcept;
  /// Describes the difference; "" for the same file with the same content.
  static std::string change(const Identity& before, const Identity& now);
  struct OtherFile {
    std::filesystem::path path;
    Identity identity;
  };

  std::filesystem::path path_;
  IoDeadline* deadline_;
  Gaps gaps_;
  std::uint64_t bytes_ = 0;
  Identity identity_;
  std::vector<OtherFile> others_;
  std::vector<StoredField> fields_;
  std::size_t inputs_ = 1;
  std::optional<ShardAttributes> attributes_;
  std::string chosen_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> numbers_;  ///< number of each text
  Descriptor descriptor_;
};

}  // namespace lockstep::io
