#include "app/train/train_command_line.hpp"

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "io/io_test_support.hpp"
#include "model/initialize.hpp"
#include "model/network.hpp"
#include "model/training/schedule.hpp"
#include "model/update_rule.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Arguments = std::vector<std::string>;

TrainOptions parse(Arguments arguments) {
  arguments.insert(arguments.begin(), {"--data", "shards"});
  return parse_train(arguments);
}

/// The message to the user; "" if the options are accepted.
std::string complaint(const Arguments& arguments) {
  return test::message_of<UsageError>([&] { parse(arguments); });
}

class ConfigFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(file_) << text; }
  std::string complaint_about(const std::string& text, Arguments more = {}) {
    write(text);
    more.insert(more.end(), {"--config", file_});
    return complaint(more);
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const std::string file_ = (folder_ / "run.ini").string();
};

TEST(TrainOptionsTest, DefaultsAreThoseOfTheStruct) {
  TrainOptions expected;
  expected.data.path = "shards";
  expected.network = model::with_defaults(expected.network);
  expected.explicitly_set = {"data"};
  EXPECT_EQ(parse({}), expected);
}

TEST(TrainOptionsTest, EveryGroupIsRead) {
  const TrainOptions o = parse({"--validation=test",
                                "--x",
                                "images",
                                "--y",
                                "labels",
                                "--normalize",
                                "standard",
                                "--verify",
                                "none",
                                "--no-shuffle",
                                "--hidden",
                                "512, 128,64",
                                "--activation",
                                "tanh",
                                "--weight-init",
                                "truncated_normal(0.1)",
                                "--bias-init=constant(0.1)",
                                "--loss",
                                "softmax-cross-entropy",
                                "--optimizer",
                                "nesterov",
                                "--momentum",
                                "0.8",
                                "--l2",
                                "1e-4",
                                "--weight-decay",
                                "0.01",
                                "--clip-norm",
                                "1",
                                "--average-decay",
                                "0.99",
                                "--evaluate-average",
                                "--learning-rate",
                                "0.05",
                                "--schedule",
                                "exponential",
                                "--decay-rate",
                                "0.5",
                                "--decay-steps",
                                "10",
                                "--staircase",
                                "--warmup-steps",
                                "5",
                                "--reference-batch",
                                "256",
                                "--global-batch",
                                "512",
                                "--accumulate",
                                "2",
                                "--steps",
                                "100",
                                "--seed",
                                "18446744073709551615",
                                "--evaluate-every",
                                "-1",
                                "--evaluation-batch",
                                "99",
                                "--target-metric",
                                "0.88",
                                "--run",
                                "runs/a",
                                "--force",
                                "--checkpoint-every",
                                "7",
                                "--keep",
                                "2",
                                "--report-every",
                                "3",
                                "--histograms-every",
                                "4",
                                "--progress",
                                "off",
                                "--threads",
                                "2",
                                "--initialize-from",
                                "runs/b",
                                "--reinitialize",
                                "dense_2/*,dense_3/bias",
                                "--transport",
                                "ring",
                                "--deadline",
                                "2.5",
                                "--device",
                                "auto",
                                "--precision",
                                "bf16",
                                "--wire",
                                "bf16",
                                "--all-reduce",
                                "16384,1048576",
                                "--ring",
                                "--no-cudnn-attention",
                                "--no-graph",
                                "--tune",
                                "--share-gpu",
                                "--bucket-size",
                                "1000",
                                "--shard-optimizer",
                                "--dry-run"});
  TrainOptions e;
  e.data.path = "shards", e.data.validation = "test", e.data.x = "images", e.data.y = "labels",
  e.data.normalize.kind = Normalization::Kind::standard, e.data.verify = VerifyData::none;
  e.data.shuffle = false;
  e.network.values = {{"hidden", model::Numbers{512, 128, 64}},
                      {"activation", "tanh"},
                      {"dropout", 0.0},
                      {"weight-init", model::parse_initializers("truncated_normal(0.1)")},
                      {"bias-init", model::parse_initializers("constant(0.1)")}};
  e.loss.kind = model::LossKind::softmax_cross_entropy, e.optimizer.kind = model::OptimizerKind::nesterov,
  e.optimizer.momentum = 0.8, e.optimizer.l2 = 1e-4;
  e.optimizer.weight_decay = 0.01, e.optimizer.clip_norm = 1, e.optimizer.average_decay = 0.99,
  e.validation.average = true, e.schedule.base = 0.05;
  e.schedule.kind = model::ScheduleOptions::Kind::exponential, e.schedule.decay_rate = 0.5, e.schedule.decay_steps = 10,
  e.schedule.staircase = true, e.schedule.warmup_steps = 5;
  e.work.reference_batch = 256, e.work.global_batch = 512, e.work.accumulate = 2, e.work.steps = 100,
  e.work.seed = 18446744073709551615u;
  e.validation.every = -1, e.validation.batch = 99, e.validation.target_metric = 0.88, e.run.folder = "runs/a",
  e.run.force = true;
  e.start = {.from = "runs/b", .reinitialize = {"dense_2/*", "dense_3/bias"}};
  e.run.checkpoint_every = {.steps = 7}, e.run.keep = 2, e.reports.every = 3, e.reports.histograms_every = 4,
  e.reports.progress = false;
  e.execution = {.device = DeviceChoice::automatic,
                 .precision = model::Precision::bf16,
                 .threads = 2,
                 .transport = comm::Transport::ring,
                 .deadline = 2.5,
                 .ring = true,
                 .wire = comm::WireFormat::bf16,
                 .all_reduce = {.limits = comm::AllReduceLimits{.doubling = 16384, .halving = 1048576}},
                 .graphs = false,
                 .cudnn_attention = false,
                 .tune = true,
                 .share_gpu = true,
                 .bucket_size = 1000,
                 .shard_optimizer = true};
  e.dry_run = true;
  e.explicitly_set = o.explicitly_set;
  EXPECT_EQ(o, e);
  EXPECT_TRUE(o.was_set("momentum"));
  EXPECT_TRUE(o.was_set("shuffle"));
  EXPECT_FALSE(o.was_set("batch"));
}

