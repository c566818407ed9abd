#include "app/data/shared_samples.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/data/data_contents.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/files/checksum.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

/// Identifies files by their path, with links resolved, and packed files also by their checksums.
class FileIdentities {
 public:
  std::vector<std::string> of(const io::ShardInfo& shard) {
    const fs::path parent = shard.file.parent_path();
    const auto [place, is_new] = parents_.try_emplace(parent);
    std::error_code unknown;
    if (is_new) place->second = fs::weakly_canonical(fs::absolute(parent, unknown), unknown);
    std::vector<std::string> identities{(place->second / shard.file.filename()).string()};
    if (!shard.checksum_x.empty()) {
      identities.push_back(fmt::format("{} samples {} {}", shard.count, shard.checksum_x, shard.checksum_y));
    }
    return identities;
  }

 private:
  std::map<fs::path, fs::path> parents_;
};

bool have_equal_contents(const io::Dataset& a, const io::Dataset& b) {
  const std::string contents = checksum_of_contents(a);
  return !contents.empty() && a.info().samples == b.info().samples && contents == checksum_of_contents(b);
}

/// The beginning of a dataset.
struct Beginning {
  std::vector<std::uint64_t> checksums;  ///< sorted; without samples of a single repeated number
  bool is_all = false;
};

Beginning read_beginning(const io::Dataset& data, double seconds) {
  constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
  const std::size_t bytes = data.x_bytes(), element = bytes / static_cast<std::size_t>(data.info().x.elements());
  const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kReadAtOnce / (bytes + data.y_bytes())));
  Beginning found;
  std::vector<std::int64_t> samples;
  std::vector<std::byte> x, y;
  const StopWatch watch;
  std::int64_t first = 0;
  for (; first < data.info().samples && watch.seconds() < seconds; first += std::ssize(samples)) {
    samples.resize(static_cast<std::size_t>(std::min(rows, data.info().samples - first)));
    std::iota(samples.begin(), samples.end(), first);
    x.resize(samples.size() * bytes);
    y.resize(samples.size() * data.y_bytes());
    data.read(samples, io::kNoEpoch, x, y);
    for (std::size_t at = 0; at < x.size(); at += bytes) {
      if (std::memcmp(&x[at], &x[at] + element, bytes - element) == 0) continue;
      found.checksums.push_back(io::checksum(std::span(x).subspan(at, bytes)));
    }
  }
  std::ranges::sort(found.checksums);
  found.is_all = first >= data.info().samples;
  return found;
}

}  // namespace

std::string shared_files(const io::Dataset& training, const io::Dataset& validation) {
  FileIdentities identities;
  std::set<std::string> learnt;
  for (const io::ShardInfo& shard : training.shards()) {
    for (std::string& identity : identities.of(shard)) learnt.insert(std::move(identity));
  }
  std::int64_t shared = 0, all = 0;
  std::string example;
  for (const io::ShardInfo& shard : validation.shards()) {
    all += shard.count;
    const auto is_learnt = [&](const std::string& identity) { return learnt.contains(identity); };
    if (std::ranges::none_of(identities.of(shard), is_learnt)) continue;
    if (shared == 0) example = shard.file.string();
    shared += shard.count;
  }
  if (shared > 0 && shared < all) {
    return fmt::format("{} of {} are training data, too (those in {}{})", with_commas(shared),
                       counted(all, validation.info().tokens ? "validation token" : "validation sample"), example,
                       validation.shards().size() > 2 ? " and perhaps others" : "");
  }
  const bool equal = shared > 0 || have_equal_contents(training, validation);
  return equal ? "the validation data are the training data, or a copy of them" : "";
}

bool SampleTwins::leaks() const noexcept {
  if (shared == 0) return false;
  constexpr double kNoticeable = 0.01, kClearly = 3;
  const double share = static_cast<double>(shared) / static_cast<double>(validation),
               usual = static_cast<double>(repeated) / static_cast<double>(training);
  return share >= kNoticeable && share > kClearly * usual;
}

std::string SampleTwins::in_words() const {
  if (shared == 0) return "";
  std::string text =
      fmt::format("{} of {} equal a training sample", with_commas(shared), counted(validation, "validation sample"));
  if (repeated > 0) {
    text += fmt::format(", {} of {} another one", with_commas(repeated), counted(training, "training sample"));
  }
  return all_compared ? text : text + " (those that a few seconds suffice to read)";
}

SampleTwins find_twins(const io::Dataset& training, const io::Dataset& validation) {
  constexpr double kSeconds = 2;
  if (training.info().tokens || training.x_type() != validation.x_type() ||
      training.x_bytes() != validation.x_bytes()) {
    return {};
  }
  const Beginning learnt = read_beginning(training, kSeconds), judged = read_beginning(validation, kSeconds);
  SampleTwins twins{.training = std::ssize(learnt.checksums),
                    .validation = std::ssize(judged.checksums),
                    .all_compared = learnt.is_all && judged.is_all};
  for (std::size_t i = 0; i < learnt.checksums.size(); ++i) {
    const std::uint64_t own = learnt.checksums[i];
    const bool before = i > 0 && learnt.checksums[i - 1] == own;
    const bool behind = i + 1 < learnt.checksums.size() && learnt.checksums[i + 1] == own;
    twins.repeated += before || behind ? 1 : 0;
  }
  twins.shared = std::ranges::count_if(
      judged.checksums, [&](std::uint64_t checksum) { return std::ranges::binary_search(learnt.checksums, checksum); });
  return twins;
}

}  // namespace lockstep::app
