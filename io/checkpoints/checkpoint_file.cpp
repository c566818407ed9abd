#include "io/checkpoints/checkpoint_file.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint_record.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/hdf5_file.hpp"

namespace lockstep::io {
namespace {

/// Writes one tensor: the library allocates its space, the values bypass the library. Returns the tensor's checksum.
std::uint64_t write_tensor(Hdf5File& file, const Descriptor& bytes, const std::string& path, const TensorView& tensor) {
  const std::string dataset = "/" + path;
  file.create_dataset(dataset, FileType::float32, tensor.shape);
  const std::optional<std::uint64_t> offset = file.layout(dataset).offset;
  if (!offset && !tensor.values.empty()) {
    throw FileError({.file = file.path(), .what = fmt::format("the HDF5 library made no room for {}", path)});
  }
  Canonical checksum = tensor_checksum(path, tensor.shape);
  for (std::size_t first = 0; first < tensor.values.size(); first += kPieceElements) {
    const auto piece = tensor.values.subspan(first, std::min(kPieceElements, tensor.values.size() - first));
    checksum.add(piece);
    write_at(bytes, std::as_bytes(piece), *offset + first * sizeof(float), file.path());
  }
  file.set_text(dataset, kChecksumAttribute, to_hex(checksum.value()));
  return checksum.value();
}

void write_split(Hdf5File& file, const SplitState& split) {
  std::vector<std::string> files, checksums, paths, shapes;
  for (const WrittenPart& part : split.parts) {
    files.push_back(part.file);
    checksums.push_back(to_hex(part.checksum));
  }
  for (const SplitTensor& tensor : split.tensors) {
    paths.push_back(path_of(tensor.group, tensor.name));
    shapes.push_back(fmt::format("{}", fmt::join(tensor.shape, ",")));
  }
  file.set_texts(kState, kParts, files);
  file.set_texts(kState, kPartChecksums, checksums);
  file.set_texts(kState, kSplitTensors, paths);
  file.set_texts(kState, kSplitShapes, shapes);
}

void check_tensor(const TensorView& tensor) {
  const std::string path = path_of(tensor.group, tensor.name);
  if (tensor.group.find('/') != std::string::npos || tensor.group == "state") {
    throw std::invalid_argument(fmt::format("'{}' is no name for a group of tensors", tensor.group));
  }
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos ||
        rest.ends_with('/')) {
      throw std::invalid_argument(fmt::format("'{}' is no name for a tensor", path));
    }
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  if (elements_of(tensor.shape) != tensor.values.size()) {
    throw std::invalid_argument(fmt::format("tensor {}: {} values do not fill the shape ({})", path,
                                            tensor.values.size(), fmt::join(tensor.shape, ", ")));
  }
}

/// Returns the space beyond the end to the file system, because the bound was generous. (The library does the same if
/// closing moves the end.)
void release_unused_space(const Descriptor& descriptor) {
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return;
  while (::ftruncate(descriptor.get(), status.st_size) != 0 && errno == EINTR) {
  }
}

/// Writes record, tensors and parts into a new file. `bytes` is the same file, open for writing; the caller closes
/// both. Holds the library's lock for short calls only. Returns the checksum of the state.
std::uint64_t write_content(Hdf5File& file, const Descriptor& bytes, const TrainingRecord& record,
                            std::span<const TensorView> tensors, const SplitState& split) {
  const std::int64_t format = (split.parts.empty() ? kCheckpointFormat : kCheckpointFormatWithParts) +
                              (record.network_text.empty() ? 0 : kFormatWithNetworkText - kCheckpointFormat);
  file.set_integer("/", kFormatAttribute, format);
  StateChecksum state(record, format);
  std::vector<std::string> paths;
  for (const TensorView& tensor : tensors) {
    paths.push_back(path_of(tensor.group, tensor.name));
    state.add_tensor(paths.back(), write_tensor(file, bytes, paths.back(), tensor));
  }
  state.add_split(split);
  file.create_group(kState);
  for (const IntegerField& field : integer_fields()) file.set_integer(kState, field.name, field.get(record));
  file.set_real(kState, "best_metric", record.best_metric);
  for (const TextField& field : text_fields()) file.set_text(kState, field.name, field.get(record));
  for (const TextField& field : long_text_fields()) {
    const std::string dataset = fmt::format("{}/{}", kState, field.name);
    const std::string& text = field.get(record);
    const auto size = static_cast<std::int64_t>(text.size());
    file.create_dataset(dataset, FileType::uint8, std::span(&size, 1));
    file.write(dataset, FileType::uint8, std::as_bytes(std::span(text)));
  }
  file.set_texts(kState, "tensors", paths);
  if (!split.parts.empty()) write_split(file, split);
  file.set_text(kState, kChecksumAttribute, to_hex(state.value()));
  return state.value();
}

}  // namespace

