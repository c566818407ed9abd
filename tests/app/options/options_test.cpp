
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/bench/bench_options.hpp"
#include "app/check/check_options.hpp"
#include "app/evaluate/generate_options.hpp"
#include "app/evaluate/trained_model_options.hpp"
#include "app/help/help_options.hpp"
#include "app/info/info_options.hpp"
#include "app/options/train_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/pack/pack_options.hpp"
#include "app/train/train_command_line.hpp"
#include "io/io_test_support.hpp"
#include "model/network.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;
using Arguments = std::vector<std::string>;

template <class Options>
std::string complaint(Options (*parse)(const Arguments&), const Arguments& arguments) {
  return test::message_of<UsageError>([&] { parse(arguments); });
}

template <class Options>
std::string help(Options (*parse)(const Arguments&), const Arguments& arguments = {"--help"}) {
  return test::message_of<HelpRequested>([&] { parse(arguments); });
}

TEST(EvalOptionsTest, TakesARunAndWhichOfItsCheckpoints) {
  using Which = CheckpointChoice::Which;
  EXPECT_EQ(parse_eval({"runs/a"}).checkpoint.path, "runs/a");
  EXPECT_EQ(parse_eval({"runs/a"}).checkpoint.which, Which::best);
  EXPECT_EQ(parse_eval({"--run", "runs/a", "--checkpoint", "latest"}).checkpoint.path, "runs/a");
  EXPECT_EQ(parse_eval({"--run", "runs/a", "--checkpoint", "latest"}).checkpoint.which, Which::latest);
  const CheckpointChoice named = parse_eval({"runs/a", "--checkpoint", "step-1.h5"}).checkpoint;
  EXPECT_EQ(named.path, "runs/a");
  EXPECT_EQ(named.name, "step-1.h5");
  EXPECT_EQ(parse_eval({"runs/a", "--checkpoint", "other/step-1.h5"}).checkpoint.path, "other/step-1.h5");
  EXPECT_EQ(parse_eval({"--checkpoint", "step-1.h5"}).checkpoint.path, "step-1.h5");
  EXPECT_EQ(complaint(parse_eval, {"runs/a", "runs/b"}), "runs/a and runs/b contradict each other");
  EXPECT_EQ(complaint(parse_eval, {}), "--run is missing: name a run folder or a checkpoint file");
}

TEST(EvalOptionsTest, KnowsWhetherTheAverageWasAskedFor) {
  EXPECT_EQ(parse_eval({"a"}).average, std::nullopt);
  EXPECT_EQ(parse_eval({"a", "--average"}).average, true);
  EXPECT_EQ(parse_eval({"a", "--no-average"}).average, false);
}

TEST(EvalOptionsTest, ReadsTheRest) {
  const EvalOptions o = parse_eval(
      {"a", "--data", "d", "--evaluation-batch", "9", "--threads", "2", "--transport", "ring", "--deadline", "3"});
  EXPECT_EQ(o.data, "d");
  EXPECT_EQ(o.batch, 9);
  EXPECT_EQ(o.execution.threads, 2);
  EXPECT_EQ(o.execution.transport, comm::Transport::ring);
  EXPECT_EQ(o.execution.deadline, 3);
  EXPECT_EQ(complaint(parse_eval, {"a", "--thread", "2"}), "unknown option --thread; did you mean --threads?");
}

TEST(EvalOptionsTest, KnowsDevicesButNothingOfSteps) {
  const ExecutionOptions o =
      parse_eval({"a", "--device", "gpu", "--precision", "tf32", "--share-gpu", "--deadline", "9"}).execution;
  EXPECT_EQ(o.device, DeviceChoice::gpu);
  EXPECT_EQ(o.precision, model::Precision::tf32);
  EXPECT_TRUE(o.share_gpu);
  EXPECT_EQ(complaint(parse_eval, {"a", "--device", "cpu", "--share-gpu"}),
            "--share-gpu has an effect only with --device auto or gpu, not with cpu");
  EXPECT_THAT(complaint(parse_eval, {"a", "--no-graph"}), HasSubstr("unknown option --no-graph"));
}