TEST(TrainOptionsTest, TheRestOfTheOptimisersAndSchedules) {
  const TrainOptions adam =
      parse({"--optimizer", "adamw", "--beta1", "0.8", "--beta2", "0.9", "--epsilon", "1e-6", "--clip-value", "5"});
  EXPECT_EQ(adam.optimizer.beta1, 0.8);
  EXPECT_EQ(adam.optimizer.beta2, 0.9);
  EXPECT_EQ(adam.optimizer.epsilon, 1e-6);
  EXPECT_EQ(adam.optimizer.clip_value, 5);
  const TrainOptions step = parse({"--schedule", "step", "--boundaries", "10,20", "--epochs", "0.5", "--batch", "7"});
  EXPECT_THAT(step.schedule.boundaries, ElementsAre(10, 20));
  EXPECT_EQ(step.work.epochs, 0.5);
  EXPECT_EQ(step.work.batch, 7);
  const TrainOptions polynomial = parse({"--schedule", "polynomial", "--power", "2", "--final-learning-rate", "0.001"});
  EXPECT_EQ(polynomial.schedule.power, 2);
  EXPECT_EQ(polynomial.schedule.final_rate, 0.001);
}

TEST(TrainOptionsTest, YesNoOptionsHaveOneMeaningInEverySpelling) {
  for (const Arguments& off :
       {Arguments{"--no-shuffle"}, {"--shuffle=no"}, {"--shuffle", "no"}, {"--shuffle=off"}, {"--shuffle=False"}}) {
    EXPECT_FALSE(parse(off).data.shuffle) << off[0];
  }
  for (const Arguments& on : {Arguments{"--shuffle"}, {"--shuffle=yes"}, {"--shuffle", "1"}, {}})
    EXPECT_TRUE(parse(on).data.shuffle);
  EXPECT_EQ(complaint({"--shuffle=maybe"}), "--shuffle: maybe is neither yes nor no");
  EXPECT_EQ(complaint({"--shuffle", "--no-shuffle"}), "--shuffle and --no-shuffle contradict each other");
  EXPECT_EQ(complaint({"--no-shuffle=yes"}), "--no-shuffle takes no value");
}

TEST(TrainOptionsTest, ResumeMayStandAlone) {
  const Resume newest{.from = Resume::From::newest}, file{.from = Resume::From::file, .file = "step.h5"};
  EXPECT_EQ(parse({}).run.resume, Resume{});
  EXPECT_EQ(parse({"--resume"}).run.resume, newest);
  EXPECT_EQ(parse({"--resume", "--run", "runs/a"}).run.resume, newest);
  EXPECT_EQ(parse({"--resume=step.h5"}).run.resume, file);
  EXPECT_EQ(parse({"--resume", "step.h5"}).run.resume, file);
}

TEST(TrainOptionsTest, TimeLimitsAreValues) {
  const auto limit = [](const char* text) { return parse({"--time-limit", text}).run.time_limit; };
  EXPECT_EQ(parse({}).run.time_limit.kind, TimeLimit::Kind::scheduler);
  EXPECT_EQ(limit("auto").kind, TimeLimit::Kind::scheduler);
  EXPECT_EQ(limit("none").kind, TimeLimit::Kind::none);
  EXPECT_EQ(limit("01:30"), (TimeLimit{.kind = TimeLimit::Kind::given, .seconds = 5400}));
}

