/// \file
/// cuBLASLt on a host, as far as model/cuda uses it and its epilogues go: descriptors, layouts and preferences are kept
/// and interpreted, sums are float64 inside and rounded to the output's type, a product comes to its turn in its stream
/// (support/runtime_on_cpu.hpp).
///
/// What it refuses: attributes of another size than the library's, shapes that do not fit together, leading dimensions
/// smaller than a column, algorithms that were proposed for another problem, pointers that are less aligned than the
/// heuristics were told, workspaces smaller than the algorithm's, epilogues without their pointers. What the algorithm
/// said that it takes of the workspace it overwrites.
///
/// What it does not know: which kernels the library has, nor their order of summation.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

/// The heuristics know nothing from now on, or everything again.
void refuse_products(bool refuse);
/// From now on a product is refused with the first `count` algorithms that are proposed for it, for no fault of the
/// caller's.
void refuse_proposals(int count);
/// What was wrong with the calls that were refused since the last call of this function, a sentence each.
std::vector<std::string> take_refusals();

/// A product whose columns, in one of its matrices, do not all begin at multiples of 16 bytes: the library has only
/// slow kernels for it.
struct UnalignedProduct {
  double flops;
  std::string what;
};
/// Those of bfloat16 since the last call of this function.
std::vector<UnalignedProduct> take_unaligned_products();

}  // namespace lockstep::test
