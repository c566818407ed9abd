/// \file
/// Which files of a folder are images, of which class, and what is left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::io {

struct ListedImage {
  std::filesystem::path file;
  std::uint16_t label = 0;  ///< of ImageListing::class_names; 0 without classes
};

struct ImageListing {
  std::vector<ListedImage> images;       ///< by class, then by name
  std::vector<std::string> class_names;  ///< sorted; empty: a folder without classes
  std::vector<std::string> remarks;      ///< for the user: what was left out, counted and named
};

enum class ImageClasses { sub_folders, none };

/// All images below a folder, at any depth: a class has all that its sub-folder holds. Files are images by their names,
/// those without a name of any kind by their content. Hidden files and folders (.DS_Store, macOS's ._*) and __MACOSX
/// are passed over. Throws FileError: no images; names of classes that are no UTF-8; folders that link to a folder
/// above.
ImageListing list_images(const std::filesystem::path& folder, ImageClasses classes);

/// One part of data that somebody has split already.
struct ImagePart {
  std::string name;  ///< train, validation or test, whatever the folder is called (val, valid, testing)
  std::filesystem::path folder;
};
/// train/ beside val/ or test/, each with a sub-folder for each class, and no other folder: its parts, train first.
/// Empty: it is no such layout.
std::vector<ImagePart> image_parts(const std::filesystem::path& folder);

}  // namespace lockstep::io
