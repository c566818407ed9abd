#include "app/options/stored_options.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/moved_path.hpp"
#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "app/options/usage_error.hpp"
#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Returns default options with the network of a user's file, so that a table gets the rows of this network.
TrainOptions with_network_file(const std::shared_ptr<const model::NetworkKind>& source) {
  TrainOptions options;
  options.network.source = source;
  return options;
}

/// True if the training data at `a` and `b` are the same. Either path may be the train/ folder inside the other.
bool same_data(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  std::error_code unknown;
  const auto training = [&](const fs::path& path) {
    return fs::is_directory(path / "train", unknown) ? path / "train" : path;
  };
  if (fs::equivalent(training(a), training(b), unknown)) return true;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

/// True if --validation is a share of the training data.
bool is_share(const std::string& text) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  return error == std::errc() && end == text.data() + text.size();
}

/// Returns the configuration without the line of an option.
std::string without_line_of(std::string_view name, const std::string& configuration) {
  std::istringstream lines(configuration);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (trimmed(std::string_view(line).substr(0, line.find('='))) != name) rest += line + "\n";
  }
  return rest;
}

struct Remembered {
  std::string configuration;
  bool compensated = false;
};

/// Removes options of an earlier version, which could compensate gradients for their delay (--stale-rate compensate,
/// --compensation LAMBDA).
Remembered without_compensation(const std::string& configuration) {
  Remembered remembered;
  std::istringstream lines(configuration);
  for (std::string line; std::getline(lines, line); remembered.configuration += '\n') {
    if (line.starts_with("compensation =")) continue;
    const bool compensates = line == "stale-rate = compensate";
    remembered.compensated = remembered.compensated || compensates;
    remembered.configuration += compensates ? "stale-rate = keep" : line;
  }
  return remembered;
}

}  // namespace

void go_on_with(OptionTable& table, const EarlierOptions& before, const std::function<void()>& give) {
  const Remembered remembered = without_compensation(before.configuration);
  apply_ini(remembered.configuration, before.name, table, before.source);
  Option &data = *table.find("data"), &validation = *table.find("validation");
  if (!before.run.empty()) {
    for (Option* const path : {&data, &validation}) {
      const fs::path there = moved_along(path->text(), table.find("run")->text(), before.run);
      if (there != path->text()) path->assign(there.string(), before.source, path->name());
    }
  }
  table.find("run")->reset();  // a stored run folder never applies
  const std::string data_before = data.text();
  give();
  if (remembered.compensated && table.find("stale-rate")->source() == before.source) {
    throw UsageError(
        fmt::format("{}: this run compensated its gradients for their delay (stale-rate = compensate), "
                    "which is gone: give --stale-rate keep or scale to go on without it",
                    before.name));
  }
  const bool others = data.source() != before.source && !same_data(data.text(), data_before);
  if (others && validation.source() == before.source && !is_share(validation.text())) validation.reset();
}

void settle(OptionTable& table, TrainOptions& options) {
  if (options.run.new_optimizer_state && options.run.resume.from != Resume::From::file) {
    throw UsageError("--new-optimizer-state needs --resume FILE: a run that goes on by itself keeps its optimiser");
  }
  options.from_network = apply_network_defaults(table, options.network);
  try {
    table.check_relations();
  } catch (const UsageError& error) {
    const bool knows_network =
        options.start.from.empty() || table.find("model")->source() != OptionSource::default_value;
    if (knows_network) throw;
    throw UsageError(fmt::format("{}; --model names the network of --initialize-from", error.what()));
  }
  settle_network_options(table, options.network);
  if (options.schedule.kind == model::ScheduleOptions::Kind::step && options.schedule.boundaries.empty()) {
    throw UsageError("--schedule step needs --boundaries: the steps at which the rate changes");
  }
  options.explicitly_set = table.given();
  // The configuration of a run repeats the decision of a network that declares its losses.
  if (const Option* const loss = table.find("loss"); loss != nullptr && loss->source() == OptionSource::file) {
    if (!model::network_kind(options.network).losses.empty()) std::erase(options.explicitly_set, "loss");
  }
  // It also holds the default names of data sets, which nobody has given.
  for (const auto& [name, is_default] :
       {std::pair("x", options.data.x == DataOptions{}.x), std::pair("y", options.data.y == DataOptions{}.y)}) {
    const Option* const option = table.find(name);
    if (is_default && option != nullptr && option->source() == OptionSource::file)
      std::erase(options.explicitly_set, name);
  }
  options.from_checkpoint = table.from_checkpoint();
}

TrainOptions train_options_of(const io::TrainingRecord& record) {
  return train_options_from_ini(record.configuration, record.network_text);
}

