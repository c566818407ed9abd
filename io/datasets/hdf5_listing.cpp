#include "io/datasets/hdf5_listing.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/file_error.hpp"
#include "io/text/shell_word.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected =
    "expected a folder of shards made by lockstep pack, a folder of HDF5 files (.h5, .hdf5, .nc), or one such file";
/// Endings of files that lockstep pack turns into shards.
constexpr std::string_view kPackedFirst[] = {".csv", ".tsv", ".npy", ".npz", ".idx", "-ubyte",
                                             ".gz",  ".txt", ".png", ".jpg", ".jpeg"};
constexpr std::string_view kEndings[] = {".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4"};

/// Order of names whose numbers count as numbers: part-9 comes before part-10.
bool comes_before(std::string_view a, std::string_view b) {
  constexpr std::string_view kDigits = "0123456789";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::string_view left = a, right = b; !left.empty() && !right.empty();) {
    std::size_t length = 1, other = 1;
    if (is_digit(left[0]) && is_digit(right[0])) {
      const auto take_zeros = [&](std::string_view& text) {
        while (text.size() > 1 && text[0] == '0' && is_digit(text[1])) text.remove_prefix(1);
      };
      take_zeros(left);
      take_zeros(right);
      length = std::min(left.find_first_not_of(kDigits), left.size());
      other = std::min(right.find_first_not_of(kDigits), right.size());
      if (length != other) return length < other;
    }
    if (const int order = left.substr(0, length).compare(right.substr(0, other)); order != 0) return order < 0;
    left.remove_prefix(length);
    right.remove_prefix(other);
    if (left.empty() != right.empty()) return left.empty();
  }
  return a < b;
}

/// Throws FileError if the samples behind a name would be missing without a word: a link to nothing, a folder.
void require_file(const fs::directory_entry& entry) {
  std::error_code unknown;
  if (entry.is_regular_file(unknown)) return;
  const std::string path = entry.path().string();
  if (entry.is_symlink(unknown) && !entry.exists(unknown)) {
    throw FileError(fmt::format("{}: is a link to {}, which is not there; restore it, or remove the link", path,
                                fs::read_symlink(entry.path(), unknown).string()));
  }
  throw FileError(fmt::format("{}: has the name of an HDF5 file and is none; move it to another folder", path));
}

std::string remark_on(const fs::path& folder, std::vector<fs::path>& others) {
  if (others.empty()) return "";
  std::sort(others.begin(), others.end());
  return fmt::format("{}: left out, for {} end like those of HDF5 files: {}", folder.string(),
                     others.size() == 1 ? "its name does not" : "their names do not", listed_names(others));
}

}  // namespace

bool has_hdf5_name(const fs::path& file) {
  std::string extension = file.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kEndings, extension) != std::end(kEndings);
}

std::string listed_names(std::span<const fs::path> files) {
  constexpr std::size_t kMaxShown = 5;
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.filename().string());
  const auto shown = std::span(names).first(std::min(names.size(), kMaxShown));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "");
}

Hdf5Listing list_hdf5_files(const fs::path& path) {
  const auto status = fs::status(path);
  if (!fs::exists(status)) {
    throw FileError(fmt::format("{}: does not exist; {}", path.string(), kExpected));
  }
  if (!fs::is_directory(status)) {
    const std::string name = path.filename().string();
    if (std::ranges::any_of(kPackedFirst, [&](std::string_view ending) { return name.ends_with(ending); })) {
      throw FileError(fmt::format("{}: is no HDF5 file; `lockstep pack --x {} --out FOLDER` makes shards of it",
                                  path.string(), shell_path(path)));
    }
    return {.files = {path}};
  }
  Hdf5Listing listing;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    const bool named = has_hdf5_name(entry.path());
    if (named) require_file(entry);
    (named ? listing.files : others).push_back(entry.path());
  }
  std::ranges::sort(listing.files, [](const auto& one, const auto& other) {
    return comes_before(one.filename().native(), other.filename().native());
  });
  if (listing.files.empty())
    throw FileError(
        fmt::format("{}: holds no HDF5 file; {}. `lockstep pack` makes shards of "
                    "images, tables, texts, NumPy and IDX files",
                    path.string(), kExpected));
  listing.remark = remark_on(path, others);
  return listing;
}

}  // namespace lockstep::io