TEST(PackOptionsTest, ToldTheFormatByTheName) {
  EXPECT_EQ(parse_pack({"--x", "train-images-idx3-ubyte.gz", "--out", "o"}).format, PackFormat::idx);
  EXPECT_EQ(parse_pack({"--x", "a/train-images-idx3-ubyte", "--out", "o"}).format, PackFormat::idx);
  EXPECT_EQ(parse_pack({"--x", "a.idx", "--out", "o"}).format, PackFormat::idx);
  EXPECT_EQ(parse_pack({"--x", "a.npy", "--out", "o"}).format, PackFormat::npy);
  EXPECT_EQ(parse_pack({"--x", "a.csv", "--out", "o"}).format, PackFormat::csv);
  EXPECT_EQ(parse_pack({"--x", "a.bin", "--format", "idx", "--out", "o"}).format, PackFormat::idx);
  EXPECT_EQ(complaint(parse_pack, {"--x", "a.bin", "--out", "o"}), "--x: there is no file or folder a.bin");
  EXPECT_EQ(parse_pack({"a.npy", "--out", "o"}).x, "a.npy");
  EXPECT_EQ(complaint(parse_pack, {"a.npy", "b", "--out", "o"}),
            "--x: there is no file or folder b; commas separate files");
  EXPECT_EQ(complaint(parse_pack, {"a.npy", "b.npy", "--out", "o"}),
            "--x: a.npy and b.npy: this format takes one file or folder; cifar, text and tokens take several");
  EXPECT_EQ(
      complaint(parse_pack, {"--x", "/dev/null", "--out", "o"}),
      "--x: the name /dev/null does not tell the format; add --format idx, npy, npz, csv, hdf5, cifar10, cifar100, "
      "images, text or "
      "tokens");
  EXPECT_EQ(parse_pack({"--x", "a/data_batch_1.bin,a/data_batch_2.bin", "--out", "o"}).format, PackFormat::cifar10);
  EXPECT_EQ(parse_pack({"--x", "ptb.train.txt", "--out", "o"}).format, PackFormat::text);
  const io::TemporaryFolder folder;
  io::write_text(folder.path() / "snapshot_1.hdf5", "");
  EXPECT_EQ(parse_pack({folder.path().string(), "--out", "o"}).format, PackFormat::hdf5);
}

TEST(PackOptionsTest, TakesSeveralTexts) {
  const std::vector<std::filesystem::path> both{"a.txt", "b.txt"};
  EXPECT_EQ(parse_pack({"a.txt", "b.txt", "--out", "o"}).inputs, both);
  EXPECT_EQ(parse_pack({"--x", "a.txt,b.txt", "--out", "o"}).inputs, both);
}

TEST(PackOptionsTest, TakesFilesOfOneFormat) {
  const io::TemporaryFolder folder;
  const std::string bytes = folder.path() / "b.bin";
  io::write_text(bytes, "");
  for (const std::string& other : {std::string("x.npy"), std::string("t.csv"), bytes}) {
    EXPECT_EQ(complaint(parse_pack, {"a.txt", "b.txt", other, "--out", "o"}),
              "--x: a.txt and " + other +
                  ": their names do not tell the same format; name files of one format, or add --format");
    EXPECT_EQ(parse_pack({"a.txt", "b.txt", other, "--format", "text", "--out", "o"}).format, PackFormat::text);
  }
  EXPECT_EQ(parse_pack({"a.txt", "b.txt.gz", "--out", "o"}).format, PackFormat::text);
}

TEST(PackOptionsTest, KeepsCommasInNamesOfFiles) {
  const io::TemporaryFolder folder;
  const std::filesystem::path comma = folder.path() / "b,c.txt";
  io::write_text(comma, "");
  const std::vector<std::filesystem::path> both{"a.txt", comma};
  EXPECT_EQ(parse_pack({"a.txt", comma.string(), "--out", "o"}).inputs, both);
}

