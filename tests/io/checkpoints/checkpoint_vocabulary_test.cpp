#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/checkpoints/checkpoint_samples.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::io {
namespace {

using testing::HasSubstr;

class CheckpointVocabularyTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& vocabulary) {
    TrainingRecord record = sample_record(10);
    record.vocabulary = vocabulary;
    const SampleTensors tensors(10);
    return CheckpointWriter({.folder = folder_.path()}).write(record, tensors.views());
  }
  TemporaryFolder folder_;
};

TEST_F(CheckpointVocabularyTest, IsKept) {
  const TokenInfo info{.kind = "char", .vocabulary = 3, .texts = {"\n", "a", "é"}, .tokens = 7};
  const auto file = write(to_json(info));
  EXPECT_EQ(token_info_from_json(read_checkpoint(file).record.vocabulary), info);
}

TEST_F(CheckpointVocabularyTest, MayBeNone) { EXPECT_EQ(read_checkpoint(write("")).record.vocabulary, ""); }

TEST_F(CheckpointVocabularyTest, IsCoveredByTheChecksumAndCannotBeLost) {
  const std::string text = "{\"kind\":\"ids\",\"vocabulary\":12345}";
  const auto file = write(text);
  std::string bytes = read_text(file);
  const std::size_t at = bytes.find(text);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 30] = '9';
  write_text(file, bytes);
  EXPECT_THAT(error_text<FileError>([&] { read_checkpoint(file); }), HasSubstr("state record does not match"));

  write(text);
  Hdf5File edited(file, Hdf5File::Access::modify);
  edited.set_integer("/", "lockstep_checkpoint_format", 1);
  edited.close();
  EXPECT_THAT(error_text<FileError>([&] { read_checkpoint(file); }), HasSubstr("corrupted"));
}

TEST_F(CheckpointVocabularyTest, TheTextOfANetworkRaisesTheFormat) {
  const auto format_of = [](const std::filesystem::path& file) {
    return *Hdf5File(file, Hdf5File::Access::read).integer("/", "lockstep_checkpoint_format");
  };
  EXPECT_EQ(format_of(write("")), 5) << "older versions read it";
  TrainingRecord record = sample_record(11);
  record.network_text = "name: n\nnetwork: [dense: 3]\n";
  const SampleTensors tensors(11);
  const auto file = CheckpointWriter({.folder = folder_.path()}).write(record, tensors.views());
  EXPECT_EQ(format_of(file), 7);
  EXPECT_EQ(read_checkpoint(file).record.network_text, record.network_text);
  std::string bytes = read_text(file);
  bytes[bytes.find("[dense: 3]") + 8] = '4';
  write_text(file, bytes);
  EXPECT_THAT(error_text<FileError>([&] { read_checkpoint(file); }), HasSubstr("state record does not match"));
}

}  // namespace
}  // namespace lockstep::io
