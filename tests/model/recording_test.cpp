#include "model/recording/recording.hpp"

#include <algorithm>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/recording/recorder.hpp"

namespace lockstep::model {
namespace {

using testing::ElementsAre;

template <class Kind>
std::vector<const RecordedOperation*> operations(const Recording& recording) {
  std::vector<const RecordedOperation*> found;
  for (const RecordedOperation& operation : recording.operations) {
    if (std::holds_alternative<Kind>(operation.kind)) found.push_back(&operation);
  }
  return found;
}

TEST(RecordingTest, AChainOfLayersIsAChainOfOperations) {
  const auto network =
      make_network({.name = "mlp", .values = {{"hidden", Numbers{6, 5}}}}, {.features = 4, .outputs = 3});
  const Recording recording = record_inference(*network);
  ASSERT_EQ(recording.operations.size(), 3U);
  ValueNumber value = recording.input;
  for (const RecordedOperation& operation : recording.operations) {
    EXPECT_EQ(operation.inputs[0], value);
    EXPECT_EQ(recording.values[operation.inputs[1]].origin, RecordedValue::Origin::parameter);
    value = operation.outputs[0];
  }
  EXPECT_EQ(recording.output, value);
  EXPECT_EQ(recording.values[recording.operations[1].inputs[1]].name, "dense_2/weight");
  EXPECT_EQ(std::get<recorded::Linear>(recording.operations[2].kind).activation, Activation::none);
}

TEST(RecordingTest, EveryNetworkCanBeRecordedAndUsesAllItsParameters) {
  for (const std::string& name : network_names()) {
    const NetworkKind& kind = network_kind(name);
    SampleShape shape{.features = 20, .outputs = 7};
    if (kind.reads == Reads::images) {
      shape.image = ImageShape{.height = 32, .width = 32, .channels = 3};
      shape.features = shape.image->elements();
    }
    if (kind.reads == Reads::tokens) shape.tokens = true;
    const auto network = make_network({.name = name}, shape);
    const Recording recording = record_inference(*network);
    std::vector<std::string> used;
    for (const RecordedOperation& operation : recording.operations) {
      for (const ValueNumber input : operation.inputs) {
        if (input != kNoValue && recording.values[input].origin == RecordedValue::Origin::parameter) {
          used.push_back(recording.values[input].name);
        }
      }
    }
    for (const Parameter& parameter : network->parameters().all()) {
      EXPECT_NE(std::ranges::count(used, parameter.name), 0) << name << " never reads " << parameter.name;
    }
    EXPECT_EQ(recording.states.size(), network->recurrent_state().all().size());
  }
}

TEST(RecordingTest, AResidualThatIsAddedInPlaceIsAValueOfItsOwn) {
  const auto network = make_network(
      {.name = "gpt", .values = {{"layers", std::int64_t{2}}, {"width", std::int64_t{8}}, {"heads", std::int64_t{2}}}},
      {.features = 6, .outputs = 11, .tokens = true});
  const Recording recording = record_inference(*network);
  EXPECT_EQ(operations<recorded::Add>(recording).size(), 4U) << "two branches in each of two blocks";
  EXPECT_EQ(operations<recorded::NormalizeLayer>(recording).size(), 5U);
  std::vector<bool> written(recording.values.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i] = recording.values[i].origin != RecordedValue::Origin::result;
  }
  for (const RecordedOperation& operation : recording.operations) {
    for (const ValueNumber input : operation.inputs) {
      if (input != kNoValue) {
        EXPECT_TRUE(written[input]) << "an operation reads what comes later";
      }
    }
    for (const ValueNumber output : operation.outputs) {
      EXPECT_FALSE(written[output]) << "two operations write one value";
      written[output] = true;
    }
  }
}

TEST(RecordingTest, StatesAfterABatchAreThoseOfTheLastStep) {
  for (const std::int64_t steps : {1, 5}) {
    const auto network = make_network(
        {.name = "lstm", .values = {{"hidden", Numbers{8}}, {"layers", std::int64_t{2}}, {"dropout", 0.5}}},
        {.features = steps, .outputs = 11, .tokens = true});
    const Recording recording = record_inference(*network);
    const auto layers = operations<recorded::RunLstm>(recording);
    ASSERT_EQ(layers.size(), 2U);
    ASSERT_EQ(recording.states.size(), 4U);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(recording.states[2 * i].name, "lstm_" + std::to_string(i + 1) + "/hidden");
      EXPECT_EQ(layers[i]->inputs[2], recording.states[2 * i].before);
      EXPECT_EQ(layers[i]->inputs[3], recording.states[2 * i + 1].before);
      EXPECT_EQ(layers[i]->outputs[1], recording.states[2 * i].after);
      EXPECT_EQ(layers[i]->outputs[2], recording.states[2 * i + 1].after);
    }
    EXPECT_EQ(recording.operations.back().inputs[0], layers[1]->outputs[0]) << "the head reads all steps";
  }
}

TEST(RecordingTest, WhatIsNoInferenceIsRefused) {
  OperationRecorder recorder;
  std::vector<float> memory(8);
  const Tensor x{memory.data(), ElementType::float32, 2, 2}, y{memory.data() + 4, ElementType::float32, 2, 2};
  EXPECT_THROW(recorder.fill_zero(x), std::logic_error);
  EXPECT_THROW(recorder.read(x), std::logic_error) << "nobody has written there";
  recorder.define(x, {.origin = RecordedValue::Origin::input});
  recorder.define(y, {.origin = RecordedValue::Origin::input});
  EXPECT_EQ(recorder.read(x), 0U);
  EXPECT_EQ(recorder.read(x.reshaped(1, 4)), 0U) << "a view of the same elements";
  EXPECT_THROW(recorder.read(x.row_range(0, 1)), std::logic_error) << "a part of a value";
  static_cast<Backend&>(recorder).add(y, x);
  EXPECT_EQ(recorder.read(x), 2U) << "a new value in the same memory";
}

}  // namespace
}  // namespace lockstep::model
