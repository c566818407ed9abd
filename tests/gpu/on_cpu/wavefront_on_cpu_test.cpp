// The layers of an LSTM as a wavefront (model/operations/lstm.cpp), on the stand-in for CUDA's runtime: side streams
// make the same bits as one stream, recorded or not, the chain of dependent steps is shorter, and each of the events is
// needed.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/handles.hpp"
#include "model/training/training.hpp"
#include "support/cublaslt_on_cpu.hpp"
#include "support/runtime_on_cpu.hpp"

namespace lockstep::model::test {
namespace {

using lockstep::test::ignore_wait;
using lockstep::test::longest_chain;
using lockstep::test::take_stream_faults;
using testing::IsEmpty;

struct LstmWorkload {
  std::int64_t layers = 2, context = 9, hidden = 8;
  double dropout = 0;
  bool tied = false;
  std::int64_t batch = 3;
  int micro_steps = 1;
  std::string frozen = {};  ///< prefix of frozen parameters' names
};

std::string text_of(const LstmWorkload& it) {
  return fmt::format("{} layers of {}, {} steps, dropout {}, {} sequences in {} micro-steps{}{}", it.layers, it.hidden,
                     it.context, it.dropout, it.batch, it.micro_steps, it.tied ? ", tied" : "",
                     it.frozen.empty() ? "" : ", frozen " + it.frozen);
}

constexpr std::int64_t kWords = 11;

/// A language model on a backend, which trains on a text of its own.
class LstmSide {
 public:
  LstmSide(const LstmWorkload& workload, const BackendOptions& options)
      : workload_(workload),
        backend_(make_backend("cuda", options)),
        network_(make(workload)),
        training_(*backend_, *network_, {.max_batch = workload.batch, .sample_type = ElementType::int32},
                  {.optimizer = optimizer_}),
        seen_(training_.parameters.updated_elements(), backend_->host_memory()) {
    training_.parameters.initialize(5);
    const std::int64_t count = workload.batch * workload.context;
    tokens_ = same_.labels(count, kWords);
    labels_ = same_.labels(count, kWords);
    for (std::int64_t i = 0; i < workload.batch; ++i) keys_.push_back(same_.generator()());
  }

  /// Steps like the trainer's: every third one has fewer sequences. `run` runs `work`.
  template <class Run>
  void step(int number, const Run& run) {
    for (int micro = 0; micro < workload_.micro_steps; ++micro) {
      const bool first = micro == 0, last = micro + 1 == workload_.micro_steps;
      const std::int64_t count = number % 3 == 2 ? workload_.batch - 1 : workload_.batch;
      training_.model.wait_staged();
      training_.model.stage(batch(count, number == 0 && first));
      if (last) {
        training_.status.write({});
        training_.optimizer.prepare(update_rule(optimizer_, 0.3, number));
      }
      const std::array<std::int64_t, 4> key{first, last, training_.model.slot(), count};
      run(key, [&] {
        Model& model = training_.model;
        const double scale = 1.0 / static_cast<double>(count * workload_.micro_steps);
        model.backward(model.forward(scale, first ? Accumulate::no : Accumulate::yes), [&](std::size_t end) {
          // Stands for sums over ranks, which are ordered by the main queue.
          backend_->read(training_.parameters.gradients().slice({0, end}),
                         std::as_writable_bytes(std::span(seen_).first(end)));
        });
        if (!last) return;
        training_.status.report_loss(model.loss_sums());
        training_.optimizer.finish_gradients();
        training_.optimizer.update();
      });
      if (last) training_.status.post();
      training_.model.release_batch();
    }
  }
  void step(int number) {
    step(number, [&](const auto& key, const auto& work) { backend_->repeat(key, work); });
    backend_->synchronize();
    results_.push_back(training_.status.posted().loss);
    results_.push_back(training_.status.posted().gradient_squares);
    results_.insert(results_.end(), seen_.begin(), seen_.end());
  }
  void evaluate() { results_.push_back(training_.model.evaluate(batch(workload_.batch, true)).loss); }

  /// Losses, norms and gradients of the steps, evaluations; and the current weights and carried state.
  std::vector<double> results() {
    std::vector<float> values(training_.parameters.elements());
    training_.parameters.download_group("parameters", values);
    std::vector<double> all = results_;
    all.insert(all.end(), values.begin(), values.end());
    values.resize(static_cast<std::size_t>(workload_.batch * training_.model.recurrent_state().elements()));
    training_.model.recurrent_state().download(workload_.batch, values);
    all.insert(all.end(), values.begin(), values.end());
    return all;
  }
  Backend& backend() { return *backend_; }

 private:
  static std::unique_ptr<Network> make(const LstmWorkload& workload) {
    auto network = make_network({.name = "lstm",
                                 .values = {{"layers", workload.layers},
                                            {"hidden", Numbers{workload.hidden}},
                                            {"dropout", workload.dropout},
                                            {"tied", workload.tied}}},
                                {.features = workload.context, .outputs = kWords, .tokens = true});
    std::vector<std::size_t> frozen;
    const auto& parameters = network->parameters().all();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!workload.frozen.empty() && parameters[i].name.starts_with(workload.frozen)) frozen.push_back(i);
    }
    if (!frozen.empty()) network->freeze(frozen);
    return network;
  }
  Batch batch(std::int64_t count, bool begins) const {
    return {.x = host_tensor(tokens_.data(), count, workload_.context),
            .y = host_tensor(labels_.data(), count, workload_.context),
            .keys = host_tensor(keys_.data(), count, 1),
            .begins = begins};
  }

