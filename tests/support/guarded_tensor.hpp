/// \file
/// A tensor in host memory between two guards, filled with NaN: unwritten elements stay NaN, and writes outside the
/// tensor are detected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "model/formulas/bfloat16.hpp"
#include "model/tensor.hpp"

namespace lockstep::test {

class GuardedTensor {
 public:
  /// `shift`: elements between a multiple of 256 bytes and the first element.
  GuardedTensor(model::ElementType type, std::int64_t rows, std::int64_t columns, std::size_t shift = 0)
      : size_(model::size_of(type)), bytes_(static_cast<std::size_t>(rows * columns) * size_) {
    memory_.resize(bytes_ + shift * size_ + 3 * kGuard);
    auto at = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    at = (at + 255) / 256 * 256 + shift * size_;
    begin_ = at - reinterpret_cast<std::uintptr_t>(memory_.data());
    std::memset(memory_.data(), kGuardByte, memory_.size());
    std::memset(memory_.data() + begin_, 0xff, bytes_);
    tensor_ = {memory_.data() + begin_, type, rows, columns};
  }
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  const model::Tensor& tensor() const { return tensor_; }
  std::size_t count() const { return bytes_ / size_; }

  /// Rounds to the tensor's type.
  void set(std::size_t i, double value) {
    switch (tensor_.type) {
      case model::ElementType::float32:
        return put(i, static_cast<float>(value));
      case model::ElementType::bfloat16:
        return put(i, model::formulas::bfloat16_bits(static_cast<float>(value)));
      case model::ElementType::float64:
        return put(i, value);
      case model::ElementType::uint8:
        return put(i, static_cast<std::uint8_t>(static_cast<int>(value)));
      case model::ElementType::int32:
        return put(i, static_cast<std::int32_t>(value));
      case model::ElementType::uint64:
        return put(i, static_cast<std::uint64_t>(value));
    }
  }
  /// Sets a uint64, whose values a double cannot represent.
  void set_key(std::size_t i, std::uint64_t key) { put(i, key); }
  double get(std::size_t i) const {
    switch (tensor_.type) {
      case model::ElementType::float32:
        return static_cast<double>(take<float>(i));
      case model::ElementType::bfloat16:
        return static_cast<double>(model::formulas::from_bfloat16_bits(take<std::uint16_t>(i)));
      case model::ElementType::float64:
        return take<double>(i);
      case model::ElementType::uint8:
        return take<std::uint8_t>(i);
      case model::ElementType::int32:
        return take<std::int32_t>(i);
      case model::ElementType::uint64:
        return static_cast<double>(take<std::uint64_t>(i));
    }
    throw std::logic_error("unknown type");
  }
  std::vector<double> values() const {
    std::vector<double> all(count());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = get(i);
    return all;
  }
  std::span<const std::byte> bytes() const { return {memory_.data() + begin_, bytes_}; }
  bool guards_are_intact() const {
    const auto is_guard = [](std::byte b) { return b == std::byte{kGuardByte}; };
    const std::span<const std::byte> all(memory_);
    return std::ranges::all_of(all.first(begin_), is_guard) &&
           std::ranges::all_of(all.subspan(begin_ + bytes_), is_guard);
  }

 private:
  static constexpr std::size_t kGuard = 512;
  static constexpr unsigned char kGuardByte = 0xa5;

  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(memory_.data() + begin_ + i * sizeof value, &value, sizeof value);
  }
  template <class T>
  T take(std::size_t i) const {
    T value;
    std::memcpy(&value, memory_.data() + begin_ + i * sizeof value, sizeof value);
    return value;
  }

  std::size_t size_, bytes_, begin_ = 0;
  std::vector<std::byte> memory_;
  model::Tensor tensor_;
};

}  // namespace lockstep::test
