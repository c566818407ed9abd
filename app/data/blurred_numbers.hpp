/// \file
/// Numbers of data that differ by less than float64 or float32 can show at their size, such as times in nanoseconds
/// since 1970.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "app/data/feature_statistics.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Type in which numbers are told apart: float64 if they are standardised when they are read, otherwise float32.
enum class ToldApartIn { float32, float64 };

/// Returns a warning of one sentence about the first feature of x that loses its differences; "": none.
/// `statistics`: those of the stored numbers; `parts`: the features that they describe.
std::string blurred_features(const FeatureStatistics& statistics, std::span<const io::FeaturePart> parts,
                             ToldApartIn type, const io::DatasetInfo& info, const std::filesystem::path& path);
/// The same for the targets.
std::string blurred_targets(const FeatureStatistics& statistics, ToldApartIn type, const io::DatasetInfo& info,
                            const std::filesystem::path& path);

}  // namespace lockstep::app