TEST(TrainOptionsTest, NormalisationIsAValue) {
  const Normalization affine = parse({"--normalize", "affine(0.5,-1e-3)"}).data.normalize;
  EXPECT_EQ(affine.kind, Normalization::Kind::affine);
  EXPECT_EQ(affine.affine.scale, 0.5f);
  EXPECT_EQ(affine.affine.shift, -1e-3f);
  EXPECT_EQ(parse({"--normalize", "per-image"}).data.normalize.kind, Normalization::Kind::per_image);
}

TEST(TrainOptionsTest, UnknownNamesAreErrorsWithTheNearest) {
  EXPECT_EQ(complaint({"--learnig-rate", "1"}), "unknown option --learnig-rate; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--learning_rate=1"}), "unknown option --learning_rate; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--lr", "1"}), "unknown option --lr; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--no-shufle"}), "unknown option --no-shufle; did you mean --no-shuffle?");
  EXPECT_EQ(complaint({"--confg", "a"}), "unknown option --confg; did you mean --config?");
  EXPECT_EQ(complaint({"--no-batch"}).substr(0, 25), "unknown option --no-batch");
  EXPECT_EQ(complaint({"--qqqqqqq"}), "unknown option --qqqqqqq; `lockstep train --help` lists the options");
  EXPECT_EQ(complaint({"-b", "3"}).substr(0, 17), "unknown option -b");
}

TEST(TrainOptionsTest, AbbreviationsAreNotAccepted) {
  EXPECT_EQ(complaint({"--learn", "1"}), "unknown option --learn; did you mean --learning-rate?");
  EXPECT_EQ(complaint({"--epoch", "1"}), "unknown option --epoch; did you mean --epochs?");
}

