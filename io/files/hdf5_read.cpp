#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ranges>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {
namespace {

/// Filters in common use that are registered with The HDF Group.
struct KnownFilter {
  H5Z_filter_t number;
  const char* name;
};
constexpr KnownFilter kKnownFilters[] = {{H5Z_FILTER_DEFLATE, "deflate, gzip"},
                                         {H5Z_FILTER_SZIP, "szip"},
                                         {305, "LZO"},
                                         {307, "bzip2"},
                                         {32000, "LZF"},
                                         {32001, "Blosc"},
                                         {32004, "LZ4"},
                                         {32008, "bitshuffle"},
                                         {32013, "ZFP"},
                                         {32015, "Zstandard"},
                                         {32017, "SZ"},
                                         {32018, "FCIDECOMP"},
                                         {32024, "SZ3"},
                                         {32026, "Blosc2"},
                                         {32028, "SPERR"}};

/// " (Zstandard)", or the name that the file gives.
std::string filter_name(H5Z_filter_t number, const char* stored) {
  for (const KnownFilter& known : kKnownFilters) {
    if (known.number == number) return fmt::format(" ({})", known.name);
  }
  return *stored == '\0' ? "" : fmt::format(" ({})", stored);
}

std::string filter_source(H5Z_filter_t number) {
  constexpr H5Z_filter_t kLzf = 32000, kFirstRegistered = 256;
  if (number == kLzf) return "only h5py reads it; write the file again with h5py and compression=\"gzip\"";
  if (number < kFirstRegistered) {
    return "build the library with it, or write the file again where it is read (h5repack -f GZIP=4 IN OUT)";
  }
  return "set HDF5_PLUGIN_PATH to a folder of such filters (of the Python package hdf5plugin: what `python3 -c "
         "\"import "
         "hdf5plugin; print(hdf5plugin.PLUGIN_PATH)\"` prints), or write the file again where it is read (h5repack -f "
         "GZIP=4 IN OUT)";
}

/// The names of an enumeration's members, by their bytes in the file.
std::map<std::string, std::string, std::less<>> names_of_members(hid_t type) {
  std::map<std::string, std::string, std::less<>> names;
  const int count = H5Tget_nmembers(type);
  for (int i = 0; i < count; ++i) {
    std::string bytes(H5Tget_size(type), '\0');
    const std::unique_ptr<char, herr_t (*)(void*)> name(H5Tget_member_name(type, static_cast<unsigned>(i)),
                                                        H5free_memory);
    if (name && H5Tget_member_value(type, static_cast<unsigned>(i), bytes.data()) >= 0) {
      names.emplace(std::move(bytes), name.get());
    }
  }
  return names;
}

/// True for an enumeration, unless its members are those of h5py's booleans.
bool has_named_members(hid_t type) {
  if (H5Tget_class(type) != H5T_ENUM) return false;
  const auto is_boolean = [](const auto& member) { return member.second == "FALSE" || member.second == "TRUE"; };
  return !std::ranges::all_of(names_of_members(type), is_boolean);
}

/// True for HDF5's dimension scales, which netCDF makes for each axis: CLASS = "DIMENSION_SCALE".
bool is_dimension(const Hdf5Id& dataset) {
  constexpr const char* kClass = "CLASS";
  constexpr std::string_view kScale = "DIMENSION_SCALE";
  if (H5Aexists(dataset.get(), kClass) <= 0) return false;
  const Hdf5Id attribute(H5Aopen(dataset.get(), kClass, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return false;
  const Hdf5Id type(H5Aget_type(attribute.get()), H5Tclose);
  std::array<char, 64> text{};
  return H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
         H5Tget_size(type.get()) < text.size() && H5Aread(attribute.get(), type.get(), text.data()) >= 0 &&
         kScale == text.data();
}

}  // namespace

/// Refuses chunks that the library would not write: it crashes on some of them.
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

void Hdf5File::Handles::fail_read(const Hdf5Id& dataset, std::string_view name, std::string_view action,
                                  const Hdf5Error& error) const {
  const Hdf5Id properties(H5Dget_create_plist(dataset.get()), H5Pclose);
  const int filters = properties.valid() ? H5Pget_nfilters(properties.get()) : 0;
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    std::array<char, 256> stored{};
    const H5Z_filter_t filter = H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags, &values, nullptr,
                                               stored.size() - 1, stored.data(), &configuration);
    if (filter < 0 || H5Zfilter_avail(filter) > 0) continue;
    throw FileError(
        {.file = path,
         .what = fmt::format("{} is compressed with filter {}{}, which the HDF5 library here does not have: {}", name,
                             filter, filter_name(filter, stored.data()), filter_source(filter))});
  }
  throw FileError(
      {.file = path, .what = fmt::format("cannot {}: {}", action, error.reason), .error_number = error.error_number});
}

