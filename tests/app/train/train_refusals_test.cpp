/// \file
/// Command lines that `lockstep train` rejects, and the error messages.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/train_options.hpp"
#include "support/message_of.hpp"
#include "train_arguments.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TrainOptionsTest, UnknownNamesAreErrorsWithTheNearest) {
  EXPECT_EQ(complaint({"--learnig-rate", "1"}), "unknown option --learnig-rate; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--learning_rate=1"}), "unknown option --learning_rate; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--lr", "1"}), "unknown option --lr; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--no-shufle"}), "unknown option --no-shufle; did you mean --no-shuffle?");
  EXPECT_EQ(complaint({"--confg", "a"}), "unknown option --confg; did you mean --config?");
  EXPECT_EQ(complaint({"--no-batch"}).substr(0, 25), "unknown option --no-batch");
  EXPECT_EQ(complaint({"--qqqqqqq"}), "unknown option --qqqqqqq");
  EXPECT_EQ(complaint({"-b", "3"}).substr(0, 17), "unknown option -b");
}

TEST(TrainOptionsTest, AbbreviationsAreNotAccepted) {
  EXPECT_EQ(complaint({"--learn", "1"}), "unknown option --learn; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--epoch", "1"}), "unknown option --epoch; did you mean --epochs?");
}

TEST(TrainOptionsTest, OtherBareWordsAreErrorsWithAHint) {
  const std::string given_already = ": --data is given already, and values follow their option's name";
  EXPECT_EQ(complaint({"folder"}), "cannot make sense of folder" + given_already);
  EXPECT_EQ(complaint({"epochs=3"}), "cannot make sense of epochs=3; did you mean --epochs=3?");
  EXPECT_EQ(complaint({"epochs"}), "cannot make sense of epochs; did you mean --epochs?");
  EXPECT_EQ(complaint({"--", "folder"}), "cannot make sense of folder" + given_already);
  EXPECT_EQ(complaint({"--epochs", "3", "4"}), "cannot make sense of 4" + given_already);
}

TEST(TrainOptionsTest, ValuesAreNeededAndGivenOnce) {
  EXPECT_EQ(complaint({"--epochs"}), "--epochs needs a value: N");
  EXPECT_EQ(complaint({"--epochs", "--force"}), "--epochs needs a value: N");
  EXPECT_EQ(complaint({"--config"}), "--config needs a value: FILE");
  EXPECT_EQ(complaint({"--epochs", "3", "--epochs=4"}), "--epochs is given twice");
  EXPECT_EQ(complaint({"--epochs="}), "--epochs needs a value: N");
  EXPECT_EQ(complaint({"--epochs", ""}), "--epochs: an empty value is not a number");
}

struct WrongValue {
  Arguments arguments;
  std::string complaint;
};

class WrongValues : public testing::TestWithParam<WrongValue> {};

TEST_P(WrongValues, AreNamed) { EXPECT_EQ(complaint(GetParam().arguments), GetParam().complaint); }

