#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {

/// The library crashes on some chunks that it would not have written.
std::vector<hsize_t> Hdf5File::Handles::chunk_shape(const Hdf5Id& properties, const Extents& extents,
                                                    std::string_view name) const {
  std::vector<hsize_t> chunk(extents.now.size());
  const int rank = H5Pget_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data());
  if (rank < 0) fail(fmt::format("read the chunk shape of dataset {}", name));
  if (static_cast<std::size_t>(rank) != chunk.size()) damaged(name, "its chunks have another rank than its shape");
  for (std::size_t axis = 0; axis < chunk.size(); ++axis) {
    const bool too_large = extents.most[axis] != H5S_UNLIMITED && chunk[axis] > extents.most[axis];
    if (chunk[axis] == 0 || too_large) {
      damaged(name, fmt::format("chunks of ({}) do not fit the shape ({})", fmt::join(chunk, ", "),
                                fmt::join(extents.now, ", ")));
    }
  }
  return chunk;
}

Hdf5Id Hdf5File::Handles::open_attribute(const Hdf5Id& object, std::string_view object_name,
                                         std::string_view name) const {
  const std::string text(name);
  const htri_t exists = H5Aexists(object.get(), text.c_str());
  if (exists < 0) fail(fmt::format("look for attribute {} of {}", name, object_name));
  if (exists == 0) return Hdf5Id(-1, H5Aclose);
  const hid_t attribute = H5Aopen(object.get(), text.c_str(), H5P_DEFAULT);
  if (attribute < 0) fail(fmt::format("open attribute {} of {}", name, object_name));
  return Hdf5Id(attribute, H5Aclose);
}

void Hdf5File::Handles::require_sources(const Hdf5Id& virtual_properties, std::string_view dataset) const {
  std::size_t count = 0;
  if (H5Pget_virtual_count(virtual_properties.get(), &count) < 0)
    fail(fmt::format("read the layout of dataset {}", dataset));
  std::string last;
  for (std::size_t i = 0; i < count; ++i) {
    const ssize_t length = H5Pget_virtual_filename(virtual_properties.get(), i, nullptr, 0);
    if (length < 0) fail(fmt::format("read the layout of dataset {}", dataset));
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    H5Pget_virtual_filename(virtual_properties.get(), i, name.data(), name.size());
    name.resize(static_cast<std::size_t>(length));
    // "." is this file; % begins the number of a file among many, of which any may be absent.
    if (name == last || name == "." || name.find('%') != std::string::npos) continue;
    last = name;
    std::error_code ignored;
    const std::filesystem::path source(name), beside = path.parent_path() / source;
    if (std::filesystem::exists(beside, ignored) || std::filesystem::exists(source, ignored)) continue;
    if (source.is_absolute() && std::filesystem::exists(path.parent_path() / source.filename(), ignored)) continue;
    if (std::getenv("HDF5_VDS_PREFIX") != nullptr) continue;
    throw FileError(
        {.file = path,
         .what = fmt::format("{} is a virtual dataset that takes its data from {}, which is not there: put it "
                             "where it was or beside this file",
                             dataset, name)});
  }
}

DatasetLayout Hdf5File::layout(std::string_view dataset) const {
  const Hdf5Lock lock;
  const Hdf5Id id = handles_->open_dataset(dataset);
  DatasetLayout result;
  const Handles::Extents extents = handles_->extents(id, dataset);
  result.shape.assign(extents.now.begin(), extents.now.end());
  const Hdf5Id type(H5Dget_type(id.get()), H5Tclose);
  const Hdf5Id properties(H5Dget_create_plist(id.get()), H5Pclose);
  if (!type.valid() || !properties.valid()) handles_->fail(fmt::format("read the layout of dataset {}", dataset));
  result.type = file_type(type.get());
  result.text = H5Tget_class(type.get()) == H5T_STRING;
  result.stored_size = H5Tget_size(type.get());
  const bool in_order = size_of(result.type) == 1 || H5Tget_order(type.get()) == H5Tget_order(H5T_NATIVE_INT);
  result.native_order = in_order && result.stored_size == size_of(result.type);
  result.compressed = H5Pget_nfilters(properties.get()) > 0;
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  result.in_this_file = layout != H5D_VIRTUAL && H5Pget_external_count(properties.get()) == 0;
  if (layout == H5D_VIRTUAL) handles_->require_sources(properties, dataset);
  if (layout == H5D_CHUNKED) {
    const std::vector<hsize_t> chunk = handles_->chunk_shape(properties, extents, dataset);
    result.chunk.assign(chunk.begin(), chunk.end());
  } else if (layout == H5D_CONTIGUOUS && result.in_this_file) {
    const haddr_t offset = H5Dget_offset(id.get());
    if (offset != HADDR_UNDEF) result.offset = offset;
  }
  return result;
}

