/// \file
/// Maps a FileType known at run time to a loop over elements of that type.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

/// Calls `work` with `data` as a span of the C++ type behind `type`. `data` must be aligned for it.
template <class Work>
void with_elements(FileType type, std::span<const std::byte> data, const Work& work) {
  const auto as = [&]<class Element>(Element) {
    assert(reinterpret_cast<std::uintptr_t>(data.data()) % alignof(Element) == 0);
    work(std::span<const Element>(reinterpret_cast<const Element*>(data.data()), data.size() / sizeof(Element)));
  };
  switch (type) {
    case FileType::uint8:
      return as(std::uint8_t{});
    case FileType::int8:
      return as(std::int8_t{});
    case FileType::uint16:
      return as(std::uint16_t{});
    case FileType::int16:
      return as(std::int16_t{});
    case FileType::int32:
      return as(std::int32_t{});
    case FileType::int64:
      return as(std::int64_t{});
    case FileType::uint32:
      return as(std::uint32_t{});
    case FileType::uint64:
      return as(std::uint64_t{});
    case FileType::float32:
      return as(float{});
    case FileType::float64:
      return as(double{});
    case FileType::other:
      break;
  }
  throw std::invalid_argument("elements of a type that is neither integer nor float");
}

}  // namespace lockstep::io
