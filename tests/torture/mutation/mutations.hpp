/// \file
/// What happens to files on the way: bytes that flip, lengths that lie, parts that are lost, doubled or another file's.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace lockstep::torture {

using Random = std::mt19937_64;

/// `bytes` with one to four things done to them; parts of `other` may be spliced in. The same for the same state of
/// `random`. Half of all changes lie in the first 512 bytes, where headers are.
std::string mutated(std::string bytes, std::string_view other, Random& random);

}  // namespace lockstep::torture
