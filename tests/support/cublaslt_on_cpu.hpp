/// \file
/// cuBLASLt on a host, as far as model/cuda uses it and its epilogues: it keeps and interprets descriptors, layouts and
/// preferences. Sums are float64 inside and rounded to the output's type. A product runs in the order of its stream
/// (support/runtime_on_cpu.hpp).
///
/// It refuses: attributes of another size than the library's, shapes that do not fit together, leading dimensions
/// smaller than a column, algorithms that were proposed for another problem, pointers that are less aligned than the
/// heuristics were told, workspaces smaller than the algorithm's, epilogues without their pointers. It overwrites the
/// workspace that the algorithm requires.
///
/// It does not model the library's set of kernels, nor their order of summation.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

/// Makes the heuristics propose nothing from now on, or everything again.
void refuse_products(bool refuse);
/// From now on a product is refused with the first `count` algorithms that are proposed for it, without a fault of the
/// caller.
void refuse_proposals(int count);
/// The faults of the calls that were refused since the last call of this function, one sentence each.
std::vector<std::string> take_refusals();

/// A product whose columns, in one of its matrices, do not all begin at multiples of 16 bytes: the library has only
/// slow kernels for it.
struct UnalignedProduct {
  double flops;
  std::string what;
};
/// Unaligned products of bfloat16 since the last call of this function.
std::vector<UnalignedProduct> take_unaligned_products();

}  // namespace lockstep::test
