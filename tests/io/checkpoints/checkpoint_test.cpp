#include "io/checkpoints/checkpoint.hpp"

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/checkpoints/checkpoint_samples.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path write_sample(CheckpointWriter& writer, std::int64_t step) {
  return writer.write(sample_record(step), SampleTensors(step).views());
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const FoundCheckpoint& found : list_checkpoints(folder)) steps.push_back(found.step);
  return steps;
}

TEST(Checkpoint, RoundTripKeepsEveryBit) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  SampleTensors tensors(12);
  StoredTensor& odd = tensors.stored[0];
  odd.values[0] = std::numeric_limits<float>::quiet_NaN();
  odd.values[1] = -0.0f;
  odd.values[2] = std::numeric_limits<float>::denorm_min();
  odd.values[3] = -std::numeric_limits<float>::infinity();
  const fs::path file = writer.write(sample_record(12), tensors.views());
  EXPECT_EQ(file, folder.path() / "step-0000000012.h5");
  const Checkpoint back = read_checkpoint(file);
  EXPECT_TRUE(same_content(back, sample_record(12), tensors.stored));
  EXPECT_TRUE(same_record(verify_checkpoint(file), sample_record(12)));

  ASSERT_NE(back.find("first_moment", "dense_1/bias"), nullptr);
  EXPECT_TRUE(same_bits(back.find("first_moment", "dense_1/bias")->values, tensors.stored[5].values));
  EXPECT_EQ(back.find("first_moment", "dense_1"), nullptr);
  EXPECT_EQ(back.find("second_moment", "dense_1/bias"), nullptr);
}

TEST(Checkpoint, RoundTripOfTheExtremes) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  TrainingRecord record;
  record.best_metric = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(same_content(read_checkpoint(writer.write(record, {})), record, {})) << "nothing in it";

  record = sample_record(std::numeric_limits<std::int64_t>::max());
  record.epoch = record.position = std::numeric_limits<std::int64_t>::max();
  record.seed = std::numeric_limits<std::uint64_t>::max();
  record.best_metric = -std::numeric_limits<double>::infinity();
  record.network.signature = std::string(200'000, 'n');
  record.configuration = std::string(300'000, 'c') + std::string("\0 and \xff", 7);
  record.metrics = std::string(3'000'000, 'm');
  EXPECT_TRUE(same_content(read_checkpoint(writer.write(record, {})), record, {})) << "large texts";
}

TEST(Checkpoint, ManyTensors) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  SampleTensors tensors(1);
  for (int i = 0; i < 1500; ++i) {
    tensors.add("second_moment", "block_" + std::to_string(i) + "/attention/projection/weight", {2, 3}, i);
  }
  const Checkpoint back = read_checkpoint(writer.write(sample_record(1), tensors.views()));
  EXPECT_TRUE(same_content(back, sample_record(1), tensors.stored));
}

TEST(Checkpoint, WrongContentIsTheCallersMistake) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  const std::vector<float> values(6, 1.0f);
  const auto write = [&](std::vector<TensorView> tensors) { writer.write(sample_record(1), tensors); };
  EXPECT_THROW(write({{"parameters", "w", {2, 2}, values}}), std::invalid_argument);
  EXPECT_THROW(write({{"parameters", "w", {-2, -3}, values}}), std::invalid_argument);
  EXPECT_THROW(write({{"parameters", "w", {1LL << 62, 1LL << 62}, values}}), std::invalid_argument);
  for (const char* name : {"", "/w", "w/", "a//b", ".", "a/../b"}) {
    EXPECT_THROW(write({{"parameters", name, {6}, values}}), std::invalid_argument) << name;
  }
  for (const char* group : {"", "state", "a/b", ".."}) {
    EXPECT_THROW(write({{group, "w", {6}, values}}), std::invalid_argument) << group;
  }
  EXPECT_THROW(write({{"parameters", "w", {6}, values}, {"parameters", "w", {6}, values}}), std::invalid_argument);
  EXPECT_THROW(
      write({{"parameters", "w/b", {6}, values}, {"parameters", "w!", {6}, values}, {"parameters", "w", {6}, values}}),
      std::invalid_argument);
  EXPECT_THROW(writer.write(sample_record(-1), {}), std::invalid_argument);
  TrainingRecord record = sample_record(1);
  record.network.signature = std::string("a\0b", 3);
  EXPECT_THROW(writer.write(record, {}), std::invalid_argument);
  EXPECT_THROW(CheckpointWriter({.folder = folder.path(), .keep = 0}), std::invalid_argument);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  write({{"parameters", "w", {6}, values}, {"parameters", "w!", {6}, values}, {"parameter", "w", {6}, values}});
}

