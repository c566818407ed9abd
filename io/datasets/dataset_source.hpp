/// \file
/// Samples of other programs' HDF5 files, and of packed data, as input of `pack`: the same samples as in training.
#pragma once

#include <memory>

#include "io/datasets/sharded_dataset.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// Opens the data. x is as ShardedDataset delivers it: bytes stay bytes, integers of 8 and 16 bits become float32,
/// longer ones float64, channels come last. y has class numbers (int32) or targets (float32, or float64 by the same
/// rule). `missing` selects the treatment of samples with missing numbers (StoredMeaning, and NaN), if options.gaps
/// delivers them: drop leaves the samples out; mean replaces each missing number by the mean of its element over all
/// samples that have it, and refuses missing labels. Both read all data once before the first read. Throws FileError.
std::unique_ptr<SampleSource> open_hdf5(const DatasetOptions& options,
                                        CsvOptions::Missing missing = CsvOptions::Missing::error);

}  // namespace lockstep::io
