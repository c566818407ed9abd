#include "app/engine/evaluation.hpp"

#include <algorithm>
#include <memory_resource>
#include <numeric>
#include <vector>

#include "app/plan/workload.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

namespace {

/// Reads samples into buffers that are reused.
class Reader {
 public:
  Reader(const io::Dataset& dataset, std::int64_t most, std::pmr::memory_resource* memory)
      : dataset_(dataset),
        x_(static_cast<std::size_t>(most) * dataset.x_bytes(), memory),
        y_(static_cast<std::size_t>(most) * dataset.y_bytes(), memory) {}

  model::Batch read(std::span<const std::int64_t> samples) {
    dataset_.read(samples, io::kNoEpoch, std::span(x_).first(samples.size() * dataset_.x_bytes()),
                  std::span(y_).first(samples.size() * dataset_.y_bytes()));
    return {.x = x_.data(),
            .x_type = element_type(dataset_.x_type()),
            .y = y_.data(),
            .count = static_cast<std::int64_t>(samples.size())};
  }

 private:
  const io::Dataset& dataset_;
  std::pmr::vector<std::byte> x_, y_;
};

void add(const model::LossSums& part, model::LossSums& sums) {
  sums.loss += part.loss;
  sums.metric += part.metric;
  sums.top5 += part.top5;
}

/// Samples [first, first + count) at once.
model::LossSums evaluate_block(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                               std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  return model.evaluate(reader.read(samples), weights);
}

/// Samples [first, first + count) in sequences of consecutive ones, the longer sequences first: sequence l of a step
/// that only the first k sequences still have is among them.
model::LossSums evaluate_stateful(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                                  std::int64_t count, std::int64_t most_sequences) {
  const std::int64_t sequences = std::min(most_sequences, count);
  model::LossSums sums;
  std::vector<std::int64_t> samples;
  for (std::int64_t step = 0; sequences > 0 && step * sequences < count; ++step) {
    samples.clear();
    for (std::int64_t sequence = 0, begin = first; sequence < sequences; ++sequence) {
      const std::int64_t length = count / sequences + (sequence < count % sequences ? 1 : 0);
      if (step < length) samples.push_back(begin + step);
      begin += length;
    }
    model::Batch batch = reader.read(samples);
    batch.begins = step == 0;
    add(model.evaluate(batch, weights), sums);
  }
  return sums;
}

}  // namespace

Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task) {
  const std::int64_t samples = dataset.info().samples;
  const bool stateful = is_recurrent(model.network());
  const std::int64_t chunks = stateful ? std::min(kSections, samples) : (samples + chunk - 1) / chunk;
  constexpr std::size_t kSums = 3;
  std::vector<double> sums(kSums * static_cast<std::size_t>(chunks),
                           0.0);  // each filled by one rank, zero elsewhere: adding is exact
  comm::all_succeed(communicator, [&] {
    Reader reader(dataset, std::min(chunk, samples), model.host_memory());
    for (std::int64_t k = communicator.rank(); k < chunks; k += communicator.size()) {
      const std::int64_t first = stateful ? samples * k / chunks : k * chunk;
      const std::int64_t end = stateful ? samples * (k + 1) / chunks : std::min(samples, first + chunk);
      const model::LossSums part = stateful ? evaluate_stateful(model, weights, reader, first, end - first, chunk)
                                            : evaluate_block(model, weights, reader, first, end - first);
      const auto at = sums.begin() + static_cast<std::ptrdiff_t>(kSums) * k;
      at[0] = part.loss;
      at[1] = part.metric;
      at[2] = part.top5;
    }
  });
  communicator.all_reduce(std::span<double>(sums));
  communicator.wait();
  model::LossSums total;
  for (std::size_t i = 0; i < sums.size(); i += kSums) {
    add({.loss = sums[i], .metric = sums[i + 1], .top5 = sums[i + 2]}, total);
  }
  return task.score(total, static_cast<double>(samples), false);
}

}  // namespace lockstep::app