TEST(Checkpoint, KeepsTheNewestAndMovesLatest) {
  const TemporaryFolder folder;
  for (const int keep : {1, 2, 3}) {
    const fs::path path = folder.path() / std::to_string(keep);
    fs::create_directory(path);
    CheckpointWriter writer({.folder = path, .keep = keep});
    for (std::int64_t step = 10; step <= 50; step += 10) {
      write_sample(writer, step);
      std::vector<std::int64_t> expected;
      for (std::int64_t s = step; s >= 10 && static_cast<int>(expected.size()) < keep; s -= 10) expected.push_back(s);
      EXPECT_EQ(steps_in(path), expected);
      EXPECT_EQ(verify_checkpoint(path / "latest").step, step);
      EXPECT_EQ(folder_names(path).size(), expected.size() + 1) << "latest and nothing else";
    }
    EXPECT_EQ(fs::read_symlink(path / "latest"), "step-0000000050.h5");
  }
}

CheckpointWriterOptions keep_best(const fs::path& folder, int best) {
  return {.folder = folder, .keep = 1, .keep_best = best, .is_better = std::greater<>()};
}

TEST(Checkpoint, TheBestStayBesidesTheNewest) {
  const TemporaryFolder folder;
  CheckpointWriter writer(keep_best(folder.path(), 2));
  const std::map<std::int64_t, double> metrics{{10, 0.5}, {20, 0.9}, {30, 0.7}, {40, 0.9}, {50, 0.1}};
  for (const auto& [step, metric] : metrics) {
    writer.validated(step, metric);
    write_sample(writer, step);
  }
  write_sample(writer, 60);  // was not validated
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(60, 40, 20));
  EXPECT_EQ(best_checkpoint(folder.path()), folder.path() / "step-0000000020.h5") << "of equal ones the earlier";
  writer.validated(20, 0.9, 0.4);
  writer.validated(40, 0.9, 0.3);
  write_sample(writer, 61);
  EXPECT_EQ(best_checkpoint(folder.path()), folder.path() / "step-0000000040.h5") << "the one with the lower loss";
  writer.validated(20, 0.9, 0.2);
  write_sample(writer, 62);
  EXPECT_EQ(best_checkpoint(folder.path()), folder.path() / "step-0000000020.h5");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(62, 40, 20));
  EXPECT_EQ(verify_checkpoint(folder.path() / "latest").step, 62);
  writer.validated(70, std::numeric_limits<double>::quiet_NaN());
  write_sample(writer, 70);
  EXPECT_EQ(verify_checkpoint(folder.path() / "best").step, 20);
}

TEST(Checkpoint, WithoutValidationsOrKeepBestThereIsNoBest) {
  const TemporaryFolder folder;
  CheckpointWriter writer(keep_best(folder.path(), 1));
  write_sample(writer, 1);
  EXPECT_EQ(best_checkpoint(folder.path()), fs::path());
  CheckpointWriter none({.folder = folder.path()});
  none.validated(2, 0.5);
  write_sample(none, 2);
  EXPECT_EQ(best_checkpoint(folder.path()), fs::path());
  EXPECT_THROW(CheckpointWriter({.folder = folder.path(), .keep_best = 1}), std::invalid_argument);
}

TEST(Checkpoint, AResumedRunKnowsTheBestBehindItAndNotThatOfABranchItHasLeft) {
  const TemporaryFolder folder;
  CheckpointWriterOptions options = keep_best(folder.path(), 1);
  options.keep = 5;
  {
    CheckpointWriter before(options);
    for (const auto& [step, metric] : {std::pair{10, 0.9}, {20, 0.5}, {30, 0.95}}) {
      before.validated(step, metric);
      write_sample(before, step);
    }
  }
  fs::remove(folder.path() / "best");
  options.goes_on_from = 20;
  options.metrics = {{10, 0.9}, {20, 0.5}};
  CheckpointWriter after(options);
  EXPECT_EQ(verify_checkpoint(folder.path() / "best").step, 10);
  after.validated(30, 0.99);  // without writing: that step's file belongs to the branch
  after.validated(40, 0.6);
  write_sample(after, 40);
  EXPECT_EQ(verify_checkpoint(folder.path() / "best").step, 10);
  write_sample(after, 30);
  EXPECT_EQ(verify_checkpoint(folder.path() / "best").step, 30);
}