InferenceOptions inference_options_of(const StoredRun& run) {
  const TrainOptions options = train_options_from_ini(run.configuration, run.network);
  return {options, options.optimizer, options.validation, options.run.folder};
}

InferenceOptions inference_options_of(const io::TrainingRecord& record) {
  return inference_options_of(StoredRun{.configuration = record.configuration, .network = record.network_text});
}

TrainOptions train_options_from_ini(const std::string& ini, const std::string& network) {
  TrainOptions options = with_network_file(stored_network({ini, network}));
  OptionTable table = train_table(options);
  apply_ini(without_compensation(ini).configuration, "stored configuration", table);
  settle(table, options);
  return options;
}

namespace {

/// Returns the absolute path of the same file. An empty path stays empty.
fs::path from_anywhere(const fs::path& path) {
  if (path.empty()) return path;
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();  // "data/" becomes "data"
}

/// Returns the sorted "name = value" lines of the configuration, without comments and the run folder.
std::vector<std::string> option_lines(const TrainOptions& settings) {
  std::vector<std::string> lines;
  TrainOptions compared = settings;
  compared.run.folder.clear();
  std::istringstream stream(stored_configuration(compared));
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

std::string stored_configuration(const TrainOptions& settings) {
  TrainOptions stored = settings;
  stored.data.path = from_anywhere(settings.data.path);
  stored.data.validation = from_anywhere(settings.data.validation);
  stored.start.from = from_anywhere(settings.start.from);
  stored.run.folder = from_anywhere(settings.run.folder);
  stored.network = with_file(settings.network, from_anywhere(settings.network.name).string());
  stored.run.resume = {};
  stored.run.new_optimizer_state = false;
  stored.run.force = false;
  stored.run.time_limit = {};
  stored.run.stop_at = 0;
  if (settings.work.reproducible) stored.execution.transport = comm::Transport::automatic;  // does not affect results
  return stored.to_ini();
}

std::string network_configuration(const LearningProblem& problem) {
  // "average-decay" is needed: without it, a network that averages by default would look for an average.
  std::set<std::string, std::less<>> wanted{"model", "normalize", "augment", "loss", "average-decay"};
  for (const model::NetworkOption& option : model::network_kind(problem.network).options) {
    wanted.emplace(option.name);
  }
  TrainOptions alone;
  alone.network = with_file(problem.network, kNetworkFile);
  alone.loss.kind = problem.loss.kind;
  alone.data.normalize = problem.data.normalize;
  alone.data.augment = problem.data.augment;
  if (problem.data.window > 0) {
    wanted.insert({"window", "horizon"});
    alone.data.window = problem.data.window;
    alone.data.horizon = problem.data.horizon;
  }
  std::string lines;
  std::istringstream all(alone.to_ini());
  for (std::string line; std::getline(all, line);) {
    if (wanted.contains(line.substr(0, line.find(" =")))) lines += line + "\n";
  }
  return lines;
}

std::vector<std::string> changed_options(const StoredRun& before, const TrainOptions& settings) {
  const std::vector<std::string> then = option_lines(train_options_from_ini(before.configuration, before.network)),
                                 now = option_lines(settings);
  std::vector<std::string> changed;
  std::set_difference(now.begin(), now.end(), then.begin(), then.end(), std::back_inserter(changed));
  return changed;
}

namespace {

/// Returns the options of `before`, overridden by those in `given`. `network_alone`: `before` provides only the network
/// and the normalisation; other options have their defaults.
TrainOptions with_what_is_given(const TrainOptions& given, EarlierOptions before, bool network_alone) {
  const auto stored = stored_network({before.configuration, before.network});
  const bool other_file = network_alone && given.is_given("model");
  TrainOptions values = with_network_file(given.network.source);
  TrainOptions options = with_network_file(other_file || stored == nullptr ? given.network.source : stored);
  const OptionTable given_table =
      train_table(values);  // the table takes the fields' values as defaults when it is built
  values = given;
  OptionTable table = train_table(options);
  const std::string name_before = stored != nullptr ? stored->name : model_in(before.configuration);
  if (stored != nullptr && other_file) {
    before.configuration = without_options_of(*stored, before.configuration, table);
    before.configuration = without_line_of("model", before.configuration);
  }
  const auto give = [&] {
    if (network_alone) {
      const bool other = given.is_given("model") && model::network_kind(given.network).name != name_before;
      for (Option& option : table.options()) {
        const bool of_network =
            option.group() == "Network" || option.name() == "normalize" || option.name() == "normalize-targets";
        if (other || !of_network) option.reset();
      }
    }
    for (const Option& option : given_table.options()) {
      const bool is_stored = option.name() == "model" && stored != nullptr && !other_file;
      if (is_stored && model::is_network_file(option.text())) continue;
      if (given.is_given(option.name())) {
        table.find(option.name())->assign(option.text(), OptionSource::command_line, "--" + option.name());
      }
    }
  };
  go_on_with(table, before, give);
  settle(table, options);
  options.execution = given.execution;  // ranks are connected before the checkpoint is read
  return options;
}

}  // namespace

TrainOptions going_on(const TrainOptions& given, const StoredRun& before) {
  if (!given.from_checkpoint.empty()) return given;  // parse_train() has read the configuration of the last launch
  const bool newest = given.run.resume.from == Resume::From::newest;
  const TrainOptions options = with_what_is_given(given,
                                                  {.configuration = before.configuration,
                                                   .name = "the checkpoint's configuration",
                                                   .run = newest ? given.run.folder : fs::path(),
                                                   .network = before.network},
                                                  false);
  if (options.agree.uses_servers() != given.agree.uses_servers()) {
    throw UsageError(fmt::format("the run that goes on was made with --agree {}: give it again, or another",
                                 option_text(options, "agree")));
  }
  return options;
}

TrainOptions with_network_of(const TrainOptions& given, const StoredRun& before) {
  return with_what_is_given(given,
                            {.configuration = before.configuration,
                             .name = "the configuration of --initialize-from",
                             .network = before.network},
                            true);
}

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::int64_t given_heads(const LearningProblem& problem) {
  const auto heads = problem.network.values.find("heads");
  if (heads == problem.network.values.end() || !problem.is_given("heads")) return 0;
  const auto* const number = std::get_if<std::int64_t>(&heads->second);
  return number != nullptr ? *number : 0;
}

bool GivenOptions::is_given(const std::string& name) const { return was_set(name) && !contains(from_checkpoint, name); }

bool GivenOptions::was_set(const std::string& name) const { return contains(explicitly_set, name); }

bool GivenOptions::is_from_network(const std::string& name) const { return contains(from_network, name); }

void forget_network_defaults(TrainOptions& options, const std::vector<std::string>& names) {
  TrainOptions copy =
      with_network_file(options.network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(copy);
  copy = options;
  for (const std::string& name : names) {
    table.find(name)->reset();
    std::erase(copy.from_network, name);
  }
  options = copy;
}

std::string option_text(const TrainOptions& options, const std::string& name) {
  TrainOptions copy =
      with_network_file(options.network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(copy);
  copy = options;
  return table.find(name)->text();
}

namespace {

/// Returns the value of the option `name`, in the user's notation; "" if it is the default.
std::string unusual_text(const TrainOptions& options, const std::string& name) {
  const std::string text = option_text(options, name);
  return text == option_text({}, name) ? "" : text;
}

}  // namespace

std::string agreement_text(const TrainOptions& options) {
  std::string text;
  if (options.agree == AgreeOptions{}) return text;
  for (const char* const name : {"agree", "islands", "agree-after", "outer-optimizer", "outer-rate", "outer-momentum",
                                 "fragments", "delay", "servers", "staleness", "stale-rate"}) {
    const std::string value = unusual_text(options, name);
    if (!value.empty()) text += text.empty() ? value : fmt::format(", {} {}", name, value);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> unusual_options(const TrainOptions& options) {
  std::vector<std::pair<std::string, std::string>> unusual;
  const auto add = [&](const char* title, std::string text) {
    if (!text.empty()) unusual.emplace_back(title, std::move(text));
  };
  add("agreement", agreement_text(options));
  for (const char* const name : {"sampling", "class-weight", "sample-weight"}) add(name, unusual_text(options, name));
  add("frozen", fmt::format("{}", fmt::join(options.tuning.freeze, ", ")));
  return unusual;
}

std::vector<std::pair<std::string, std::string>> effective_options(const StoredRun& run) {
  const TrainOptions options = train_options_from_ini(run.configuration, run.network);
  TrainOptions copy = with_network_file(options.network.source);  // as above
  OptionTable table = train_table(copy);
  copy = options;
  std::vector<std::pair<std::string, std::string>> effective;
  for (const Option& option : std::as_const(table).options()) {
    if (table.in_use(option)) effective.emplace_back(option.name(), option.text());
  }
  return effective;
}

std::string TrainOptions::to_ini() const {
  TrainOptions options =
      with_network_file(network.source);  // the table takes the fields' values as defaults when it is built
  OptionTable table = train_table(options);
  options = *this;
  return format_ini(table);
}

}  // namespace lockstep::app
