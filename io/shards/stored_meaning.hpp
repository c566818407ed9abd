/// \file
/// Attributes that give the numbers of a dataset their meaning: the conventions of netCDF and CF (Climate and
/// Forecast), which h5py and xarray write, too.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

/// scale_factor and add_offset (number = stored * scale + offset), _FillValue, missing_value, valid_min, valid_max,
/// valid_range, _Unsigned; and netCDF's own fill value, where a variable has no other.
struct StoredMeaning {
  FileType stored = FileType::other;   ///< as the elements are read
  FileType meant = FileType::other;    ///< the same bytes: unsigned where _Unsigned says so
  FileType numbers = FileType::other;  ///< what apply() makes of them: float64 where they are scaled
  bool scaled = false;
  double scale = 1, offset = 0;
  struct Marker {
    double value = 0;
    std::string name;
  };
  std::vector<Marker> markers;            ///< stored numbers that stand for a missing one
  std::optional<double> least, greatest;  ///< of the stored numbers; beyond them they are missing

  bool can_be_missing() const noexcept { return !markers.empty() || least || greatest; }
  /// The elements mean something else than they are.
  bool matters() const noexcept { return scaled || numbers != stored || can_be_missing(); }
  /// Missing numbers become NaN: apply() makes floats of integers that can be missing.
  void deliver_missing();
  /// "scale_factor 0.001 and add_offset 1.5 applied, _FillValue -32767"
  std::string in_words() const;

  struct Missing {
    std::size_t element = 0;
    std::string why;  ///< "-32767, its _FillValue"
  };
  /// `elements` as stored -> `out`, as many numbers; a missing one becomes NaN, of integers 0. Returns the first.
  std::optional<Missing> apply(std::span<const std::byte> elements, std::span<std::byte> out) const;
  /// For each element whether it is missing: where the attributes say so, and NaN.
  std::vector<bool> missing(std::span<const std::byte> elements) const;

 private:
  bool is_missing(double number) const noexcept;
  std::string why_missing(double number) const;
};

/// Throws FileError where an attribute of these names holds no number.
StoredMeaning meaning_of(const Hdf5File& file, std::string_view dataset, FileType stored);

}  // namespace lockstep::io
