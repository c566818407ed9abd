#include "io/files/hdf5_file.hpp"

#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "io/io_test_support.hpp"
#include "support/message_of.hpp"

namespace lockstep::io {
namespace {

using testing::HasSubstr;

TEST(Hdf5File, KeepsDatasetsOfEveryTypeAndShape) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.h5";
  const std::vector<double> values = {-3, 2, 7, 100, 0, 1};
  {
    Hdf5File file(path, Hdf5File::Access::create);
    for (const FileType type :
         {FileType::int8, FileType::int16, FileType::int32, FileType::int64, FileType::float32, FileType::float64}) {
      const std::string name = std::string("deep/er/") + name_of(type);
      file.create_dataset(name, type, std::vector<std::int64_t>{3, 2});
      file.write(name, FileType::float64, std::as_bytes(std::span(values)));
    }
    file.create_dataset("scalar", FileType::uint16, {});
    const std::int32_t one = 65535;
    file.write("scalar", FileType::int32, std::as_bytes(std::span(&one, 1)));
    file.create_dataset("empty", FileType::uint8, std::vector<std::int64_t>{0, 7});
    file.write("empty", FileType::uint8, {});
    file.create_group("bare/group");
    file.close();
  }
  const Hdf5File file(path, Hdf5File::Access::read);
  EXPECT_EQ(file.children("/"), (std::vector<std::string>{"bare", "deep", "empty", "scalar"}));
  EXPECT_TRUE(file.has("deep/er/int8"));
  EXPECT_TRUE(file.has("/"));
  EXPECT_FALSE(file.has("deep/err/int8"));
  EXPECT_FALSE(file.has("deep/er/int8x"));
  for (const auto& name : file.children("deep/er")) {
    std::vector<double> got(6);
    file.read("deep/er/" + name, FileType::float64, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, values) << name;
    const DatasetLayout layout = file.layout("deep/er/" + name);
    EXPECT_EQ(name_of(layout.type), name);
    EXPECT_EQ(layout.shape, (std::vector<std::int64_t>{3, 2}));
    EXPECT_TRUE(layout.chunk.empty());
    EXPECT_FALSE(layout.compressed);
    EXPECT_TRUE(layout.native_order);
    ASSERT_TRUE(layout.offset.has_value());
  }
  std::uint16_t scalar = 0;
  file.read("scalar", FileType::uint16, std::as_writable_bytes(std::span(&scalar, 1)));
  EXPECT_EQ(scalar, 65535);
  EXPECT_EQ(file.layout("empty").shape, (std::vector<std::int64_t>{0, 7}));
  EXPECT_FALSE(file.layout("empty").offset.has_value());
}

TEST(Hdf5File, RowsGoWhereTheyBelongAndTheOffsetIsTheirPlace) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rows.h5";
  std::vector<float> values(7 * 3);
  std::iota(values.begin(), values.end(), 1.0F);
  {
    Hdf5File file(path, Hdf5File::Access::create);
    file.create_dataset("x", FileType::float32, std::vector<std::int64_t>{7, 3});
    file.write_rows("x", FileType::float32, 4, 3, std::as_bytes(std::span(values).subspan(12)));
    file.write_rows("x", FileType::float32, 0, 4, std::as_bytes(std::span(values).first(12)));
    file.write_rows("x", FileType::float32, 7, 0, {});
    EXPECT_THROW(file.write_rows("x", FileType::float32, 6, 2, std::as_bytes(std::span(values).first(6))),
                 std::invalid_argument);
    EXPECT_THROW(file.write_rows("x", FileType::float32, 0, 2, std::as_bytes(std::span(values).first(5))),
                 std::invalid_argument);
    file.close();
  }
  const Hdf5File file(path, Hdf5File::Access::read);
  std::vector<float> rows(6);
  file.read_rows("x", FileType::float32, 3, 2, std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, (std::vector<float>{10, 11, 12, 13, 14, 15}));
  EXPECT_THROW(file.read_rows("x", FileType::float32, 6, 2, std::as_writable_bytes(std::span(rows))),
               std::invalid_argument);
  std::vector<float> raw(values.size());
  std::ifstream stream(path, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(file.layout("x").offset.value()));
  stream.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(raw.size() * sizeof(float)));
  EXPECT_EQ(raw, values);
}

