#include "io/datasets/block_cache.hpp"

namespace lockstep::io {

BlockCache::Block BlockCache::get(const Key& key, const std::function<std::vector<std::byte>()>& read) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.block;
    }
  }
  const auto block = std::make_shared<const std::vector<std::byte>>(read());
  const std::lock_guard lock(mutex_);
  if (entries_.contains(key)) return block;
  uses_.push_front(key);
  entries_.emplace(key, Entry{block, uses_.begin()});
  bytes_ += block->size();
  while (bytes_ > capacity_ && uses_.size() > 1) {
    const auto oldest = entries_.find(uses_.back());
    bytes_ -= oldest->second.block->size();
    entries_.erase(oldest);
    uses_.pop_back();
  }
  return block;
}

}  // namespace lockstep::io