std::string to_text(const NetworkIdentity& network) {
  return fmt::format("{} -> {}: {}", network.features, network.outputs, network.signature);
}

void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors) {
  if (record.step < 0) throw std::invalid_argument(fmt::format("a checkpoint of step {}", record.step));
  for (const TextField& field : text_fields()) {
    if (field.get(record).find('\0') != std::string::npos) {
      throw std::invalid_argument(fmt::format("the record's {} holds a NUL character", field.name));
    }
  }
  std::vector<std::string> paths;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor);
    paths.push_back(path_of(tensor.group, tensor.name) + "/");
  }
  // After sorting, a name is directly followed by its twin, or by a name that would need it as a group.
  std::sort(paths.begin(), paths.end());
  for (std::size_t i = 1; i < paths.size(); ++i) {
    if (paths[i].starts_with(paths[i - 1])) {
      throw std::invalid_argument(fmt::format("the tensors '{}' and '{}' cannot lie in one checkpoint",
                                              paths[i - 1].substr(0, paths[i - 1].size() - 1),
                                              paths[i].substr(0, paths[i].size() - 1)));
    }
  }
}

std::uint64_t checkpoint_bytes_needed(const TrainingRecord& record, std::span<const TensorView> tensors) {
  std::uint64_t bytes = 64 * 1024;
  for (const TextField& field : text_fields()) bytes += field.get(record).size();
  for (const TextField& field : long_text_fields()) bytes += field.get(record).size();
  // Allowance for object headers, links and group blocks: 0.5 to 1 KiB per tensor were seen. The list of names has
  // fixed width.
  std::uint64_t widest = 0;
  for (const TensorView& tensor : tensors) {
    bytes += tensor.values.size_bytes() + 2048;
    widest = std::max<std::uint64_t>(widest, tensor.group.size() + tensor.name.size() + 1);
  }
  return bytes + 2 * widest * tensors.size();
}

std::uint64_t write_and_verify(const std::filesystem::path& file, const TrainingRecord& record,
                               std::span<const TensorView> tensors, const SplitState& split) {
  std::uint64_t checksum = 0;
  {
    Hdf5File content(file, Hdf5File::Access::create);
    const Descriptor bytes = open_file(file, O_WRONLY, "open");
    if (const int refusal = reserve_space(bytes, checkpoint_bytes_needed(record, tensors)); refusal != 0) {
      throw std::system_error(refusal, std::generic_category());
    }
    try {
      checksum = write_content(content, bytes, record, tensors, split);
    } catch (...) {
      content.give_up();
      throw;
    }
    content.close();  // rewrites the superblock: nothing is safe earlier
    release_unused_space(bytes);
  }
  sync_file(file);
  // Reads back through the page cache, which still holds the pages. This detects faults above the disk: a write that
  // the library lost, a wrong byte in its buffers, a file system that returned success for a short file, interference
  // by another process. It cannot detect later faults of the device; the checksums do when the file is next read. It
  // also cannot detect a tensor that was wrong in memory before its checksum was taken.
  if (read_checkpoint_file(file, nullptr, Parts::left_out).checksum != checksum) {
    throw FileError(
        fmt::format("{} reads back as another checkpoint than was written: check the memory and the file "
                    "system of this host",
                    file.string()));
  }
  return checksum;
}

}  // namespace lockstep::io
