#include "model/model.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

const ModelOptions& checked(const ModelOptions& options) {
  if (options.max_batch >= 1) return options;
  throw std::invalid_argument(fmt::format("max_batch is {}: need room for at least one sample", options.max_batch));
}

void require_targets(const Batch& batch) {
  if (batch.count() > 0 && !batch.y.present()) throw std::invalid_argument("a batch without targets");
}

OperationTypes types_of(const Backend& backend) {
  return {.compute = backend.compute_type(), .master = backend.master_type(), .narrow = backend.narrow_type()};
}

Purpose purpose_of(const ParameterState& parameters) {
  return parameters.has_gradients() ? Purpose::training : Purpose::evaluation;
}

}  // namespace

Model::Model(Backend& backend, const Network& network, ParameterState& parameters, const ModelOptions& options)
    : backend_(backend),
      network_(network),
      parameters_(parameters),
      options_(checked(options)),
      training_layout_(parameters.has_gradients() ? network.activations(Purpose::training) : ActivationTable(),
                       options.max_batch, types_of(backend)),
      evaluation_layout_(network.activations(Purpose::evaluation), options.max_batch, types_of(backend)),
      // Not zeroed: every element is written before it is read, and pages that no batch reaches stay untouched.
      activations_(backend.memory(), ElementType::uint8,
                   std::max(training_layout_.bytes(), evaluation_layout_.bytes())),
      recurrent_state_(backend, network, options.most_sequences(), purpose_of(parameters)),
      stage_(backend, network, options, purpose_of(parameters)),
      loss_(backend, network, options),
      training_sums_(backend, loss_sum_count()),
      evaluation_sums_(backend, loss_sum_count()) {}

void Model::require_training(const char* operation) const {
  if (!parameters_.has_gradients()) {
    throw std::invalid_argument(fmt::format("{}: this model was made for evaluation only", operation));
  }
}

void Model::stage(const Batch& batch) {
  require_training("stage");
  require_targets(batch);
  stage_.stage_next(batch);
  if (batch.begins) recurrent_state_.reset(Purpose::training, batch.first_sequence, batch.count());
}

Pass Model::pass(const Batch& batch, Weights weights, Purpose purpose) {
  return {.backend = backend_,
          .table = network_.parameters(),
          .memory = {.parameters = parameters_.in_compute_type(weights),
                     .gradients = parameters_.has_gradients() ? parameters_.gradients() : Tensor{},
                     .layout = purpose == Purpose::training ? &training_layout_ : &evaluation_layout_,
                     .activations = activations_.data(),
                     .state_layout = &recurrent_state_.layout(),
                     .state = recurrent_state_.data(purpose),
                     .first_sequence = batch.first_sequence},
          .batch = batch.count(),
          .input = stage_.network_input(batch),
          .samples = batch.x,
          .keys = batch.keys,
          .training = purpose == Purpose::training};
}

LossOptions Model::loss_options(double scale, const Batch& batch) const {
  return {.scale = scale / static_cast<double>(network_.positions()),
          .want_gradient = true,
          .smoothing = options_.label_smoothing,
          .weights = weights_of_rows(batch)};
}

/// Returns a weight for each row of the output.
Tensor Model::weights_of_rows(const Batch& batch) const {
  if (!batch.weights.present()) return {};
  return batch.weights.reshaped(batch.count() * network_.positions(), 1);
}

Model::Forward Model::forward(double scale, Accumulate accumulate, const Tensor& sums) {
  require_training("forward");
  const Tensor& to = sums.present() ? sums : training_sums_.tensor();
  if (accumulate == Accumulate::no) backend_.fill_zero(to);
  Pass here = pass(stage_.current(), Weights::current, Purpose::training);
  here.share = static_cast<double>(here.batch) * scale;
  if (options_.sum_over_ranks) here.sum_over_ranks = &options_.sum_over_ranks;
  const Tensor output = network_.forward(here);
  loss_.add(output, network_.targets(here, stage_.current().y), loss_options(scale, stage_.current()), to);
  return {.pass = here, .accumulate = accumulate};
}

void Model::backward(const Forward& forward, const GradientReady& ready) {
  network_.backward(forward.pass, forward.accumulate, ready);
}

/// `use(pass, output, batch)` enqueues the work that reads the output.
template <class Use>
void Model::evaluate_output(const Batch& batch, Weights weights, Pass::Positions positions, const Use& use) {
  const Batch here = stage_.stage_for_evaluation(batch);
  if (batch.begins) recurrent_state_.reset(Purpose::evaluation, batch.first_sequence, batch.count());
  Pass evaluation = pass(here, weights, Purpose::evaluation);
  evaluation.positions = positions;
  if (positions.count > 0) {
    evaluation.input = evaluation.input.reshaped(network_.positions(), 1).row_range(positions.first, positions.count);
  }
  if (weights == Weights::average) parameters_.refresh_compute_copy(weights);
  use(evaluation, network_.forward(evaluation), here);
  if (weights == Weights::average) parameters_.refresh_compute_copy(Weights::current);
  stage_.release_evaluation();
}