TEST(Hdf5File, KeepsAttributes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "attributes.h5";
  const std::string large(200'000, 'z');
  {
    Hdf5File file(path, Hdf5File::Access::create);
    file.create_dataset("x", FileType::uint8, std::vector<std::int64_t>{1});
    file.set_text("/", "name", "T-Shirt/Größe");
    file.set_text("/", "empty", "");
    file.set_text("x", "large", large);
    file.set_integer("x", "count", -7);
    file.set_integer("x", "count", std::numeric_limits<std::int64_t>::max());  // replaces
    file.set_real("x", "mean", 0.1);
    file.set_texts("x", "names", std::vector<std::string>{"a", "", "longer"});
    file.set_texts("x", "none", {});
    file.close();
  }
  const Hdf5File file(path, Hdf5File::Access::read);
  EXPECT_EQ(file.text("/", "name"), "T-Shirt/Größe");
  EXPECT_EQ(file.text("/", "empty"), "");
  EXPECT_EQ(file.text("x", "large"), large);
  EXPECT_EQ(file.integer("x", "count"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(file.real("x", "mean"), 0.1);
  EXPECT_EQ(file.texts("x", "names"), (std::vector<std::string>{"a", "", "longer"}));
  EXPECT_EQ(file.texts("x", "none"), std::vector<std::string>{});
  EXPECT_EQ(file.text("x", "absent"), std::nullopt);
  EXPECT_EQ(file.integer("x", "absent"), std::nullopt);
  EXPECT_THROW(file.integer("/", "name"), FileError);
  EXPECT_THROW(file.text("x", "count"), FileError);
  EXPECT_THROW(file.text("x", "names"), FileError);
  EXPECT_THROW(file.real("x", "names"), FileError);
}

std::string error_of_opening(const std::filesystem::path& path) {
  return test::message_of<FileError>([&] { const Hdf5File file(path, Hdf5File::Access::read); });
}

TEST(Hdf5File, SaysWhyAFileCannotBeOpened) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of_opening(folder.path() / "absent.h5"), HasSubstr("No such file or directory"));
  const auto text = folder.path() / "text.h5";
  std::ofstream(text) << std::string(4096, 'x');
  EXPECT_THAT(error_of_opening(text), testing::AllOf(HasSubstr("text.h5"), HasSubstr("not an HDF5 file")));
  EXPECT_THAT(error_of_opening(folder.path()), HasSubstr(folder.path().string()));
  const auto cut = folder.path() / "cut.h5";
  {
    Hdf5File file(cut, Hdf5File::Access::create);
    file.create_dataset("x", FileType::float64, std::vector<std::int64_t>{1000});
    const std::vector<double> ones(1000, 1.0);
    file.write("x", FileType::float64, std::as_bytes(std::span(ones)));
    file.close();
  }
  std::filesystem::resize_file(cut, 5000);
  EXPECT_THAT(error_of_opening(cut), HasSubstr("truncated"));
  EXPECT_THROW(Hdf5File(folder.path() / "no" / "such" / "folder.h5", Hdf5File::Access::create), FileError);
}

TEST(Hdf5File, SaysWhatItCannotFind) {
  const TemporaryFolder folder;
  Hdf5File file(folder.path() / "a.h5", Hdf5File::Access::create);
  file.create_group("g");
  EXPECT_THROW(file.layout("x"), FileError);
  EXPECT_THROW(file.children("x"), FileError);
  EXPECT_THROW(file.text("x", "name"), FileError);
  EXPECT_THROW(file.layout("g"), FileError);
  file.close();
  EXPECT_THROW(file.has("g"), std::invalid_argument);
  const Hdf5File reading(folder.path() / "a.h5", Hdf5File::Access::read);
  EXPECT_THROW(const_cast<Hdf5File&>(reading).create_group("h"), std::invalid_argument);
}

/// Runs `work` while files may not grow beyond `bytes` bytes.
template <class Work>
void with_file_size_limit(rlim_t bytes, const Work& work) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  work();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
}

