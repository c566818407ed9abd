#include "app/options/choices.hpp"

#include "app/options/bench_options.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {
namespace {

/// Of a type whose values model/ names.
template <class Value>
std::vector<Choice<Value>> named(std::initializer_list<Value> values) {
  std::vector<Choice<Value>> all;
  for (const Value value : values) all.push_back({std::string(name_of(value)), value});
  return all;
}

}  // namespace

template <>
const std::vector<Choice<DeviceChoice>>& choices() {
  static const std::vector<Choice<DeviceChoice>> all{
      {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"gpu", DeviceChoice::gpu}};
  return all;
}

template <>
const std::vector<Choice<std::optional<model::Precision>>>& choices() {
  using model::Precision;
  static const std::vector<Choice<std::optional<Precision>>> all{
      {"auto", std::nullopt}, {"fp32", Precision::fp32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}};
  return all;
}

template <>
const std::vector<Choice<comm::Transport>>& choices() {
  using comm::Transport;
  static const std::vector<Choice<Transport>> all{{"auto", Transport::automatic},
                                                  {"shared-memory", Transport::shared_memory},
                                                  {"two-level", Transport::two_level},
                                                  {"ring", Transport::ring}};
  return all;
}

template <>
const std::vector<Choice<comm::WireFormat>>& choices() {
  using comm::WireFormat;
  static const std::vector<Choice<WireFormat>> all{
      {"fp32", WireFormat::fp32}, {"bf16", WireFormat::bf16}, {"bf16-feedback", WireFormat::bf16_feedback}};
  return all;
}

template <>
const std::vector<Choice<VerifyData>>& choices() {
  static const std::vector<Choice<VerifyData>> all{
      {"auto", VerifyData::automatic}, {"all", VerifyData::all}, {"none", VerifyData::none}};
  return all;
}

template <>
const std::vector<Choice<std::optional<model::LossKind>>>& choices() {
  using model::LossKind;
  static const std::vector<Choice<std::optional<LossKind>>> all{
      {"auto", std::nullopt},
      {"softmax-cross-entropy", LossKind::softmax_cross_entropy},
      {"mean-squared-error", LossKind::mean_squared_error}};
  return all;
}

template <>
const std::vector<Choice<Normalization::Kind>>& choices() {
  using Kind = Normalization::Kind;
  static const std::vector<Choice<Kind>> all{{"auto", Kind::automatic},
                                             {"none", Kind::none},
                                             {"range", Kind::range},
                                             {"standard", Kind::standard},
                                             {"per-image", Kind::per_image}};
  return all;
}

template <>
const std::vector<Choice<model::OptimizerKind>>& choices() {
  using enum model::OptimizerKind;
  static const auto all = named({sgd, momentum, nesterov, adam, adamw, lars, lamb});
  return all;
}

template <>
const std::vector<Choice<model::ScheduleOptions::Kind>>& choices() {
  using enum model::ScheduleOptions::Kind;
  static const auto all = named({constant, exponential, step, cosine, polynomial});
  return all;
}

template <>
const std::vector<Choice<model::Activation>>& choices() {
  using enum model::Activation;
  static const auto all = named({relu, tanh, sigmoid});
  return all;
}

template <>
const std::vector<Choice<InputFrom>>& choices() {
  static const std::vector<Choice<InputFrom>> all{{"memory", InputFrom::memory}, {"data", InputFrom::data}};
  return all;
}

template <>
const std::vector<Choice<Scaling>>& choices() {
  static const std::vector<Choice<Scaling>> all{
      {"weak", Scaling::weak}, {"strong", Scaling::strong}, {"both", Scaling::both}};
  return all;
}

template <>
const std::vector<Choice<AllReduceAlgorithm>>& choices() {
  static const std::vector<Choice<AllReduceAlgorithm>> all{{"ring", AllReduceAlgorithm::ring},
                                                           {"two-level", AllReduceAlgorithm::two_level},
                                                           {"shared-memory", AllReduceAlgorithm::shared_memory},
                                                           {"mpi", AllReduceAlgorithm::mpi},
                                                           {"nccl", AllReduceAlgorithm::nccl}};
  return all;
}

}  // namespace lockstep::app
