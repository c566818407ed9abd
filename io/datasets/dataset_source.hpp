/// \file
/// Other programs' HDF5 files, and packed data, as input of `pack`: samples as training would get them.
#pragma once

#include <memory>

#include "io/datasets/sharded_dataset.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// x as ShardedDataset delivers it (bytes stay bytes, integers of 8 and 16 bits become float32, longer ones float64,
/// channels come last), y as class numbers (int32) or targets (float32, or float64 likewise). `missing` decides about
/// samples with missing numbers (StoredMeaning, and NaN), for which options.gaps delivers them: they are left out, or
/// each missing number becomes the mean of its element over all samples that have it. A label is never guessed. This
/// takes a pass over the data before the first read. Throws FileError.
std::unique_ptr<SampleSource> open_hdf5(const DatasetOptions& options,
                                        CsvOptions::Missing missing = CsvOptions::Missing::error);

}  // namespace lockstep::io