TEST(Checkpoint, AFileOfABranchThatWasLeftDoesNotGetTheMetricOfTheNewOne) {
  const TemporaryFolder folder;
  CheckpointWriterOptions options = keep_best(folder.path(), 1);
  options.keep = 9;
  {
    CheckpointWriter before(options);
    for (const std::int64_t step : {10, 20, 30}) write_sample(before, step);
  }
  options.goes_on_from = 40;  // a branch of its own from 10 on, which has validated 20 and 30 and saved neither
  options.metrics = {{10, 0.5}, {20, 0.8}, {30, 0.9}};
  std::vector<std::int64_t> asked;
  options.lies_behind = [&asked](std::int64_t step, const std::string&) {
    asked.push_back(step);
    return step == 10;
  };
  const CheckpointWriter after(options);
  EXPECT_THAT(asked, ElementsAre(30, 20, 10));
  EXPECT_EQ(best_checkpoint(folder.path()), folder.path() / "step-0000000010.h5");
}

TEST(Checkpoint, ABestLinkThatIsNotTrueAnyMoreGoes) {
  const TemporaryFolder folder;
  const fs::path best = folder.path() / "best";
  CheckpointWriterOptions options = keep_best(folder.path(), 1);
  {
    CheckpointWriter writer(options);
    writer.validated(10, 0.5);
    write_sample(writer, 10);
    EXPECT_TRUE(fs::is_symlink(best));
    fs::remove(folder.path() / "step-0000000010.h5");  // by hand
    EXPECT_FALSE(best_checkpoint(folder.path()).empty());
    write_sample(writer, 20);
    EXPECT_FALSE(fs::is_symlink(best)) << "its file is gone, and no other has a metric";
    writer.validated(30, 0.6);
    write_sample(writer, 30);
    EXPECT_EQ(verify_checkpoint(best).step, 30);
  }
  options.goes_on_from = 30;
  options.keep_best = 0;
  const CheckpointWriter none(options);
  EXPECT_FALSE(fs::is_symlink(best)) << "nobody keeps what it points at";
}

TEST(Checkpoint, AResumedRunFinishesWhatAKilledWriterLeft) {
  const TemporaryFolder folder;
  CheckpointWriterOptions options = keep_best(folder.path(), 1);
  options.keep = 9;
  {
    CheckpointWriter killed(options);  // as if between the rename of its last file and what follows
    for (const auto& [step, metric] : {std::pair{10, 0.9}, {20, 0.5}, {30, 0.6}, {40, 0.7}, {50, 0.8}}) {
      killed.validated(step, metric);
      write_sample(killed, step);
    }
    fs::remove(folder.path() / "latest");
    fs::remove(folder.path() / "best");
  }
  options.keep = 2;
  options.goes_on_from = 40;
  options.metrics = {{10, 0.9}, {20, 0.5}, {30, 0.6}, {40, 0.7}};
  const CheckpointWriter after(options);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(50, 40, 30, 10)) << "a later step is not this run's";
  EXPECT_EQ(verify_checkpoint(folder.path() / "latest").step, 40);
  EXPECT_EQ(verify_checkpoint(folder.path() / "best").step, 10);
}

TEST(Checkpoint, TheHistoryIsReadAlone) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  const fs::path file = write_sample(writer, 10);
  EXPECT_EQ(stored_record(file).metrics, read_checkpoint(file).record.metrics);
  EXPECT_NE(stored_record(file).metrics, "");
}

TEST(Checkpoint, LaterStepsAreNeitherCountedNorRemoved) {
  const TemporaryFolder folder;
  write_text(folder.path() / "step-0000000300.h5", "not even HDF5");
  CheckpointWriter writer({.folder = folder.path(), .keep = 1});
  write_sample(writer, 100);
  write_sample(writer, 150);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(300, 150));
  std::vector<std::string> rejected;
  EXPECT_EQ(newest_checkpoint(folder.path(), rejected)->record.step, 150);
  EXPECT_EQ(rejected.size(), 1u);
  write_sample(writer, 300);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(300));
  EXPECT_EQ(read_checkpoint(folder.path() / "step-0000000300.h5").record.step, 300);
}

TEST(Checkpoint, TheSameStepIsReplaced) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  write_sample(writer, 5);
  TrainingRecord record = sample_record(5);
  record.best_metric = 0.5;
  writer.write(record, SampleTensors(6).views());
  const Checkpoint back = read_checkpoint(folder.path() / "step-0000000005.h5");
  EXPECT_TRUE(same_content(back, record, SampleTensors(6).stored));
  EXPECT_THAT(folder_names(folder.path()), ElementsAre("latest", "step-0000000005.h5"));
}