TEST(PackOptionsTest, SeparatesTablesByTheirName) {
  EXPECT_EQ(parse_pack({"--x", "a.csv", "--out", "o"}).separator, ',');
  EXPECT_EQ(parse_pack({"--x", "a.tsv", "--out", "o"}).separator, '\t');
  EXPECT_EQ(parse_pack({"--x", "a.tsv", "--separator", ";", "--out", "o"}).separator, ';');
  EXPECT_EQ(parse_pack({"--x", "a.csv", "--separator", "tab", "--out", "o"}).separator, '\t');
  EXPECT_EQ(complaint(parse_pack, {"--x", "a.csv", "--separator", "::", "--out", "o"}),
            "--separator: :: is not one character; write tab for a tabulator");
}

TEST(PackOptionsTest, ReadsTables) {
  const PackOptions o = parse_pack({"--x", "a.csv", "--out", "o", "--no-header", "--label-column", "-1", "--regression",
                                    "--shards", "3", "--force", "--progress", "off"});
  EXPECT_FALSE(o.header);
  EXPECT_EQ(o.label_column, "-1");
  EXPECT_TRUE(o.regression);
  EXPECT_EQ(o.shards, 3);
  EXPECT_TRUE(o.force);
  EXPECT_EQ(o.progress, false);
}

TEST(PackOptionsTest, ReadsMadeUpData) {
  const PackOptions o = parse_pack({"--format", "synthetic", "--out", "o", "--samples", "5", "--features", "3",
                                    "--classes", "2", "--noise", "0", "--seed", "9"});
  EXPECT_EQ(o.samples, 5);
  EXPECT_EQ(o.features, 3);
  EXPECT_EQ(o.classes, 2);
  EXPECT_EQ(o.noise, 0);
  EXPECT_EQ(o.seed, 9u);
}

TEST(PackOptionsTest, ReadsTextImagesAndParts) {
  const PackOptions text = parse_pack({"--x", "a.txt", "--out", "o", "--tokenizer", "word", "--vocabulary", "10000",
                                       "--validation", "0.1", "--seed", "4"});
  EXPECT_EQ(text.tokenizer, "word");
  EXPECT_EQ(text.vocabulary, 10000);
  EXPECT_EQ(text.validation, 0.1);
  EXPECT_EQ(text.seed, 4u);
  const PackOptions images = parse_pack({"--x", "a", "--format", "images", "--size", "240x320", "--out", "o"});
  EXPECT_EQ(images.size, (ImageSize{.height = 240, .width = 320, .crop = false}));
  EXPECT_EQ(parse_pack({"--x", "a", "--format", "images", "--size", "64", "--out", "o"}).size,
            (ImageSize{.height = 64, .width = 64, .crop = true}));
  const std::vector<std::filesystem::path> files = {"a.bin", "b.bin"};
  EXPECT_EQ(parse_pack({"--x", "a.bin,b.bin", "--format", "tokens", "--vocabulary", "5", "--out", "o"}).inputs, files);
}

