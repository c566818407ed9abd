#include "app/info/info.hpp"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "app/options/stored_options.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/io_test_support.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class InfoTest : public testing::Test {
 protected:
  void SetUp() override {
    output_ = open((folder_ / "output.txt").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(output_, 0);
  }
  void TearDown() override { close(output_); }

  /// Both outputs so far.
  std::string said() const { return io::read_text(folder_ / "output.txt"); }

  fs::path pack_shards(std::int64_t samples, std::int64_t shards) {
    const auto source = io::make_synthetic({.samples = samples, .features = 50, .classes = 3, .seed = 5});
    io::write_shards(*source, {.folder = folder_ / "shards", .shards = shards}, [](std::int64_t, std::int64_t) {});
    return folder_ / "shards";
  }

  fs::path write_checkpoint(std::int64_t step) {
    fs::create_directories(folder_ / "run" / "checkpoints");
    io::TrainingRecord record;
    record.step = step;
    record.epoch = 2;
    record.seed = 11;
    record.world_size = 4;
    record.network = {.kind = "linear", .signature = "linear", .features = 3, .outputs = 2};
    record.optimizer = "momentum";
    record.program_version = "0.1.0";
    record.best_metric = 0.75;
    record.metrics = fmt::format("{{\"kind\":\"validation\",\"step\":{},\"loss\":1,\"accuracy\":0.625}}\n", step);
    const std::vector<float> weight{3, 4, 0, 0, 0, -1}, velocity{1, 0, 0, 0, 0, 0};
    const std::vector<io::TensorView> tensors{{"parameters", "dense_1/weight", {3, 2}, weight},
                                              {"velocity", "dense_1/weight", {3, 2}, velocity}};
    io::CheckpointWriter writer({.folder = folder_ / "run" / "checkpoints", .keep = 5, .still_owner = [] {}});
    return writer.write(record, tensors);
  }

  static void flip_a_bit(const fs::path& file, std::uintmax_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(stream.get());
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 0x10));
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  int output_ = -1;
};

TEST_F(InfoTest, DescribesShards) {
  const fs::path shards = pack_shards(300, 3);
  Console console(output_, output_);
  EXPECT_TRUE(describe_dataset(console, {.path = shards}, true));
  EXPECT_THAT(said(), AllOf(HasSubstr("300 samples in 3 files"), HasSubstr("float32 [50]"),
                            HasSubstr("labels of 3 classes"), HasSubstr("shard-00002.h5"), HasSubstr("  ok\n"),
                            HasSubstr("verified "), HasSubstr("classes\n  0 "), Not(HasSubstr("DAMAGED"))));
}

TEST_F(InfoTest, LeavesTheDataAloneWhenNotAskedToVerify) {
  const fs::path shards = pack_shards(300, 3);
  flip_a_bit(shards / "shard-00001.h5", fs::file_size(shards / "shard-00001.h5") / 2);
  Console console(output_, output_);
  EXPECT_TRUE(describe_dataset(console, {.path = shards}, false));
  EXPECT_THAT(said(), AllOf(HasSubstr("shard-00001.h5"), Not(HasSubstr("verified")), Not(HasSubstr("\nclasses\n"))));
}

TEST_F(InfoTest, NamesTheDamagedShardAndVerifiesTheOthers) {
  const fs::path shards = pack_shards(300, 3);
  flip_a_bit(shards / "shard-00001.h5", fs::file_size(shards / "shard-00001.h5") / 2);
  Console console(output_, output_);
  EXPECT_FALSE(describe_dataset(console, {.path = shards}, true));
  const std::string text = said();
  EXPECT_THAT(text, HasSubstr("DAMAGED"));
  EXPECT_THAT(text, HasSubstr("warning: " + (shards / "shard-00001.h5").string()));
  EXPECT_NE(text.find("  ok\n", text.find("shard-00002.h5")), std::string::npos);
}