TEST(Checkpoint, ListsCheckpointsAndNothingElse) {
  const TemporaryFolder folder;
  EXPECT_TRUE(list_checkpoints(folder.path() / "none").empty());
  for (const char* name :
       {"step-0000000010.h5", "step-9.h5", "step-00000000123456.h5", "step-.h5", "step--1.h5", "step-1x.h5",
        "step-+1.h5", "step-1.h5.bak", ".step-0000000099.h5.1-ab.tmp", "best.h5", "step-99999999999999999999.h5"}) {
    write_text(folder.path() / name, "x");
  }
  fs::create_directory(folder.path() / "step-77.h5");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(123456, 10, 9));
  write_text(folder.path() / "file", "x");
  EXPECT_THROW(list_checkpoints(folder.path() / "file"), FileError);
}

TEST(Checkpoint, NewestIsTheNewestThatVerifiesWhateverLatestSays) {
  const TemporaryFolder folder;
  std::vector<std::string> rejected;
  EXPECT_FALSE(newest_checkpoint(folder.path(), rejected).has_value());
  CheckpointWriter writer({.folder = folder.path(), .keep = 9});
  for (const std::int64_t step : {1, 2, 3, 4}) write_sample(writer, step);
  fs::remove(folder.path() / "latest");
  fs::create_symlink("step-0000000001.h5", folder.path() / "latest");
  EXPECT_EQ(newest_checkpoint(folder.path(), rejected)->record.step, 4);
  EXPECT_TRUE(rejected.empty());

  write_text(folder.path() / "step-0000000004.h5", "");
  const std::string third = read_text(folder.path() / "step-0000000003.h5");
  write_text(folder.path() / "step-0000000003.h5", third.substr(0, third.size() / 2));
  const auto found = newest_checkpoint(folder.path(), rejected);
  EXPECT_TRUE(same_content(found.value(), sample_record(2), SampleTensors(2).stored));
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_THAT(rejected[0], HasSubstr("step-0000000004.h5"));
  EXPECT_THAT(rejected[1], HasSubstr("step-0000000003.h5"));
}

TEST(Checkpoint, RemovesTheTemporariesOfDeadWriters) {
  const TemporaryFolder folder;
  for (const char* name : {".step-0000000010.h5.123-0123456789abcdef.tmp", ".latest.123-0123456789abcdef.tmp"}) {
    write_text(folder.path() / name, "half");
  }
  write_text(folder.path() / ".mine.tmp", "foreign");
  const CheckpointWriter writer({.folder = folder.path()});
  EXPECT_THAT(folder_names(folder.path()), ElementsAre(".mine.tmp"));
  EXPECT_THAT(error_text<FileError>([&] { CheckpointWriter({.folder = folder.path() / "none"}); }), HasSubstr("none"));
}

TEST(Checkpoint, AWriterThatLostTheRunChangesNothing) {
  const TemporaryFolder folder;
  const RunFolder first(folder.path() / "run", RunFolder::Open::fresh, false);
  CheckpointWriter first_writer({.folder = first.checkpoints(), .still_owner = [&] { first.still_owner(); }});
  write_sample(first_writer, 10);
  const RunFolder second(folder.path() / "run", RunFolder::Open::resume, false);
  const auto before = folder_content(first.checkpoints());
  EXPECT_THAT(error_text<FileError>([&] { write_sample(first_writer, 20); }), HasSubstr("another process"));
  EXPECT_EQ(folder_content(first.checkpoints()), before);
  EXPECT_THROW(CheckpointWriter({.folder = first.checkpoints(), .still_owner = [&] { first.still_owner(); }}),
               FileError);
  CheckpointWriter second_writer({.folder = second.checkpoints(), .still_owner = [&] { second.still_owner(); }});
  write_sample(second_writer, 20);
  EXPECT_THAT(steps_in(second.checkpoints()), ElementsAre(20, 10));
}

