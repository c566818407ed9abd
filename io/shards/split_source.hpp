/// \file
/// One part of a source: what trains, or what validates. Internal to io.
#pragma once

#include <memory>

#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {

enum class SplitPart { train, validation };

/// The two parts of a source have all of its samples, each once, in its order. Of samples exactly `split.validation`
/// are chosen to validate: each as likely as every other, as a function of the seed and the number of samples. Of a
/// corpus the last ones are. Throws FileError when a part would be empty.
std::unique_ptr<SampleSource> make_part(std::unique_ptr<SampleSource> whole, SplitPart part, const SplitOptions& split);

}  // namespace lockstep::io
