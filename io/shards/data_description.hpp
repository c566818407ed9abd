/// \file
/// Description of a network's training data, as stored in checkpoints: shape and meaning of samples, their conversion
/// to the network's input, and the names of classes or targets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/shards/feature_scale.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {

struct DataDescription {
  Field x;  ///< as stored; for tokens, a window; for several inputs, the row of all their numbers
  std::vector<Field> inputs = {};  ///< the inputs, adjacent in x, if there are several; channels last
  std::string layout;  ///< layout of a sample: "features", "height, width", "height, width, channels", "tokens", or ""
  bool has_range = false;  ///< value_min and value_max are known
  double value_min = 0, value_max = 1;
  bool has_statistics = false;  ///< mean and standard_deviation over all elements of x are known
  double mean = 0, standard_deviation = 1;
  Labels labels = Labels::none;  ///< none for tokens: the target is the next token
  std::int64_t classes = 0;
  std::optional<std::int64_t> ignored_label = {};  ///< masks: stored label of positions that belong to no class
  std::vector<std::int64_t> mask = {};             ///< extents of the positions that have a class each; empty: no masks
  std::vector<std::int64_t> field = {};  ///< extents of the positions with numbers to predict each; empty: no field
  std::vector<std::int64_t> target_shape = {};  ///< extents of a field; `field`, or `field` and its channels
  std::vector<std::string> class_names;         ///< name of each output, in order; empty: unknown
  std::vector<std::string> target_names;        ///< name of each target; empty: unknown
  std::vector<std::string> target_units;        ///< unit of each target; empty: unknown
  /// Statistics for predictions that do not depend on the sample: number of samples of each class, or the mean or the
  /// median of each target as the network learns it. At most one of the three is set.
  std::vector<std::int64_t> class_counts = {};
  std::vector<float> target_means = {}, target_medians = {};
  bool labels_in_part = false;            ///< these statistics cover only a part of very many samples
  double scale = 1, shift = 0;            ///< the network's input is scale * x + shift
  FeatureScale features = {};             ///< if present, standardises x first
  FeatureScale targets = {};              ///< if present, standardises the targets that the network learns
  bool per_image = false;                 ///< true: then standardises each image by its own mean and deviation
  std::string augmentation;               ///< augmentation of training, as --augment takes it
  std::string source;                     ///< source of the samples, for people
  std::string contents = {};              ///< Dataset::contents(); "": unknown, as of packed data
  std::optional<TableSchema> table = {};  ///< columns of x if it is a table; with windows, columns of a step
  std::int64_t window = 0, horizon = 0;   ///< steps of a window over series, and of its forecast; 0: no windows

  bool operator==(const DataDescription&) const = default;
};

/// JSON in one line. Throws FileError for texts that are not UTF-8.
std::string to_json(const DataDescription& description);
/// Throws FileError without a file name: not JSON, an entry missing or of the wrong kind.
DataDescription data_description_from_json(std::string_view text);

}  // namespace lockstep::io