void Hdf5File::Handles::fail_rows(const Hdf5Id& dataset, std::string_view name, hid_t memory, std::int64_t first,
                                  std::int64_t rows) const {
  const Hdf5Error error = innermost_error();
  const Hdf5Id properties(H5Dget_create_plist(dataset.get()), H5Pclose);
  const std::vector<hsize_t> shape = extents(dataset, name).now;
  std::vector<hsize_t> chunk(shape.size());
  const bool chunked = properties.valid() && H5Pget_layout(properties.get()) == H5D_CHUNKED && !chunk.empty() &&
                       H5Pget_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data()) > 0 && chunk[0] > 0;
  if (!chunked || error.error_number != 0) {
    fail_read(dataset, name, fmt::format("read samples {} to {} of dataset {}", first, first + rows - 1, name), error);
  }
  // Find the first chunk that cannot be read.
  const auto step = static_cast<std::int64_t>(chunk[0]);
  std::size_t row_bytes = H5Tget_size(memory);
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row_bytes *= shape[axis];
  for (std::int64_t begin = first; begin < first + rows;) {
    const std::int64_t end = std::min((begin / step + 1) * step, first + rows);
    std::vector<std::byte> scratch(row_bytes * static_cast<std::size_t>(end - begin));
    Hdf5Error reason;
    const bool read = transfer_rows(dataset, shape, begin, end - begin, [&](hid_t memory_space, hid_t file_space) {
      const herr_t status = H5Dread(dataset.get(), memory, memory_space, file_space, H5P_DEFAULT, scratch.data());
      if (status < 0) {
        reason = innermost_error();
      } else if (H5Tdetect_class(memory, H5T_VLEN) > 0 || H5Tis_variable_str(memory) > 0) {
        H5Dvlen_reclaim(memory, memory_space, H5P_DEFAULT, scratch.data());
      }
      return status;
    });
    if (!read) {
      fail_read(dataset, name,
                fmt::format("read samples {} to {} of dataset {}, whose chunk is damaged (copy the file again, or make "
                            "it again from its source)",
                            begin, end - 1, name),
                reason);
    }
    begin = end;
  }
  fail_read(dataset, name, fmt::format("read samples {} to {} of dataset {}", first, first + rows - 1, name), error);
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
  result.named = has_named_members(type.get());
  if (result.type == FileType::other) result.other = type_in_words(type.get());
  result.stored_size = H5Tget_size(type.get());
  const bool in_order = size_of(result.type) == 1 || H5Tget_order(type.get()) == H5Tget_order(H5T_NATIVE_INT);
  result.native_order = in_order && has_plain_bits(type.get());
  result.dimension = is_dimension(id);
  result.compressed = H5Pget_nfilters(properties.get()) > 0;
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  result.in_this_file =
      layout != H5D_VIRTUAL && H5Pget_external_count(properties.get()) == 0 && handles_->is_in_this_file(id, dataset);
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
    handles_->fail_read(id, dataset, fmt::format("read dataset {}", dataset), innermost_error());
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
    handles_->fail_rows(id, dataset, memory, first, rows);
  }
}

