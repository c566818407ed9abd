// Parses the header of a safetensors file as a stream. No document is built, so a header of any shape takes little more
// memory than its text.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/exchange/safetensors.hpp"

namespace lockstep::io {

namespace {

constexpr std::size_t kMaxExtents = 8;

/// Bytes per element; 0: unknown type.
std::uint64_t bytes_of(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> kTypes{{{"F32", 4},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"F64", 8},
                                                                               {"I64", 8},
                                                                               {"I32", 4},
                                                                               {"I16", 2},
                                                                               {"I8", 1},
                                                                               {"U64", 8},
                                                                               {"U32", 4},
                                                                               {"U16", 2},
                                                                               {"U8", 1},
                                                                               {"BOOL", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2", 1}}};
  const auto found = std::ranges::find(kTypes, dtype, &std::pair<std::string_view, std::uint64_t>::first);
  return found == kTypes.end() ? 0 : found->second;
}

/// Accepts {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"KEY": "VALUE"}} and
/// nothing else.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
  bool number_float(double /*value*/, const std::string& text) override { return unexpected("the number " + text); }
  bool binary(binary_t& /*value*/) override { return unexpected("bytes"); }
  bool number_integer(std::int64_t value) override { return unexpected(fmt::format("the number {}", value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (at_ != At::list || value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return unexpected(fmt::format("the number {}", value));
    }
    if (numbers_.size() == kMaxExtents) fail("a list of more than {} numbers", kMaxExtents);
    numbers_.push_back(value);
    return true;
  }
  bool string(std::string& value) override {
    if (at_ == At::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (at_ == At::entry && key_ == "dtype") {
      entry_.dtype = std::move(value);
    } else {
      return unexpected("a text");
    }
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    if (at_ == At::nothing) {
      at_ = At::header;
    } else if (at_ == At::header) {
      at_ = name_ == kMetadata ? At::metadata : At::entry;
      seen_.clear();
      entry_ = {};
      entry_.name = name_;
      has_shape_ = has_offsets_ = false;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool key(std::string& value) override {
    if (at_ == At::header) {
      if (!names_.insert(value).second) fail("{} is there twice", value);
      name_ = std::move(value);
      return true;
    }
    if (!seen_.insert(value).second) fail("{}: {} is there twice", name_, value);
    if (at_ == At::entry && value != "dtype" && value != "shape" && value != "data_offsets") {
      fail("{}: {} has no meaning there", name_, value);
    }
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (at_ == At::header) {
      at_ = At::nothing;
      return true;
    }
    if (at_ == At::entry) {
      if (entry_.dtype.empty() || !has_shape_ || !has_offsets_) {
        fail("{}: it needs dtype, shape and data_offsets", name_);
      }
      header_.entries.push_back(std::move(entry_));
    }
    at_ = At::header;
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (at_ != At::entry || key_ == "dtype") return unexpected("a list");
    at_ = At::list;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    at_ = At::entry;
    if (key_ == "shape") {
      entry_.shape.assign(numbers_.begin(), numbers_.end());
      has_shape_ = true;
      return true;
    }
    if (numbers_.size() != 2) fail("{}: data_offsets are two numbers", name_);
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    has_offsets_ = true;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail("its header is no JSON at byte {}", position);
  }

 private:
  static constexpr const char* kMetadata = "__metadata__";
  enum class At { nothing, header, metadata, entry, list };

  template <class... Values>
  [[noreturn]] static void fail(fmt::format_string<Values...> format, Values&&... values) {
    throw FileError(fmt::format(format, std::forward<Values>(values)...));
  }
  [[noreturn]] bool unexpected(const std::string& what) const {
    if (names_.empty()) fail("its header begins with {}", what);
    fail("{}: {} where it does not belong", name_, what);
  }

  SafetensorsHeader header_;
  SafetensorsEntry entry_;
  At at_ = At::nothing;
  std::set<std::string> names_, seen_;
  std::string name_, key_;
  std::vector<std::uint64_t> numbers_;
  bool has_shape_ = false, has_offsets_ = false;
};

/// Bytes of a tensor; nullopt: overflow.
std::optional<std::uint64_t> size_of_tensor(const SafetensorsEntry& entry) {
  std::uint64_t bytes = bytes_of(entry.dtype);
  for (const std::int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes) {
  if (!text.starts_with('{')) throw FileError("its header does not begin with {");
  HeaderReader reader;
  nlohmann::json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  std::ranges::sort(header.entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (bytes_of(entry.dtype) == 0)
      throw FileError(fmt::format("{} is of an unknown type, {}", entry.name, entry.dtype));
    if (entry.begin != end) {
      throw FileError(
          fmt::format("{} begins at byte {}, and the tensor before it ends at {}", entry.name, entry.begin, end));
    }
    if (entry.end < entry.begin || size_of_tensor(entry) != entry.end - entry.begin) {
      throw FileError(fmt::format("{} has {} to {} for bytes, which its shape and type contradict", entry.name,
                                  entry.begin, entry.end));
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    throw FileError(fmt::format("its tensors have {} bytes, and the file has {} for them{}", end, data_bytes,
                                end > data_bytes ? ": it is cut off" : ""));
  }
  return header;
}

}  // namespace lockstep::io