INSTANTIATE_TEST_SUITE_P(
    TrainOptionsTest, WrongValues,
    testing::Values(
        WrongValue{{"--epochs", "abc"}, "--epochs: abc is not a number"},
        WrongValue{{"--epochs", "3x"}, "--epochs: 3x is not a number"},
        WrongValue{{"--epochs", "0"}, "--epochs: 0 must be greater than 0"},
        WrongValue{{"--epochs", "-1"}, "--epochs: -1 must be greater than 0"},
        WrongValue{{"--learning-rate", "nan"}, "--learning-rate: nan is not a finite number"},
        WrongValue{{"--learning-rate", "inf"}, "--learning-rate: inf is not a finite number"},
        WrongValue{{"--learning-rate", "1e999"}, "--learning-rate: 1e999 is too large or too small to represent"},
        WrongValue{{"--target-metric", "nan"}, "--target-metric: nan is not a finite number"},
        WrongValue{{"--batch", "0"}, "--batch: 0 must be at least 1"},
        WrongValue{{"--batch", "-5"}, "--batch: -5 must be at least 1"},
        WrongValue{{"--batch", "1.5"}, "--batch: 1.5 is not a whole number"},
        WrongValue{{"--batch", "99999999999999999999"},
                   "--batch: 99999999999999999999 is too large or too small to represent"},
        WrongValue{{"--steps", "-1"}, "--steps: -1 must not be negative"},
        WrongValue{{"--seed", "-1"}, "--seed: -1 must not be negative"},
        WrongValue{{"--evaluate-every", "-2"}, "--evaluate-every: -2 must be at least -1"},
        WrongValue{{"--keep", "0"}, "--keep: 0 must be at least 1"},
        WrongValue{{"--threads", "0"}, "--threads: 0 must be at least 1"},
        WrongValue{{"--threads", "5000"}, "--threads: 5000 must be at most 1024"},
        WrongValue{{"--deadline", "0"}, "--deadline: 0 must be greater than 0"},
        WrongValue{{"--optimizer", "momentum", "--momentum", "1"}, "--momentum: 1 must be less than 1"},
        WrongValue{{"--average-decay", "1"}, "--average-decay: 1 must be less than 1"},
        WrongValue{{"--clip-norm", "-1"}, "--clip-norm: -1 must not be negative"},
        WrongValue{{"--x", ""}, "--x: an empty value is not accepted"},
        WrongValue{{"--hidden", ""}, "--hidden: an empty value is not a list of whole numbers such as 512,128"},
        WrongValue{{"--hidden", "512,,3"}, "--hidden: 512,,3 is not a list of whole numbers such as 512,128"},
        WrongValue{{"--hidden", "512,"}, "--hidden: 512, is not a list of whole numbers such as 512,128"},
        WrongValue{{"--hidden", "512,a"}, "--hidden: 512,a is not a valid list: a is not a whole number"},
        WrongValue{{"--hidden", "512,0"}, "--hidden: 512,0 is not a valid list: 0 must be at least 1"},
        WrongValue{{"--schedule", "step", "--boundaries", "20,10"}, "--boundaries: 20,10 must be in ascending order"},
        WrongValue{{"--schedule", "step", "--boundaries", "20, 20"}, "--boundaries: 20, 20 must be in ascending order"},
        WrongValue{{"--normalize", "affine(1)"},
                   "--normalize: affine(1) is not of the form affine(SCALE,SHIFT) with two numbers, as in "
                   "affine(0.00392,-0.5)"},
        WrongValue{{"--normalize", "affine(nan,0)"},
                   "--normalize: affine(nan,0) is not of the form affine(SCALE,SHIFT) with two numbers, as in "
                   "affine(0.00392,-0.5)"},
        WrongValue{{"--normalize", "standrd"},
                   "--normalize: standrd is not one of auto, none, range, standard, per-feature, per-image and "
                   "affine(SCALE,SHIFT); "
                   "did you "
                   "mean standard?"}));

struct Enumerated {
  std::string name, typo, nearest, all;
};

class EnumeratedValues : public testing::TestWithParam<Enumerated> {};

TEST_P(EnumeratedValues, AreCheckedWhenParsed) {
  const Enumerated& e = GetParam();
  EXPECT_EQ(complaint({"--" + e.name, e.typo}),
            "--" + e.name + ": " + e.typo + " is not one of " + e.all + "; did you mean " + e.nearest + "?");
}

INSTANTIATE_TEST_SUITE_P(
    TrainOptionsTest, EnumeratedValues,
    testing::Values(Enumerated{"optimizer", "adm", "adam", "sgd, momentum, nesterov, adam, adamw, lars and lamb"},
                    Enumerated{"schedule", "cosin", "cosine", "constant, exponential, step, cosine and polynomial"},
                    Enumerated{"activation", "Relu", "relu", "relu, tanh, sigmoid and gelu"},
                    Enumerated{"transport", "shared_memory", "shared-memory",
                               "auto, shared-memory, two-level, ring and mpi"},
                    Enumerated{"device", "gpus", "gpu", "auto, cpu and gpu"},
                    Enumerated{"precision", "bfp16", "bf16", "auto, fp32, tf32 and bf16"},
                    Enumerated{"bf16-unit", "avx51", "avx512", "auto, avx512, amx, emulated-avx512 and emulated-amx"},
                    Enumerated{"wire", "f32", "fp32", "fp32, bf16, bf16-feedback and int8-feedback"},
                    Enumerated{"verify", "al", "all", "auto, all and none"},
                    Enumerated{"progress", "of", "off", "auto, on and off"},
                    Enumerated{"loss", "mean-square-error", "mean-squared-error",
                               "auto, softmax-cross-entropy, mean-squared-error, mean-absolute-error, huber, "
                               "binary-cross-entropy, soft-cross-entropy and dice"}));

