/// \file
/// One HDF5 file of samples, opened for reading: contiguous data in native byte order through a plain descriptor and
/// its file offset (no HDF5 call, no lock), everything else through the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
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
  std::vector<std::int64_t> chunk;      ///< empty when contiguous
  bool compressed = false;
  bool native_order = true;
  bool in_this_file = true;    ///< false: behind an external link, or in virtual or external storage
  bool text = false;           ///< strings, whose numbers are those of their names; field.type is int32
  StoredMeaning meaning = {};  ///< of files made by others; field.type is meaning.numbers then
  std::string checksum;        ///< hex; "" where the file has none

  /// Bytes of a sample in the file, as they are read.
  std::size_t stored_bytes() const noexcept {
    return static_cast<std::size_t>(field.elements()) * size_of(meaning.matters() ? meaning.stored : field.type);
  }

  /// Samples per chunk, at least 1.
  std::int64_t chunk_rows() const noexcept { return chunk.empty() || chunk[0] < 1 ? 1 : chunk[0]; }
  /// A sample's elements lie in more than one chunk.
  bool splits_samples() const noexcept;
};

/// What a shard says about the whole, in its attributes (files by `lockstep pack` only).
struct ShardAttributes {
  std::int64_t count = 0;
  Labels labels = Labels::none;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  double value_min = 0, value_max = 1;
};

/// What becomes of a file that has no dataset of the name given for y.
enum class Unlabelled {
  refused,
  accepted,  ///< as if y had been empty
};

/// The treatment of numbers that nobody has given, in files made by others.
struct Gaps {
  /// Never written: refused (inspect() does it, and labels that are empty texts), or the fill value counts as data.
  bool accept_unwritten = false;
  /// Missing, as attributes say (StoredMeaning): refused as they are read, or delivered: as NaN, a label as class 0.
  bool deliver_missing = false;
};

class ShardFile {
 public:
  /// Empty y: the file has no labels. Names are paths within the file. Where nothing is called x (or y), the only one
  /// of that name in a group is taken; else two data sets of equal length that are alone in the file, of which the one
  /// with more numbers per sample is x. Throws FileError: everything that Hdf5File throws, a dataset missing (lists
  /// those there are), of an unreadable type, without a sample dimension, x and y of different lengths, data beyond the
  /// end of the file, other files that take part in it and are not there, a newer schema. One descriptor stays open
  /// when both fields are read by offset. `deadline` is that of opening and reading, and outlives the file.
  ShardFile(const std::filesystem::path& path, const std::string& x, const std::string& y,
            IoDeadline* deadline = nullptr, Unlabelled unlabelled = Unlabelled::refused, Gaps gaps = {});

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::int64_t count() const noexcept { return fields_[0].count; }
  /// x, and y where there is one.
  const std::vector<StoredField>& fields() const noexcept { return fields_; }
  const std::optional<ShardAttributes>& attributes() const noexcept { return attributes_; }
  /// The data set names that were taken where those asked for are not there, for the user; "" where they are.
  const std::string& chosen() const noexcept { return chosen_; }
  /// Files that x and y take data from, besides this one: behind links, of virtual datasets, of external storage.
  std::vector<std::filesystem::path> other_files() const;
  /// Of y, where it is text: one for each sample, in order.
  const std::vector<std::string>& texts() const noexcept { return texts_; }
  /// The place of each of the texts in `names`, which has all of them, sorted, becomes what read_rows() gives.
  void number_texts(const std::vector<std::string>& names);

  /// One stat, and one for each of other_files(): throws FileError where another inode has the file's name now, or its
  /// size or time of change is another than at opening. A file that is gone is left to those who read it: an open
  /// descriptor still does; one of other_files() that is gone is an error, as the library would read fill values in its
  /// place. Returns true, once, where only the inode's own time is new: its permissions changed, or its content by
  /// someone who gave it its old time back.
  bool check_unchanged();

  /// Elements as stored, in native byte order. Thread-safe. By offset: one pread. Otherwise the file is opened for the
  /// call (0.1 ms): ask for large blocks.
  /// Throws FileError, also where a number is missing and not to be delivered.
  void read_rows(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const;
  /// Tells of each row whether any number is missing: as attributes say, or NaN. Reads them.
  std::vector<bool> missing_rows(std::size_t field, std::int64_t first, std::int64_t rows) const;
  /// Asks the kernel to read ahead (POSIX_FADV_WILLNEED); does nothing for data that goes through the library.
  void will_need(std::size_t field, std::int64_t first, std::int64_t rows) const noexcept;

 private:
  StoredField describe(const Hdf5File& file, const std::string& name, const std::string& dataset);
  void note_other_files(const Hdf5File& file, const std::string& dataset);
  void read_labels(const Hdf5File& file, const std::string& dataset);
  void read_stored(std::size_t field, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const;
  void choose(const Hdf5File& file, std::string& x, std::string& y, Unlabelled unlabelled);
  void check_promise(const StoredField& stored, const DatasetLayout& layout) const;

  struct Identity {
    std::uint64_t inode = 0, bytes = 0;
    std::int64_t changed = 0;        ///< ns since 1970: the content (mtime)
    std::int64_t inode_changed = 0;  ///< ns: anything (ctime)
  };
  static Identity identity_of(const struct stat& status) noexcept;
  /// "" where it is the same file with the same content.
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
  std::optional<ShardAttributes> attributes_;
  std::string chosen_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> numbers_;  ///< of the texts
  Descriptor descriptor_;
};

}  // namespace lockstep::io
