/// \file
/// Content checksums: XXH3-64 (xxhash.com), 16 lower-case hex digits in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep::io {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  void add(std::span<const std::byte> data);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum(std::span<const std::byte> data);
std::string to_hex(std::uint64_t value);

/// The attribute of a file or dataset that holds its checksum.
inline constexpr const char* kChecksumAttribute = "xxh3_64";

}  // namespace lockstep::io
