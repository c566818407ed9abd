#include "app/plan/training_text.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/train/train_command_line.hpp"
#include "comm/host/serial_communicator.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The text of a plan with these options, for samples of 4 x 4 bytes or for 8 tokens.
std::string said(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"--data", "d"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const TrainOptions options = parse_train(all);
  const bool tokens = model::network_kind(options.network.name).reads == model::Reads::tokens;
  const model::ImageShape image{.height = 4, .width = 4, .channels = 1};
  const model::SampleShape shape = tokens
                                       ? model::SampleShape{.features = 8, .outputs = 11, .image = {}, .tokens = true}
                                       : model::SampleShape{.features = 16, .outputs = 3, .image = image};
  Workload workload;
  workload.options = options;
  workload.network = model::make_network(options.network, shape);
  workload.optimizer = options.optimizer;
  workload.work.global_batch = 256;
  workload.work.total_steps = 1000;
  const comm::SerialCommunicator alone;
  return format_training(complete_plan(alone, std::move(workload), Place{}));
}

TEST(TrainingText, SaysHowAPlainRunTrains) {
  EXPECT_EQ(said({"--optimizer", "sgd", "--loss", "softmax-cross-entropy"}),
            "optimiser: sgd\n"
            "learning rate: constant, 0.1\n"
            "loss: softmax-cross-entropy\n"
            "input: normalisation auto, augmentation none\n");
}

TEST(TrainingText, NamesTheConstantsOfTheOptimiser) {
  EXPECT_THAT(said({"--optimizer", "adamw", "--beta1", "0.8", "--weight-decay", "0.05", "--clip-norm", "1"}),
              HasSubstr("optimiser: adamw, beta1 0.8, beta2 0.999, epsilon 1e-08, weight decay 0.05, gradient clipped "
                        "to norm 1\n"));
  EXPECT_THAT(said({"--optimizer", "lars", "--clip-value", "2", "--average-decay", "0.99"}),
              HasSubstr("optimiser: lars, momentum 0.9, trust 0.001, gradient clipped to [-2, 2], moving average of "
                        "the weights 0.99\n"));
  EXPECT_THAT(said({"--optimizer", "nesterov"}), HasSubstr("optimiser: nesterov, momentum 0.9\n"));
}

TEST(TrainingText, SaysHowTheLearningRateChanges) {
  const auto rate = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--optimizer", "sgd"});
    return said(arguments);
  };
  EXPECT_THAT(rate({"--schedule", "cosine", "--final-learning-rate", "0.01", "--warmup-steps", "100"}),
              HasSubstr("learning rate: cosine, 0.1 to 0.01, warm-up over 100 steps\n"));
  EXPECT_THAT(rate({"--schedule", "exponential", "--staircase", "--decay-steps", "50"}),
              HasSubstr("learning rate: exponential, 0.1 x 0.96 every 50 steps\n"));
  EXPECT_THAT(rate({"--schedule", "step", "--boundaries", "10,20", "--decay-rate", "0.5"}),
              HasSubstr("learning rate: step, 0.1 x 0.5 at steps 10, 20\n"));
  EXPECT_THAT(rate({"--schedule", "polynomial", "--power", "2"}),
              HasSubstr("learning rate: polynomial, 0.1 to 0, power 2\n"));
  EXPECT_THAT(rate({"--reference-batch", "128"}), HasSubstr("learning rate: constant, 0.2 = 0.1 x 256 / 128\n"));
}

TEST(TrainingText, SaysWhatBelongsToTheLossAndToTheInput) {
  EXPECT_THAT(said({"--loss", "softmax-cross-entropy", "--label-smoothing", "0.1", "--l2", "0.001"}),
              HasSubstr("loss: softmax-cross-entropy, label smoothing 0.1, L2 0.001\n"));
  EXPECT_THAT(said({"--augment", "pad=1,crop=4,flip", "--normalize", "affine(0.5,-1)"}),
              HasSubstr("input: normalisation affine(0.5,-1), augmentation pad=1,crop=4,flip\n"));
}

TEST(TrainingText, NamesTheDefaultsThatTheNetworkBrings) {
  const std::string usual = said({"--model", "gpt"});
  EXPECT_THAT(usual, HasSubstr("input: 8 tokens of text\n"));
  EXPECT_THAT(usual, HasSubstr("\ndefaults of gpt: --"));
  EXPECT_THAT(usual, HasSubstr("--optimizer adamw"));
  EXPECT_THAT(said({"--model", "gpt", "--optimizer", "adam"}), Not(HasSubstr("--optimizer"))) << "said by the user";
}

}  // namespace
}  // namespace lockstep::app