EvaluationSums Model::evaluate(const Batch& batch, Weights weights, std::span<float> outputs) {
  require_targets(batch);
  Tensor all;
  evaluate_output(batch, weights, {}, [&](const Pass& pass, const Tensor& output, const Batch& here) {
    backend_.fill_zero(evaluation_sums_.tensor());
    const bool of_masks = !network_.sample_shape().grid.empty();
    const LossOptions options{.weights = of_masks ? weights_of_rows(here) : Tensor{}};
    loss_.add(output, network_.targets(pass, here.y), options,
              evaluation_sums_.tensor());  // leaves the output as it is
    all = output;
  });
  const auto sums = evaluation_sums_.read_now();
  if (!outputs.empty()) download_rows(all, outputs);
  EvaluationSums result{{.loss = sums[0], .metric = sums[1], .found = sums[2]}};
  std::ranges::copy(sums.subspan(static_cast<std::size_t>(kLossSums)), result.losses.begin());
  return result;
}

void Model::predict(const Batch& batch, Weights weights, Pass::Positions positions, std::span<float> out) {
  if (out.size() != static_cast<std::size_t>(network_.sample_shape().outputs)) {
    throw std::invalid_argument("a prediction has as many values as the network has outputs");
  }
  const std::int64_t end = positions.first + positions.count;
  if (batch.count() != 1 || positions.first < 0 || positions.count < 1 || end > network_.positions()) {
    throw std::invalid_argument("a prediction is of at least one position of one sample");
  }
  Tensor outputs;
  const bool some = continues();
  const auto last = [&](const Pass&, const Tensor& output, const Batch&) {
    outputs = output.row_range(some ? positions.count - 1 : end - 1, 1).slice({0, out.size()});
  };
  evaluate_output(batch, weights, some ? positions : Pass::Positions{}, last);
  backend_.download(outputs, out);
}

void Model::predict(const Batch& batch, Weights weights, std::span<float> out) {
  Tensor output;
  evaluate_output(batch, weights, {}, [&](const Pass&, const Tensor& all, const Batch&) { output = all; });
  download_rows(output, out);
}

void Model::download_rows(const Tensor& output, std::span<float> out) {
  const auto outputs = static_cast<std::size_t>(network_.sample_shape().outputs);
  if (out.size() != static_cast<std::size_t>(output.rows) * outputs) {
    throw std::invalid_argument("predictions have as many values as the batch has rows and the network outputs");
  }
  if (static_cast<std::size_t>(output.columns) == outputs) return backend_.download(output, out);
  for (std::int64_t row = 0; row < output.rows; ++row) {  // padded rows
    backend_.download(output.row_range(row, 1).slice({0, outputs}),
                      out.subspan(static_cast<std::size_t>(row) * outputs, outputs));
  }
}

std::string Model::locate_not_finite() {
  require_training("locate_not_finite");
  const auto finite = [&](const Tensor& tensor) { return std::isfinite(sum_of_squares_now(backend_, tensor)); };
  const auto& parameters = network_.parameters().all();
  const Batch& worked = stage_.released();
  Pass again = pass(worked, Weights::current, Purpose::training);
  if (!network_.sample_shape().tokens && !finite(again.input)) return "input";
  for (const Parameter& parameter : parameters) {
    if (!finite(parameters_.parameters().slice(parameter.slice()))) {
      return fmt::format("parameter {}", parameter.name);
    }
  }
  std::string layer;
  const AfterCall check = [&](const CallResult& call) {
    if (layer.empty() && call.output.present() && !finite(call.output)) layer = call.name;
  };
  again.after_call = &check;
  const Tensor output = network_.forward(again);
  again.after_call = nullptr;
  if (!layer.empty()) return fmt::format("layer {} (forward)", layer);
  backend_.fill_zero(evaluation_sums_.tensor());
  LossOptions options = loss_options(1, worked);
  loss_.add(output, network_.targets(again, worked.y), options, evaluation_sums_.tensor());
  if (!std::isfinite(evaluation_sums_.read_now()[0])) return "loss";
  network_.backward(again, Accumulate::no, {});
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    if (!parameter->frozen && !finite(parameters_.gradients().slice(parameter->slice()))) {
      return fmt::format("gradient of {}", parameter->name);
    }
  }
  return "";
}

}  // namespace lockstep::model
