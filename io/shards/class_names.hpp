/// \file
/// Names of classes and categories. Names of one data set differ if their texts differ. Two data sets may spell whole
/// numbers differently: 2 of one is 2.0 of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::io {

/// The whole number in a text: "2", "2.0", "+2", "2e0", " 02". nullopt: another text, or 2^53 or more.
std::optional<std::int64_t> class_number(std::string_view text);
/// One spelling for labels that are numbers throughout: "2" for a whole number, other texts unchanged.
std::string class_name(std::string_view text);
/// Sorts by number if all names are whole numbers, then by bytes.
void sort_class_names(std::vector<std::string>& names);
/// Names for classes without names: "0", "1", ...
std::vector<std::string> numbered_classes(std::int64_t classes);
/// True if there are names and all of them are whole numbers.
bool all_whole_numbers(const std::vector<std::string>& names);

/// Finds, for each of `names`, its place among the `known` names of another data set: the same text, otherwise the only
/// text left that is the same whole number. No two names have one place. nullopt: unknown.
std::vector<std::optional<std::size_t>> places_among(const std::vector<std::string>& known,
                                                     const std::vector<std::string>& names);

/// The known names of another data set, for texts that are read one after the other.
class KnownNames {
 public:
  KnownNames() = default;
  explicit KnownNames(std::vector<std::string> names);

  /// The place of a text, otherwise of the only name that is the same whole number. `plain`: the text as C spells
  /// numbers.
  std::optional<std::size_t> find(const std::string& text, std::string_view plain) const;
  /// Records that the data hold this text, which find() knows. Remembers the first two texts with one place.
  void saw(std::size_t place, const std::string& text);
  /// Describes these two texts; "": none.
  std::string twins() const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> by_text_;
  std::unordered_map<std::int64_t, std::optional<std::size_t>> by_number_;  ///< nullopt: several names
  std::unordered_map<std::size_t, std::string> seen_;
  std::optional<std::pair<std::size_t, std::string>> twin_;
};

}  // namespace lockstep::io
