#include "app/plan/configuration.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "app/options/network_files.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// An absolute path to the same file. An empty path stays empty.
fs::path from_anywhere(const fs::path& path) {
  if (path.empty()) return path;
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();  // "data/" is "data"
}

/// "name = value" lines, sorted, without comments and the run folder.
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
  if (settings.work.reproducible) stored.execution.transport = comm::Transport::automatic;  // changes no bit
  return stored.to_ini();
}

std::vector<std::string> changed_options(const StoredRun& before, const TrainOptions& settings) {
  const std::vector<std::string> then = option_lines(train_options_from_ini(before.configuration, before.network)),
                                 now = option_lines(settings);
  std::vector<std::string> changed;
  std::set_difference(now.begin(), now.end(), then.begin(), then.end(), std::back_inserter(changed));
  return changed;
}

}  // namespace lockstep::app