TEST(PackOptionsTest, RefusesWhatDoesNotFit) {
  const auto refused = [](const Arguments& a) { return complaint(parse_pack, a); };
  EXPECT_EQ(refused({}),
            "--x is missing: name the file with the samples, or ask for synthetic ones with --format synthetic");
  EXPECT_EQ(refused({"--format", "idx", "--out", "o"}), "--x is missing: name the file with the samples");
  EXPECT_EQ(refused({"--x", "a.npy"}), "--out is missing: name the shard folder to make");
  EXPECT_EQ(refused({"--x", "a.csv", "--y", "b.csv", "--out", "o"}),
            "--y has an effect only with --format idx or npy, not with csv");
  EXPECT_EQ(refused({"--x", "a.npy", "--label-column", "2", "--out", "o"}),
            "--label-column has an effect only with --format csv, not with npy");
  EXPECT_EQ(refused({"--x", "a.npy", "--samples", "2", "--out", "o"}),
            "--samples has an effect only with --format synthetic, not with npy");
  EXPECT_EQ(refused({"--format", "synthetic", "--task", "regression", "--classes", "3", "--out", "o"}),
            "--classes has an effect only with --task classification, not with regression");
  EXPECT_EQ(refused({"--format", "synthetic", "--x", "a.npy", "--out", "o"}),
            "--x and --format synthetic contradict each other: synthetic samples come from no file");
  EXPECT_EQ(refused({"--x", "a.csv", "--regression", "--out", "o"}),
            "--regression needs --label-column: the column to predict");
  EXPECT_EQ(refused({"--x", "a.npy", "--shards", "0", "--out", "o"}), "--shards: 0 must be at least 1");
  EXPECT_EQ(
      refused({"--format", "cvs", "--out", "o"}),
      "--format: cvs is not one of idx, npy, npz, csv, hdf5, cifar10, cifar100, images, text, tokens and synthetic; "
      "did you mean "
      "csv?");
  EXPECT_EQ(refused({"--x", "a.npy", "--seed", "2", "--out", "o"}),
            "--seed has an effect only with --format synthetic or with --validation");
  EXPECT_EQ(refused({"--x", "a.npy", "--validation", "1.5", "--out", "o"}),
            "--validation: 1.5 is neither a fraction below 1 nor a whole number of samples");
  EXPECT_EQ(refused({"--x", "a", "--format", "images", "--size", "224x", "--out", "o"}),
            "--size: 224x is neither a number of pixels such as 224 nor a size such as 240x320");
  EXPECT_EQ(refused({"--x", "a.txt", "--tokenizer", "byte", "--vocabulary", "9", "--out", "o"}),
            "--vocabulary has no effect on --tokenizer byte: there are 256 bytes");
  EXPECT_EQ(refused({"--x", "a.txt", "--vocabulary-from", "b", "--vocabulary", "9", "--out", "o"}),
            "--vocabulary-from and --vocabulary contradict each other: give one of them");
  EXPECT_EQ(refused({"--x", "a.bin", "--format", "tokens", "--out", "o"}),
            "--vocabulary is missing: how many different tokens there are, those that do not occur included (GPT-2: "
            "50257)");
}

TEST(InfoOptionsTest, TakesAPath) {
  EXPECT_EQ(parse_info({"shards"}).path, "shards");
  EXPECT_TRUE(parse_info({"shards"}).verify);
  EXPECT_FALSE(parse_info({"shards", "--no-verify"}).verify);
  EXPECT_EQ(parse_info({"--verify", "shards"}).path, "shards");
  EXPECT_EQ(complaint(parse_info, {}), "--path is missing: name a shard folder, a checkpoint or a run folder");
  EXPECT_EQ(complaint(parse_info, {"-v"}).substr(0, 17), "unknown option -v");
}

TEST(BenchStepOptionsTest, SharesTheOptionsOfTraining) {
  const BenchStepOptions o =
      parse_bench_step({"--hidden", "100", "--batch", "100", "--optimizer", "adam", "--features", "600", "--outputs",
                        "1", "--regression", "--warmup", "2", "--repeat", "5", "--json", "f.json", "--threads", "2"});
  EXPECT_THAT(o.work.train.network.get<model::Numbers>("hidden"), testing::ElementsAre(100));
  EXPECT_EQ(o.work.train.work.batch, 100);
  EXPECT_EQ(o.work.train.optimizer.kind, model::OptimizerKind::adam);
  EXPECT_EQ(o.work.features, 600);
  EXPECT_EQ(o.work.outputs, 1);
  EXPECT_TRUE(o.work.regression);
  EXPECT_EQ(o.warmup, 2);
  EXPECT_EQ(o.repeat, 5);
  EXPECT_EQ(o.json, "f.json");
  EXPECT_TRUE(o.plan.empty());
  EXPECT_EQ(parse_bench_step({"--plan", "p.jsonl"}).plan, "p.jsonl");
  EXPECT_EQ(o.work.train.execution.threads, 2);
  EXPECT_EQ(parse_bench_step({"--input", "data", "--data", "d"}).work.train.data.path, "d");
  EXPECT_TRUE(o.roof);
  EXPECT_FALSE(parse_bench_step({"--no-roof"}).roof);
  EXPECT_FALSE(o.sweep_buckets);
  EXPECT_TRUE(parse_bench_step({"--sweep-buckets"}).sweep_buckets);
  EXPECT_EQ(parse_bench_step({"--wire", "bf16"}).work.train.execution.wire, comm::WireFormat::bf16);
  EXPECT_FALSE(parse_bench_step({"--device", "gpu", "--no-graph"}).work.train.execution.graphs);
}

