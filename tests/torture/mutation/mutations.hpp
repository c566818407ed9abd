/// \file
/// Damage to files in transit: bytes that flip, wrong lengths, parts that are lost, doubled or another file's.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace lockstep::torture {

using Random = std::mt19937_64;

/// `bytes` with one to four changes; parts of `other` may be spliced in. The result follows from the state of `random`.
/// Half of all changes lie in the first 512 bytes, the place of headers.
std::string mutated(std::string bytes, std::string_view other, Random& random);

}  // namespace lockstep::torture
