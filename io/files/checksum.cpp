#include "io/files/checksum.hpp"

#include <fmt/format.h>
#include <xxhash.h>

namespace lockstep::io {

struct Checksum::State {
  struct Free {
    void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> hash{XXH3_createState()};  // 64-byte aligned, which plain new does not guarantee
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->hash.get());
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> data) {
  XXH3_64bits_update(state_->hash.get(), data.data(), data.size());
}
std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->hash.get()); }

std::uint64_t checksum(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

std::string to_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace lockstep::io
