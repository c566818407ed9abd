#include "io/datasets/shared_shards.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "io/datasets/shard_set.hpp"
#include "io/files/json_text.hpp"

namespace lockstep::io {
namespace {

ShardManifest manifest_of(const std::filesystem::path& folder, IoDeadline* deadline) {
  const IoDeadline::Operation reading(deadline, IoDeadline::Kind::reading, folder);
  return read_manifest(folder);
}

}  // namespace

std::string SharedShards::identity(const std::filesystem::path& folder, IoDeadline* deadline) {
  const IoDeadline::Operation looking(deadline, IoDeadline::Kind::reading, folder);
  struct stat status {};
  if (::stat((folder / kManifestName).c_str(), &status) != 0) return "";
  return fmt::format("{} {} {}.{:09} {}.{:09}", status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

SharedShards::SharedShards(const std::filesystem::path& folder, int part, int parts, IoDeadline* deadline)
    : manifest_(manifest_of(folder, deadline)),
      set_(std::make_shared<ShardSet>(folder, manifest_, deadline, part, parts)) {}

SharedShards::~SharedShards() = default;

std::string SharedShards::findings() const {
  const ShardLayouts& layouts = set_->layouts();
  nlohmann::json slow = nlohmann::json::array();
  for (const ShardLayouts::Slow& one : layouts.slow) {
    slow.push_back({{"shard", one.shard}, {"field", one.field}, {"why", one.why}});
  }
  return to_text({{"block_multiple", layouts.block_multiple}, {"in_blocks", layouts.in_blocks}, {"slow", slow}});
}

void SharedShards::complete(std::span<const std::string> findings) {
  ShardLayouts all;
  for (const std::string& text : findings) {
    const nlohmann::json one = parse_json(text);
    all.block_multiple = std::max(all.block_multiple, integer_entry(one, "block_multiple"));
    all.in_blocks += static_cast<std::size_t>(integer_entry(one, "in_blocks"));
    for (const nlohmann::json& slow : list_entry(one, "slow")) {
      all.slow.push_back({.shard = static_cast<std::size_t>(integer_entry(slow, "shard")),
                          .field = static_cast<std::size_t>(integer_entry(slow, "field")),
                          .why = text_entry(slow, "why")});
    }
  }
  std::ranges::stable_sort(all.slow, {}, [](const ShardLayouts::Slow& slow) { return slow.shard; });
  set_->complete(std::move(all));
}

}  // namespace lockstep::io
