/// \file
/// Packed shards that the ranks of a job open together. With F files and P ranks, every rank opening every file means F
/// x P opens at the start, more than file systems can handle (1,024 files, 16,384 ranks: 17 million). Rank r therefore
/// opens the files r, r + P, ... and compares them with the manifest. The ranks exchange everything that must be known
/// about all files. A rank opens any other file when it reads it, and compares it then. Ranks with their own copies (in
/// node-local storage) share with the ranks that see the same copy, which identity() identifies.
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
