/// \file
/// Contents of files without checksums: a run that goes on must find the numbers that it began with.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Collective. `data` with a fingerprint that holds a checksum of samples, labels and weights as they are delivered: of
/// all up to 16 MiB, beyond that of up to 256 pieces spread evenly. Rank 0 reads them. Data whose files have checksums
/// come back as they are. Throws comm::ConsensusError: what reading throws.
std::unique_ptr<io::Dataset> with_contents(comm::Communicator& communicator, std::unique_ptr<io::Dataset> data);

/// The fingerprint without that checksum.
std::string fingerprint_without_contents(const io::Dataset& data);

}  // namespace lockstep::app
