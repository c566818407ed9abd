/// \file
/// The contents of a shard folder, or of other programs' HDF5 files: which fields are inputs and which targets, the
/// order of their extents, and the meaning of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/shard_set.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/target_values.hpp"

namespace lockstep::io {

struct ShardContents {
  /// A field, and its range of the row.
  struct Column {
    std::size_t field = 0;              ///< in the set's files
    Field stored;                       ///< images with channels last
    FileType type = FileType::float32;  ///< in which read_fields() delivers it
    bool channels_first = false;
    std::int64_t first = 0;
  };

  /// Opens the files, and warns of what it guesses (ShardSet::warnings). Throws FileError.
  explicit ShardContents(const DatasetOptions& options);

  DatasetInfo info;
  std::vector<Column> inputs;                 ///< one or more
  std::vector<Column> targets;                ///< several; none if y is one field
  std::size_t y_field = 1;                    ///< the only target
  Column only_target;                         ///< likewise, as it is delivered
  std::optional<TargetValues> known_targets;  ///< from the manifest
  std::vector<std::string> id_checksums;  ///< from the manifest: checksums of the names of each shard's samples, hex
  std::shared_ptr<ShardSet> owned;
  ShardSet& set;
  bool wide_targets = false;
  Field stored_y;  ///< like info.y, except for one-hot labels, which are delivered as numbers
  bool one_hot = false;

  bool has_y() const noexcept { return !info.y.name.empty(); }
  /// The range in the manifest decides.
  FileType x_type() const noexcept;
  FileType y_type() const noexcept;
  std::string path_of(std::size_t shard) const { return set.path(shard).string(); }
  /// "sample 3", or "sample 3 at [4, 5]" for a label of a mask: element `index` of y from sample `first` on.
  std::string label_place(std::int64_t first, std::size_t index) const;
  template <class Number>
  bool is_ignored(Number label) const noexcept {
    return info.ignored_label && static_cast<double>(label) == static_cast<double>(*info.ignored_label);
  }

 private:
  const std::string& dataset_of(const Column& input) const { return set.file(0).fields()[input.field].dataset; }
  std::string last_word(const Column& input) const;
  /// True for the name of a field, its path within the file, the path's last word, and "", the only one.
  bool is_named(const Column& input, const std::string& name) const;
  void arrange(const Layouts& layouts);
  void arrange(const FieldLayout& given, Column& input) const;
  void arrange(Layout layout, Column& input);
  /// Gives several inputs their ranges of the row, and its type; likewise several targets.
  void lay_side_by_side();
  /// True if labels of these extents are shaped as the masks of one of the inputs.
  bool are_shaped_as_masks_of_inputs(std::span<const std::int64_t> shape) const;
  /// The fields of shards that a reader asks for, by their names: `given` by the user, or the network's `wanted` ones.
  std::vector<std::size_t> chosen(const DatasetOptions& options, const ShardManifest& manifest, FieldRole role) const;
  /// Takes the fields of shards with several inputs or targets.
  void take_fields(const DatasetOptions& options, const ShardManifest& manifest);
  /// Range and moments of all numbers of the inputs.
  void together(const std::vector<FieldRange>& ranges);
  /// Gives masks the extents of their positions. Refuses numbers for each position, and ignored labels elsewhere.
  void understand_masks(const DatasetOptions& options);
  std::shared_ptr<ShardSet> open_packed(const DatasetOptions& options);
  void describe_without_manifest(const DatasetOptions& options);
  /// Takes the fields of other programs' files.
  void take_fields(const ShardFile& first, const DatasetOptions& options);
  /// One rule for labels of one element, of any type and shape.
  bool are_classes(LabelMeaning wanted);
  TargetValues look_at_targets() const;
  /// Recognises rows of zeros with a single 1 as classes, rows of zeros and ones as labels, and, if classes are wanted,
  /// rows as long as the samples as masks of series.
  void understand_targets(const DatasetOptions& options);
  void count_classes(LabelMeaning wanted);
};

}  // namespace lockstep::io
