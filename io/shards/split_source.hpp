/// \file
/// One part of a source, for training or for validation. Internal to io.
#pragma once

#include <memory>

#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {

enum class SplitPart { train, validation };

/// Makes one of two parts that together have all samples of a source, each once, in its order. For samples, exactly
/// `split.validation` are chosen for validation, all choices equally likely, as a function of the seed and the number
/// of samples. For a corpus, the last tokens are chosen. Throws FileError if a part would be empty.
std::unique_ptr<SampleSource> make_part(std::unique_ptr<SampleSource> whole, SplitPart part, const SplitOptions& split);

}  // namespace lockstep::io
