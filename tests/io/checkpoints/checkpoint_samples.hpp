/// \file
/// Checkpoints in which every number identifies its position.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/checkpoints/checkpoint.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {

inline TrainingRecord sample_record(std::int64_t step) {
  return {
      .step = step,
      .epoch = step / 10,
      .position = step % 1000 * 7,
      .seed = 0xFEDCBA9876543210u,
      .world_size = 4,
      .network = {.kind = "mlp", .signature = "mlp 784-10-10", .features = 784, .outputs = 10, .image = {28, 28, 1}},
      .optimizer = "adam",
      .dataset = "mnist 60000",
      .configuration = "[train]\nmodel = mlp\n",
      .program_version = "0.1.0",
      .best_metric = 0.875,
      .validated_step = step - 1,
      .metrics = "{\"step\":1}\n{\"step\":2}\n"};
}

struct SampleTensors {
  explicit SampleTensors(std::int64_t step, std::int64_t rows = 20) {
    for (const char* group : {"parameters", "first_moment"}) {
      add(group, "dense_1/weight", {rows, 5}, step);
      add(group, "dense_1/bias", {5}, step);
      add(group, "dense_2/weight", {rows, 5}, step);
      add(group, "scale", {}, step);
    }
    add("averages", "empty", {0, 3}, step);
  }
  void add(const std::string& group, const std::string& name, std::vector<std::int64_t> shape, std::int64_t step) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    StoredTensor tensor{group, name, std::move(shape), std::vector<float>(static_cast<std::size_t>(count))};
    const float origin = static_cast<float>(step * 100 + static_cast<std::int64_t>(stored.size()) * 7);
    float* const values = tensor.values.data();  // quick without the optimiser: kills shall hit writes, not this loop
    for (std::int64_t i = 0; i < count; ++i) values[i] = origin + static_cast<float>(i) / 1024;
    stored.push_back(std::move(tensor));
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> result;
    for (const StoredTensor& tensor : stored)
      result.push_back({tensor.group, tensor.name, tensor.shape, tensor.values});
    return result;
  }
  std::vector<StoredTensor> stored;
};

struct InParts {
  int writers = 2;
  std::string attempt = "0a";
};

/// Writes the tensors in parts of nearly equal numbers of values, later parts first. Parts may begin and end within
/// tensors.
inline SplitState write_parts(const std::filesystem::path& folder, std::int64_t step, const SampleTensors& tensors,
                              const InParts& options) {
  std::size_t all = 0;
  SplitState split;
  for (const StoredTensor& tensor : tensors.stored) {
    split.tensors.push_back({tensor.group, tensor.name, tensor.shape});
    all += tensor.values.size();
  }
  const auto writers = static_cast<std::size_t>(options.writers);
  split.parts.resize(writers);
  for (std::size_t writer = writers; writer-- > 0;) {
    const std::size_t first = all * writer / writers, last = all * (writer + 1) / writers;
    std::vector<TensorPiece> pieces;
    std::size_t offset = 0;
    for (const StoredTensor& tensor : tensors.stored) {
      const std::size_t begin = std::max(first, offset), end = std::min(last, offset + tensor.values.size());
      if (begin < end) {
        pieces.push_back({.group = tensor.group,
                          .name = tensor.name,
                          .first = static_cast<std::int64_t>(begin - offset),
                          .values = std::span(tensor.values).subspan(begin - offset, end - begin)});
      }
      offset += tensor.values.size();
    }
    split.parts[writer] = write_checkpoint_part({.folder = folder,
                                                 .step = step,
                                                 .attempt = options.attempt,
                                                 .index = static_cast<int>(writer),
                                                 .count = options.writers},
                                                pieces);
  }
  return split;
}

/// Writes the sample of that step: first its parts, then its file.
inline std::filesystem::path write_in_parts(CheckpointWriter& writer, const std::filesystem::path& folder,
                                            std::int64_t step, const InParts& options) {
  return writer.write(sample_record(step), {}, write_parts(folder, step, SampleTensors(step), options));
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline bool same_record(const TrainingRecord& a, const TrainingRecord& b) {
  return a.step == b.step && a.epoch == b.epoch && a.position == b.position && a.seed == b.seed &&
         a.world_size == b.world_size && a.network == b.network && a.optimizer == b.optimizer &&
         a.dataset == b.dataset && a.configuration == b.configuration && a.program_version == b.program_version &&
         (a.best_metric == b.best_metric || (std::isnan(a.best_metric) && std::isnan(b.best_metric))) &&
         a.validated_step == b.validated_step && a.metrics == b.metrics;
}

inline bool same_content(const Checkpoint& a, const TrainingRecord& record, const std::vector<StoredTensor>& tensors) {
  if (!same_record(a.record, record) || a.tensors.size() != tensors.size()) return false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor &x = a.tensors[i], &y = tensors[i];
    if (x.group != y.group || x.name != y.name || x.shape != y.shape || !same_bits(x.values, y.values)) return false;
  }
  return true;
}

/// The content of everything in a folder by name; for a link, its target.
inline std::map<std::string, std::string> folder_content(const std::filesystem::path& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    content[entry.path().filename().string()] =
        entry.is_symlink() ? std::filesystem::read_symlink(entry.path()).string() : read_text(entry.path());
  }
  return content;
}

}  // namespace lockstep::io
