/// \file
/// Marks packed data that lack samples of their source.
#pragma once

namespace lockstep::io {

/// End of a source's description if samples were left out. Consecutive samples may then not be consecutive in the
/// source.
inline constexpr const char* kLeftOut = " without lines that miss a number";

}  // namespace lockstep::io
