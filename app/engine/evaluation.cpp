#include "app/engine/evaluation.hpp"

#include <algorithm>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <vector>

#include "app/data/network_input.hpp"
#include "app/engine/answer_metric.hpp"
#include "app/engine/mask_labels.hpp"
#include "app/plan/work_plan.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

/// Reads samples into reused buffers.
class Reader {
 public:
  Reader(const io::Dataset& dataset, std::int64_t most, model::Model& model)
      : dataset_(dataset),
        x_(static_cast<std::size_t>(most) * dataset.x_bytes(), model.host_memory()),
        y_(static_cast<std::size_t>(most) * dataset.y_bytes(), model.host_memory()),
        masks_(model.network(), model.options(), most, model.host_memory()) {}

  model::Batch read(std::span<const std::int64_t> samples) {
    const std::span x = std::span(x_).first(samples.size() * dataset_.x_bytes());
    const std::span y = std::span(y_).first(samples.size() * dataset_.y_bytes());
    dataset_.read(samples, io::kNoEpoch, x, y);
    targets_ = y;
    model::Batch batch{.x = tensor_of(x, dataset_.x_type(), std::ssize(samples)),
                       .y = tensor_of(y, dataset_.y_type(), std::ssize(samples))};
    if (!masks_.are_masks()) return batch;
    const std::span<const std::int32_t> labels = masks_.labels(y, {});
    targets_ = std::as_bytes(labels);
    const auto positions = static_cast<std::int64_t>(masks_.positions());
    batch.y = {const_cast<std::int32_t*>(labels.data()), model::ElementType::int32, std::ssize(samples), positions};
    if (masks_.are_weighted()) {
      const std::span<const float> weights = masks_.weights(labels, {});
      batch.weights = {const_cast<float*>(weights.data()), model::ElementType::float32, std::ssize(samples), positions};
    }
    return batch;
  }
  /// Labels or targets of the last read, in the form that the network needs.
  std::span<const std::byte> targets() const noexcept { return targets_; }

 private:
  const io::Dataset& dataset_;
  std::pmr::vector<std::byte> x_, y_;
  MaskLabels masks_;
  std::span<const std::byte> targets_;
};

void add(const model::EvaluationSums& part, model::EvaluationSums& sums) {
  sums.loss += part.loss;
  sums.metric += part.metric;
  sums.found += part.found;
  for (std::size_t i = 0; i < sums.losses.size(); ++i) sums.losses[i] += part.losses[i];
}

/// Evaluates samples [first, first + count) at once; `answers`: a metric that needs the answers, or nullptr;
/// has_probabilities: Task::has_probabilities().
model::EvaluationSums evaluate_block(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                                     std::int64_t count, AnswerMetric* answers, bool has_probabilities) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  const model::Batch batch = reader.read(samples);
  if (answers == nullptr) return model.evaluate(batch, weights);
  const model::Network& network = model.network();
  std::vector<float> outputs(samples.size() *
                             static_cast<std::size_t>(network.sample_shape().outputs * network.positions()));
  const model::EvaluationSums sums = model.evaluate(batch, weights, outputs);
  const std::span<const std::byte> targets = reader.targets();
  if (!has_probabilities) {
    answers->add(outputs, targets);
    return sums;
  }
  std::vector<std::int32_t> classes(samples.size());
  choose_classes({reinterpret_cast<const float*>(targets.data()), targets.size() / sizeof(float)}, classes);
  answers->add(outputs, std::as_bytes(std::span(classes)));
  return sums;
}

/// The text of a corpus, cut into lanes that a network with recurrent state reads in parallel. The number of lanes
/// depends only on the data, so the result does not depend on how many are computed at once.
class Lanes {
 public:
  Lanes(const model::Network& network, std::int64_t samples)
      : samples_(samples),
        warm_up_(divide_up(kWarmUp, network.positions())),
        count_(std::clamp<std::int64_t>(samples / warm_up_, 1, kSections * kLanes)) {}

  std::int64_t count() const noexcept { return count_; }
  std::int64_t sections() const noexcept { return std::min(kSections, count_); }

