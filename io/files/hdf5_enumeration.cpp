#include "io/files/hdf5_enumeration.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <ranges>
#include <vector>

#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {

std::map<std::int64_t, std::string> enumeration_members(const std::filesystem::path& file, std::string_view dataset) {
  const Hdf5Lock lock;
  const Hdf5Id opened(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (!opened.valid()) throw FileError({.file = file, .what = "cannot open it: " + innermost_error().reason});
  const Hdf5Id id(H5Dopen2(opened.get(), std::string(dataset).c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Id type(id.valid() ? H5Dget_type(id.get()) : H5I_INVALID_HID, H5Tclose);
  if (!type.valid() || H5Tget_class(type.get()) != H5T_ENUM) return {};
  const Hdf5Id base(H5Tget_super(type.get()), H5Tclose);
  std::map<std::int64_t, std::string> members;
  const int count = H5Tget_nmembers(type.get());
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<unsigned>(i);
    std::vector<char> number(std::max(H5Tget_size(type.get()), sizeof(std::int64_t)));
    const std::unique_ptr<char, herr_t (*)(void*)> name(H5Tget_member_name(type.get(), index), H5free_memory);
    if (!name || H5Tget_member_value(type.get(), index, number.data()) < 0 ||
        H5Tconvert(base.get(), H5T_NATIVE_INT64, 1, number.data(), nullptr, H5P_DEFAULT) < 0) {
      return {};
    }
    std::int64_t value = 0;
    std::memcpy(&value, number.data(), sizeof value);
    members.emplace(value, name.get());
  }
  const auto is_boolean = [](const std::string& name) { return name == "FALSE" || name == "TRUE"; };
  return std::ranges::all_of(std::views::values(members), is_boolean) ? std::map<std::int64_t, std::string>{} : members;
}

}  // namespace lockstep::io
