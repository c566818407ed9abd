/// \file
/// Finds samples that are in both the training and the validation data. A validation of samples that a network has
/// learnt says nothing about others.
#pragma once

#include <cstdint>
#include <string>

#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Compares the files of both data: their paths, the checksums of packed data, and the contents that with_contents()
/// has read. Reads no samples. Returns a clause that says what both have in common; "": nothing. The data must not be
/// the two parts of a split.
std::string shared_files(const io::Dataset& training, const io::Dataset& validation);

/// Samples whose numbers are equal to those of another sample. Samples of a single repeated number are not compared.
struct SampleTwins {
  std::int64_t training = 0, validation = 0;  ///< samples compared
  std::int64_t repeated = 0;                  ///< training samples that equal another training sample
  std::int64_t shared = 0;                    ///< validation samples that equal a training sample
  bool all_compared = false;                  ///< false: only the first samples of either data

  /// True if clearly more validation samples than training samples equal a training sample. Equal rows are natural in
  /// tables of few categories, and are then as frequent in both data.
  bool leaks() const noexcept;
  /// "20 of 100 validation samples equal a training sample"; "" if none does.
  std::string in_words() const;
};
/// Compares checksums of the stored samples. Reads both data for a few seconds at most. Throws io::FileError.
SampleTwins find_twins(const io::Dataset& training, const io::Dataset& validation);

}  // namespace lockstep::app