  /// Evaluates lanes [first, end) at once. Every lane but the first lane of the text begins by reading the windows
  /// before it. They bring the state close to that of continuous reading, and count in the preceding lane.
  model::EvaluationSums evaluate(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                                 std::int64_t end) const {
    std::vector<std::int64_t> lanes(static_cast<std::size_t>(end - first));
    // The first lane of the text comes last, because no lane depends on it.
    std::iota(lanes.rbegin(), lanes.rend(), first);
    std::stable_sort(lanes.begin(), lanes.end(), [this](auto a, auto b) { return length(a) > length(b); });
    model.recurrent_state().reset(model::Purpose::evaluation, 0, end - first);
    model::EvaluationSums sums;
    std::vector<std::int64_t> samples;
    for (std::int64_t step = -warm_up_; step < length(lanes.front()); ++step) {
      samples.clear();
      for (const std::int64_t lane : lanes) {
        if (step < length(lane) && begin(lane) + step >= 0) samples.push_back(begin(lane) + step);
      }
      if (samples.empty()) continue;
      model::Batch batch = reader.read(samples);
      batch.begins = false;  // the sequences of the batch continue
      const model::EvaluationSums part = model.evaluate(batch, weights);
      if (step >= 0) add(part, sums);
    }
    return sums;
  }

 private:
  static constexpr std::int64_t kWarmUp = 256;  ///< minimum number of tokens to read before a lane
  static constexpr std::int64_t kLanes = 16;    ///< lanes per section
  std::int64_t begin(std::int64_t lane) const noexcept { return samples_ * lane / count_; }
  std::int64_t length(std::int64_t lane) const noexcept { return begin(lane + 1) - begin(lane); }

  std::int64_t samples_, warm_up_, count_;
};

/// Evaluates a section's lanes, at most `most` at once.
model::EvaluationSums evaluate_section(model::Model& model, model::Weights weights, Reader& reader, const Lanes& lanes,
                                       std::int64_t section, std::int64_t most) {
  const std::int64_t end = lanes.count() * (section + 1) / lanes.sections();
  model::EvaluationSums sums;
  for (std::int64_t lane = lanes.count() * section / lanes.sections(); lane < end; lane += most) {
    add(lanes.evaluate(model, weights, reader, lane, std::min(lane + most, end)), sums);
  }
  return sums;
}

}  // namespace

Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task) {
  const std::int64_t samples = dataset.info().samples;
  const bool stateful = is_recurrent(model.network());
  const Lanes lanes(model.network(), samples);
  const std::int64_t chunks = stateful ? lanes.sections() : (samples + chunk - 1) / chunk;
  const std::size_t losses = model.options().losses.size(), width = 3 + losses;
  std::vector<double> sums(width * static_cast<std::size_t>(chunks),
                           0.0);  // each sum comes from one rank and is zero elsewhere, so adding is exact
  std::optional<AnswerMetric> answers;
  if (task.needs_answers() || task.has_masks()) answers.emplace(task);
  comm::all_succeed(communicator, [&] {
    Reader reader(dataset, std::min(chunk, samples), model);
    for (std::int64_t k = communicator.rank(); k < chunks; k += communicator.size()) {
      const model::EvaluationSums part =
          stateful ? evaluate_section(model, weights, reader, lanes, k, std::min(chunk, samples))
                   : evaluate_block(model, weights, reader, k * chunk, std::min(chunk, samples - k * chunk),
                                    answers ? &*answers : nullptr, task.has_probabilities());
      const auto at = std::span(sums).subspan(static_cast<std::size_t>(k) * width, width);
      at[0] = part.loss;
      at[1] = part.metric;
      at[2] = part.found;
      std::ranges::copy(std::span(part.losses).first(losses), at.subspan(3).begin());
    }
  });
  communicator.all_reduce(std::span<double>(sums));
  communicator.wait();
  model::EvaluationSums total;
  for (std::size_t i = 0; i < sums.size(); i += width) {
    model::EvaluationSums part{{.loss = sums[i], .metric = sums[i + 1], .found = sums[i + 2]}};
    std::ranges::copy(std::span(sums).subspan(i + 3, losses), part.losses.begin());
    add(part, total);
  }
  if (!answers) return task.score(total, static_cast<double>(samples), false, total.losses);
  const double best = answers->over_all(communicator);
  const double rows = task.has_masks() ? answers->rows() : static_cast<double>(samples);
  Score score = task.score(total, static_cast<double>(samples), rows, false, total.losses);
  if (task.needs_answers()) score.best = best;
  if (task.has_masks()) {
    score.mean_iou = answers->mean_iou();
    score.ious = answers->ious();
  }
  return score;
}

}  // namespace lockstep::app
