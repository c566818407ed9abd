#include "io/foreign_files.hpp"

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/hdf5_file.hpp"
#include "io/files/hdf5_handles.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ForeignFilesTest : public testing::Test {
 protected:
  /// A foreign file: 20 samples of 3 numbers.
  std::filesystem::path plain() const {
    const std::filesystem::path path = folder_.path() / "plain.h5";
    Hdf5File file(path, Hdf5File::Access::create);
    const std::vector<std::int64_t> shape{20, 3};
    file.create_dataset("x", FileType::float32, shape);
    file.create_dataset("y", FileType::uint8, std::span(shape).first(1));
    const std::vector<float> x(60, 0.5F);
    const std::vector<std::uint8_t> y(20, 1);
    file.write("x", FileType::float32, std::as_bytes(std::span(x)));
    file.write("y", FileType::uint8, std::as_bytes(std::span(y)));
    file.close();
    return path;
  }
  /// Replaces the program that inspects files.
  std::filesystem::path program(const std::string& commands) const {
    const std::filesystem::path path = folder_.path() / "program";
    write_text(path, "#!/bin/sh\n" + commands + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  std::string error(const std::string& commands, double silence_seconds = 20) const {
    return error_text<FileError>([&] {
      inspect_in_child(program(commands), {.path = plain(), .x = "x", .y = "y"}, {.silence_seconds = silence_seconds});
    });
  }
  TemporaryFolder folder_;
};

TEST_F(ForeignFilesTest, AProgramThatEndsWellIsHeardToTheEnd) {
  EXPECT_NO_THROW(inspect_in_child(program("echo Fplain.h5; echo +; exit 0"), {.path = plain(), .x = "x", .y = "y"},
                                   {.silence_seconds = 20}));
}

TEST_F(ForeignFilesTest, ADeathIsASentenceThatNamesTheFileItDiedOf) {
  EXPECT_THAT(error("echo Fone.h5; echo Ftwo.h5; echo +; kill -SEGV $$"),
              AllOf(HasSubstr("two.h5: is damaged"), HasSubstr("signal 11"), HasSubstr("copy it again")));
  EXPECT_THAT(error("kill -ABRT $$"), AllOf(HasSubstr("plain.h5: is damaged"), HasSubstr("signal 6")));
  EXPECT_THAT(error("exit 1"), HasSubstr("plain.h5: is damaged")) << "a sanitizer's way to die";
}

TEST_F(ForeignFilesTest, AnErrorOfTheInspectionIsPassedOnAsItIs) {
  EXPECT_EQ(error("echo Fone.h5; echo 'Eone.h5: has no dataset x'; exit 3"), "one.h5: has no dataset x");
}

TEST_F(ForeignFilesTest, SilenceEndsIt) {
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(error("echo Fone.h5; sleep 300", 0.3), AllOf(HasSubstr("one.h5: "), HasSubstr("no progress")));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(60));
}

TEST_F(ForeignFilesTest, ShardsWithTheirManifestAndWhatIsNotThereNeedNoProcess) {
  MemorySource source({});
  write_shards(source, {.folder = folder_.path() / "shards"}, {});
  for (const char* name : {"shards", "nothing"}) {
    EXPECT_NO_THROW(
        inspect_in_child(program("kill -SEGV $$"), {.path = folder_.path() / name, .x = "x", .y = "y"}, {}));
  }
  EXPECT_NO_THROW(inspect_in_child(folder_.path() / "no-program", {.path = plain(), .x = "x", .y = "y"}, {}));
}

TEST_F(ForeignFilesTest, TheProcessDoesNotLookLikeARank) {
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  ::setenv("PMIX_RANK", "1", 1);
  ::setenv("LOCKSTEP_SEEN", "1", 1);
  const std::filesystem::path seen = folder_.path() / "seen";
  inspect_in_child(program("env >" + seen.string()), {.path = plain(), .x = "x", .y = "y"}, {});
  EXPECT_THAT(read_text(seen), AllOf(HasSubstr("LOCKSTEP_SEEN=1"), Not(HasSubstr("OMPI_")), Not(HasSubstr("PMIX_"))));
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("PMIX_RANK");
  ::unsetenv("LOCKSTEP_SEEN");
}

TEST_F(ForeignFilesTest, EveryFileIsNamedBeforeItIsOpened) {
  std::vector<std::string> named;
  const auto name = [&](std::string_view file) {
    if (!file.empty()) named.emplace_back(file);
  };
  const std::filesystem::path good = plain();
  inspect({.path = good, .x = "x", .y = "y"}, name);
  EXPECT_EQ(named, std::vector<std::string>{good.string()});
  write_text(folder_.path() / "rubbish.h5", "rubbish");
  EXPECT_THROW(inspect({.path = folder_.path(), .x = "x", .y = "y"}, name), FileError);
  EXPECT_THAT(named.back(), HasSubstr("rubbish.h5"));
  EXPECT_THROW(inspect({.path = good, .x = "pictures", .y = "y"}, name), FileError);
}

/// 24 MiB in chunks of 4 KiB, whose index has about a hundred nodes.
void write_chunked(const std::filesystem::path& path) {
  const std::vector<hsize_t> shape{24576, 256}, chunk{4, 256};
  const std::vector<float> x(shape[0] * shape[1], 0.5F);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(2, shape.data(), nullptr), properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(properties, 2, chunk.data());
  const hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x.data());
  H5Dclose(dataset);
  H5Pclose(properties);
  H5Sclose(space);
  H5Fclose(file);
}

TEST_F(ForeignFilesTest, DamageOfTheIndexIsFoundWhereverItIs) {
  const std::filesystem::path path = folder_.path() / "chunked.h5";
  write_chunked(path);
  const ForeignFiles files{.path = path, .x = "x", .y = "", .unlabelled = Unlabelled::accepted};
  EXPECT_NO_THROW(inspect(files, [](std::string_view) {}));
  std::string bytes = read_text(path);
  std::vector<std::size_t> nodes;
  for (std::size_t at = 0; (at = bytes.find("TREE", at)) != std::string::npos; ++at) nodes.push_back(at);
  ASSERT_GT(nodes.size(), 50U);
  bytes[nodes[nodes.size() - 5]] = 'X';
  write_text(path, bytes);
  EXPECT_THAT(error_text<FileError>([&] { inspect(files, [](std::string_view) {}); }), HasSubstr("chunked.h5"));
}

}  // namespace
}  // namespace lockstep::io
