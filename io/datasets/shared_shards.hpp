/// \file
/// Packed shards that the ranks of a job open together. With F files and P ranks, F x P opens at the start are more
/// than file systems bear (1,024 files, 16,384 ranks: 17 million). So rank r opens the files r, r + P, ... and compares
/// them with the manifest, as one that opens all does; what must be known of all files the ranks tell each other; and a
/// rank opens another file when it reads it, and compares it then. Ranks that have copies of their own (in node-local
/// storage) share with those that see the same copy: identity() tells.
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
  /// The same text where the same copy of a folder is seen, by its manifest's inode and times; "": nobody packed it.
  static std::string identity(const std::filesystem::path& folder, IoDeadline* deadline = nullptr);

  /// Reads the manifest, and opens the files part, part + parts, .... Throws FileError as ShardedDataset does.
  SharedShards(const std::filesystem::path& folder, int part, int parts, IoDeadline* deadline);
  ~SharedShards();
  SharedShards(const SharedShards&) = delete;
  SharedShards& operator=(const SharedShards&) = delete;

  const ShardManifest& manifest() const noexcept { return manifest_; }
  /// What this rank has to tell those that share with it.
  std::string findings() const;
  /// What all of them tell, this rank included. Before the first use of set().
  void complete(std::span<const std::string> findings);
  const std::shared_ptr<ShardSet>& set() const noexcept { return set_; }

 private:
  ShardManifest manifest_;
  std::shared_ptr<ShardSet> set_;
};

}  // namespace lockstep::io
