/// \file
/// The lines of a CSV file, cell by cell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/formats/byte_reader.hpp"

namespace lockstep::io {

/// RFC 4180 records: quoted cells may hold separators, line ends and doubled quotes; CR before LF belongs to the line
/// end. Blanks before a quote are ignored. Empty lines are skipped.
class CsvRecords {
 public:
  /// Throws FileError: missing file, UTF-16.
  CsvRecords(const std::filesystem::path& path, char separator)
      : bytes_(path), separator_(separator), buffer_(std::size_t{1} << 18) {
    if (available() && size_ >= 2 &&
        (std::memcmp(buffer_.data(), "\xFF\xFE", 2) == 0 || std::memcmp(buffer_.data(), "\xFE\xFF", 2) == 0)) {
      throw FileError(fmt::format("{}: is UTF-16; convert it (iconv -f UTF-16 -t UTF-8)", path.string()));
    }
    if (available() && size_ >= 3 && std::memcmp(buffer_.data(), "\xEF\xBB\xBF", 3) == 0) at_ = 3;  // byte order mark
  }

  /// Reads the next record; false at the end of the file.
  bool next() {
    do {
      if (!read_record()) return false;
    } while (ends_.size() == 1 && text_.empty() && !quoted_any_);
    return true;
  }
  std::size_t cells() const noexcept { return ends_.size(); }
  std::string_view cell(std::size_t column) const noexcept {
    const std::size_t begin = column == 0 ? 0 : ends_[column - 1];
    return std::string_view(text_).substr(begin, ends_[column] - begin);
  }
  /// 1-based number of the current record's first line.
  std::int64_t line() const noexcept { return line_; }
  const std::filesystem::path& path() const noexcept { return bytes_.path(); }

 private:
  /// True if the current cell is blank so far.
  bool cell_is_blank() const noexcept {
    return text_.find_first_not_of(" \t", ends_.empty() ? 0 : ends_.back()) == std::string::npos;
  }

  bool available() {
    if (at_ < size_) return true;
    size_ = bytes_.read_some(buffer_);
    at_ = 0;
    return size_ > 0;
  }

  bool read_record() {
    text_.clear();
    ends_.clear();
    quoted_any_ = false;
    line_ = next_line_;
    bool quoted = false;
    bool any = false;
    while (available()) {
      any = true;
      const char c = static_cast<char>(buffer_[at_++]);
      if (c == '\n') ++next_line_;
      if (quoted) {
        if (c != '"') {
          text_.push_back(c);
        } else if (available() && static_cast<char>(buffer_[at_]) == '"') {
          text_.push_back('"');
          ++at_;
        } else {
          quoted = false;
        }
      } else if (c == '"' && cell_is_blank()) {
        text_.resize(ends_.empty() ? 0 : ends_.back());
        quoted = quoted_any_ = true;
      } else if (c == separator_) {
        ends_.push_back(text_.size());
      } else if (c == '\n') {
        if (!text_.empty() && text_.back() == '\r') text_.pop_back();
        ends_.push_back(text_.size());
        return true;
      } else {
        text_.push_back(c);
      }
    }
    if (quoted) {
      throw FileError(fmt::format("{}:{}: a quoted cell that begins here never ends", path().string(), line_));
    }
    if (any) ends_.push_back(text_.size());
    return any;
  }

  ByteReader bytes_;
  char separator_;
  std::vector<std::byte> buffer_;
  std::size_t at_ = 0, size_ = 0;
  std::string text_;               ///< the cells of the current record, one after another
  std::vector<std::size_t> ends_;  ///< end of each cell in text_
  bool quoted_any_ = false;
  std::int64_t line_ = 1, next_line_ = 1;
};

}  // namespace lockstep::io
