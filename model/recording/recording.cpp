#include "model/recording/recording.hpp"

#include <algorithm>

#include "model/recording/recorder.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model {

Recording record_inference(const Network& network) {
  constexpr OperationTypes kTypes{ElementType::float32, ElementType::float32};
  OperationRecorder recorder;
  const ActivationLayout activations(network.activations(Purpose::evaluation), 1, kTypes),
      states(network.recurrent_state(), 1, kTypes);
  const SampleShape& sample = network.sample_shape();
  // Memory for its addresses alone: it is never written, so the system never gives it pages.
  const auto reserve = [&](ElementType type, std::size_t elements) {
    return Arena(recorder.memory(), type, std::max<std::size_t>(elements, 1));
  };
  const Arena parameters = reserve(ElementType::float32, network.parameters().arena_elements()),
              activation_memory = reserve(ElementType::uint8, activations.bytes()),
              state_memory = reserve(ElementType::uint8, states.bytes()),
              input = reserve(sample.tokens ? ElementType::int32 : ElementType::float32,
                              static_cast<std::size_t>(sample.features));
  const Pass pass{.backend = recorder,
                  .table = network.parameters(),
                  .memory = {.parameters = parameters.tensor(),
                             .gradients = {},
                             .layout = &activations,
                             .activations = activation_memory.data(),
                             .state_layout = &states,
                             .state = state_memory.data()},
                  .batch = 1,
                  .input = input.tensor(),
                  .keys = {},
                  .training = false};

  using Origin = RecordedValue::Origin;
  recorder.recording.input = recorder.define(pass.input, {.origin = Origin::input});
  const auto& table = network.parameters().all();
  for (std::size_t i = 0; i < table.size(); ++i) {
    recorder.define(pass.weight(i), {.origin = Origin::parameter, .name = table[i].name});
  }
  const auto& carried = network.recurrent_state().all();
  for (std::size_t i = 0; i < carried.size(); ++i) {
    const ValueNumber before =
        recorder.define(pass.recurrent_state(i), {.origin = Origin::state, .name = carried[i].name});
    recorder.recording.states.push_back({.name = carried[i].name, .before = before});
  }
  recorder.recording.output = recorder.read(network.forward(pass));
  for (std::size_t i = 0; i < carried.size(); ++i) {
    recorder.recording.states[i].after = recorder.read(pass.recurrent_state(i));
  }
  return std::move(recorder.recording);
}

}  // namespace lockstep::model
