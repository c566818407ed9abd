#include "app/options/network_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "app/options/usage_error.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "model/nearest_name.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// Returns the text of a file; nullopt if it cannot be read. Reads at most model::kMaxYamlBytes + 1 bytes, one more
/// than a network may have.
std::optional<std::string> text_of(const fs::path& file) {
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text(model::kMaxYamlBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

std::shared_ptr<const model::NetworkKind> network_in(std::string text, const std::string& file) {
  try {
    return std::make_shared<const model::NetworkKind>(model::read_network(std::move(text), file));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

/// `--name VALUE` or `--name=VALUE` among the arguments. The value is "" if the option has none.
struct Found {
  std::size_t first = 0, count = 0;  ///< index and number of its arguments
  std::string value = {};
};
std::optional<Found> find_argument(const std::vector<std::string>& arguments, const std::string& name) {
  const std::string alone = "--" + name, joined = alone + "=";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") break;
    if (arguments[i].starts_with(joined)) return Found{i, 1, arguments[i].substr(joined.size())};
    if (arguments[i] != alone) continue;
    const bool has_value = i + 1 < arguments.size() && !arguments[i + 1].starts_with("-");
    return Found{i, has_value ? std::size_t{2} : std::size_t{1}, has_value ? arguments[i + 1] : ""};
  }
  return std::nullopt;
}

/// Returns the text of the network in the newest readable checkpoint, or else in the run's folder.
std::string network_of_run(const fs::path& folder, const StoredConfiguration& configuration_of) {
  if (configuration_of) {
    for (const io::FoundCheckpoint& found : io::list_checkpoints(folder / "checkpoints")) {
      try {
        return configuration_of(found.file).network;
      } catch (const UsageError&) {  // damaged: resuming reports it
      }
    }
  }
  return text_of(folder / kNetworkFile).value_or("");
}

/// Returns the run that the arguments resume, if it has a checkpoint and its network may come from a file.
std::optional<StoredRun> resumed_run(const std::vector<std::string>& arguments,
                                     const StoredConfiguration& configuration_of) {
  const std::optional<Found> resume = find_argument(arguments, "resume"), run = find_argument(arguments, "run");
  if (!resume) return std::nullopt;
  try {
    if (!resume->value.empty() && resume->value != "auto") {
      return configuration_of ? std::optional(configuration_of(resume->value)) : std::nullopt;
    }
    if (!run) return std::nullopt;
    const fs::path folder = run->value;
    // Only runs whose network comes from a file need their checkpoint here. Others read it later, under a deadline.
    const auto configuration = text_of(folder / "config.ini");
    if (!configuration || !model::is_network_file(model_in(*configuration))) return std::nullopt;
    if (io::list_checkpoints(folder / "checkpoints").empty()) return std::nullopt;
    return StoredRun{*configuration, network_of_run(folder, configuration_of)};
  } catch (const std::runtime_error&) {  // resuming reports the error
    return std::nullopt;
  }
}

}  // namespace

std::shared_ptr<const model::NetworkKind> read_network_file(const std::string& file) {
  std::optional<std::string> text = text_of(file);
  if (!text) {
    throw UsageError(fmt::format("--model: {} cannot be read: a text file that describes a network, or one of {}", file,
                                 model::list_names(model::network_names())));
  }
  return network_in(std::move(*text), file);
}

std::shared_ptr<const model::NetworkKind> stored_network(const StoredRun& run) {
  const std::string file = model_in(run.configuration);
  return run.network.empty() || !model::is_network_file(file) ? nullptr : network_in(run.network, file);
}

NamedNetwork find_network(const std::vector<std::string>& arguments, const StoredConfiguration& configuration_of) {
  NamedNetwork named{.arguments = arguments};
  const std::optional<Found> given = find_argument(arguments, "model");
  std::string model = given ? given->value : "";
  if (const auto run = resumed_run(arguments, configuration_of);
      run && (named.source = stored_network(*run)) != nullptr) {
    if (given && !model::is_network_file(model)) return named;
    const std::string file = given ? model : named.source->file;
    if (given) {
      const auto first = named.arguments.begin() + static_cast<std::ptrdiff_t>(given->first);
      named.arguments.erase(first, first + static_cast<std::ptrdiff_t>(given->count));
    }
    if (const auto now = text_of(file); now && *now != run->network) {
      named.note = fmt::format("{} differs from the network of the run, which stays as it was ({} in its folder)", file,
                               kNetworkFile);
    }
    return named;
  }
  if (const auto config = find_argument(arguments, "config"); !given && config) {
    model = model_in(text_of(config->value).value_or(""));
  }
  if (model::is_network_file(model)) named.source = read_network_file(model);
  return named;
}

model::NetworkOptions with_file(const model::NetworkOptions& network, const std::string& file) {
  model::NetworkOptions renamed = network;
  if (network.source == nullptr || network.source->file != network.name) return renamed;
  auto kind = std::make_shared<model::NetworkKind>(*network.source);
  kind->file = file;
  renamed.name = file;
  renamed.source = std::move(kind);
  return renamed;
}

void require_fitting_names(const OptionTable& table, const model::NetworkKind& kind) {
  for (const model::NetworkOption& option : kind.options) {
    const bool taken = std::ranges::any_of(
        table.options(), [&](const Option& row) { return row.name() == option.name && row.group() != "Network"; });
    if (taken) {
      throw UsageError(fmt::format("{}: options: {} is the name of another option of {}: choose another", kind.file,
                                   option.name, table.command()));
    }
  }
  if (table.find("dry-run") == nullptr) return;  // only train and check have all training options
  constexpr std::array<std::string_view, 8> kGroups{"Data",
                                                    "Loss",
                                                    "Optimiser",
                                                    "Learning rate",
                                                    "Amount of work",
                                                    "Validation",
                                                    "Agreement between ranks",
                                                    "Trained parameters"};
  constexpr std::array<std::string_view, 5> kOfTheJob{"data", "validation", "x", "y", "replay"};
  std::vector<std::string> allowed;
  for (const Option& row : table.options()) {
    if (std::ranges::find(kGroups, row.group()) != kGroups.end() &&
        std::ranges::find(kOfTheJob, row.name()) == kOfTheJob.end()) {
      allowed.push_back(row.name());
    }
  }
  for (const auto& [name, value] : kind.training_defaults) {
    if (std::ranges::find(allowed, name) != allowed.end()) continue;
    throw UsageError(fmt::format("{}: training: {} is no option of training that a network brings{}", kind.file, name,
                                 model::did_you_mean(name, allowed)));
  }
}

std::string model_in(const std::string& configuration) {
  std::istringstream lines(configuration);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos && trimmed(std::string_view(line).substr(0, equals)) == "model") {
      return ini_value(std::string_view(line).substr(equals + 1));
    }
  }
  return "";
}

std::string without_options_of(const model::NetworkKind& kind, const std::string& configuration,
                               const OptionTable& table) {
  std::istringstream lines(configuration);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    const std::string_view name = trimmed(std::string_view(line).substr(0, line.find('=')));
    if (kind.find(name) == nullptr || table.find(name) != nullptr) rest += line + "\n";
  }
  return rest;
}

}  // namespace lockstep::app
