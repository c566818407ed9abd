// Every kind of damage to a checkpoint is noticed.
#include <random>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint_samples.hpp"
#include "io/files/checksum.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/small_disk.hpp"
#include "support/message_of.hpp"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    CheckpointWriter writer({.folder = folder_.path()});
    file_ = writer.write(sample_record(3), tensors_.views());
    bytes_ = read_text(file_);
  }

  std::string error() {
    return error_text<FileError>([&] { read_checkpoint(file_); });
  }

  /// A copy through the HDF5 interface with unchanged checksums; `leave_out` and `rename` do the damage.
  void rewrite(const std::string& leave_out, const std::map<std::string, std::string>& rename) {
    const Checkpoint content = read_checkpoint(file_);
    const fs::path copy = folder_.path() / "copy.h5";
    {
      const Hdf5File from(file_, Hdf5File::Access::read);
      Hdf5File to(copy, Hdf5File::Access::create);
      to.set_integer("/", "lockstep_checkpoint_format", 5);
      for (const StoredTensor& tensor : content.tensors) {
        const std::string path = tensor.group + "/" + tensor.name;
        if (path == leave_out) continue;
        const std::string target = "/" + (rename.contains(path) ? rename.at(path) : path);
        to.create_dataset(target, FileType::float32, tensor.shape);
        to.write(target, FileType::float32, std::as_bytes(std::span(tensor.values)));
        to.set_text(target, "xxh3_64", from.text("/" + path, "xxh3_64").value());
      }
      to.create_group("/state");
      for (const char* name : {"step", "epoch", "position", "seed", "world_size", "validated_step", "features",
                               "outputs", "image_height", "image_width", "image_channels", "tokens"}) {
        to.set_integer("/state", name, from.integer("/state", name).value() + (leave_out == name ? 1 : 0));
      }
      to.set_real("/state", "best_metric", from.real("/state", "best_metric").value());
      for (const char* name : {"network", "network_kind", "optimizer", "dataset", "program_version", "xxh3_64"}) {
        if (leave_out != name) to.set_text("/state", name, from.text("/state", name).value());
      }
      auto names = from.texts("/state", "tensors").value();
      if (leave_out == "unlisted") names.pop_back();
      to.set_texts("/state", "tensors", names);
      for (const auto& [name, text] :
           {std::pair<std::string, std::string>("configuration", content.record.configuration),
            {"metrics", content.record.metrics},
            {"vocabulary", content.record.vocabulary},
            {"data_description", content.record.data_description}}) {
        const auto size = static_cast<std::int64_t>(text.size());
        to.create_dataset("/state/" + name, FileType::uint8, std::span(&size, 1));
        to.write("/state/" + name, FileType::uint8, std::as_bytes(std::span(text)));
      }
      to.close();
    }
    fs::rename(copy, file_);
  }

  TemporaryFolder folder_;
  SampleTensors tensors_{3};
  fs::path file_;
  std::string bytes_;
};

TEST_F(DamagedCheckpoint, AFaithfulCopyIsFine) {
  rewrite("", {});
  EXPECT_TRUE(same_content(read_checkpoint(file_), sample_record(3), tensors_.stored));
}

