/// \file
/// Options of `lockstep train` in files: --config, and the stored configuration of a run.
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "io/io_test_support.hpp"
#include "model/network.hpp"
#include "model/update_rule.hpp"
#include "support/message_of.hpp"
#include "train_arguments.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(ConfigFile, OfARunOnGpusServesOnCpusAndBack) {
  write("device = gpu\nprecision = fp32\nring = yes\ngraph = no\nshare-gpu = yes\n");
  const ExecutionOptions cpu = parse({"--config", file_, "--device", "cpu", "--threads", "2"}).execution;
  EXPECT_EQ(cpu, (ExecutionOptions{.device = DeviceChoice::cpu, .precision = model::Precision::fp32, .threads = 2}));
  write("device = cpu\nthreads = 2\n");
  const ExecutionOptions gpu = parse({"--config", file_, "--device", "gpu", "--no-graph"}).execution;
  EXPECT_EQ(gpu, (ExecutionOptions{.device = DeviceChoice::gpu, .graphs = false}));
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

/// Lines in config.ini that earlier versions wrote.
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

TEST(TrainOptionsIni, SurvivesWhatTheProgramItselfSets) {
  // A run that resumes before its first checkpoint starts over in its folder, with both flags set.
  TrainOptions o = parse({"--resume", "--run", "runs/a", "--batch", "64"});
  o.run.force = true;
  o.work.global_batch = 128;
  const TrainOptions back = train_options_from_ini(o.to_ini());
  EXPECT_EQ(back.run.resume.from, Resume::From::newest);
  EXPECT_EQ(back.work.global_batch, 128);
}

/// Returns a random valid command line: each option with some probability, unless others leave it without effect.
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
