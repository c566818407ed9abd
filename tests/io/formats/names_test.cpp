// Names of classes and files that are not UTF-8: file systems accept any bytes, but manifests are JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NamesTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    write_text(folder_.path() / name, bytes);
    return folder_.path() / name;
  }
  TemporaryFolder folder_;
};

TEST_F(NamesTest, ACellThatIsNoUtf8IsNoClass) {
  const auto path = file("towns.csv", "a,b,town\n1,2,Bonn\n3,4,K\xF6ln\n");
  EXPECT_THAT(
      error_text<FileError>([&] { open_csv(path, {.label_column = "town"}); }),
      AllOf(HasSubstr("towns.csv:3: column 2 (town) holds \"K\\xF6ln\""), HasSubstr("no UTF-8"), HasSubstr("iconv")));
  const auto utf8 = open_csv(file("utf8.csv", "a,town\n1,Bonn\n2,Köln\n"), {.label_column = "town"});
  EXPECT_THAT(utf8->class_names(), testing::ElementsAre("Bonn", "Köln"));
}

TEST_F(NamesTest, OtherCellsMayHoldAnyBytes) {
  const auto source = open_csv(file("x.csv", "h\xF6he,class\n1,0\n2,1\n"), {.label_column = "class"});
  EXPECT_NO_THROW(write_shards(*source, {.folder = folder_.path() / "out"}, {}));
  const auto wrong = file("y.csv", "h\xF6he,class\n1\xF6,0\n2,1\n");
  EXPECT_THAT(error_text<FileError>([&] { open_csv(wrong, {.label_column = "class"}); }),
              HasSubstr("column 0 (h\\xF6he) holds \"1\\xF6\""));
}

TEST_F(NamesTest, FilesMayHaveAnyName) {
  const auto source = open_csv(file("K\xF6ln.csv", "a,class\n1,0\n2,1\n"), {.label_column = "class"});
  write_shards(*source, {.folder = folder_.path() / "out"}, {});
  EXPECT_EQ(read_manifest(folder_.path() / "out").source, "csv K\\xF6ln.csv");
}

TEST_F(NamesTest, AClassFolderIsNamedInUtf8) {
  if (!can_decode_images()) GTEST_SKIP() << "not run: built without JPEG and PNG";
  std::filesystem::create_directories(folder_.path() / "images" / "K\xF6ln");
  write_text(folder_.path() / "images" / "K\xF6ln" / "a.png", "x");
  EXPECT_THAT(error_text<FileError>([&] { open_image_folder(folder_.path() / "images", {}); }),
              AllOf(HasSubstr("the name of this folder, K\\xF6ln, is no UTF-8"), HasSubstr("rename it")));
}

TEST_F(NamesTest, NamesOfCifarClassesAreUtf8) {
  const auto batch = file("data_batch_1.bin", std::string(3073, '\0'));
  file("batches.meta.txt", "airplane\nautom\xF3vil\n");
  EXPECT_THAT(error_text<FileError>([&] { open_cifar({batch}, CifarKind::cifar10); }),
              AllOf(HasSubstr("batches.meta.txt: class name 1 is \"autom\\xF3vil\""), HasSubstr("iconv")));
}

TEST_F(NamesTest, AManifestIsNotWrittenWithOtherNames) {
  ShardManifest manifest;
  manifest.class_names = {"K\xF6ln"};
  EXPECT_THAT(error_text<FileError>([&] { write_manifest(folder_.path(), manifest); }),
              AllOf(HasSubstr("manifest.json"), HasSubstr("no UTF-8"), Not(HasSubstr("json.exception"))));
}

TEST_F(NamesTest, ADamagedManifestIsDescribedInOurWords) {
  write_shards(*open_csv(file("x.csv", "a,class\n1,0\n2,1\n"), {.label_column = "class"}),
               {.folder = folder_.path() / "out"}, {});
  const std::filesystem::path manifest = folder_.path() / "out" / kManifestName;
  const std::string sound = read_text(manifest);
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    text.replace(text.find(from), from.size(), to);
    write_text(manifest, text);
    return error_text<FileError>([&] { read_manifest(folder_.path() / "out"); });
  };
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"samples\"", "\"sample\""},
                                                        {"\"samples\": 2", "\"samples\": \"2\""},
                                                        {"{", "["},
                                                        {"}", ""},
                                                        {"\"labels\": \"classes\"", "\"labels\": 3"},
                                                        {"\"csv", "\"\xF6"},
                                                        {"\"schema_version\": 1", "\"schema_version\": 1e300"},
                                                        {"\"count\": 2", "\"count\": 1e999"}}) {
    EXPECT_THAT(error_with(from, to), AllOf(HasSubstr("manifest.json: "), Not(HasSubstr("json.exception")))) << from;
  }
}

}  // namespace
}  // namespace lockstep::io
