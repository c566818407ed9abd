/// \file
/// Recently read blocks of data that cannot be read by offset (compressed, chunked, foreign byte order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace lockstep::io {

/// Evicts the least recently used block. Thread-safe; two threads that miss the same block at once both read it.
class BlockCache {
 public:
  using Block = std::shared_ptr<const std::vector<std::byte>>;
  using Key = std::tuple<std::size_t, std::size_t, std::int64_t>;  ///< file, field, block

  explicit BlockCache(std::size_t capacity_bytes) : capacity_(capacity_bytes) {}

  /// Returns the block; `read` fills it on a miss. An exception of `read` leaves the cache unchanged.
  Block get(const Key& key, const std::function<std::vector<std::byte>()>& read);

 private:
  struct Entry {
    Block block;
    std::list<Key>::iterator use;
  };
  std::mutex mutex_;
  std::size_t capacity_;
  std::size_t bytes_ = 0;
  std::list<Key> uses_;  ///< most recent first
  std::map<Key, Entry> entries_;
};

}  // namespace lockstep::io