TEST(TrainOptionsTest, TheFirstBareWordIsTheData) {
  EXPECT_EQ(parse_train({"folder", "--epochs", "3"}).data.path, "folder");
  EXPECT_EQ(parse_train({"--epochs", "3", "folder"}).data.path, "folder");
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

TEST(TrainOptionsTest, ClassesHaveWeights) {
  EXPECT_EQ(parse({}).loss.class_weights, ClassWeights{});
  EXPECT_EQ(parse({"--sampling", "balanced"}).data.sampling, ClassSampling::balanced);
  EXPECT_EQ(train_options_from_ini(parse({"--sampling", "balanced"}).to_ini()).data.sampling, ClassSampling::balanced);
  EXPECT_TRUE(parse({"--class-weight", "balanced"}).loss.class_weights.balanced);
  EXPECT_THAT(parse({"--class-weight", "1,0,2.5"}).loss.class_weights.given, testing::ElementsAre(1, 0, 2.5));
  EXPECT_EQ(train_options_from_ini(parse({"--class-weight", "1,0,0.1"}).to_ini()).loss.class_weights,
            parse({"--class-weight", "1,0,0.1"}).loss.class_weights);
  for (const char* wrong : {"", "1,,2", "1,-1", "1,nan", "balance", "1;2"}) {
    EXPECT_THROW(parse({"--class-weight", wrong}), UsageError) << wrong;
  }
}

TEST(TrainOptionsTest, SumsBetweenHostsGoByAScheduleOrByTwoSizes) {
  EXPECT_EQ(parse({}).execution.all_reduce, comm::AllReduceChoice{});
  EXPECT_EQ(parse({"--all-reduce", "auto"}).execution.all_reduce, comm::AllReduceChoice{});
  EXPECT_EQ(parse({"--all-reduce", "measured"}).execution.all_reduce, comm::AllReduceChoice{.measured = true});
  using comm::AllReduceLimits, comm::AllReduceSchedule;
  for (const AllReduceSchedule schedule :
       {AllReduceSchedule::doubling, AllReduceSchedule::halving, AllReduceSchedule::ring}) {
    EXPECT_EQ(parse({"--all-reduce", std::string(name_of(schedule))}).execution.all_reduce,
              comm::AllReduceChoice{.limits = AllReduceLimits::all_by(schedule)});
  }
  for (const char* const wrong : {"rings", "1", "1,", ",1", "2,1", "1,2,3", "-1,2", "1,2x"}) {
    EXPECT_THAT(
        complaint({"--all-reduce", wrong}),
        HasSubstr(std::string(wrong) + " is not one of auto, measured, doubling, halving and ring, nor two sizes"));
  }
}

TEST(TrainOptionsTest, ModelNamesComeFromTheModelRoom) {
  for (const std::string& name : model::network_names()) EXPECT_EQ(parse({"--model", name}).network.name, name);
  EXPECT_THAT(complaint({"--model", "mpl"}), HasSubstr("did you mean mlp?"));
}

TEST(TrainOptionsTest, InitialisersAreCheckedWhenParsed) {
  EXPECT_EQ(complaint({"--weight-init", "xavier_uniform", "--bias-init", "normal(0.01)"}), "");
  EXPECT_THAT(complaint({"--weight-init", "he_norml"}),
              AllOf(HasSubstr("--weight-init: he_norml"), HasSubstr("he_normal")));
  EXPECT_THAT(complaint({"--bias-init", "constant(abc)"}), HasSubstr("--bias-init: constant(abc)"));
}

TEST(TrainOptionsTest, ListedNamesAreThoseThatTheModelRoomKnows) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw"})
    EXPECT_NO_THROW(model::parse_optimizer(name)) << name;
  for (const char* name : {"constant", "exponential", "step", "cosine", "polynomial"})
    EXPECT_NO_THROW(model::parse_schedule(name)) << name;
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

TEST_F(ConfigFile, OfARunOnGpusServesOnCpusAndBack) {
  write("device = gpu\nprecision = fp32\nring = yes\ngraph = no\nshare-gpu = yes\n");
  const ExecutionOptions cpu = parse({"--config", file_, "--device", "cpu", "--threads", "2"}).execution;
  EXPECT_EQ(cpu, (ExecutionOptions{.device = DeviceChoice::cpu, .precision = model::Precision::fp32, .threads = 2}));
  write("device = cpu\nthreads = 2\n");
  const ExecutionOptions gpu = parse({"--config", file_, "--device", "gpu", "--no-graph"}).execution;
  EXPECT_EQ(gpu, (ExecutionOptions{.device = DeviceChoice::gpu, .graphs = false}));
}

TEST(TrainOptionsTest, NvlsIsOffUnlessAskedFor) {
  EXPECT_FALSE(parse({}).execution.nvls);
  const TrainOptions asked = parse({"--nvls"});
  EXPECT_TRUE(asked.execution.nvls);
  EXPECT_TRUE(train_options_from_ini(asked.to_ini()).execution.nvls);
}

TEST(TrainOptionsTest, WhatIsOffAnywayContradictsNothing) {
  EXPECT_EQ(complaint({"--batch", "64", "--global-batch", "0"}), "");
  EXPECT_EQ(complaint({"--epochs", "2", "--steps", "0"}), "");
  EXPECT_EQ(complaint({"--clip-norm", "1", "--clip-value", "0"}), "");
  EXPECT_EQ(complaint({"--no-staircase"}), "");
  EXPECT_EQ(complaint({"--no-force", "--resume"}), "");
}

TEST_F(ConfigFile, IsReadAndTheCommandLineWins) {
  write(
      "# a comment\n; another\n\n  data = elsewhere  \nepochs=3   # trailing\nlearning-rate = 0.5\nshuffle = "
      "no\nhidden = 64,32\r\n");
  const TrainOptions o = parse_train({"--config", file_, "--learning-rate", "0.25", "--shuffle"});
  EXPECT_EQ(o.data.path, "elsewhere");
  EXPECT_EQ(o.work.epochs, 3);
  EXPECT_EQ(o.schedule.base, 0.25);
  EXPECT_TRUE(o.data.shuffle);
  EXPECT_EQ(o.network.get<model::Numbers>("hidden"), (model::Numbers{64, 32}));
  EXPECT_THAT(o.explicitly_set, ElementsAre("data", "shuffle", "hidden", "learning-rate", "epochs"));
}

TEST_F(ConfigFile, TheCommandLineAlsoWinsWhereTheTwoContradict) {
  write("batch = 64\nepochs = 3\noptimizer = momentum\nmomentum = 0.5\nclip-norm = 1\nresume = auto\n");
  const TrainOptions o = parse({"--config", file_, "--global-batch", "256", "--steps", "10", "--optimizer", "adam",
                                "--clip-value", "2", "--force"});
  EXPECT_EQ(o.work.global_batch, 256);
  EXPECT_EQ(o.work.batch, TrainOptions{}.work.batch);
  EXPECT_FALSE(o.was_set("batch"));
  EXPECT_EQ(o.work.steps, 10);
  EXPECT_EQ(o.optimizer.kind, model::OptimizerKind::adam);
  EXPECT_EQ(o.optimizer.momentum, TrainOptions{}.optimizer.momentum);
  EXPECT_EQ(o.optimizer.clip_value, 2);
  EXPECT_EQ(o.optimizer.clip_norm, 0);
  EXPECT_TRUE(o.run.force);
  EXPECT_EQ(o.run.resume, Resume{});

  write("global-batch = 256\nsteps = 10\n");
  const TrainOptions back = parse({"--config", file_, "--batch", "64", "--epochs", "2"});
  EXPECT_EQ(back.work.batch, 64);
  EXPECT_EQ(back.work.global_batch, 0);
  EXPECT_EQ(back.work.epochs, 2);
  EXPECT_EQ(back.work.steps, 0);
}

TEST_F(ConfigFile, MistakesAreNamedWithFileAndLine) {
  EXPECT_EQ(complaint_about("\nlearnig-rate = 1\n"),
            file_ + ":2: unknown option learnig-rate; did you mean learning-rate?");
  EXPECT_EQ(complaint_about("epochs = abc\n"), file_ + ":1: epochs: abc is not a number");
  EXPECT_EQ(complaint_about("epochs = \n"), file_ + ":1: epochs: an empty value is not a number");
  EXPECT_EQ(
      complaint_about("optimizer = adm\n"),
      file_ +
          ":1: optimizer: adm is not one of sgd, momentum, nesterov, adam, adamw, lars and lamb; did you mean adam?");
  EXPECT_EQ(complaint_about("epochs = 1\n\nepochs = 2\n"), file_ + ":3: epochs is given twice; first in line 1");
  EXPECT_EQ(complaint_about("[data]\n"),
            file_ + ":1: sections such as [data] are not used here: write name = value lines");
  EXPECT_EQ(complaint_about("epochs 3\n"), file_ + ":1: expected name = value, found epochs 3");
  EXPECT_EQ(complaint_about("no-shuffle = yes\n"), file_ + ":1: in a file this is written shuffle = no");
  EXPECT_EQ(complaint_about("--epochs = 3\n"), file_ + ":1: in a file, names are written without --: epochs");
  EXPECT_EQ(complaint_about("run = \"a\n"), file_ + ":1: the closing quote is missing");
  EXPECT_EQ(complaint_about("run = \"a\" b\n"), file_ + ":1: text after the closing quote: b");
  EXPECT_EQ(complaint_about("batch = 1\nglobal-batch = 2\n"),
            file_ + ":1: batch and global-batch contradict each other: give one of them");
  EXPECT_EQ(complaint_about("staircase = yes\n"),
            file_ + ":1: staircase has an effect only with --schedule exponential, not with constant");
}

TEST_F(ConfigFile, OfARunIsReadWhenTheRunIsResumedByName) {
  std::ofstream(folder_ / "config.ini") << "data = elsewhere\nepochs = 7\nresume = auto\n";
  const TrainOptions o = parse_train({"--resume", "--run", folder_.string(), "--epochs", "9"});
  EXPECT_EQ(o.data.path, "elsewhere");
  EXPECT_EQ(o.work.epochs, 9);
  EXPECT_EQ(o.run.resume.from, Resume::From::newest);
  const std::vector<std::string> with_data{"--resume", "--run", folder_.string(), "--data", "d", "--normalize", "auto"};
  EXPECT_EQ(parse_train(with_data).work.epochs, 0) << "there is no checkpoint: the whole job is described anew";
  std::ofstream(folder_ / "config.ini") << "data = elsewhere\nepochs = 7\nnormalize = per-feature\nglobal-batch = 25\n";
  std::filesystem::create_directories(folder_ / "checkpoints");
  std::ofstream(folder_ / "checkpoints" / "step-0000000001.h5") << "";
  const TrainOptions kept = parse_train(with_data);
  EXPECT_EQ(kept.work.epochs, 7);
  EXPECT_EQ(kept.data.path, "d");
  EXPECT_EQ(kept.data.normalize.kind, Normalization::Kind::per_feature) << "what leaves it open does not undo it";
  EXPECT_TRUE(kept.was_set("epochs"));
  EXPECT_FALSE(kept.is_given("epochs"));
  EXPECT_TRUE(kept.is_given("data"));
  std::vector<std::string> otherwise = with_data;
  otherwise.insert(otherwise.end(), {"--batch", "4", "--steps", "3"});
  const TrainOptions said = parse_train(otherwise);
  EXPECT_EQ(said.work.global_batch, 0) << "the command line wins, also where the two contradict";
  EXPECT_EQ(said.work.epochs, 0);
  EXPECT_EQ(complaint_about("epochs = 2\n", {"--resume", "--run", folder_.string()}), "");
}

TEST_F(ConfigFile, OfAResumedRunKeepsWhatItsStartHasMeasured) {
  const std::vector<std::string> again{"--data", "d", "--all-reduce", "measured", "--run", folder_.string()};
  std::vector<std::string> resumed = again;
  resumed.push_back("--resume");
  EXPECT_TRUE(parse_train(resumed).execution.all_reduce.measured) << "nothing to go on from";
  std::filesystem::create_directories(folder_ / "checkpoints");
  std::ofstream(folder_ / "checkpoints" / "step-0000000001.h5") << "";
  std::ofstream(folder_ / "config.ini") << "data = d\nall-reduce = measured\n";
  EXPECT_TRUE(parse_train(resumed).execution.all_reduce.measured) << "not yet measured";
  std::ofstream(folder_ / "config.ini") << "data = d\nall-reduce = 4096,65536\n";
  const comm::AllReduceLimits limits{.doubling = 4096, .halving = 65536};
  EXPECT_EQ(parse_train(resumed).execution.all_reduce, comm::AllReduceChoice{.limits = limits});
  EXPECT_TRUE(parse_train(again).execution.all_reduce.measured) << "a new run";
}

TEST_F(ConfigFile, MustBeThere) {
  EXPECT_EQ(complaint({"--config", file_}), "--config: cannot read " + file_ + ": No such file or directory");
  EXPECT_EQ(complaint({"--config", folder_.string()}), "--config: " + folder_.string() + " is a folder");
  std::ofstream(folder_ / "config.ini") << "epochs = 1\n";
  EXPECT_EQ(complaint({"--config", folder_.string()}),
            "--config: " + folder_.string() + " is a folder; did you mean " + (folder_ / "config.ini").string() + "?");
}

TEST(TrainOptionsTest, TheRateGoesWithTheOptimiser) {
  EXPECT_EQ(parse({}).optimizer.kind, model::OptimizerKind::adam);
  EXPECT_EQ(parse({}).schedule.base, 0.001);
  EXPECT_EQ(parse({"--optimizer", "momentum"}).schedule.base, 0.1);
  EXPECT_EQ(parse({"--optimizer", "momentum", "--learning-rate", "0.2"}).schedule.base, 0.2);
  EXPECT_EQ(parse({"--model", "lstm"}).schedule.base, 1);
  EXPECT_EQ(parse({"--model", "lstm", "--optimizer", "adam"}).schedule.base, 0.001) << "that of sgd is far too large";
  EXPECT_EQ(parse({"--model", "cnn"}).optimizer.kind, model::OptimizerKind::sgd);
}

TEST(TrainOptionsTest, ValidationIsAPathOrAShare) {
  EXPECT_EQ(parse({"--validation", "test"}).data.validation, "test");
  EXPECT_EQ(parse({"--validation", "0.2"}).data.validation_share, 0.2);
  EXPECT_EQ(parse({"--validation", "0.2"}).data.validation, "");
  EXPECT_EQ(train_options_from_ini(parse({"--validation", "0.2"}).to_ini()).data.validation_share, 0.2);
  EXPECT_EQ(complaint({"--validation", "1.5"}), "--validation: 1.5 is neither a path nor a share between 0 and 1");
}

TEST(TrainOptionsIni, HoldsEveryOptionOnceUnderItsGroup) {
  const std::string ini = parse({"--optimizer", "adam"}).to_ini();
  EXPECT_THAT(ini, HasSubstr("# Optimiser\noptimizer = adam\n"));
  EXPECT_THAT(ini, HasSubstr("\n# momentum = 0.9  (no effect here)\n"));
  EXPECT_THAT(ini, HasSubstr("\nlearning-rate = 0.001\n"));
  EXPECT_THAT(ini, Not(HasSubstr("config")));
}

TEST(TrainOptionsIni, ReadsBackAwkwardText) {
  for (const char* awkward :
       {"a # b", "#a", " a ", "say \"hi\"", "back\\slash", "two\nlines", "cr\r", "a;b", "\"", "\\", "ü"}) {
    TrainOptions o = parse({});
    o.run.folder = awkward;
    EXPECT_EQ(train_options_from_ini(o.to_ini()).run.folder, awkward);
  }
}

TEST(NetworkRows, HaveTheValuesOfTheChosenNetwork) {
  EXPECT_EQ(parse({}).network, model::with_defaults({.name = "mlp"}));
  const TrainOptions gpt = parse({"--model", "gpt", "--layers", "3"});
  EXPECT_EQ(gpt.network.get<std::int64_t>("layers"), 3);
  EXPECT_EQ(gpt.network.get<std::int64_t>("width"), 128);
  EXPECT_TRUE(gpt.network.get<bool>("tied"));
  const TrainOptions lstm = parse({"--layers", "0", "--hidden", "none", "--model", "lstm"});
  EXPECT_EQ(lstm.network.get<std::int64_t>("layers"), 2) << "0 leaves it to the network";
  EXPECT_EQ(lstm.network.get<model::Numbers>("hidden"), model::Numbers{200});
  EXPECT_THAT(lstm.to_ini(), testing::AllOf(HasSubstr("\nlayers = 2\n"), HasSubstr("\ntied = no\n"),
                                            HasSubstr("\n# width = 128  (no effect here)\n")));
}

TEST(NetworkRows, AreCheckedAgainstWhatTheNetworkAllows) {
  EXPECT_EQ(complaint({"--model", "resnet", "--depth", "21"}), "--depth: 21 is none of 18, 20, 32, 34, 50, 56");
  EXPECT_EQ(complaint({"--model", "gpt", "--layers", "-1"}), "--layers: -1 must be at least 1");
  EXPECT_EQ(complaint({"--model", "gpt", "--dropout", "1"}), "--dropout: 1 must be less than 1");
  EXPECT_EQ(complaint({"--model", "gpt", "--activation", "relu"}),
            "--activation has an effect only with --model cnn or mlp, not with gpt");
}

/// Lines that earlier programs wrote into config.ini.
TEST(NetworkRows, ReadOlderConfigurations) {
  const TrainOptions o = train_options_from_ini(
      "model = gpt\n# hidden = none  (no effect here)\nlayers = 0\nwidth = 64\nheads = 0\ncontext = 32\ndropout = 0\n"
      "tied = auto\nweight-init = auto\nbias-init = auto\n");
  EXPECT_EQ(o.network, model::with_defaults({.name = "gpt", .values = {{"width", 64}, {"context", 32}}}));
}

TEST(AgreeRows, ReadConfigurationsThatCompensatedForDelays) {
  const TrainOptions o = train_options_from_ini("agree = async\nstale-rate = compensate\ncompensation = 0.1\n");
  EXPECT_EQ(o.agree.stale_rate, StaleRate::keep);
  EXPECT_TRUE(o.agree.asynchronous);
}

std::string help_of(const Arguments& arguments) {
  return test::message_of<HelpRequested>([&] { parse_train(arguments); });
}

TEST(NetworkHelp, ListsTheNetworks) {
  const std::string help = help_of({"--help"});
  for (const std::string& name : model::network_names()) {
    EXPECT_THAT(help, HasSubstr(fmt::format("  {:<12}{}\n", name, model::network_kind(name).summary)));
  }
  EXPECT_THAT(help, HasSubstr("lockstep train --model NAME --help"));
}

TEST(NetworkHelp, OfOneHasItsOptionsAndTheDefaultsThatItBrings) {
  const std::string help = help_of({"--model", "gpt", "--help"});
  for (const char* part : {"blocks [4]", "tokens of a sample [64]", "--[no-]tied",
                           "(sgd, momentum, nesterov, adam, "
                           "adamw,",
                           "[adamw]", "[0.001]", "[16]"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  for (const char* other : {"--hidden WIDTHS", "--unroll", "--depth", "[128]\n  --global-batch"}) {
    EXPECT_THAT(help, testing::Not(HasSubstr(other)));
  }
  EXPECT_EQ(complaint({"--model", "gtp", "--help"}), complaint({"--model", "gtp"}));
}

TEST(TrainOptionsIni, SurvivesWhatTheProgramItselfSets) {
  // A run resumed before its first checkpoint starts over in its folder: both flags are set then.
  TrainOptions o = parse({"--resume", "--run", "runs/a", "--batch", "64"});
  o.run.force = true;
  o.work.global_batch = 128;
  const TrainOptions back = train_options_from_ini(o.to_ini());
  EXPECT_EQ(back.run.resume.from, Resume::From::newest);
  EXPECT_EQ(back.work.global_batch, 128);
}

/// A valid command line at random: each option with some probability, without those that the others make pointless.
Arguments random_arguments(std::mt19937& random) {
  const auto chance = [&] { return random() % 2 == 0; };
  const auto number = [&](int low, int high) {
    return std::to_string(std::uniform_int_distribution<int>(low, high)(random));
  };
  const auto real = [&](double low, double high) {
    return std::to_string(std::uniform_real_distribution<double>(low, high)(random));
  };
  const auto pick = [&](std::vector<std::string> of) { return of[random() % of.size()]; };
  Arguments a;
  const auto maybe = [&](const std::string& name, const std::string& value) {
    if (chance()) a.insert(a.end(), {"--" + name, value});
  };
  maybe("validation", pick({"b", "a folder", "x#y # z"}));
  maybe("x", pick({"images", "data/x"}));
  maybe("normalize", pick({"none", "range", "standard", "affine(0.5,-1e-3)"}));
  maybe("verify", pick({"auto", "all", "none"}));
  if (chance()) a.push_back("--no-shuffle");
  const std::string model = pick({"linear", "mlp", "gpt", "lstm"});
  a.insert(a.end(), {"--model", model});
  if (model == "mlp") {
    maybe("hidden", number(1, 999) + "," + number(1, 999));
    maybe("activation", pick({"relu", "tanh", "sigmoid", "gelu"}));
  }
  if (model == "gpt" || model == "lstm") {
    maybe("layers", pick({"auto", number(0, 9)}));
    maybe("dropout", real(0, 0.9));
    if (chance()) a.push_back(chance() ? "--tied" : "--no-tied");
    maybe(model == "gpt" ? "context" : "unroll", number(1, 99));
  }
  maybe("weight-init", pick({"xavier_normal", "truncated_normal(0.05)"}));
  const std::string optimizer = pick({"sgd", "momentum", "nesterov", "adam", "adamw"});
  a.insert(a.end(), {"--optimizer", optimizer});
  if (optimizer == "momentum" || optimizer == "nesterov") maybe("momentum", real(0, 0.99));
  if (optimizer == "adam" || optimizer == "adamw") {
    maybe("beta1", real(0, 0.99));
    maybe("epsilon", "3e-11");
  }
  maybe("l2", real(0, 1));
  chance() ? maybe("clip-norm", real(1, 9)) : maybe("clip-value", real(1, 9));
  if (chance()) {
    a.insert(a.end(), {"--average-decay", real(0.1, 0.99)});
    if (chance()) a.push_back("--evaluate-average");
  }
  maybe("learning-rate", real(0.001, 1));
  const std::string schedule = pick({"constant", "exponential", "step", "cosine", "polynomial"});
  a.insert(a.end(), {"--schedule", schedule});
  if (schedule == "exponential") {
    maybe("decay-steps", number(1, 999));
    maybe("decay-rate", real(0.1, 1));
    if (chance()) a.push_back("--staircase");
  }
  if (schedule == "step") a.insert(a.end(), {"--boundaries", number(0, 9) + "," + number(10, 99)});
  if (schedule == "polynomial") maybe("power", real(0.5, 3));
  if (schedule == "polynomial" || schedule == "cosine") maybe("final-learning-rate", real(0, 1));
  maybe("warmup-steps", number(0, 99));
  chance() ? maybe("batch", number(1, 999)) : maybe("global-batch", number(1, 9999));
  chance() ? maybe("epochs", real(0.1, 9)) : maybe("steps", number(1, 999));
  maybe("seed", std::to_string(random()));
  maybe("evaluate-every", number(-1, 99));
  maybe("target-metric", real(-1, 1));
  maybe("run", pick({"runs/a", " \"odd\" ", "tab\there"}));
  if (chance()) a.push_back(chance() ? "--resume" : "--force");
  if (chance())
    a.push_back("--no-tensorboard");
  else
    maybe("histograms-every", number(0, 9));
  maybe("deadline", real(0.5, 100));
  maybe("transport", pick({"auto", "ring", "shared-memory", "two-level"}));
  const std::string device = pick({"auto", "cpu", "gpu"});
  a.insert(a.end(), {"--device", device});
  if (device != "gpu" && chance()) {
    a.insert(a.end(), {"--precision", "bf16", "--bf16-unit", pick({"auto", "avx512", "amx", "emulated-amx"})});
  } else {
    maybe("precision", pick({"auto", "fp32", "tf32", "bf16"}));
  }
  maybe("all-reduce", pick({"auto", "doubling", "halving", "ring", "0,0", "100,100", "16384,1048576"}));
  maybe("wire", pick({"fp32", "bf16", "bf16-feedback", "int8-feedback"}));
  if (device != "gpu") maybe("threads", number(1, 64));
  if (device != "cpu") {
    if (chance()) a.push_back(pick({"--ring", "--nvls"}));
    if (chance()) a.push_back("--no-graph");
    if (chance()) a.push_back("--no-cudnn-attention");
    if (chance()) a.push_back("--share-gpu");
  }
  if (chance()) a.push_back("--dry-run");
  return a;
}

TEST(TrainOptionsIni, RoundTripsAnyValidSet) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const Arguments arguments = random_arguments(random);
    TrainOptions before = parse(arguments);
    const std::string ini = before.to_ini();
    TrainOptions after = train_options_from_ini(ini);
    EXPECT_EQ(after.to_ini(), ini);
    before.explicitly_set.clear();
    after.explicitly_set.clear();
    before.from_network.clear();  // a configuration lists those that have an effect
    after.from_network.clear();
    ASSERT_EQ(after, before) << testing::PrintToString(arguments) << "\n" << ini;
  }
}

TEST(TrainOptionsIni, RejectsNonsense) {
  EXPECT_EQ(test::message_of<UsageError>([&] { train_options_from_ini("bogus = 1\n"); }),
            "stored configuration:1: unknown option bogus");
}

}  // namespace
}  // namespace lockstep::app