  const LstmWorkload workload_;
  const OptimizerOptions optimizer_{.kind = OptimizerKind::momentum, .clip_norm = 0.5};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Network> network_;
  model::Training training_;
  Random same_;
  std::vector<std::int32_t> tokens_, labels_;
  std::vector<std::uint64_t> keys_;
  std::pmr::vector<float> seen_;
  std::vector<double> results_;
};

/// Steps of each kind: plain, recorded, replayed, with fewer sequences; evaluations between them.
std::vector<double> trained(const LstmWorkload& workload, const BackendOptions& options) {
  LstmSide side(workload, options);
  for (int number = 0; number < 8; ++number) {
    side.step(number);
    if (number % 4 == 1) side.evaluate();
  }
  return side.results();
}

TEST(Wavefront, MakesTheBitsOfOneStream) {
  for (const LstmWorkload& workload :
       {LstmWorkload{}, LstmWorkload{.layers = 1, .dropout = 0.3}, LstmWorkload{.context = 4},
        LstmWorkload{.context = 5, .dropout = 0.3, .tied = true},
        LstmWorkload{.layers = 3, .dropout = 0.2, .micro_steps = 2},
        LstmWorkload{.layers = 4, .context = 13, .hidden = 6, .batch = 2},
        LstmWorkload{.layers = 3, .frozen = "lstm_2"}, LstmWorkload{.layers = 3, .frozen = "lstm_1"},
        LstmWorkload{.layers = 3, .dropout = 0.2, .frozen = "embedding"},
        LstmWorkload{.layers = 2, .hidden = 9, .dropout = 0.4}}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      if (precision == Precision::bf16 && workload.dropout < 0.3) continue;
      SCOPED_TRACE(fmt::format("{}, {}", text_of(workload), name_of(precision)));
      BackendOptions options{.precision = precision, .worth_padding = workload.hidden == 9 ? 0 : kFlopsPerCopiedByte};
      const auto side_by_side = trained(workload, options);
      EXPECT_EQ(trained(workload, options), side_by_side) << "run against run";
      options.graphs = false;
      EXPECT_EQ(trained(workload, options), side_by_side) << "plain calls";
      options.side_streams = false;
      EXPECT_EQ(trained(workload, options), side_by_side) << "plain calls, one stream";
      options.graphs = true;
      EXPECT_EQ(trained(workload, options), side_by_side) << "one stream";
    }
  }
  EXPECT_THAT(lockstep::test::take_refusals(), IsEmpty());
}

/// A recorded step of 35 steps in 9 chunks. A layer has a product and a pass for each of its steps, both ways, except
/// for the last step's product backward. Above another layer it also has an input product and its gradient for each
/// chunk. Both ways have some kernels of their own.
TEST(Wavefront, ShortensTheChainOfSteps) {
  const auto chain = [](std::int64_t layers, bool side_streams) {
    LstmSide side({.layers = layers, .context = 35, .batch = 2}, {.side_streams = side_streams});
    for (const int number : {0, 1, 3, 4}) side.step(number);
    return static_cast<std::int64_t>(longest_chain());
  };
  constexpr std::int64_t kSteps = 35 * 2 + 35 * 2 - 1, kBetween = 2 * 9, kOwn = 8;
  const std::int64_t one = chain(1, true);
  EXPECT_EQ(chain(1, false), one) << "nothing else with one layer";
  EXPECT_EQ(chain(2, false), one + kSteps + kBetween + kOwn);
  // Forward the second layer ends a chunk of 4 steps and an input product later, and so it does backward. Its state is
  // copied in and out.
  EXPECT_EQ(chain(2, true), one + 2 * (2 * 4 + 1) + 4);
  EXPECT_EQ(chain(3, false), one + 2 * (kSteps + kBetween + kOwn));
  EXPECT_LT(chain(3, true), one + 3 * kSteps / 2) << "three layers in two queues";
}

/// Leaves out one event after another, in steps that must also wait for the reads of the preceding ones.
TEST(Wavefront, NeedsEachOfItsEvents) {
  for (const LstmWorkload& workload : {LstmWorkload{}, LstmWorkload{.layers = 3, .context = 6, .dropout = 0.2}}) {
    for (const bool graphs : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", text_of(workload), graphs ? ", recorded" : ""));
      LstmSide side(workload, {.graphs = graphs});
      side.step(0);
      const auto step_without = [&](std::int64_t number) {
        std::int64_t waits = 0;
        bool refused = false;
        side.step(1, [&](const auto&, const auto& work) {
          const std::array key{std::int64_t{7}};
          side.backend().repeat(key, [] {});
          ignore_wait(number);
          try {
            side.backend().repeat(key, work);
          } catch (const DeviceError&) {  // no capture results
            refused = true;
          }
          waits = ignore_wait(-1);
        });
        cuda::check(cudaDeviceSynchronize(), "waiting");
        side.backend().forget_recordings();
        const auto faults = take_stream_faults();
        EXPECT_EQ(refused || !faults.empty(), number >= 0)
            << "without wait " << number << ": " << testing::PrintToString(faults);
        return waits;
      };
      const std::int64_t waits = step_without(-1);
      EXPECT_GT(waits, 8 * (workload.layers - 1)) << "a few for each chunk";
      for (std::int64_t number = 0; number < waits; ++number) step_without(number);
      step_without(-1);
    }
  }
}

}  // namespace
}  // namespace lockstep::model::test
