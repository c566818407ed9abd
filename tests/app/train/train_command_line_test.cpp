#include "app/train/train_command_line.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "model/network.hpp"
#include "model/training/schedule.hpp"
#include "model/update_rule.hpp"
#include "support/message_of.hpp"
#include "train_arguments.hpp"

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(TrainOptionsTest, TheFirstBareWordIsTheData) {
  EXPECT_EQ(parse_train({"folder", "--epochs", "3"}).data.path, "folder");
  EXPECT_EQ(parse_train({"--epochs", "3", "folder"}).data.path, "folder");
}

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

TEST(TrainOptionsTest, ListedNamesAreThoseThatTheModelRoomKnows) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "adamw"})
    EXPECT_NO_THROW(model::parse_optimizer(name)) << name;
  for (const char* name : {"constant", "exponential", "step", "cosine", "polynomial"})
    EXPECT_NO_THROW(model::parse_schedule(name)) << name;
}

TEST(TrainOptionsTest, NvlsIsOffUnlessAskedFor) {
  EXPECT_FALSE(parse({}).execution.nvls);
  const TrainOptions asked = parse({"--nvls"});
  EXPECT_TRUE(asked.execution.nvls);
  EXPECT_TRUE(train_options_from_ini(asked.to_ini()).execution.nvls);
}

TEST(TrainOptionsTest, TheRateGoesWithTheOptimiser) {
  EXPECT_EQ(parse({}).optimizer.kind, model::OptimizerKind::adam);
  EXPECT_EQ(parse({}).schedule.base, 0.001);
  EXPECT_EQ(parse({"--optimizer", "momentum"}).schedule.base, 0.1);
  EXPECT_EQ(parse({"--optimizer", "momentum", "--learning-rate", "0.2"}).schedule.base, 0.2);
  EXPECT_EQ(parse({"--model", "lstm"}).schedule.base, 20);
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
  for (const char* part : {"blocks [4]", "tokens per sample [64]", "--[no-]tied",
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

}  // namespace
}  // namespace lockstep::app
