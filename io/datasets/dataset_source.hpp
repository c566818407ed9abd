/// \file
/// HDF5 files made by others, and packed data, as what `pack` reads: samples as training would get them.
#pragma once

#include <memory>

#include "io/datasets/sharded_dataset.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// x as ShardedDataset delivers it (bytes stay bytes, other integers become float32, channels come last), y as class
/// numbers (int32) or targets (float32). Throws FileError.
std::unique_ptr<SampleSource> open_hdf5(const DatasetOptions& options);

}  // namespace lockstep::io
