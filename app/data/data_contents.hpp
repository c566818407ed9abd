/// \file
/// Checksums for data files that store none, so that a resumed run can detect changed data.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Collective. Returns `data` with contents(), and a fingerprint that includes a checksum of samples, labels and
/// weights as read() delivers them. Up to 16 MiB the checksum covers all samples, beyond that up to 256 evenly spread
/// pieces. Only rank 0 reads. Returns `data` unchanged if all its shards have checksums. Throws comm::ConsensusError if
/// reading fails.
std::unique_ptr<io::Dataset> with_contents(comm::Communicator& communicator, std::unique_ptr<io::Dataset> data);

/// Returns the checksum that with_contents() adds to the fingerprint of `data`; "": none.
std::string checksum_of_contents(const io::Dataset& data);
/// Returns the fingerprint of `data` without the checksum that with_contents() adds.
std::string fingerprint_without_contents(const io::Dataset& data);

}  // namespace lockstep::app
