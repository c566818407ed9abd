#include "io/checkpoints/checkpoint_parts.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint.hpp"
#include "io/checkpoints/checkpoint_file.hpp"
#include "io/checkpoints/checkpoint_record.hpp"
#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "step-";
constexpr std::string_view kFolderInfix = ".parts-";

/// The step of a folder of parts; nullopt for any other folder.
std::optional<std::int64_t> step_of_folder(std::string_view name) {
  const std::size_t infix = name.find(kFolderInfix);
  if (!name.starts_with(kFolderPrefix) || infix == std::string_view::npos) return std::nullopt;
  return whole_number(name.substr(kFolderPrefix.size(), infix - kFolderPrefix.size()));
}

/// True if the checkpoint of that step has parts in this folder. A checkpoint that cannot be read may have some, so its
/// parts stay.
bool is_referred_to(const fs::path& folder, std::int64_t step) {
  const fs::path file = folder.parent_path() / checkpoint_name(step);
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return false;
  try {
    const std::string prefix = folder.filename().string() + "/";
    const std::vector<WrittenPart> parts = parts_of_checkpoint(file);
    return std::any_of(parts.begin(), parts.end(),
                       [&](const WrittenPart& part) { return part.file.starts_with(prefix); });
  } catch (const FileError&) {
    return true;
  }
}

}  // namespace

WrittenPart write_checkpoint_part(const PartPlace& place, std::span<const TensorPiece> pieces) {
  // A part stores its tensors as one-dimensional pieces named GROUP/NAME/FIRST.
  TrainingRecord record;
  record.step = place.step;
  record.network.signature = fmt::format("part {} of {} of a checkpoint", place.index + 1, place.count);
  std::vector<TensorView> views;
  for (const TensorPiece& piece : pieces) {
    views.push_back({.group = piece.group,
                     .name = fmt::format("{}/{}", piece.name, piece.first),
                     .shape = {static_cast<std::int64_t>(piece.values.size())},
                     .values = piece.values});
  }
  check_checkpoint_content(record, views);
  const std::string folder_name = fmt::format("{}{:010}{}{}", kFolderPrefix, place.step, kFolderInfix, place.attempt);
  const fs::path folder = place.folder / folder_name;
  const std::string name = fmt::format("part-{:04}-of-{:04}.h5", place.index + 1, place.count);
  const fs::path file = folder / name;
  std::error_code error;
  fs::create_directory(folder, error);  // all writers do so at once
  if (error) {
    throw FileError(
        fmt::format("cannot create the folder {}: {}. Every rank that writes a part of a checkpoint needs "
                    "it: hosts that share no file system take --checkpoint-writers 1",
                    folder.string(), error.message()));
  }
  const auto disk_full = [&](int error_number) {
    return FileError(fmt::format("cannot write {}: {}. Then continue with --resume (a smaller --keep needs less space)",
                                 file.string(),
                                 no_space_text(error_number, folder, checkpoint_bytes_needed(record, views))));
  };
  try {
    const std::uint64_t checksum = write_and_verify(file, record, views, {});
    sync_folder(folder);
    return {.file = folder_name + "/" + name, .checksum = checksum};
  } catch (const std::system_error& failure) {
    ::unlink(file.c_str());
    throw disk_full(failure.code().value());
  } catch (const FileError& failure) {
    ::unlink(file.c_str());
    if (means_no_space(failure.parts().error_number)) throw disk_full(failure.parts().error_number);
    throw FileError(fmt::format("cannot write a part of a checkpoint: {}", failure.what()));
  }
}

void require_parts(const fs::path& folder, std::span<const WrittenPart> parts) {
  for (const WrittenPart& part : parts) {
    const fs::path file = folder / part.file;
    std::error_code error;
    if (!fs::exists(file, error)) {
      throw FileError(fmt::format(
          "{} was written by another rank and is not seen from here: all ranks need one file system for the run's "
          "folder; --checkpoint-writers 1 writes from rank 0 alone",
          file.string()));
    }
    if (stored_checksum(file) != to_hex(part.checksum)) {
      throw FileError(fmt::format("{} is not what its writer has written: check the file system", file.string()));
    }
  }
}

std::vector<fs::path> part_folders(const fs::path& checkpoints) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (step_of_folder(entry->path().filename().string()) && entry->is_directory(unknown)) {
      folders.push_back(entry->path());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw FileError(fmt::format("cannot list the checkpoints in {}: {}", checkpoints.string(), error.message()));
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<fs::path> orphaned_part_folders(const fs::path& checkpoints, std::int64_t last_step) {
  std::vector<fs::path> folders = part_folders(checkpoints);
  std::erase_if(folders, [&](const fs::path& folder) {
    const std::int64_t step = *step_of_folder(folder.filename().string());
    return step > last_step || is_referred_to(folder, step);
  });
  return folders;
}

void remove_part_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error && error != std::errc::directory_not_empty) {
    throw FileError(fmt::format("cannot remove {}: {}", folder.string(), error.message()));
  }
}

}  // namespace lockstep::io