TEST(Hdf5File, ReportsAFailedWriteOnceAndSurvivesIt) {
  const TemporaryFolder folder;
  const std::vector<double> values(100'000, 1.0);
  const auto path = folder.path() / "big.h5";
  with_file_size_limit(50'000, [&] {
    std::string reason;
    {
      Hdf5File file(path, Hdf5File::Access::create);
      try {
        file.create_dataset("x", FileType::float64, std::vector<std::int64_t>{100'000});
        file.write("x", FileType::float64, std::as_bytes(std::span(values)));
        file.close();
      } catch (const FileError& error) {
        reason = error.what();
        EXPECT_THROW(file.close(), std::invalid_argument);
      }
    }
    EXPECT_THAT(reason, HasSubstr("File too large"));
  });
  EXPECT_EQ(std::filesystem::file_size(path), 0U) << "an abandoned file gives its space back";
  std::filesystem::remove(path);
  Hdf5File again(path, Hdf5File::Access::create);
  again.create_dataset("x", FileType::float64, std::vector<std::int64_t>{100'000});
  again.write("x", FileType::float64, std::as_bytes(std::span(values)));
  again.close();
  std::vector<double> got(values.size());
  Hdf5File(path, Hdf5File::Access::read).read("x", FileType::float64, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, values);
}

/// The whole content as far as a reader sees it; empty when reading fails.
std::string content(const std::filesystem::path& path) {
  try {
    const Hdf5File file(path, Hdf5File::Access::read);
    std::string all;
    for (const auto& name : file.children("/")) {
      const DatasetLayout layout = file.layout(name);
      std::vector<std::byte> data(size_of(layout.type) * static_cast<std::size_t>(layout.shape.at(0)));
      file.read(name, layout.type, data);
      all += name + name_of(layout.type) + std::string(reinterpret_cast<const char*>(data.data()), data.size());
      all += file.text(name, "checksum").value_or("-") + std::to_string(file.integer(name, "count").value_or(-1));
    }
    return all;
  } catch (const std::exception&) {
    return {};
  }
}

TEST(Hdf5File, EveryFlippedMetadataBitIsNoticedOrHarmless) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.h5";
  {
    Hdf5File file(path, Hdf5File::Access::create);
    for (const char* name : {"x", "y"}) {
      file.create_dataset(name, FileType::uint8, std::vector<std::int64_t>{8});
      file.write(name, FileType::uint8, std::as_bytes(std::span("abcdefg")));
      file.set_text(name, "checksum", "0123456789abcdef");
      file.set_integer(name, "count", 8);
    }
    file.close();
  }
  const std::string good = content(path);
  ASSERT_FALSE(good.empty());
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  {
    const Hdf5File file(path, Hdf5File::Access::read);
    x = file.layout("x").offset.value();
    y = file.layout("y").offset.value();
  }
  const std::string bytes = read_text(path);
  int noticed = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if ((at >= x && at < x + 8) || (at >= y && at < y + 8)) continue;  // raw data, which our checksums protect
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_text(path, flipped);
    const std::string seen = content(path);
    noticed += seen.empty() ? 1 : 0;
    ASSERT_TRUE(seen.empty() || seen == good) << "flip at byte " << at << " passed unnoticed";
  }
  EXPECT_GT(noticed, 200);
}

TEST(Hdf5File, ThreadsMayUseItAtOnce) {
  const TemporaryFolder folder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&folder, t] {
      const auto path = folder.path() / (std::to_string(t) + ".h5");
      for (int round = 0; round < 20; ++round) {
        Hdf5File file(path, Hdf5File::Access::create);
        file.create_dataset("x", FileType::int32, std::vector<std::int64_t>{1});
        const std::int32_t value = 100 * t + round;
        file.write("x", FileType::int32, std::as_bytes(std::span(&value, 1)));
        file.close();
        std::int32_t got = 0;
        Hdf5File(path, Hdf5File::Access::read).read("x", FileType::int32, std::as_writable_bytes(std::span(&got, 1)));
        EXPECT_EQ(got, value);
        EXPECT_THROW(Hdf5File("/nonexistent.h5", Hdf5File::Access::read), FileError);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::io
