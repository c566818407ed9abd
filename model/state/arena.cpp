#include "model/state/arena.hpp"

#include <utility>

namespace lockstep::model {

namespace {

constexpr std::size_t kArenaAlignment = 256;

}  // namespace

Arena::Arena(std::pmr::memory_resource* memory, ElementType type, std::size_t elements) : memory_(memory) {
  if (elements == 0) return;
  tensor_ = {memory_->allocate(elements * size_of(type), kArenaAlignment), type, 1,
             static_cast<std::int64_t>(elements)};
}

Arena::~Arena() {
  if (tensor_.present()) memory_->deallocate(tensor_.data, tensor_.bytes(), kArenaAlignment);
}

Arena Arena::of_zeros(Backend& backend, ElementType type, std::size_t elements, std::pmr::memory_resource* memory) {
  Arena made(memory != nullptr ? memory : backend.memory(), type, elements);
  if (!made.empty()) backend.fill_zero(made.tensor());
  return made;
}

void Arena::swap(Arena& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(tensor_, other.tensor_);
}

}  // namespace lockstep::model
