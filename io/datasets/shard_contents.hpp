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
  /// A field, and its place in the row.
  struct Column {
    std::size_t field = 0;              ///< index in the set's files
    Field stored;                       ///< images with channels last
    FileType type = FileType::float32;  ///< type in which read_fields() delivers it
    bool channels_first = false;
    std::int64_t first = 0;
  };

  /// Opens the files. ShardSet::warnings() gets its guesses. Throws FileError.
  explicit ShardContents(const DatasetOptions& options);

  DatasetInfo info;
  std::vector<Column> inputs;                 ///< one or more
  std::vector<Column> targets;                ///< set if there are several; empty if y is one field
  std::size_t y_field = 1;                    ///< the only target
  bool targets_are_rows = false;              ///< several targets, whose positions differ: each is a row of numbers
  Column only_target;                         ///< the only target as it is delivered
  std::optional<TargetValues> known_targets;  ///< from the manifest
  std::vector<std::string> id_checksums;      ///< from the manifest: checksum of the samples' names in each shard, hex
  std::shared_ptr<ShardSet> owned;
  ShardSet& set;
  bool wide_targets = false;
  Field stored_y;  ///< like info.y, except for one-hot labels, which are delivered as numbers
  bool one_hot = false;

  bool has_y() const noexcept { return !info.y.name.empty(); }
  /// Uses the range in the manifest, if there is one.
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
  const std::string& dataset_of(const Column& column) const { return set.file(0).fields()[column.field].dataset; }
  std::string last_word(const Column& input) const;
  /// True if `name` is the field's name, its path within the file, the last part of that path, or "".
  bool is_named(const Column& column, const std::string& name) const;
  /// Puts the channels of inputs, and of targets that may be fields, last.
  void arrange(const DatasetOptions& options);
  /// The targets that may be fields: numbers of two extents or more, or those whose order is given.
  std::vector<Column*> fields_to_predict(const Layouts& layouts);
  /// The first of several targets whose positions are not those of the first one; nullptr: they all have the same.
  const Column* first_with_other_positions(const DatasetOptions& options) const;
  /// The order that the user gives for a target; nullptr: none.
  const FieldLayout* order_of(const Column& target, const Layouts& layouts) const;
  /// True if the input beside the target had its channels first, and the extents behind are those of the target.
  bool follows_channels_first(const Column& target) const;
  void arrange(const FieldLayout& given, Column& column) const;
  void arrange(Layout layout, Column& column, const std::string& what);
  /// Assigns ranges of the row, and its type, to several inputs or targets.
  void lay_side_by_side();
  /// True if labels of these extents have the shape of masks of one of the inputs.
  bool are_shaped_as_masks_of_inputs(std::span<const std::int64_t> shape) const;
  /// The fields of shards to read: those that the user names, otherwise the network's `wanted` ones if all exist.
  std::vector<std::size_t> chosen(const DatasetOptions& options, const ShardManifest& manifest, FieldRole role) const;
  /// Selects the fields of shards with several inputs or targets.
  void take_fields(const DatasetOptions& options, const ShardManifest& manifest);
  /// Computes range and moments of all inputs together.
  void together(const std::vector<FieldRange>& ranges);
  /// Sets the extents of masks. Refuses ignored labels without masks.
  void understand_masks(const DatasetOptions& options);
  /// True if the last extent of a field (the first of channels first) is its channels.
  bool has_channels(const Column& target, const DatasetOptions& options) const;
  /// Extents of the positions of a field; empty: the target is no field.
  std::vector<std::int64_t> positions_of(const Column& target, const DatasetOptions& options) const;
  /// Sets the positions and channels of a field, or of several targets with the same positions.
  void understand_field(const DatasetOptions& options);
  /// Names the classes of masks that are members of an enumeration, the same in all files.
  void name_classes_of_masks();
  std::shared_ptr<ShardSet> open_packed(const DatasetOptions& options);
  void describe_without_manifest(const DatasetOptions& options);
  /// Selects the fields of other programs' files.
  void take_fields(const ShardFile& first, const DatasetOptions& options);
  /// Decides if labels of one element, of any type and shape, are classes.
  bool are_classes(LabelMeaning wanted);
  TargetValues look_at_targets() const;
  /// Recognises rows of zeros with a single 1 as classes, and rows of zeros and ones as binary labels. If classes are
  /// wanted, also recognises rows as long as the samples as masks of series.
  void understand_targets(const DatasetOptions& options);
  void count_classes(LabelMeaning wanted);
};

}  // namespace lockstep::io
