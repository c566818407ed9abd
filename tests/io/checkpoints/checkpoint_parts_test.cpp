// Checkpoints in parts, one for each writing process.
#include "io/checkpoints/checkpoint_parts.hpp"

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoints/checkpoint_samples.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointParts : public ::testing::Test {
 protected:
  fs::path write(std::int64_t step, int writers, const std::string& attempt = "0a") {
    return write_in_parts(writer_, folder_.path(), step, {.writers = writers, .attempt = attempt});
  }
  fs::path part(std::int64_t step, int index, int writers, const std::string& attempt = "0a") const {
    char name[100];
    std::snprintf(name, sizeof name, "step-%010d.parts-%s/part-%04d-of-%04d.h5", static_cast<int>(step),
                  attempt.c_str(), index + 1, writers);
    return folder_.path() / name;
  }
  static std::string error_of(const fs::path& file) {
    const std::string text = error_text<FileError>([&] { read_checkpoint(file); });
    EXPECT_EQ(text, error_text<FileError>([&] { verify_checkpoint(file); }));
    return text;
  }

  TemporaryFolder folder_;
  CheckpointWriter writer_{{.folder = folder_.path(), .keep = 2}};
};

TEST_F(CheckpointParts, AnyNumberOfPartsReadsAsTheWhole) {
  for (const int writers : {1, 2, 3, 7, 30}) {
    const fs::path file = write(writers, writers);
    EXPECT_EQ(file, folder_.path() /
                        ("step-00000000" + std::string(writers < 10 ? "0" : "") + std::to_string(writers) + ".h5"));
    EXPECT_TRUE(same_content(read_checkpoint(file), sample_record(writers), SampleTensors(writers).stored)) << writers;
    EXPECT_TRUE(same_record(verify_checkpoint(file), sample_record(writers)));
    EXPECT_EQ(verify_checkpoint(folder_.path() / "latest").step, writers);
    std::uintmax_t bytes = fs::file_size(file);
    for (int i = 0; i < writers; ++i) bytes += fs::file_size(part(writers, i, writers));
    EXPECT_EQ(checkpoint_bytes(file), bytes);
    EXPECT_TRUE(is_checkpoint(file));
  }
}

TEST_F(CheckpointParts, TensorsOfTheFileItselfComeWithThoseOfItsParts) {
  SampleTensors tensors(4);
  StoredTensor lanes{"carried", "lanes", {2, 3}, {1, 2, 3, 4, 5, 6}};
  const TensorView whole{lanes.group, lanes.name, lanes.shape, lanes.values};
  const SplitState split = write_parts(folder_.path(), 4, tensors, {.writers = 2});
  const Checkpoint back = read_checkpoint(writer_.write(sample_record(4), std::span(&whole, 1), split));
  ASSERT_NE(back.find("carried", "lanes"), nullptr);
  EXPECT_EQ(back.find("carried", "lanes")->values, lanes.values);
  ASSERT_NE(back.find("parameters", "dense_2/weight"), nullptr);
  EXPECT_TRUE(same_bits(back.find("parameters", "dense_2/weight")->values, tensors.stored[2].values));
}

TEST_F(CheckpointParts, WithoutItsFileACheckpointDoesNotExist) {
  write(1, 3);
  write_parts(folder_.path(), 2, SampleTensors(2), {.writers = 3});
  std::vector<std::string> rejected;
  EXPECT_EQ(newest_checkpoint(folder_.path(), rejected)->record.step, 1);
  EXPECT_TRUE(rejected.empty());
  const CheckpointWriter next({.folder = folder_.path()});
  EXPECT_THAT(folder_names(folder_.path()), ElementsAre("latest", "step-0000000001.h5", "step-0000000001.parts-0a"));
}

TEST_F(CheckpointParts, OldOnesGoWithTheirParts) {
  for (const std::int64_t step : {1, 2, 3}) write(step, 2);
  EXPECT_THAT(folder_names(folder_.path()), ElementsAre("latest", "step-0000000002.h5", "step-0000000002.parts-0a",
                                                        "step-0000000003.h5", "step-0000000003.parts-0a"));
  write(3, 2, "0b");  // once more
  EXPECT_THAT(folder_names(folder_.path()), ElementsAre("latest", "step-0000000002.h5", "step-0000000002.parts-0a",
                                                        "step-0000000003.h5", "step-0000000003.parts-0b"));
  writer_.write(sample_record(4), SampleTensors(4).views());  // in one file
  EXPECT_THAT(folder_names(folder_.path()),
              ElementsAre("latest", "step-0000000003.h5", "step-0000000003.parts-0b", "step-0000000004.h5"));
}

TEST_F(CheckpointParts, ThePartsOfALaterStepAreLeftAlone) {
  write_parts(folder_.path(), 9, SampleTensors(9), {.writers = 2});  // another rank is quicker
  write(8, 2);
  EXPECT_TRUE(fs::exists(part(9, 0, 2)));
}

