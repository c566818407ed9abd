#include "app/exchange/trained_network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/exchange/network_metadata.hpp"

namespace lockstep::app {

namespace {

std::vector<io::NamedTensor> weights_of(const TrainedNetwork& trained) {
  const char* const group = trained.average ? "average" : "parameters";
  std::vector<io::NamedTensor> weights;
  for (const model::Parameter& parameter : trained.network->parameters().all()) {
    const io::StoredTensor* const stored = trained.source.checkpoint.find(group, parameter.name);
    if (stored == nullptr || stored->shape != parameter.shape) {
      throw io::FileError(fmt::format(
          "{}: its network, {}, needs {}/{} of shape [{}], and the file has {}", trained.source.file.string(),
          trained.network->signature(), group, parameter.name, fmt::join(parameter.shape, ", "),
          stored == nullptr ? std::string("none") : fmt::format("[{}]", fmt::join(stored->shape, ", "))));
    }
    weights.push_back({.name = parameter.name, .shape = parameter.shape, .values = stored->values});
  }
  return weights;
}

}  // namespace

TrainedNetwork read_trained_network(const CheckpointChoice& choice, const std::optional<bool>& average) {
  TrainedNetwork trained;
  trained.source = read_chosen_checkpoint(choice);
  const io::TrainingRecord& record = trained.source.checkpoint.record;
  const std::string file = trained.source.file.string();
  trained.trained = inference_options_of(record);
  trained.average = average.value_or(trained.trained.validation.average);
  if (trained.average && trained.trained.optimizer.average_decay == 0) {
    throw UsageError("--weights average: the run kept no average of its weights (its --average-decay was 0)");
  }
  trained.shape = sample_shape_of(record);
  const model::NetworkKind& kind = model::network_kind(trained.trained.network);
  if (kind.reads == model::Reads::images && !trained.shape.image) {
    throw io::FileError(fmt::format(
        "{} is of an older format, which does not tell the shape of images: `lockstep train --resume` writes a new one",
        file));
  }
  try {
    trained.network = model::make_network(trained.trained.network, trained.shape);
  } catch (const std::invalid_argument& error) {
    throw io::FileError(fmt::format("{}: {}", file, error.what()));
  }
  trained.weights = weights_of(trained);
  return trained;
}

io::Metadata describe_network(const TrainedNetwork& trained) {
  return metadata_of(trained.source.checkpoint.record, trained.trained);
}

}  // namespace lockstep::app
