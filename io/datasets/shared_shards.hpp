/// \file
/// Packed shards that the ranks of a job open together. If every one of P ranks opened all F files, the start would
/// open F x P files, more than file systems can handle (1,024 files, 16,384 ranks: 17 million). So rank r opens the
/// files r, r + P, ... and compares them with the manifest, and the ranks exchange the facts about all files. A rank
/// opens any other file, and compares it, when it first reads it. Ranks with copies of their own (in node-local
/// storage) share with the ranks that see the same copy, which identity() identifies.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "io/files/io_deadline.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::io {

class ShardSet;

class SharedShards {
 public:
  /// Identifies a copy of a folder by its manifest's inode and times: equal text, equal copy; "": not packed.
  static std::string identity(const std::filesystem::path& folder, IoDeadline* deadline = nullptr);

  /// Reads the manifest, and opens the files part, part + parts, .... Throws the FileErrors of ShardedDataset.
  SharedShards(const std::filesystem::path& folder, int part, int parts, IoDeadline* deadline);
  ~SharedShards();
  SharedShards(const SharedShards&) = delete;
  SharedShards& operator=(const SharedShards&) = delete;

  const ShardManifest& manifest() const noexcept { return manifest_; }
  /// This rank's findings, for the ranks that share with it.
  std::string findings() const;
  /// Takes the findings of all those ranks, including this one. Call it before the first use of set().
  void complete(std::span<const std::string> findings);
  const std::shared_ptr<ShardSet>& set() const noexcept { return set_; }

 private:
  ShardManifest manifest_;
  std::shared_ptr<ShardSet> set_;
};

}  // namespace lockstep::io
