#include "app/exchange/import.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/field_axes.hpp"
#include "app/engine/finite_weights.hpp"
#include "app/engine/gpt2_record.hpp"
#include "app/engine/weight_file.hpp"
#include "app/exchange/network_metadata.hpp"
#include "app/options/stored_options.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "io/exchange/safetensors.hpp"
#include "io/shards/data_description.hpp"
#include "io/text/token_info.hpp"

namespace lockstep::app {

namespace {

[[noreturn]] void fail(const io::SafetensorsFile& file, const std::string& what) {
  throw io::FileError({.file = file.file(), .what = what});
}

/// Refuses numbers in the metadata that the tensors cannot have, before it makes a network from them.
void require_plausible(const io::SafetensorsFile& file, const io::TrainingRecord& record,
                       const model::NetworkOptions& network) {
  std::int64_t elements = 4096;
  for (const io::SafetensorsEntry& entry : file.entries()) elements += static_cast<std::int64_t>(entry.elements());
  constexpr std::int64_t kLongestSide = 32768, kMaxFeatures = std::numeric_limits<std::int32_t>::max();
  const io::NetworkIdentity& identity = record.network;
  bool plausible = identity.outputs <= elements && identity.features <= kMaxFeatures;
  if (!identity.image.empty()) {
    const bool is_volume = identity.image.size() == 4;
    plausible =
        plausible && (identity.image.size() == 3 || is_volume) &&
        std::ranges::all_of(identity.image, [](std::int64_t side) { return side >= 1 && side <= kLongestSide; }) &&
        identity.image[0] * identity.image[1] * identity.image[2] * (is_volume ? identity.image[3] : 1) ==
            identity.features;
  }
  for (const auto& [name, value] : network.values) {
    if (const auto* const number = std::get_if<std::int64_t>(&value)) plausible = plausible && *number <= elements;
    if (const auto* const numbers = std::get_if<model::Numbers>(&value)) {
      plausible = plausible && std::ranges::all_of(*numbers, [&](std::int64_t one) { return one <= elements; });
    }
  }
  if (!plausible) fail(file, "its metadata tells of a network that is larger than its tensors");
}

/// Requires exactly the tensors that the network needs.
void require_tensors(const io::SafetensorsFile& file, const model::Network& network, const io::Checkpoint& read) {
  std::map<std::string, const io::StoredTensor*> there;
  for (const io::StoredTensor& tensor : read.tensors) there[tensor.name] = &tensor;
  for (const model::Parameter& parameter : network.parameters().all()) {
    const auto found = there.find(parameter.name);
    if (found == there.end()) {
      fail(file, fmt::format("it has no {}, which its network needs ({})", parameter.name, network.signature()));
    }
    if (found->second->shape != parameter.shape) {
      fail(file,
           fmt::format("{} has shape [{}], and its network wants [{}] ({})", parameter.name,
                       fmt::join(found->second->shape, ", "), fmt::join(parameter.shape, ", "), network.signature()));
    }
    there.erase(found);
  }
  if (!there.empty()) {
    fail(file, fmt::format("its network has no tensor {} ({})", there.begin()->first, network.signature()));
  }
}

/// Returns the features of the samples as the network reads them.
std::int64_t features_read(const io::DataDescription& data, const model::NetworkOptions& options) {
  io::DatasetInfo info;
  info.x = data.x;
  for (const io::Field& input : data.inputs) info.inputs.push_back({.field = input});
  if (data.window > 0) info.windows = io::WindowInfo{.window = data.window};
  return features_of(axes_of_inputs(info, options));
}

/// Returns the features that earlier versions scaled, which followed the stored extents.
std::int64_t features_as_stored(const io::DataDescription& data) {
  const std::vector<std::int64_t>& extents = data.x.sample_shape;
  return extents.size() == 1 || extents.size() == 3 ? extents.back() : 1;
}

/// Checks the file's description of data and tokens with the checks of `info` and `eval`, so that import writes no
/// checkpoint that they refuse.
void require_readable(const io::SafetensorsFile& file, const io::TrainingRecord& record,
                      const model::NetworkOptions& options) {
  const io::NetworkIdentity& network = record.network;
  const auto require = [&](bool holds, const char* what) {
    if (!holds) fail(file, fmt::format("its metadata contradicts itself: {}", what));
  };
  const auto fits = [](std::size_t numbers, std::int64_t wanted) {
    return numbers == 0 || static_cast<std::int64_t>(numbers) == wanted;
  };
  try {
    if (network.tokens && !record.vocabulary.empty()) {
      const io::TokenInfo tokens = io::token_info_from_json(record.vocabulary);
      require(tokens.vocabulary == network.outputs, "its vocabulary has another size than its network");
    }
    if (record.data_description.empty()) return;
    const io::DataDescription data = io::data_description_from_json(record.data_description);
    if (!network.tokens) {
      const bool whole = data.augmentation.empty() || data.augmentation == "none";
      const std::int64_t features = data.x.elements();
      require(features > 0 && (!whole || features == network.features), "its samples do not fit its network");
      const std::vector<std::int64_t> scaled{features_read(data, options), features_as_stored(data)};
      require(
          data.features.fits(features) &&
              (!data.features.parts.empty() ||
               std::ranges::any_of(scaled, [&](std::int64_t count) { return fits(data.features.mean.size(), count); })),
          "not every feature has its mean and deviation");
      require(fits(data.targets.mean.size(), network.outputs), "not every target has its mean and deviation");
      require(fits(data.target_means.size(), network.outputs), "not every target has its mean");
      require(data.labels != io::Labels::classes || data.classes <= network.outputs,
              "its data has more classes than its network");
    }
  } catch (const io::FileError& error) {
    fail(file, error.what());
  } catch (const std::invalid_argument& error) {  // extents that no network has
    fail(file, error.what());
  }
}

io::TrainingRecord record_in(const io::SafetensorsFile& file) {
  try {
    return record_of(file.metadata());
  } catch (const io::FileError& error) {
    fail(file, error.what());
  }
}

}  // namespace

int run_import(const ImportOptions& options) {
  Console console(true);
  io::require_writable_name(options.out, options.force ? io::IfThere::replace : io::IfThere::refuse);
  const io::SafetensorsFile file(options.file);
  const bool gpt2 =
      options.format.value_or(names_gpt2(file) ? ImportFormat::gpt2 : ImportFormat::safetensors) == ImportFormat::gpt2;
  if (gpt2 && !names_gpt2(file)) fail(file, "it has no wte.weight: it is no GPT-2 under Hugging Face's names");
  io::TrainingRecord record;
  model::NetworkOptions network_options;
  const auto understand = [&] {
    try {
      network_options = train_options_of(record).network;
    } catch (const UsageError& error) {
      fail(file, fmt::format("its metadata is none of ours: {}", error.what()));
    }
    require_plausible(file, record, network_options);
  };
  if (!gpt2) {
    record = record_in(file);
    understand();
  }
  const io::Checkpoint read = read_weight_file(file);
  if (gpt2) {
    record = record_of_gpt2(file, read, options.heads);
    understand();
  }
  std::unique_ptr<model::Network> network;
  try {
    network = model::make_network(network_options, sample_shape_of(record));
  } catch (const std::invalid_argument& error) {
    fail(file, fmt::format("its tensors make no network: {}", error.what()));
  } catch (const io::FileError& error) {  // the file's description of the data is not valid
    fail(file, error.what());
  }
  require_tensors(file, *network, read);
  if (gpt2) record.network.signature = network->signature();
  if (record.network.signature != network->signature() ||
      record.network.kind != model::network_kind(network_options).name) {
    fail(file,
         fmt::format("its metadata contradicts itself: {} and {}", record.network.signature, network->signature()));
  }
  require_readable(file, record, network_options);
  FiniteWeights finite;
  std::vector<io::TensorView> views;
  for (const io::StoredTensor& tensor : read.tensors) {
    finite.add(tensor.name, tensor.values);
    views.push_back({.group = tensor.group, .name = tensor.name, .shape = tensor.shape, .values = tensor.values});
  }
  if (!finite.all()) fail(file, fmt::format("{}: nothing can be computed with them", finite.text()));
  io::write_checkpoint(options.out, record, views);
  console.info(fmt::format("{}: {}, written to {} ({}, {})", options.file.string(),
                           counted(static_cast<std::int64_t>(views.size()), "tensor"), options.out.string(),
                           network->signature(),
                           format_bytes(static_cast<double>(std::filesystem::file_size(options.out)))));
  console.mention_lost_output();
  return 0;
}

}  // namespace lockstep::app
