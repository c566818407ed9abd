#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {
namespace {

/// Fixed length on purpose: variable-length strings live in the global heap, which has no checksum.
hid_t make_text_type(std::size_t bytes) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0) {
    H5Tset_size(type, std::max<std::size_t>(bytes, 1));
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
  }
  return type;
}

/// Properties of groups without time stamps: equal content, equal bytes.
hid_t group_properties() {
  const hid_t properties = H5Pcreate(H5P_GROUP_CREATE);
  if (properties >= 0) H5Pset_obj_track_times(properties, false);
  return properties;
}

bool make_group(hid_t file, const std::string& group, const Hdf5Id& properties) {
  Hdf5Id id(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose);
  return id.valid() && id.close();
}

/// Creates the missing groups above `path`. HDF5's own function would store time stamps.
bool make_parents(hid_t file, std::string_view path, const Hdf5Id& properties) {
  for (std::size_t slash = path.find('/', 1); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
    const std::string parent(path.substr(0, slash));
    if (H5Lexists(file, parent.c_str(), H5P_DEFAULT) <= 0 && !make_group(file, parent, properties)) return false;
  }
  return true;
}

}  // namespace

void Hdf5File::Handles::write_attribute(std::string_view object_name, std::string_view name, hid_t disk, hid_t space,
                                        const void* value, hid_t memory) {
  const std::string action = fmt::format("write attribute {} of {}", name, object_name);
  const std::string text(name);
  writable();
  Hdf5Id object = open_object(object_name);
  if (H5Aexists(object.get(), text.c_str()) > 0 && H5Adelete(object.get(), text.c_str()) < 0) fail_write(action);
  Hdf5Id attribute(H5Acreate2(object.get(), text.c_str(), disk, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid() || H5Awrite(attribute.get(), memory, value) < 0) fail_write(action);
  if (!attribute.close() || !object.close()) fail_write(action);
}

void Hdf5File::create_group(std::string_view group) {
  const Hdf5Lock lock;
  const Hdf5Id properties(group_properties(), H5Pclose);
  const hid_t file = handles_->writable();
  if (!make_parents(file, group, properties) || !make_group(file, std::string(group), properties)) {
    handles_->fail_write(fmt::format("create group {}", group));
  }
}

void Hdf5File::create_dataset(std::string_view dataset, FileType type, std::span<const std::int64_t> shape) {
  const Hdf5Lock lock;
  const std::string action = fmt::format("create dataset {}", dataset);
  const hid_t disk = hdf5_type(type).disk;
  const hid_t file = handles_->writable();
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) {
    throw std::invalid_argument(fmt::format("dataset {}: negative extent", dataset));
  }
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Hdf5Id space(extents.empty() ? H5Screate(H5S_SCALAR)
                                     : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                     H5Sclose);
  const Hdf5Id properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose), groups(group_properties(), H5Pclose);
  if (!space.valid() || !make_parents(file, dataset, groups) || H5Pset_layout(properties.get(), H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_obj_track_times(properties.get(), false) < 0 ||  // equal content, equal bytes
      H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) < 0) {
    handles_->fail_write(action);
  }
  Hdf5Id id(
      H5Dcreate2(file, std::string(dataset).c_str(), disk, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
      H5Dclose);
  if (!id.valid() || !id.close()) handles_->fail_write(action);
}

void Hdf5File::write(std::string_view dataset, FileType type, std::span<const std::byte> data) {
  const Hdf5Lock lock;
  const hid_t memory = hdf5_type(type).memory;
  handles_->writable();
  Hdf5Id id = handles_->open_dataset(dataset);
  handles_->check_whole(id, dataset, type, data.size());
  const bool written = data.empty() || H5Dwrite(id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0;
  if (!written || !id.close()) handles_->fail_write(fmt::format("write dataset {}", dataset));
}

void Hdf5File::write_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                          std::span<const std::byte> data) {
  const Hdf5Lock lock;
  const hid_t memory = hdf5_type(type).memory;
  handles_->writable();
  Hdf5Id id = handles_->open_dataset(dataset);
  const std::vector<hsize_t> shape = handles_->checked_rows(id, dataset, type, first, rows, data.size());
  const bool written =
      data.empty() || handles_->transfer_rows(id, shape, first, rows, [&](hid_t memory_space, hid_t file_space) {
        return H5Dwrite(id.get(), memory, memory_space, file_space, H5P_DEFAULT, data.data());
      });
  if (!written || !id.close()) {
    handles_->fail_write(fmt::format("write rows [{}, {}) of dataset {}", first, first + rows, dataset));
  }
}

void Hdf5File::set_text(std::string_view object, std::string_view attribute, std::string_view value) {
  const Hdf5Lock lock;
  const Hdf5Id type(make_text_type(value.size()), H5Tclose);
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const std::string padded(value.empty() ? std::string(1, '\0') : std::string(value));
  handles_->write_attribute(object, attribute, type.get(), space.get(), padded.data(), type.get());
}

void Hdf5File::set_texts(std::string_view object, std::string_view attribute, std::span<const std::string> values) {
  const Hdf5Lock lock;
  std::size_t width = 1;
  for (const std::string& value : values) width = std::max(width, value.size());
  std::vector<char> padded(std::max<std::size_t>(values.size(), 1) * width, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::copy(values[i].begin(), values[i].end(), padded.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const hsize_t count = values.size();
  const Hdf5Id type(make_text_type(width), H5Tclose);
  const Hdf5Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  handles_->write_attribute(object, attribute, type.get(), space.get(), padded.data(), type.get());
}

void Hdf5File::set_integer(std::string_view object, std::string_view attribute, std::int64_t value) {
  const Hdf5Lock lock;
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(object, attribute, H5T_STD_I64LE, space.get(), &value, H5T_NATIVE_INT64);
}

void Hdf5File::set_real(std::string_view object, std::string_view attribute, double value) {
  const Hdf5Lock lock;
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(object, attribute, H5T_IEEE_F64LE, space.get(), &value, H5T_NATIVE_DOUBLE);
}

}  // namespace lockstep::io