TEST(BenchStepOptionsTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(complaint(parse_bench_step, {"--input", "data"}), "--data is missing: --input data reads a shard folder");
  EXPECT_EQ(complaint(parse_bench_step, {"--data", "d"}), "--data has an effect only with --input data");
  EXPECT_EQ(complaint(parse_bench_step, {"--input", "data", "--data", "d", "--features", "3"}),
            "--features has an effect only with --input memory, not with data");
  EXPECT_EQ(complaint(parse_bench_step, {"--momentum", "0.5"}),
            "--momentum has an effect only with --optimizer momentum, nesterov or lars, not with adam");
  EXPECT_EQ(complaint(parse_bench_step, {"--sweep-buckets", "--bucket-size", "5"}),
            "--sweep-buckets and --bucket-size contradict each other: give one of them");
  for (const std::string rule : {"lars", "lamb"}) {
    EXPECT_EQ(
        complaint(parse_bench_step, {"--optimizer", rule, "--shard-optimizer"}),
        "--shard-optimizer has an effect only with --optimizer sgd, momentum, nesterov, adam or adamw, not with " +
            rule);
  }
}

TEST(BenchScaleOptionsTest, SharesTheOptionsOfTraining) {
  const BenchScaleOptions defaults = parse_bench_scale({});
  EXPECT_EQ(defaults.scaling, Scaling::both);
  EXPECT_THAT(defaults.worlds, testing::IsEmpty());
  EXPECT_EQ(defaults.global_batch, 0);
  const BenchScaleOptions o = parse_bench_scale(
      {"--worlds",      "1,3",   "--rounds",       "2",      "--repeat",     "4",     "--warmup",    "3",
       "--batch",       "32",    "--global-batch", "96",     "--accumulate", "2",     "--hidden",    "16",
       "--csv",         "f.csv", "--json",         "f.json", "--svg",        "f.svg", "--optimizer", "adam",
       "--bucket-size", "9",     "--scaling",      "both"});
  EXPECT_THAT(o.worlds, testing::ElementsAre(1, 3));
  EXPECT_EQ(o.rounds, 2);
  EXPECT_EQ(o.repeat, 4);
  EXPECT_EQ(o.warmup, 3);
  EXPECT_EQ(o.work.train.work.batch, 32);
  EXPECT_EQ(o.global_batch, 96);
  EXPECT_EQ(o.work.train.work.accumulate, 2);
  EXPECT_THAT(o.work.train.network.get<model::Numbers>("hidden"), testing::ElementsAre(16));
  EXPECT_EQ(o.work.train.optimizer.kind, model::OptimizerKind::adam);
  EXPECT_EQ(o.work.train.execution.bucket_size, 9);
  EXPECT_EQ(o.csv, "f.csv");
  EXPECT_EQ(o.json, "f.json");
  EXPECT_EQ(o.svg, "f.svg");
  EXPECT_EQ(parse_bench_scale({"--input", "data", "--data", "d"}).work.train.data.path, "d");
}

TEST(BenchScaleOptionsTest, RefusesWhatDoesNotFit) {
  EXPECT_EQ(complaint(parse_bench_scale, {"--data", "d"}), "--data has an effect only with --input data");
  EXPECT_EQ(complaint(parse_bench_scale, {"--csv", "f", "--svg", "f"}),
            "--csv and --svg are both f: give them files of their own");
  EXPECT_EQ(complaint(parse_bench_scale, {"--scaling", "weak", "--global-batch", "8"}),
            "--global-batch is for strong scaling: give --scaling strong or both, or --batch");
  EXPECT_THAT(complaint(parse_bench_scale, {"--worlds", "0,1"}), HasSubstr("--worlds"));
  EXPECT_THAT(complaint(parse_bench_scale, {"--scaling", "wek"}), HasSubstr("--scaling: wek is not one of"));
}

