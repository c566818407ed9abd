/// \file
/// cuBLASLt on a host, as far as model/cuda uses it and its epilogues. It stores and interprets descriptors, layouts
/// and preferences. It sums in float64 and rounds to the type of the output. A product runs in the order of its stream
/// (support/runtime_on_cpu.hpp).
///
/// It refuses: attributes whose size differs from the library's, shapes that do not match, leading dimensions smaller
/// than a column, algorithms that were proposed for another problem, pointers with less alignment than the heuristics
/// were told, workspaces smaller than the algorithm needs, epilogues without their pointers. It overwrites the
/// workspace that the algorithm requires.
///
/// It models neither the library's set of kernels nor their order of summation.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

/// Makes the heuristics propose nothing from now on, or everything again.
void refuse_products(bool refuse);
/// From now on, refuses each product with the first `count` algorithms that are proposed for it, although the caller
/// makes no mistake.
void refuse_proposals(int count);
/// Returns the faults of the calls refused since the last call of this function, one sentence each.
std::vector<std::string> take_refusals();

/// A product with a matrix whose columns do not all begin at multiples of 16 bytes. The library has only slow kernels
/// for it.
struct UnalignedProduct {
  double flops;
  std::string what;
};
/// Returns the unaligned bfloat16 products since the last call of this function.
std::vector<UnalignedProduct> take_unaligned_products();

}  // namespace lockstep::test
