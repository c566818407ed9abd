#include "app/exchange/network_metadata.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/engine/weight_file.hpp"
#include "app/exchange/export_options.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/train/train_command_line.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;
using testing::Not;

io::TrainingRecord image_record() {
  io::TrainingRecord record;
  record.step = 1200;
  record.network = {
      .kind = "resnet", .signature = "resnet 20 32x32x3-10", .features = 3072, .outputs = 10, .image = {32, 32, 3}};
  record.program_version = "0.1.0";
  record.dataset = "/home/somebody/data";
  return record;
}

TrainOptions image_options() {
  return parse_train({"--data", "/home/somebody/data", "--model", "resnet", "--depth", "20", "--normalize",
                      "affine(0.5,-1)", "--augment", "crop=32,flip", "--average-decay", "0.9"});
}

TEST(NetworkMetadataTest, ARecordOfItsMetadataGivesTheSameMetadata) {
  const io::Metadata metadata = metadata_of(image_record(), image_options());
  const io::TrainingRecord record = record_of(metadata);
  EXPECT_EQ(record.network, image_record().network);
  EXPECT_EQ(record.step, 1200);
  EXPECT_EQ(metadata_of(record, train_options_from_ini(record.configuration)), metadata);
}

TEST(NetworkMetadataTest, SaysWhatTheNetworkIsAndNotWhereItWasTrained) {
  const io::Metadata metadata = metadata_of(image_record(), image_options());
  for (const auto& [key, value] : metadata) EXPECT_THAT(value, Not(HasSubstr("somebody"))) << key;
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("lockstep_image"), "32,32,3");
  const std::string& configuration = metadata.at("lockstep_configuration");
  for (const char* line : {"model = resnet\n", "depth = 20\n", "normalize = affine(0.5,-1)\n",
                           "augment = crop=32,flip\n", "average-decay = 0\n"}) {
    EXPECT_THAT(configuration, HasSubstr(line));
  }
  EXPECT_THAT(configuration, Not(HasSubstr("learning-rate")));
}

TEST(NetworkMetadataTest, ANetworkOfAFileHasItsTextAndNotItsPlace) {
  const std::string text = "name: two\noptions: {width: 4}\nnetwork: [dense: $width, dense: $outputs]\n";
  TrainOptions options = train_options_from_ini("model = /home/somebody/net.yaml\nwidth = 5\n", text);
  io::TrainingRecord record = image_record();
  record.network_text = text;
  const io::Metadata metadata = metadata_of(record, options);
  for (const auto& [key, value] : metadata) EXPECT_THAT(value, Not(HasSubstr("somebody"))) << key;
  EXPECT_EQ(metadata.at("lockstep_format"), "2");
  const io::TrainingRecord back = record_of(metadata);
  EXPECT_EQ(back.network_text, text);
  EXPECT_EQ(train_options_of(back).network.get<std::int64_t>("width"), 5);
  EXPECT_EQ(model::network_kind(train_options_of(back).network).name, "two");
}

TEST(NetworkMetadataTest, EveryNetworksOptionsComeBack) {
  for (const std::string& name : model::network_names()) {
    const TrainOptions options = parse_train({"--data", "x", "--model", name});
    const std::string text = network_configuration(options);
    const TrainOptions again = train_options_from_ini(text);
    EXPECT_EQ(model::with_defaults(again.network), model::with_defaults(options.network)) << name;
    EXPECT_EQ(network_configuration(again), text) << name;
    EXPECT_EQ(again.optimizer.average_decay, 0) << name << ": there is no average in a file of weights";
  }
}

TEST(NetworkMetadataTest, RefusesWhatItDidNotWrite) {
  io::Metadata metadata = metadata_of(image_record(), image_options());
  EXPECT_THROW(record_of({}), io::FileError);
  EXPECT_THROW(record_of({{"format", "pt"}}), io::FileError);
  metadata["lockstep_outputs"] = "ten";
  EXPECT_THROW(record_of(metadata), io::FileError);
  metadata["lockstep_outputs"] = "-10";
  EXPECT_THROW(record_of(metadata), io::FileError);
  metadata["lockstep_outputs"] = "10";
  metadata["lockstep_format"] = "3";
  EXPECT_THROW(record_of(metadata), io::FileError);
}

TEST(WeightFileTest, KnowsTheNamesOfGpt2) {
  EXPECT_EQ(name_of_gpt2_tensor("transformer.wte.weight"), "embedding/tokens");
  EXPECT_EQ(name_of_gpt2_tensor("h.0.attn.c_attn.weight"), "block_1/attention/joint/weight");
  EXPECT_EQ(name_of_gpt2_tensor("transformer.h.11.mlp.c_proj.bias"), "block_12/feed_forward/contract/bias");
  EXPECT_EQ(name_of_gpt2_tensor("h.3.attn.bias"), "");
  for (const char* other : {"h..attn.bias", "h.0attn.bias", "h.99999.ln_1.bias", "h.-1.ln_1.bias", "wte", ""}) {
    EXPECT_THROW(name_of_gpt2_tensor(other), io::FileError) << other;
  }
}

TEST(ExportOptionsTest, TheEndOfTheNameSaysWhichFormat) {
  const auto format = [](const char* out) { return parse_export({"runs/a", "--out", out}).format; };
  EXPECT_EQ(format("a.onnx"), ExportFormat::onnx);
  EXPECT_EQ(format("a.safetensors"), ExportFormat::safetensors);
  EXPECT_THROW(format("a.h5"), UsageError);
  EXPECT_THROW(format("a.npz"), UsageError);
  EXPECT_EQ(parse_export({"runs/a", "--out", "a.h5", "--format", "onnx"}).format, ExportFormat::onnx);
  EXPECT_EQ(parse_export({"runs/a", "--out", "a.onnx"}).average, std::nullopt);
  EXPECT_EQ(parse_export({"runs/a", "--out", "a.onnx", "--weights", "raw"}).average, false);
  EXPECT_EQ(parse_export({"runs/a", "--out", "a.onnx", "--weights", "average"}).average, true);
}

}  // namespace
}  // namespace lockstep::app