TEST(Help, ShowsEveryOptionWithItsDefaultInsideTheWidth) {
  const std::string text = help(parse_train);
  for (const char* part : {"Data\n",       "Network\n",       "Optimiser\n", "Learning rate\n", "Amount of work\n",
                           "Validation\n", "Run folder\n",    "Reports\n",   "Execution\n",     "General\n",
                           "Examples\n",   "--[no-]shuffle",  "--staircase", "--resume[=FILE]", "--learning-rate RATE",
                           "[0.001]",      "--hidden WIDTHS", "512,512",     "--config FILE",   "--name=yes"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  for (const std::string& page :
       {text, help(parse_eval), help(parse_pack), help(parse_info), help(parse_bench_step), help(parse_bench_scale)}) {
    EXPECT_FALSE(page.empty());
    EXPECT_EQ(page.back(), '\n');
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
  }
}

TEST(Help, NamesEachOptionThatTheConfigurationHolds) {
  std::string text;
  for (const std::string& network : model::network_names()) {
    text += help(parse_train, {"--model", network, "--help"});
  }
  std::istringstream lines(TrainOptions{}.to_ini());
  int options = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" =");
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(line.starts_with("# ") ? 2 : 0, equals - (line.starts_with("# ") ? 2 : 0));
    EXPECT_TRUE(text.find("--" + name) != std::string::npos || text.find("--[no-]" + name) != std::string::npos)
        << name;
    ++options;
  }
  EXPECT_GT(options, 50);
}

TEST(Help, WinsOverOtherArgumentsAndHasAShortForm) {
  EXPECT_FALSE(help(parse_train, {"--epochs", "abc", "--help"}).empty());
  EXPECT_FALSE(help(parse_train, {"-h"}).empty());
  EXPECT_FALSE(help(parse_eval, {"-h"}).empty());
}

/// `lockstep check` accepts these options without using them, so that a job's command line works unchanged.
TEST(Help, OfCheckHasOnlyWhatItLooksAt) {
  const std::string page = help(parse_check);
  for (const char* without :
       {"--tensorboard", "--report-every", "--progress", "--learning-rate RATE", "--seed", "--shuffle"}) {
    EXPECT_THAT(page, testing::Not(HasSubstr(without)));
  }
  for (const char* with : {"--data", "--batch", "--optimizer", "--run", "--keep", "--threads"})
    EXPECT_THAT(page, HasSubstr(with));
  EXPECT_EQ(complaint(parse_check, {"shards", "--tensorboard", "--learning-rate", "0.5", "--seed", "3"}), "");
}

TEST(Help, ShowsNoLineBreaksOfDefaults) { EXPECT_THAT(help(parse_generate), HasSubstr("begin with [\\n]\n")); }

TEST(Help, NamesNoOptionThatTheCommandLacks) {
  EXPECT_THAT(help(parse_eval), testing::Not(HasSubstr("--model")));
  EXPECT_THAT(help(parse_bench_step), HasSubstr("lockstep bench step --model NAME --help"));
}

TEST(HelpOptionsTest, TakesACommandOfOneWordOrTwo) {
  EXPECT_EQ(parse_help({"train"}).command, "train");
  EXPECT_EQ(parse_help({"bench", "step", "--man"}).command, "bench step");
  EXPECT_EQ(parse_help({"--completion", "fish"}).shell, Shell::fish);
  EXPECT_THAT(complaint(parse_help, {"train", "--completion", "fish"}), HasSubstr("contradict"));
  EXPECT_THAT(complaint(parse_help, {"--completion", "fsh"}), HasSubstr("did you mean fish?"));
}

}  // namespace
}  // namespace lockstep::app