TEST(TrainOptionsTest, InitialisersAreCheckedWhenParsed) {
  EXPECT_EQ(complaint({"--weight-init", "xavier_uniform", "--bias-init", "normal(0.01)"}), "");
  EXPECT_THAT(complaint({"--weight-init", "he_norml"}),
              AllOf(HasSubstr("--weight-init: he_norml"), HasSubstr("he_normal")));
  EXPECT_THAT(complaint({"--bias-init", "constant(abc)"}), HasSubstr("--bias-init: constant(abc)"));
}

TEST(TrainOptionsTest, DataIsNeeded) {
  EXPECT_EQ(test::message_of<UsageError>([&] {
              parse_train({"--epochs", "1"});
            }),
            "--data is missing: name a shard folder that `lockstep pack` made, or an HDF5 file");
}

TEST(TrainOptionsTest, ContradictionsAreErrors) {
  const std::vector<std::pair<Arguments, std::string>> sentences = {
      {{"--batch", "128", "--global-batch", "256"},
       "--batch and --global-batch contradict each other: give one of them"},
      {{"--epochs", "1", "--steps", "10"}, "--epochs and --steps contradict each other: give one of them"},
      {{"--clip-norm", "1", "--clip-value", "1"},
       "--clip-value and --clip-norm contradict each other: give one of them"},
      {{"--force", "--resume"}, "--force and --resume contradict each other: give one of them"},
      {{"--evaluate-average"}, "--evaluate-average has no effect without --average-decay"},
      {{"--momentum", "0.9"},
       "--momentum has an effect only with --optimizer momentum, nesterov or lars, not with adam"},
      {{"--momentum", "0.9", "--optimizer", "adam"},
       "--momentum has an effect only with --optimizer momentum, nesterov or lars, not with adam"},
      {{"--shard-optimizer", "--optimizer", "lamb"},
       "--shard-optimizer has an effect only with --optimizer sgd, momentum, nesterov, adam or adamw, not with lamb"},
      {{"--beta1", "0.9", "--optimizer", "sgd"},
       "--beta1 has an effect only with --optimizer adam, adamw or lamb, not with sgd"},
      {{"--staircase"}, "--staircase has an effect only with --schedule exponential, not with constant"},
      {{"--schedule", "cosine", "--decay-rate", "0.5"},
       "--decay-rate has an effect only with --schedule exponential or step, not with cosine"},
      {{"--boundaries", "1,2"}, "--boundaries has an effect only with --schedule step, not with constant"},
      {{"--schedule", "step"}, "--schedule step needs --boundaries: the steps at which the rate changes"},
      {{"--power", "2"}, "--power has an effect only with --schedule polynomial, not with constant"},
      {{"--model", "linear", "--hidden", "3"}, "--hidden has an effect only with --model lstm or mlp, not with linear"},
      {{"--histograms-every", "5", "--no-tensorboard"},
       "--histograms-every has an effect only with --tensorboard yes, not with no"},
      {{"--device", "cpu", "--ring"}, "--ring has an effect only with --device auto or gpu, not with cpu"},
      {{"--device", "cpu", "--nvls"}, "--nvls has an effect only with --device auto or gpu, not with cpu"},
      {{"--device", "cpu", "--no-graph"}, "--no-graph has an effect only with --device auto or gpu, not with cpu"},
      {{"--device", "cpu", "--share-gpu"}, "--share-gpu has an effect only with --device auto or gpu, not with cpu"},
      {{"--device", "gpu", "--threads", "4"}, "--threads has an effect only with --device auto or cpu, not with gpu"},
      {{"--ring", "--nvls"}, "--nvls and --ring contradict each other: give one of them"},
      {{"--agree", "local=0"},
       "--agree: local=0 is neither all nor local=STEPS, quorum=RANKS or async, with 1 to 1000000 steps or ranks"},
      {{"--agree", "quorum=0"},
       "--agree: quorum=0 is neither all nor local=STEPS, quorum=RANKS or async, with 1 to 1000000 steps or ranks"},
      {{"--agree", "sometimes"},
       "--agree: sometimes is neither all nor local=STEPS, quorum=RANKS or async, with 1 to 1000000 steps or ranks"},
      {{"--islands", "2"}, "--islands has no effect without --agree"},
      {{"--agree-after", "10"}, "--agree-after has no effect without --agree"},
      {{"--servers", "1"}, "--servers has no effect without --agree"},
      {{"--agree", "quorum=2", "--staleness", "1"},
       "--staleness has an effect only with --agree async, not with quorum=2"},
      {{"--agree", "async", "--stale-rate", "compensate"}, "--stale-rate: compensate is not one of keep and scale"},
      {{"--agree", "local=5", "--outer-optimizer", "average", "--outer-rate", "1"},
       "--outer-rate has an effect only with --outer-optimizer momentum, slowmo or nesterov, not with average"},
      {{"--global-batch", "70", "--virtual-ranks", "8"}, "--virtual-ranks has no effect without --reproducible"},
      {{"--shard-optimizer", "--optimizer", "lars"},
       "--shard-optimizer has an effect only with --optimizer sgd, momentum, nesterov, adam or adamw, not with lars"},
      {{"--learning-rate-scale", "dense_1/*=-1"},
       "--learning-rate-scale: dense_1/*=-1 has no factor of 0 or more in dense_1/*=-1"},
      {{"--learning-rate-scale", "dense_1/*"}, "--learning-rate-scale: dense_1/* is not PATTERN=FACTOR: dense_1/*"},
      {{"--sampling", "balanced", "--class-weight", "balanced"},
       "--class-weight and --sampling contradict each other: give one of them"},
      {{"--sampling", "balanced", "--sample-weight", "w"},
       "--sample-weight and --sampling contradict each other: give one of them"},
      {{"--sampling", "balance"}, "--sampling: balance is not one of uniform and balanced; did you mean balanced?"},
      {{"--class-weight", "balance"},
       "--class-weight: balance is neither balanced nor a list of numbers of 0 or more, one for each class"},
      {{"--class-weight", "1,-2,1"},
       "--class-weight: 1,-2,1 is neither balanced nor a list of numbers of 0 or more, one for each class"},
      {{"--best-by", "auc"},
       "--best-by: auc is not one of auto, loss, accuracy, balanced-accuracy, f1, f1-macro, roc-auc, "
       "mean-absolute-error and mean-iou"},
  };
  for (const auto& [arguments, sentence] : sentences) EXPECT_EQ(complaint(arguments), sentence);
}

