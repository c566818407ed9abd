#include "io/formats/image_listing.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/file_error.hpp"
#include "io/formats/image_file.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

bool is_passed_over(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "__MACOSX";
}

std::vector<fs::path> sub_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_passed_over(entry.path())) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

/// Counts files left out, by kind.
class LeftOut {
 public:
  /// `noun`: the kind in the singular; `more`: a remark about all of them.
  void add(const std::string& noun, const std::string& more, const fs::path& file) {
    Kind& one = kinds_[{noun, more}];
    if (one.count++ == 0 || file < one.first) one.first = file;
  }
  std::vector<std::string> remarks() const {
    std::vector<std::string> remarks;
    for (const auto& [words, one] : kinds_) {
      remarks.push_back(fmt::format("left out: {} {}{}{} ({}{})", one.count, words.first, one.count == 1 ? "" : "s",
                                    words.second, one.first.string(), one.count == 1 ? "" : " ..."));
    }
    return remarks;
  }

 private:
  struct Kind {
    std::int64_t count = 0;
    fs::path first;
  };
  std::map<std::pair<std::string, std::string>, Kind> kinds_;
};

constexpr const char* kFile = "file";
constexpr const char* kIsNoImage = " without an image";

class Finder {
 public:
  explicit Finder(LeftOut& left_out) : left_out_(left_out) {}

  /// All images below the folder, sorted.
  std::vector<fs::path> below(const fs::path& folder) {
    found_.clear();
    enter(folder);
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }
  void look_at(const fs::path& file) {
    if (is_passed_over(file)) return;
    const std::optional<std::string_view> named = image_format_of_name(file);
    const std::string format = named ? std::string(*named) : image_format(file);
    if (format.empty()) {
      left_out_.add(kFile, kIsNoImage, file);
    } else if (!can_decode(format)) {
      left_out_.add(fmt::format("{} image", format), ", which this program does not read: convert to PNG", file);
    } else {
      found_.push_back(file);
    }
  }

 private:
  void enter(const fs::path& folder) {
    const fs::path real = fs::canonical(folder);
    if (std::find(above_.begin(), above_.end(), real) != above_.end()) {
      throw FileError(fmt::format("{}: is a link to a folder above it, which holds it without end: remove the link",
                                  folder.string()));
    }
    above_.push_back(real);
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (is_passed_over(entry.path())) continue;
      if (entry.is_directory()) {
        enter(entry.path());
      } else if (entry.is_regular_file()) {
        look_at(entry.path());
      } else {
        left_out_.add(entry.is_symlink() ? "dead link" : "device or socket", "", entry.path());
      }
    }
    above_.pop_back();
  }

  LeftOut& left_out_;
  std::vector<fs::path> found_, above_;
};

std::string class_name(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!first_not_utf8(name)) return name;
  throw FileError(
      fmt::format("{}: the name of this folder, {}, is no UTF-8, as the names of classes are; rename it (convmv -f "
                  "LATIN1 -t UTF-8, or from what it is in)",
                  folder.string(), readable(name)));
}

/// The standard name of a part: train, validation or test; "": another folder.
std::string part_name(const fs::path& folder) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kNames = {{{"train", "train"},
                                                                                     {"training", "train"},
                                                                                     {"val", "validation"},
                                                                                     {"valid", "validation"},
                                                                                     {"validation", "validation"},
                                                                                     {"dev", "validation"},
                                                                                     {"test", "test"},
                                                                                     {"testing", "test"},
                                                                                     {"train_set", "train"},
                                                                                     {"test_set", "test"}}};
  std::string name = folder.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const auto& [known, part] : kNames) {
    if (name == known) return std::string(part);
  }
  return "";
}

}  // namespace

ImageListing list_images(const fs::path& folder, ImageClasses classes) {
  constexpr std::size_t kMaxClasses = 65'536;
  ImageListing listing;
  LeftOut left_out;
  Finder finder(left_out);
  if (classes == ImageClasses::none) {
    for (fs::path& file : finder.below(folder)) listing.images.push_back({.file = std::move(file)});
    listing.remarks = left_out.remarks();
  } else {
    const std::vector<fs::path> folders = sub_folders(folder);
    if (folders.size() > kMaxClasses) {
      throw FileError(fmt::format("{}: has more than {} sub-folders", folder.string(), kMaxClasses));
    }
    std::vector<std::string> empty;
    for (const fs::path& path : folders) {
      const std::vector<fs::path> files = finder.below(path);
      const auto label = static_cast<std::uint16_t>(listing.class_names.size());
      for (const fs::path& file : files) listing.images.push_back({.file = file, .label = label});
      listing.class_names.push_back(class_name(path));
      if (files.empty()) empty.push_back(listing.class_names.back());
    }
    LeftOut beside;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory() || is_passed_over(entry.path())) continue;
      const bool image = image_format_of_name(entry.path()).has_value();
      if (image) {
        beside.add("image", " beside the folders of the classes, of no class", entry.path());
      } else {
        beside.add(kFile, kIsNoImage, entry.path());
      }
    }
    listing.remarks = left_out.remarks();
    std::ranges::move(beside.remarks(), std::back_inserter(listing.remarks));
    if (!empty.empty() && !listing.images.empty()) {
      listing.remarks.push_back(fmt::format("classes without any image: {}", fmt::join(empty, ", ")));
    }
  }
  if (!listing.images.empty()) return listing;
  throw FileError(
      fmt::format("{}: holds no images that this program reads{}{}", folder.string(),
                  classes == ImageClasses::none ? "" : "; expected a sub-folder for each class with image files in it",
                  listing.remarks.empty() ? "" : fmt::format(" ({})", fmt::join(listing.remarks, "; "))));
}

std::vector<ImagePart> image_parts(const fs::path& folder) {
  std::vector<ImagePart> parts;
  for (const fs::path& path : sub_folders(folder)) {
    const std::string name = part_name(path);
    const bool again =
        std::any_of(parts.begin(), parts.end(), [&](const ImagePart& part) { return part.name == name; });
    if (name.empty() || again || sub_folders(path).empty()) return {};
    parts.push_back({.name = name, .folder = path});
  }
  const auto is_train = [](const ImagePart& part) { return part.name == "train"; };
  const auto train = std::find_if(parts.begin(), parts.end(), is_train);
  if (parts.size() < 2 || train == parts.end()) return {};
  std::rotate(parts.begin(), train, train + 1);
  return parts;
}

}  // namespace lockstep::io
