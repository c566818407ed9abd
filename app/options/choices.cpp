#include "app/options/choices.hpp"

#include "app/options/train_options.hpp"

namespace lockstep::app {
namespace {

/// Returns all choices of a type whose names model/ defines.
template <class Value>
std::vector<Choice<Value>> named(std::initializer_list<Value> values) {
  std::vector<Choice<Value>> all;
  for (const Value value : values) all.push_back({std::string(name_of(value)), value});
  return all;
}

}  // namespace

template <>
std::vector<Choice<DeviceChoice>> choices() {
  return {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"gpu", DeviceChoice::gpu}};
}

template <>
std::vector<Choice<std::optional<model::Precision>>> choices() {
  using model::Precision;
  return {{"auto", std::nullopt}, {"fp32", Precision::fp32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}};
}

template <>
std::vector<Choice<std::optional<model::Bf16Unit>>> choices() {
  std::vector<Choice<std::optional<model::Bf16Unit>>> all{{"auto", std::nullopt}};
  using enum model::Bf16Unit;
  for (const model::Bf16Unit unit : {avx512, amx, emulated_avx512, emulated_amx}) {
    all.push_back({std::string(model::name_of(unit)), unit});
  }
  return all;
}

template <>
std::vector<Choice<comm::Transport>> choices() {
  using comm::Transport;
  return {{"auto", Transport::automatic},
          {"shared-memory", Transport::shared_memory},
          {"two-level", Transport::two_level},
          {"ring", Transport::ring},
          {"mpi", Transport::mpi}};
}

template <>
std::vector<Choice<comm::WireFormat>> choices() {
  using comm::WireFormat;
  return {{"fp32", WireFormat::fp32},
          {"bf16", WireFormat::bf16},
          {"bf16-feedback", WireFormat::bf16_feedback},
          {"int8-feedback", WireFormat::int8_feedback}};
}

template <>
std::vector<Choice<VerifyData>> choices() {
  return {{"auto", VerifyData::automatic}, {"all", VerifyData::all}, {"none", VerifyData::none}};
}

template <>
std::vector<Choice<std::optional<model::LossKind>>> choices() {
  std::vector<Choice<std::optional<model::LossKind>>> all{{"auto", std::nullopt}};
  for (const auto& [word, kind] : model::loss_words()) all.push_back({std::string(word), kind});
  return all;
}

template <>
std::vector<Choice<BestBy>> choices() {
  return {{"auto", BestBy::usual},
          {"loss", BestBy::loss},
          {"accuracy", BestBy::accuracy},
          {"balanced-accuracy", BestBy::balanced_accuracy},
          {"f1", BestBy::f1},
          {"f1-macro", BestBy::f1_macro},
          {"roc-auc", BestBy::roc_auc},
          {"mean-absolute-error", BestBy::mean_absolute_error},
          {"mean-iou", BestBy::mean_iou}};
}

template <>
std::vector<Choice<Normalization::Kind>> choices() {
  using Kind = Normalization::Kind;
  return {{"auto", Kind::automatic},
          {"none", Kind::none},
          {"range", Kind::range},
          {"standard", Kind::standard},
          {"per-feature", Kind::per_feature},
          {"per-image", Kind::per_image}};
}

template <>
std::vector<Choice<io::Layout>> choices() {
  return {{"auto", io::Layout::automatic},
          {"channels-first", io::Layout::channels_first},
          {"channels-last", io::Layout::channels_last}};
}

template <>
std::vector<Choice<TargetScale>> choices() {
  return {{"auto", TargetScale::automatic}, {"none", TargetScale::none}, {"standard", TargetScale::standard}};
}

template <>
std::vector<Choice<ClassSampling>> choices() {
  return {{"uniform", ClassSampling::uniform}, {"balanced", ClassSampling::balanced}};
}

template <>
std::vector<Choice<model::OptimizerKind>> choices() {
  using enum model::OptimizerKind;
  return named({sgd, momentum, nesterov, adam, adamw, lars, lamb});
}

template <>
std::vector<Choice<StaleRate>> choices() {
  using enum StaleRate;
  return {{"keep", keep}, {"scale", scale}};
}

template <>
std::vector<Choice<model::OuterOptimizerKind>> choices() {
  using enum model::OuterOptimizerKind;
  return named({average, momentum, slowmo, nesterov});
}

template <>
std::vector<Choice<model::ScheduleOptions::Kind>> choices() {
  using enum model::ScheduleOptions::Kind;
  return named({constant, exponential, step, cosine, polynomial});
}

}  // namespace lockstep::app