void Hdf5File::require_plain(std::string_view object) const {
  const Hdf5Lock lock;
  const hid_t file = handles_->usable();
  const auto refuse = [&](std::string_view what) {
    throw FileError({.file = path(),
                     .what = fmt::format("{} {}, and this program writes no such file: it was changed, or was made by "
                                         "another program; copy or make it again",
                                         object, what)});
  };
  const std::string whole = fmt::format("{}{}", object.starts_with('/') ? "" : "/", object);
  for (std::size_t end = whole.find('/', 1);; end = whole.find('/', end + 1)) {
    const std::string prefix = whole.substr(0, end);
    H5L_info_t link;
    if (H5Lget_info(file, prefix.c_str(), &link, H5P_DEFAULT) < 0) handles_->fail(fmt::format("find {}", object));
    if (link.type != H5L_TYPE_HARD) refuse(link.type == H5L_TYPE_SOFT ? "is a link" : "is a link to another file");
    if (end == std::string::npos) break;
  }
  const Hdf5Id id = handles_->open_object(whole);
  if (H5Iget_type(id.get()) != H5I_DATASET) return;
  const Hdf5Id properties(H5Dget_create_plist(id.get()), H5Pclose);
  if (!properties.valid()) handles_->fail(fmt::format("read the layout of dataset {}", object));
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if (layout == H5D_VIRTUAL) refuse("is a virtual dataset");
  if (H5Pget_external_count(properties.get()) != 0) refuse("has its values in another file");
  if (layout != H5D_CONTIGUOUS) refuse("is not stored contiguously");
}

void Hdf5File::read(std::string_view dataset, FileType type, std::span<std::byte> out) const {
  const Hdf5Lock lock;
  const hid_t memory = hdf5_type(type).memory;
  const Hdf5Id id = handles_->open_dataset(dataset);
  handles_->check_whole(id, dataset, type, out.size());
  if (!out.empty() && H5Dread(id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0) {
    handles_->fail(fmt::format("read dataset {}", dataset));
  }
}

void Hdf5File::read_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                         std::span<std::byte> out) const {
  const Hdf5Lock lock;
  const hid_t memory = hdf5_type(type).memory;
  const Hdf5Id id = handles_->open_dataset(dataset);
  const std::vector<hsize_t> shape = handles_->checked_rows(id, dataset, type, first, rows, out.size());
  if (out.empty()) return;
  if (!handles_->transfer_rows(id, shape, first, rows, [&](hid_t memory_space, hid_t file_space) {
        return H5Dread(id.get(), memory, memory_space, file_space, H5P_DEFAULT, out.data());
      })) {
    handles_->fail(fmt::format("read rows [{}, {}) of dataset {}", first, first + rows, dataset));
  }
}

std::int64_t Hdf5File::count_chunks(std::string_view dataset) const {
  const Hdf5Lock lock;
  const Hdf5Id id = handles_->open_dataset(dataset);
  const Hdf5Id properties(H5Dget_create_plist(id.get()), H5Pclose);
  if (!properties.valid()) handles_->fail(fmt::format("read the layout of dataset {}", dataset));
  if (H5Pget_layout(properties.get()) != H5D_CHUNKED) return 0;
  hsize_t chunks = 0;
#if H5_VERSION_GE(1, 10, 5)
  const Hdf5Id space(H5Dget_space(id.get()), H5Sclose);  // 1.10 does not know H5S_ALL here
  if (!space.valid() || H5Dget_num_chunks(id.get(), space.get(), &chunks) < 0) {
    handles_->fail(fmt::format("read the index of the chunks of dataset {}", dataset));
  }
#endif
  return static_cast<std::int64_t>(chunks);
}

/// `read` fills memory for so many elements of `type`.
template <class Read>
std::vector<std::string> Hdf5File::Handles::decode_texts(const Hdf5Id& type, const Hdf5Id& space, std::size_t count,
                                                         const Read& read) const {
  std::vector<std::string> result;
  result.reserve(count);
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> values(count, nullptr);
    read(values.data());
    for (const char* value : values) result.emplace_back(value != nullptr ? value : "");
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, values.data());
    return result;
  }
  const std::size_t width = H5Tget_size(type.get());
  std::vector<char> values(count * width);
  read(values.data());
  const bool padded_by_spaces = H5Tget_strpad(type.get()) == H5T_STR_SPACEPAD;
  for (std::size_t i = 0; i < count; ++i) {
    const char* begin = values.data() + i * width;
    std::size_t length = ::strnlen(begin, width);
    while (padded_by_spaces && length > 0 && begin[length - 1] == ' ') --length;
    result.emplace_back(begin, length);
  }
  return result;
}