TEST(Checkpoint, OwnershipIsCheckedBeforeEachChange) {
  const TemporaryFolder folder;
  CheckpointWriter honest({.folder = folder.path(), .keep = 1});
  write_sample(honest, 10);
  const auto before = folder_content(folder.path());
  int allowed = 1;
  CheckpointWriter writer({.folder = folder.path(), .keep = 1, .still_owner = [&] {
                             if (allowed-- <= 0) throw FileError("taken over");
                           }});
  // 0: before the temporary. 1: before the rename. 2: before `latest`. 3: before pruning.
  for (const int lost_at : {0, 1}) {
    allowed = lost_at;
    EXPECT_EQ(error_text<FileError>([&] { write_sample(writer, 20); }), "taken over");
    EXPECT_EQ(folder_content(folder.path()), before) << lost_at;
  }
  allowed = 2;
  EXPECT_EQ(error_text<FileError>([&] { write_sample(writer, 20); }), "taken over");
  EXPECT_EQ(fs::read_symlink(folder.path() / "latest"), "step-0000000010.h5");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(20, 10));
  allowed = 3;
  EXPECT_EQ(error_text<FileError>([&] { write_sample(writer, 20); }), "taken over");
  EXPECT_EQ(fs::read_symlink(folder.path() / "latest"), "step-0000000020.h5");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(20, 10));
  allowed = 4;
  write_sample(writer, 20);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(20));
}

TEST(Checkpoint, WritesFromSeveralThreadsTakeTurns) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path(), .keep = 8});
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 3; ++t) threads.emplace_back([&, t] { write_sample(writer, t); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(2, 1, 0));
  for (const FoundCheckpoint& found : list_checkpoints(folder.path())) verify_checkpoint(found.file);
}

TEST(Checkpoint, GivesBackTheReservedSpace) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  struct stat status {};
  ASSERT_EQ(::stat(write_sample(writer, 1).c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, status.st_size + 8192);
}

/// Files of programs that wrote these formats (tests/cli/old_checkpoints.sh has the runs).
TEST(Checkpoint, ReadsFormat1) {
  const Checkpoint checkpoint = read_checkpoint(kFixtures / "checkpoint_format_1.h5");
  EXPECT_EQ(checkpoint.record.network,
            (NetworkIdentity{.kind = "mlp", .signature = "mlp 4-5-3 relu", .features = 4, .outputs = 3}));
  EXPECT_EQ(to_text(checkpoint.record.network), "4 -> 3: mlp 4-5-3 relu") << "as it stands in the file";
  EXPECT_EQ(checkpoint.record.step, 4);
  EXPECT_EQ(checkpoint.record.validated_step, 4) << "taken from the history";
  EXPECT_EQ(checkpoint.record.vocabulary, "");
  ASSERT_NE(checkpoint.find("parameters", "dense_1/weight"), nullptr);
}

TEST(Checkpoint, ReadsFormat2) {
  const Checkpoint checkpoint = read_checkpoint(kFixtures / "checkpoint_format_2.h5");
  const TrainingRecord& record = checkpoint.record;
  EXPECT_EQ(record.network.kind, "lstm");
  EXPECT_THAT(record.network.signature, testing::StartsWith("lstm 1x4 vocabulary "));
  EXPECT_EQ(record.network.features, 5);
  EXPECT_TRUE(record.network.tokens);
  EXPECT_EQ(record.step, 4);
  EXPECT_EQ(record.validated_step, -1) << "that step was not validated";
  EXPECT_THAT(record.vocabulary, HasSubstr("char"));
  EXPECT_NE(checkpoint.find("carried", "lanes"), nullptr);
}

TEST(Checkpoint, ReadsFormat3) {
  const TrainingRecord record = read_checkpoint(kFixtures / "checkpoint_format_3.h5").record;
  EXPECT_EQ(record.network,
            (NetworkIdentity{.kind = "mlp", .signature = "mlp 4-5-3 relu", .features = 4, .outputs = 3}));
  EXPECT_EQ(record.step, 4);
  EXPECT_EQ(record.data_description, "") << "which came with format 5";
}

TEST(Checkpoint, NetworksOfAnyShapeAreKept) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  for (const NetworkIdentity& network :
       {NetworkIdentity{.kind = "linear", .signature = "linear 4-2", .features = 4, .outputs = 2},
        NetworkIdentity{.kind = "cnn", .signature = "cnn", .features = 54, .outputs = 2, .image = {6, 9, 1}},
        NetworkIdentity{.kind = "gpt", .signature = "gpt", .features = 8, .outputs = 65, .tokens = true}}) {
    TrainingRecord record = sample_record(1);
    record.network = network;
    record.validated_step = -1;
    const TrainingRecord read = read_checkpoint(writer.write(record, SampleTensors(1).views())).record;
    EXPECT_EQ(read.network, network);
    EXPECT_EQ(read.validated_step, -1);
  }
}

}  // namespace
}  // namespace lockstep::io