TEST_F(DamagedCheckpoint, EveryFlippedBitIsNoticedOrHarmless) {
  std::mt19937_64 random(20240229);
  int noticed = 0, harmless = 0;
  const auto flip = [&](std::size_t at, int bit) {
    const auto write_byte = [&](char byte) {
      const int fd = ::open(file_.c_str(), O_WRONLY);
      EXPECT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
      ::close(fd);
    };
    write_byte(static_cast<char>(bytes_[at] ^ (1 << bit)));
    try {
      EXPECT_TRUE(same_content(read_checkpoint(file_), sample_record(3), tensors_.stored))
          << "bit " << bit << " of byte " << at << " of " << bytes_.size() << " changed the content unnoticed";
      ++harmless;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(file_.string()));
      ++noticed;
    }
    write_byte(bytes_[at]);
  };
  for (int i = 0; i < 1500; ++i) flip(random() % bytes_.size(), static_cast<int>(random() % 8));
  for (std::size_t at = 0; at < 64; ++at) flip(at, static_cast<int>(at % 8));  // the superblock
  // Tensor data: each byte of it counts.
  const auto& weights = tensors_.stored[0].values;
  const std::size_t start = bytes_.find(std::string(reinterpret_cast<const char*>(weights.data()), weights.size() * 4));
  ASSERT_NE(start, std::string::npos);
  const int before = noticed;
  for (std::size_t i = 0; i < weights.size() * 4; ++i) flip(start + i, static_cast<int>(i % 8));
  EXPECT_EQ(noticed - before, static_cast<int>(weights.size() * 4));
  EXPECT_GT(noticed, 900);
  RecordProperty("noticed", noticed);
  RecordProperty("harmless", harmless);
  EXPECT_TRUE(same_content(read_checkpoint(file_), sample_record(3), tensors_.stored));
}

TEST_F(DamagedCheckpoint, EveryTruncationIsNoticed) {
  std::mt19937_64 random(7);
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 47, 48, 49, 512, bytes_.size() / 2, bytes_.size() - 1};
  for (int i = 0; i < 100; ++i) lengths.push_back(random() % bytes_.size());
  for (const std::size_t length : lengths) {
    write_text(file_, bytes_.substr(0, length));
    EXPECT_THAT(error(), HasSubstr(file_.string())) << length;
  }
}

TEST_F(DamagedCheckpoint, ZeroedPagesAreNoticed) {
  for (std::size_t at = 0; at < bytes_.size(); at += 512) {
    std::string damaged = bytes_;
    const std::size_t length = std::min<std::size_t>(512, bytes_.size() - at);
    damaged.replace(at, length, length, '\0');
    if (damaged == bytes_) continue;
    write_text(file_, damaged);
    try {
      EXPECT_TRUE(same_content(read_checkpoint(file_), sample_record(3), tensors_.stored)) << at;
    } catch (const FileError&) {
    }
  }
}

TEST_F(DamagedCheckpoint, AMissingTensorIsNamed) {
  rewrite("first_moment/dense_1/bias", {});
  EXPECT_THAT(error(), AllOf(HasSubstr("is corrupted"), HasSubstr("tensor first_moment/dense_1/bias is missing"),
                             HasSubstr("--resume")));
}

TEST_F(DamagedCheckpoint, ATensorMissingFromTheListTooIsNoticed) {
  rewrite("unlisted", {});
  EXPECT_THAT(error(), HasSubstr("state record does not match"));
}

TEST_F(DamagedCheckpoint, SwappedTensorsAreNamed) {
  rewrite("", {{"parameters/dense_1/weight", "parameters/dense_2/weight"},
               {"parameters/dense_2/weight", "parameters/dense_1/weight"}});
  EXPECT_THAT(error(), HasSubstr("tensor parameters/dense_1/weight does not match its checksum"));
  write_text(file_, bytes_);
  rewrite("", {{"parameters/scale", "first_moment/scale"}, {"first_moment/scale", "parameters/scale"}});
  EXPECT_THAT(error(), HasSubstr("tensor parameters/scale does not match its checksum"));
}

