#include "app/exchange/network_metadata.hpp"

#include <charconv>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/stored_options.hpp"
#include "io/shards/data_description.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kFormat = "lockstep_format";
constexpr const char *kFormatVersion = "1", *kFormatWithNetworkText = "2";

std::int64_t number_in(const io::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  const std::string text = found == metadata.end() ? "" : found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw io::FileError(fmt::format("its metadata has no whole number for {}", key));
  }
  return value;
}

std::string text_in(const io::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

std::vector<std::int64_t> numbers_in(const io::Metadata& metadata, const char* key) {
  std::vector<std::int64_t> numbers;
  std::istringstream words(text_in(metadata, key));
  for (std::string word; std::getline(words, word, ',');) numbers.push_back(number_in({{key, word}}, key));
  return numbers;
}

}  // namespace

model::SampleShape sample_shape_of(const io::TrainingRecord& record) {
  const io::NetworkIdentity& network = record.network;
  model::SampleShape shape{
      .features = network.features, .outputs = network.outputs, .tokens = network.tokens, .takes_grid_of_output = true};
  if (network.image.size() >= 3) {
    shape.image =
        model::ImageShape{.height = network.image[0], .width = network.image[1], .channels = network.image[2]};
    if (network.image.size() > 3) shape.image->depth = network.image[3];
  }
  if (network.tokens || record.data_description.empty()) return shape;
  const io::DataDescription data = io::data_description_from_json(record.data_description);
  for (const io::Field& input : data.inputs) {
    shape.inputs.push_back({.name = input.name, .extents = input.sample_shape});
  }
  shape.grid = data.field;
  shape.is_field = !data.field.empty();
  return shape;
}

io::Metadata metadata_of(const io::TrainingRecord& record, const LearningProblem& trained) {
  const io::NetworkIdentity& network = record.network;
  io::Metadata metadata{{"format", "pt"},
                        {kFormat, record.network_text.empty() ? kFormatVersion : kFormatWithNetworkText},
                        {"lockstep_network", network.kind},
                        {"lockstep_signature", network.signature},
                        {"lockstep_features", fmt::format("{}", network.features)},
                        {"lockstep_outputs", fmt::format("{}", network.outputs)},
                        {"lockstep_image", fmt::format("{}", fmt::join(network.image, ","))},
                        {"lockstep_tokens", network.tokens ? "1" : "0"},
                        {"lockstep_step", fmt::format("{}", record.step)},
                        {"lockstep_program", record.program_version},
                        {"lockstep_configuration", network_configuration(trained)},
                        {"lockstep_network_text", record.network_text},
                        {"lockstep_vocabulary", record.vocabulary},
                        {"lockstep_data", record.data_description}};
  std::erase_if(metadata, [](const auto& entry) { return entry.second.empty(); });
  return metadata;
}

io::TrainingRecord record_of(const io::Metadata& metadata) {
  if (const std::string version = text_in(metadata, kFormat);
      version != kFormatVersion && version != kFormatWithNetworkText) {
    throw io::FileError(version.empty() ? std::string("it does not say what network its tensors belong to: `lockstep "
                                                      "export` did not write it")
                                        : fmt::format("it was written by a newer format ({})", version));
  }
  io::TrainingRecord record;
  record.step = number_in(metadata, "lockstep_step");
  record.world_size = 0;
  record.network = {.kind = text_in(metadata, "lockstep_network"),
                    .signature = text_in(metadata, "lockstep_signature"),
                    .features = number_in(metadata, "lockstep_features"),
                    .outputs = number_in(metadata, "lockstep_outputs"),
                    .image = numbers_in(metadata, "lockstep_image"),
                    .tokens = number_in(metadata, "lockstep_tokens") == 1};
  record.optimizer = "sgd";
  record.configuration = text_in(metadata, "lockstep_configuration");
  record.program_version = text_in(metadata, "lockstep_program");
  record.best_metric = std::numeric_limits<double>::quiet_NaN();
  record.vocabulary = text_in(metadata, "lockstep_vocabulary");
  record.data_description = text_in(metadata, "lockstep_data");
  record.network_text = text_in(metadata, "lockstep_network_text");
  return record;
}

}  // namespace lockstep::app