TEST_F(CheckpointParts, APartThatIsMissingDamagedOrAnothersIsNamed) {
  const fs::path file = write(5, 3);
  const std::string bytes = read_text(part(5, 1, 3));
  fs::remove(part(5, 1, 3));
  EXPECT_THAT(error_of(file), AllOf(HasSubstr("part-0002-of-0003.h5"), HasSubstr("No such file")));
  for (std::size_t at = 0; at < bytes.size(); at += 97) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 8);
    write_text(part(5, 1, 3), damaged);
    try {
      EXPECT_TRUE(same_content(read_checkpoint(file), sample_record(5), SampleTensors(5).stored)) << at;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("part-0002-of-0003.h5")) << at;
    }
  }
  write_text(part(5, 1, 3), bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error_of(file), HasSubstr("part-0002-of-0003.h5"));
  write(6, 3, "0c");
  write_text(part(5, 1, 3), read_text(part(6, 1, 3, "0c")));  // sound in itself
  EXPECT_THAT(error_of(file), AllOf(HasSubstr("step-0000000005.h5 is corrupted"),
                                    HasSubstr("part-0002-of-0003.h5 is of another checkpoint")));
  write_text(part(5, 1, 3), bytes);
  EXPECT_TRUE(same_content(read_checkpoint(file), sample_record(5), SampleTensors(5).stored));
}

TEST_F(CheckpointParts, ValuesThatNoPartHoldsOrTwoDoAreNoticed) {
  const SampleTensors tensors(7);
  const SplitState split = write_parts(folder_.path(), 7, tensors, {.writers = 3});
  const auto refused = [&](const SplitState& wrong) { return error_of(writer_.write(sample_record(7), {}, wrong)); };
  SplitState without = split, twice = split, strange = split, short_one = split;
  without.parts.erase(without.parts.begin() + 1);
  EXPECT_THAT(refused(without), HasSubstr("do not hold every value of"));
  twice.parts.push_back(twice.parts[1]);
  EXPECT_THAT(refused(twice), HasSubstr("do not hold every value of"));
  strange.tensors.erase(strange.tensors.begin());
  EXPECT_THAT(refused(strange), HasSubstr("which is no part of it"));
  short_one.tensors[0].shape[0] -= 1;
  EXPECT_THAT(refused(short_one), HasSubstr("which is no part of it"));
  SplitState endless = split;  // its size would exceed a machine's memory, and no memory is taken for it
  endless.tensors[0].shape = {std::int64_t{1} << 50};
  EXPECT_THAT(refused(endless), HasSubstr("and its parts have too few bytes"));
}

TEST_F(CheckpointParts, APartThatIsNotSeenFromHereIsNoPart) {
  write(1, 2);
  SplitState split = write_parts(folder_.path(), 2, SampleTensors(2), {.writers = 2});
  const std::string bytes = read_text(part(2, 1, 2));
  fs::remove(part(2, 1, 2));
  const auto refused = [&] { return error_text<FileError>([&] { writer_.write(sample_record(2), {}, split); }); };
  EXPECT_THAT(refused(), AllOf(HasSubstr("part-0002-of-0002.h5"), HasSubstr("not seen from here"),
                               HasSubstr("--checkpoint-writers 1")));
  write_text(part(2, 1, 2), bytes);
  split.parts[1].checksum ^= 1;
  EXPECT_THAT(refused(), HasSubstr("is not what its writer has written"));
  std::vector<std::string> rejected;
  EXPECT_EQ(newest_checkpoint(folder_.path(), rejected)->record.step, 1);
}

TEST_F(CheckpointParts, ForceRemovesThem) {
  const fs::path run = folder_.path() / "run";
  {
    const RunFolder owner(run, RunFolder::Open::fresh, false);
    CheckpointWriter writer({.folder = owner.checkpoints()});
    write_in_parts(writer, owner.checkpoints(), 1, {.writers = 2});
    fs::create_directory(owner.checkpoints() / "mine");
  }
  const RunFolder again(run, RunFolder::Open::fresh, true);
  EXPECT_THAT(folder_names(again.checkpoints()), ElementsAre("mine"));
}

TEST_F(CheckpointParts, AnOwnerBeforeThatStillWritesThemStopsNobody) {
  const fs::path run = folder_.path() / "run", checkpoints = run / "checkpoints";
  const fs::path parts = checkpoints / "step-0000000009.parts-0a";
  const RunFolder before(run, RunFolder::Open::fresh, false);
  const auto write = [&](const std::string& name) {
    std::error_code gone_again;
    fs::create_directories(parts, gone_again);
    std::ofstream(parts / name);
  };
  const auto fill = [&] {
    for (int i = 0; i < 200; ++i) write("old-" + std::to_string(i));  // their removal takes a while
  };
  std::atomic<bool> noticed = false;
  std::thread owner_before([&] {
    for (int i = 0; !noticed; ++i) write("part-" + std::to_string(i));
  });
  EXPECT_NO_THROW({
    for (int i = 0; i < 5; ++i) {
      fill();
      CheckpointWriter({.folder = checkpoints});  // as --resume does
      fill();
      RunFolder(run, RunFolder::Open::fresh, true);  // as --force does
    }
  });
  noticed = true;
  owner_before.join();
  const CheckpointWriter next({.folder = checkpoints});
  EXPECT_TRUE(part_folders(checkpoints).empty());
}

}  // namespace
}  // namespace lockstep::io
