/// \file
/// Mark of packed data that lack samples of their source.
#pragma once

namespace lockstep::io {

/// End of a source's description if samples were left out, so that neighbours need not follow each other.
inline constexpr const char* kLeftOut = " without lines that miss a number";

}  // namespace lockstep::io