/// `read` fills memory for `count` elements of `type`.
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
  const bool members = H5Tget_class(type.get()) == H5T_ENUM;
  if (!members && H5Tget_class(type.get()) != H5T_STRING) handles_->damaged(dataset, "it holds no texts");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const std::size_t width = H5Tget_size(type.get());
  if (count < 0 || width == 0) handles_->fail(action);
  constexpr std::uintmax_t kMaxPacked = 65536;  // bytes of data per byte of a compressed file
  std::error_code unknown;
  const std::uintmax_t file_bytes = std::filesystem::file_size(path(), unknown);
  if (!unknown && static_cast<std::uintmax_t>(count) > file_bytes * kMaxPacked / width) {
    handles_->damaged(dataset, fmt::format("{} texts of {} bytes are more than the file holds", count, width));
  }
  const auto read = [&](void* values) {
    if (count == 0 || H5Dread(id.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0) return;
    handles_->fail_rows(id, dataset, type.get(), 0, count);
  };
  if (!members) return handles_->decode_texts(type, space, static_cast<std::size_t>(count), read);
  std::vector<char> values(static_cast<std::size_t>(count) * width);
  read(values.data());
  const std::map<std::string, std::string, std::less<>> names = names_of_members(type.get());
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < values.size(); at += width) {
    const auto found = names.find(std::string_view(&values[at], width));
    if (found == names.end()) {
      throw FileError({.file = path(),
                       .what = fmt::format("sample {} of {} is no member of its enumeration ({})", at / width, dataset,
                                           fmt::join(std::views::values(names), ", "))});
    }
    result.push_back(found->second);
  }
  return result;
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

bool Hdf5File::has_attribute(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  const Hdf5Id owner = handles_->open_object(object);
  return H5Aexists(owner.get(), std::string(attribute).c_str()) > 0;
}

bool Hdf5File::attribute_is_integer(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  const Hdf5Id owner = handles_->open_object(object);
  const Hdf5Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return false;
  const Hdf5Id type(H5Aget_type(id.get()), H5Tclose);
  return H5Tget_class(type.get()) == H5T_INTEGER;
}

std::vector<double> Hdf5File::numbers(std::string_view object, std::string_view attribute) const {
  const Hdf5Lock lock;
  const Hdf5Id owner = handles_->open_object(object);
  const Hdf5Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return {};
  const Hdf5Id type(H5Aget_type(id.get()), H5Tclose);
  const Hdf5Id space(H5Aget_space(id.get()), H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  constexpr hssize_t kMaxNumbers = 65'536;
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || count > kMaxNumbers) {
    handles_->wrong_type(object, attribute, "a number, or a list of a few");
  }
  std::vector<double> values(static_cast<std::size_t>(std::max<hssize_t>(0, count)));
  if (!values.empty() && H5Aread(id.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    handles_->fail(fmt::format("read attribute {} of {}", attribute, object));
  }
  return values;
}

bool Hdf5File::is_netcdf(std::string_view dataset) const {
  return has_attribute("/", "_NCProperties") || has_attribute(dataset, "_Netcdf4Coordinates") ||
         has_attribute(dataset, "_Netcdf4Dimid");
}

std::optional<double> Hdf5File::fill_value(std::string_view dataset) const {
  const Hdf5Lock lock;
  const Hdf5Id id = handles_->open_dataset(dataset);
  const Hdf5Id properties(H5Dget_create_plist(id.get()), H5Pclose);
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  double value = 0;
  const bool known = properties.valid() && H5Pfill_value_defined(properties.get(), &defined) >= 0 &&
                     defined == H5D_FILL_VALUE_USER_DEFINED &&
                     H5Pget_fill_value(properties.get(), H5T_NATIVE_DOUBLE, &value) >= 0;
  return known ? std::optional(value) : std::nullopt;
}

}  // namespace lockstep::io