TEST_F(InfoTest, DescribesACheckpoint) {
  const fs::path file = write_checkpoint(1234);
  Console console(output_, output_);
  EXPECT_TRUE(describe_checkpoint(console, file));
  EXPECT_THAT(said(), AllOf(HasSubstr("after step     1,234 (epoch 2"), HasSubstr("3 -> 2: linear"),
                            HasSubstr("validation     accuracy 0.625\n"), HasSubstr("best so far    0.75"),
                            HasSubstr("lockstep 0.1.0 on 4 ranks"), HasSubstr("3 x 2"), HasSubstr("6 parameters"),
                            HasSubstr("velocity"), HasSubstr("5.099"), ContainsRegex("velocity .* [0-9a-f]{16}\n")));
}

TEST_F(InfoTest, RefusesADamagedCheckpoint) {
  const fs::path file = write_checkpoint(1);
  fs::resize_file(file, fs::file_size(file) / 2);
  Console console(output_, output_);
  EXPECT_THROW(describe_checkpoint(console, file), io::FileError);
}

TEST_F(InfoTest, DescribesARun) {
  write_checkpoint(10);
  const fs::path damaged = write_checkpoint(20);
  const fs::path run = folder_ / "run";
  TrainOptions options;
  options.data.path = "shards/x";
  options.work.epochs = 3;
  std::ofstream(run / "config.ini") << options.to_ini();
  std::ofstream(run / "owner") << "host node7\npid 99\ntoken secret\n";
  io::MetricsLog(run / "metrics.jsonl", false)
      .write({{"kind", std::string("validation")},
              {"step", std::int64_t{20}},
              {"accuracy", 0.512345678},
              {"step_seconds", 1.5}});
  {
    Console console(output_, output_);
    EXPECT_TRUE(describe_run(console, run, true));
  }
  EXPECT_THAT(said(), AllOf(HasSubstr("shards/x"), HasSubstr("3 epochs"),
                            HasSubstr("last validated step 20  accuracy 0.512346\n"), HasSubstr("host node7, pid 99"),
                            Not(HasSubstr("secret")), Not(HasSubstr("ended")), HasSubstr("ok  accuracy 0.625"),
                            HasSubstr("(latest)")));

  fs::resize_file(damaged, fs::file_size(damaged) / 2);
  Console console(output_, output_);
  EXPECT_FALSE(describe_run(console, run, true));
  EXPECT_THAT(said(), AllOf(HasSubstr("DAMAGED"), HasSubstr("warning: " + damaged.string())));
  EXPECT_TRUE(describe_run(console, run, false));
}

TEST_F(InfoTest, SaysHowARunEndedUntilItGoesOn) {
  const fs::path file = folder_ / "run" / "metrics.jsonl";
  fs::create_directories(file.parent_path() / "checkpoints");
  io::MetricsLog(file, false).write({{"kind", std::string("end")}, {"step", std::int64_t{9}}, {"how", "stopped"}});
  {
    Console console(output_, output_);
    describe_run(console, folder_ / "run", false);
  }
  EXPECT_THAT(said(), HasSubstr("ended          step 9  how stopped\n"));

  io::MetricsLog(file, true).write({{"kind", std::string("train")}, {"step", std::int64_t{10}}, {"loss", 0.5}});
  const std::size_t before = said().size();
  Console console(output_, output_);
  describe_run(console, folder_ / "run", false);
  EXPECT_THAT(said().substr(before), AllOf(HasSubstr("last report    step 10"), Not(HasSubstr("ended"))));
}

TEST_F(InfoTest, SaysWhatARunLacks) {
  fs::create_directories(folder_ / "run" / "checkpoints");
  Console console(output_, output_);
  EXPECT_TRUE(describe_run(console, folder_ / "run", true));
  EXPECT_THAT(said(), AllOf(HasSubstr("config.ini is missing or empty"), HasSubstr("none yet")));
}

}  // namespace
}  // namespace lockstep::app
