/// \file
/// cuDNN's backend interface on a host, as far as model/cuda uses it for convolutions and attention. Descriptors store
/// their attributes and are checked when they are finalized. The heuristics propose engines. A plan computes its
/// operation in float64, with the described window, dimensions and strides, in the order of its stream
/// (support/runtime_on_cpu.hpp). Graphs of products, passes, reductions and views are computed operation by operation.
///
/// It refuses: attributes whose type or number differs from the library's; descriptors that are used before they are
/// finalized or after they are destroyed; graphs whose tensors do not match, are read before they are written, or are
/// sums of blocks in any order (unless allowed); convolutions whose extents do not follow from window, strides and
/// paddings; tensors whose elements overlap; pointers with less alignment than their tensors state; missing workspaces;
/// plans of another handle; and plans of engines whose notes say that they do not repeat or add in less than fp32. The
/// first proposed engine does not repeat; the second rounds its sums; the third needs more workspace than callers give;
/// the fourth and the fifth are acceptable and overwrite their workspace.
///
/// It models neither the library's set of engines for a convolution or graph nor their order of summation.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

/// Returns the faults of the calls refused since the last call of this function, one sentence each.
std::vector<std::string> take_convolution_refusals();
/// Returns the number of convolutions computed since the last call of this function.
int take_convolutions();
/// Likewise, for graphs of several operations.
int take_graphs();
/// Makes the heuristics propose nothing from now on, or everything again.
void refuse_convolutions(bool refuse);
/// From now on, the first acceptable engine takes 5 ms longer, or not any more.
void slow_first_engine_down(bool slow);
/// From now on, plans of that engine fail when they run, or work again.
void let_first_engine_fail(bool fail);
/// True if the first of the two acceptable engines was the last to run.
bool last_engine_was_the_first();
/// Refuses (the initial setting) or allows products that blocks add to their tensor's former values in any order.
void allow_sums_in_any_order(bool allow);

}  // namespace lockstep::test