TEST_F(DamagedCheckpoint, ATensorOfAnotherStepIsNoticed) {
  // The part is valid and has its own checksum, but it is not the one of this state.
  CheckpointWriter writer({.folder = folder_.path()});
  const fs::path other = writer.write(sample_record(4), SampleTensors(4).views());
  const auto block_of = [](const SampleTensors& tensors, std::string_view bytes) {
    const auto& values = tensors.stored[0].values;
    return bytes.find(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  };
  const std::string other_bytes = read_text(other);
  ASSERT_EQ(other_bytes.size(), bytes_.size());
  const std::size_t at = block_of(tensors_, bytes_);
  ASSERT_EQ(block_of(SampleTensors(4), other_bytes), at);
  std::string mixed = bytes_;
  mixed.replace(at, 400, other_bytes, at, 400);
  write_text(file_, mixed);
  EXPECT_THAT(error(), HasSubstr("tensor parameters/dense_1/weight"));
}

TEST_F(DamagedCheckpoint, AChangedOrMissingRecordIsNoticed) {
  rewrite("step", {});
  EXPECT_THAT(error(), HasSubstr("state record does not match"));
  write_text(file_, bytes_);
  rewrite("network", {});
  EXPECT_THAT(error(), HasSubstr("attribute network of /state is missing"));
  write_text(file_, bytes_);
  rewrite("xxh3_64", {});
  EXPECT_THAT(error(), HasSubstr("attribute xxh3_64 of /state is missing"));
}

TEST_F(DamagedCheckpoint, ANewerFormatSaysSo) {
  {
    Hdf5File newer(file_, Hdf5File::Access::create);
    newer.set_integer("/", "lockstep_checkpoint_format", 9);
    newer.close();
  }
  EXPECT_THAT(error(), AllOf(HasSubstr(file_.string()), HasSubstr("was written by a newer format (9)"),
                             HasSubstr("reads up to 8"), ::testing::Not(HasSubstr("corrupted"))));
}

TEST_F(DamagedCheckpoint, OtherFilesAreNoCheckpoints) {
  {
    Hdf5File other(file_, Hdf5File::Access::create);
    other.create_group("/x");
    other.close();
  }
  EXPECT_THAT(error(), HasSubstr("is not a Lockstep checkpoint"));
  {
    Hdf5File other(file_, Hdf5File::Access::create);
    other.set_integer("/", "lockstep_checkpoint_format", 1);
    other.close();
  }
  EXPECT_THAT(error(), HasSubstr("its state record is missing"));
  write_text(file_, "this is a text file, longer than a superblock would be, but not HDF5 at all");
  EXPECT_THAT(error(), HasSubstr("not an HDF5 file"));
  fs::remove(file_);
  EXPECT_THAT(error(), HasSubstr("No such file"));
}

/// Waits until a process closes a temporary in `folder`, then flips a bit of it.
void damage_next_temporary(int watch, const fs::path& folder, std::size_t at) {
  alignas(inotify_event) char events[4096];
  if (::read(watch, events, sizeof events) <= 0) return;
  const auto* event = reinterpret_cast<const inotify_event*>(events);
  const int fd = ::open((folder / event->name).c_str(), O_RDWR);
  char byte = 0;
  if (fd >= 0 && ::pread(fd, &byte, 1, static_cast<off_t>(at)) == 1) {
    byte = static_cast<char>(byte ^ 16);
    EXPECT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
  }
  ::close(fd);
}

TEST(CheckpointReadBack, DamageBetweenWritingAndRenamingIsNoticed) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  const SampleTensors tensors(3);
  const fs::path file = writer.write(sample_record(3), tensors.views());
  const auto& weights = tensors.stored[0].values;
  const std::size_t at =
      read_text(file).find(std::string(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)));
  ASSERT_NE(at, std::string::npos);
  // The damage races with the writer's fsync, which nearly always takes longer: one success is enough.
  std::string text;
  for (int attempt = 0; attempt < 200 && text.empty(); ++attempt) {
    const int watch = ::inotify_init1(IN_CLOEXEC);
    ASSERT_GE(::inotify_add_watch(watch, folder.path().c_str(), IN_CLOSE_WRITE), 0);
    std::thread saboteur([&] { damage_next_temporary(watch, folder.path(), at); });
    try {
      writer.write(sample_record(3), tensors.views());
    } catch (const FileError& error) {
      text = error.what();
    }
    saboteur.join();
    ::close(watch);
  }
  EXPECT_THAT(text, AllOf(HasSubstr("cannot write checkpoint"), HasSubstr("tensor parameters/dense_1/weight")));
  EXPECT_THAT(folder_names(folder.path()), ElementsAre("latest", "step-0000000003.h5"));
}

