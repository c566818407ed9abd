/// \file
/// A protobuf message for output (https://protobuf.dev/programming-guides/encoding): a sequence of fields, each a key
/// (number * 8 + wire type) and a value. Long bytes are not copied.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep::io {

static_assert(std::endian::native == std::endian::little, "protobuf numbers are little-endian");

class ProtobufMessage {
 public:
  std::uint64_t bytes() const noexcept { return bytes_; }

  void integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void real32(int field, float value) {
    key(field, 5);
    fixed(value);
  }
  void real64(int field, double value) {
    key(field, 1);
    fixed(value);
  }
  void packed(int field, std::span<const double> values) {
    key(field, 2);
    varint(values.size_bytes());
    for (const double value : values) fixed(value);
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    append(value);
  }
  /// `value` must outlive the message.
  void borrowed(int field, std::span<const std::byte> value) {
    key(field, 2);
    varint(value.size());
    pieces_.emplace_back(value);
    bytes_ += value.size();
  }
  void message(int field, ProtobufMessage value) {
    key(field, 2);
    varint(value.bytes_);
    for (auto& piece : value.pieces_) {
      if (const auto* const own = std::get_if<std::string>(&piece)) {
        append(*own);
      } else {
        pieces_.push_back(std::move(piece));
        bytes_ += std::get<std::span<const std::byte>>(pieces_.back()).size();
      }
    }
  }

  /// Calls sink(std::span<const std::byte>) for each piece, in order.
  template <class Sink>
  void write(const Sink& sink) const {
    for (const auto& piece : pieces_) {
      const auto* const own = std::get_if<std::string>(&piece);
      sink(own != nullptr ? std::as_bytes(std::span(*own)) : std::get<std::span<const std::byte>>(piece));
    }
  }

 private:
  void key(int field, int wire_type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<unsigned>(wire_type));
  }
  void varint(std::uint64_t value) {
    std::string text;
    for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
    text += static_cast<char>(value);
    append(text);
  }
  template <class Number>
  void fixed(Number value) {
    const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(value);
    append({bytes.data(), bytes.size()});
  }
  void append(std::string_view text) {
    if (pieces_.empty() || !std::holds_alternative<std::string>(pieces_.back())) pieces_.emplace_back(std::string());
    std::get<std::string>(pieces_.back()) += text;
    bytes_ += text.size();
  }

  std::deque<std::variant<std::string, std::span<const std::byte>>> pieces_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::io
