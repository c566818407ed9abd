/// \file
/// Attributes that define the meaning of a dataset's numbers: the conventions of netCDF and CF (Climate and Forecast),
/// which h5py and xarray write, too.
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
/// valid_range, _Unsigned; and netCDF's default fill value for a variable without one of its own.
struct StoredMeaning {
  FileType stored = FileType::other;   ///< type of the elements as read
  FileType meant = FileType::other;    ///< type of the same bytes: unsigned if _Unsigned demands it
  FileType numbers = FileType::other;  ///< type of apply()'s results: float64 for scaled numbers
  bool scaled = false;
  double scale = 1, offset = 0;
  struct Marker {
    double value = 0;
    std::string name;
  };
  std::vector<Marker> markers;            ///< stored numbers that mark a missing one
  std::optional<double> least, greatest;  ///< limits of the stored numbers; numbers beyond them are missing

  bool can_be_missing() const noexcept { return !markers.empty() || least || greatest; }
  /// True if the numbers differ from the stored elements.
  bool matters() const noexcept { return scaled || numbers != stored || can_be_missing(); }
  /// Makes apply() deliver missing numbers as NaN; integers that can be missing then become floats.
  void deliver_missing();
  /// "scale_factor 0.001 and add_offset 1.5 applied, _FillValue -32767"
  std::string in_words() const;

  struct Missing {
    std::size_t element = 0;
    std::string why;  ///< "-32767, its _FillValue"
  };
  /// Converts the stored `elements` and writes the numbers to `out`; a missing one becomes NaN, or 0 for integers.
  /// Returns the first missing element.
  std::optional<Missing> apply(std::span<const std::byte> elements, std::span<std::byte> out) const;
  /// Flags the elements that are missing: by the attributes, or NaN.
  std::vector<bool> missing(std::span<const std::byte> elements) const;

 private:
  bool is_missing(double number) const noexcept;
  std::string why_missing(double number) const;
};

/// Throws FileError if one of these attributes is not a number.
StoredMeaning meaning_of(const Hdf5File& file, std::string_view dataset, FileType stored);

}  // namespace lockstep::io