TEST(CheckpointSpace, AFullDiskIsOneClearMessageAndTheOldOnesStay) {
  const SmallDisk disk("2M");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  CheckpointWriter writer({.folder = disk.path()});
  const SampleTensors large(2, 50'000);
  EXPECT_THAT(error_text<FileError>([&] { writer.write(sample_record(1), large.views()); }),
              HasSubstr("There is no earlier checkpoint"));
  writer.write(sample_record(1), SampleTensors(1).views());
  const auto before = folder_content(disk.path());
  const std::string text = error_text<FileError>([&] { writer.write(sample_record(2), large.views()); });
  EXPECT_THAT(text, AllOf(HasSubstr("cannot write checkpoint"), HasSubstr("step-0000000002.h5"),
                          HasSubstr("No space left on device"), HasSubstr("3.9 MiB needed"), HasSubstr("MiB free"),
                          HasSubstr("step-0000000001.h5 is intact"), HasSubstr("--resume")));
  EXPECT_EQ(folder_content(disk.path()), before);
  // A nearly full disk: each size, from too small for the superblock on.
  for (const std::uintmax_t left : {0u, 4096u, 20'000u, 60'000u}) {
    disk.fill(left);
    EXPECT_THROW(writer.write(sample_record(2), SampleTensors(2, 4000).views()), FileError) << left;
    fs::remove(disk.path() / "filler");
    EXPECT_EQ(folder_content(disk.path()), before) << left;
  }
  writer.write(sample_record(2), SampleTensors(2).views());
  EXPECT_EQ(verify_checkpoint(disk.path() / "latest").step, 2);
}

TEST(CheckpointSpace, SpaceIsReservedBeforehand) {
  const SmallDisk disk("1M");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  CheckpointWriter writer({.folder = disk.path()});
  SampleTensors tensors(1);
  for (int i = 0; i < 200; ++i) tensors.add("parameters", "tiny_" + std::to_string(i), {1}, i);
  const std::uintmax_t size = fs::file_size(writer.write(sample_record(1), tensors.views()));
  disk.fill(size + 64 * 1024);
  // The file would just fit, but its upper bound does not: refused before the first byte.
  EXPECT_THAT(error_text<FileError>([&] { writer.write(sample_record(2), tensors.views()); }),
              HasSubstr("No space left on device"));
}

TEST(CheckpointSpace, WritesThatFailHalfWayLeaveTheOldOnes) {
  const TemporaryFolder folder;
  CheckpointWriter writer({.folder = folder.path()});
  writer.write(sample_record(1), SampleTensors(1).views());
  const auto before = folder_content(folder.path());
  // The limit does not affect reserved space, so the library's own writes fail, at different places.
  for (const rlim_t most : {0u, 100u, 2000u, 5000u, 20'000u, 100'000u, 150'000u}) {
    {
      const FileSizeLimit limit(most);
      EXPECT_THAT(error_text<FileError>([&] { writer.write(sample_record(2), SampleTensors(2, 4000).views()); }),
                  AllOf(HasSubstr("step-0000000002.h5"), HasSubstr("ulimit -f"), HasSubstr("needed"),
                        HasSubstr("step-0000000001.h5 is intact")))
          << most;
    }
    EXPECT_EQ(folder_content(folder.path()), before) << most;
  }
  writer.write(sample_record(2), SampleTensors(2, 4000).views());
  std::vector<std::string> rejected;
  EXPECT_EQ(newest_checkpoint(folder.path(), rejected)->record.step, 2);
}

TEST(CheckpointSpace, AFolderThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  const fs::path locked = folder.path() / "checkpoints";
  fs::create_directory(locked);
  fs::permissions(folder.path(), fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  fs::permissions(locked, fs::perms(0555));
  const std::string text = said_by_ordinary_user([&]() -> std::string {
    return test::message_of<FileError>([&] {
      CheckpointWriter writer({.folder = locked});
      writer.write(sample_record(1), SampleTensors(1).views());
    });
  });
  EXPECT_THAT(text, AllOf(HasSubstr(locked.string()), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace lockstep::io
