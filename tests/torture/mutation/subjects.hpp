/// \file
/// Every kind of file that the program reads: valid small ones, and the code that reads them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::torture {

struct Subject {
  std::string name;
  std::function<void(const std::filesystem::path& folder)> make;  ///< valid files, into an empty folder
  std::vector<std::string> targets;                               ///< mutated one at a time
  /// Returns the contents as text: a file with checksums must give the same text as the valid one, or its damage went
  /// unnoticed.
  std::function<std::string(const std::filesystem::path& folder)> read;
  bool has_checksums = false;
};

/// `fixtures`: the folder tests/io/fixtures.
std::vector<Subject> subjects(const std::filesystem::path& fixtures);

/// Whole commands on files of earlier ones: training that begins with other weights, goes on or repeats a run, reports,
/// sweeps.
void add_commands(std::vector<Subject>& all);

/// A reader with a fault, to test the judge: crash, hang, words, memory or altered. Throws std::invalid_argument for
/// other names.
Subject planted(std::string_view fault);

}  // namespace lockstep::torture