TEST(TrainOptionsTest, WhatIsOffAnywayContradictsNothing) {
  EXPECT_EQ(complaint({"--batch", "64", "--global-batch", "0"}), "");
  EXPECT_EQ(complaint({"--epochs", "2", "--steps", "0"}), "");
  EXPECT_EQ(complaint({"--clip-norm", "1", "--clip-value", "0"}), "");
  EXPECT_EQ(complaint({"--no-staircase"}), "");
  EXPECT_EQ(complaint({"--no-force", "--resume"}), "");
}

TEST(NetworkRows, AreCheckedAgainstWhatTheNetworkAllows) {
  EXPECT_EQ(complaint({"--model", "resnet", "--depth", "21"}), "--depth: 21 is none of 18, 20, 32, 34, 50, 56");
  EXPECT_EQ(complaint({"--model", "gpt", "--layers", "-1"}), "--layers: -1 must be at least 1");
  EXPECT_EQ(complaint({"--model", "gpt", "--dropout", "1"}), "--dropout: 1 must be less than 1");
  EXPECT_EQ(complaint({"--model", "gpt", "--activation", "relu"}),
            "--activation has an effect only with --model cnn or mlp, not with gpt");
  EXPECT_THAT(complaint({"--initialize-from", "gpt.h5", "--context", "32"}),
              HasSubstr("--model names the network of --initialize-from"));
}

}  // namespace
}  // namespace lockstep::app
