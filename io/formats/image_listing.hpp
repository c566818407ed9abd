/// \file
/// Lists the images of a folder with their classes, and the files left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::io {

struct ListedImage {
  std::filesystem::path file;
  std::uint16_t label = 0;  ///< index into ImageListing::class_names; 0 without classes
};

struct ImageListing {
  std::vector<ListedImage> images;       ///< by class, then by name
  std::vector<std::string> class_names;  ///< sorted; empty: a folder without classes
  std::vector<std::string> remarks;      ///< remarks for users: files left out, counted and named
};

enum class ImageClasses { sub_folders, none };

/// All images below a folder, at any depth: a class has all images in its sub-folder. Names decide which files are
/// images; content decides for names without an ending. Hidden files and folders (.DS_Store, macOS's ._*) and __MACOSX
/// are skipped. Throws FileError: no images, names of classes that are not UTF-8, folders that link to a parent.
ImageListing list_images(const std::filesystem::path& folder, ImageClasses classes);

/// One part of data that comes split.
struct ImagePart {
  std::string name;  ///< train, validation or test, also for folders named val, valid or testing
  std::filesystem::path folder;
};
/// Finds the parts in a folder: train/ beside val/ or test/, each with one sub-folder per class, and no other folder.
/// train comes first. Empty: another layout.
std::vector<ImagePart> image_parts(const std::filesystem::path& folder);

}  // namespace lockstep::io