std::optional<std::vector<std::string>> Hdf5File::texts(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  const Hdf5Id owner = handles_->open_object(object);
  const Hdf5Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return std::nullopt;
  const std::string action = fmt::format("read attribute {} of {}", attribute, object);
  const Hdf5Id type(H5Aget_type(id.get()), H5Tclose);
  const Hdf5Id space(H5Aget_space(id.get()), H5Sclose);
  if (!type.valid() || !space.valid()) handles_->fail(action);
  if (H5Tget_class(type.get()) != H5T_STRING) handles_->wrong_type(object, attribute, "text");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const std::size_t width = H5Tget_size(type.get());
  if (count < 0 || width == 0) handles_->fail(action);
  std::error_code unknown;
  const std::uintmax_t file_bytes = std::filesystem::file_size(path(), unknown);
  if (!unknown && static_cast<std::uintmax_t>(count) > file_bytes / width) {
    throw FileError({.file = path(),
                     .what = fmt::format("attribute {} of {} is damaged: {} texts of {} bytes are more than the file "
                                         "holds; copy or make it again",
                                         attribute, object, count, width)});
  }
  if (count == 0) return std::vector<std::string>{};
  return handles_->decode_texts(type, space, static_cast<std::size_t>(count), [&](void* values) {
    if (H5Aread(id.get(), type.get(), values) < 0) handles_->fail(action);
  });
}

std::vector<std::string> Hdf5File::read_texts(std::string_view dataset) const {
  const Hdf5Lock lock;
  const Hdf5Id id = handles_->open_dataset(dataset);
  const std::string action = fmt::format("read the texts of dataset {}", dataset);
  const Hdf5Id type(H5Dget_type(id.get()), H5Tclose);
  const Hdf5Id space(H5Dget_space(id.get()), H5Sclose);
  if (!type.valid() || !space.valid()) handles_->fail(action);
  if (H5Tget_class(type.get()) != H5T_STRING) handles_->damaged(dataset, "it holds no texts");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const std::size_t width = H5Tget_size(type.get());
  if (count < 0 || width == 0) handles_->fail(action);
  constexpr std::uintmax_t kMostPacked = 65536;  // bytes of data in one of a compressed file
  std::error_code unknown;
  const std::uintmax_t file_bytes = std::filesystem::file_size(path(), unknown);
  if (!unknown && static_cast<std::uintmax_t>(count) > file_bytes * kMostPacked / width) {
    handles_->damaged(dataset, fmt::format("{} texts of {} bytes are more than the file holds", count, width));
  }
  return handles_->decode_texts(type, space, static_cast<std::size_t>(count), [&](void* values) {
    if (count > 0 && H5Dread(id.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) handles_->fail(action);
  });
}

std::optional<std::string> Hdf5File::text(std::string_view object, std::string_view attribute) const {
  const auto values = texts(object, attribute);
  if (!values) return std::nullopt;
  if (values->size() != 1) handles_->wrong_type(object, attribute, "a single text");
  return values->front();
}

template <class Number>
std::optional<Number> Hdf5File::Handles::number(std::string_view object, std::string_view attribute, hid_t memory,
                                                std::initializer_list<H5T_class_t> classes,
                                                std::string_view expected) const {
  const Hdf5Id owner = open_object(object);
  const Hdf5Id id = open_attribute(owner, object, attribute);
  if (!id.valid()) return std::nullopt;
  const Hdf5Id type(H5Aget_type(id.get()), H5Tclose);
  const Hdf5Id space(H5Aget_space(id.get()), H5Sclose);
  const bool is_number = std::find(classes.begin(), classes.end(), H5Tget_class(type.get())) != classes.end();
  if (!is_number || H5Sget_simple_extent_npoints(space.get()) != 1) wrong_type(object, attribute, expected);
  Number value = 0;
  if (H5Aread(id.get(), memory, &value) < 0) fail(fmt::format("read attribute {} of {}", attribute, object));
  return value;
}

std::optional<std::int64_t> Hdf5File::integer(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  return handles_->number<std::int64_t>(object, attribute, H5T_NATIVE_INT64, {H5T_INTEGER}, "a single integer");
}

std::optional<double> Hdf5File::real(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  return handles_->number<double>(object, attribute, H5T_NATIVE_DOUBLE, {H5T_FLOAT, H5T_INTEGER}, "a single number");
}

}  // namespace lockstep::io
