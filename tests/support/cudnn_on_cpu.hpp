/// \file
/// cuDNN's backend interface on a host, as far as model/cuda uses it for convolutions and attention: descriptors keep
/// their attributes and are checked when they are finalized, the heuristics propose engines, and a plan computes what
/// its operation, window, dimensions and strides say, in float64 inside, when its turn in the stream has come
/// (support/runtime_on_cpu.hpp). Graphs of products, passes, reductions and views are computed operation by operation.
///
/// What it refuses: attributes of another type or number than the library's, descriptors that are used before they are
/// finalized or after they are destroyed, graphs whose tensors do not fit together, are read before they are written,
/// or are sums of blocks in any order (unless told otherwise), convolutions whose extents do not follow from window, strides and paddings,
/// tensors whose elements overlap, pointers that are less aligned than their tensors say, workspaces that are missing,
/// plans of another handle, and plans of engines that say of themselves that they do not repeat or add in less than
/// fp32: of those that it proposes the first does not repeat, the second rounds what it adds up; the third wants more
/// workspace than anybody gives; the fourth and the fifth will do and overwrite their workspace.
///
/// What it does not know: which engines the library has for which convolution or graph, and their order of summation.
#pragma once

#include <string>
#include <vector>

namespace lockstep::test {

/// What was wrong with the calls that were refused since the last call of this function, a sentence each.
std::vector<std::string> take_convolution_refusals();
/// Convolutions that were computed since the last call of this function.
int take_convolutions();
/// Graphs of several operations likewise.
int take_graphs();
/// The heuristics propose nothing from now on, or everything again.
void refuse_convolutions(bool refuse);
/// The first engine that will do takes 5 ms longer for what it computes from now on, or no longer.
void slow_first_engine_down(bool slow);
/// That engine's plans fail when they run from now on, or work again.
void let_first_engine_fail(bool fail);
/// Of the two that will do, whether the first was the last to run.
bool last_engine_was_the_first();
/// Products that blocks add to what their tensor held before, in any order, are refused (so at first), or computed.
void allow_sums_in_any_order(bool allow);

}  // namespace lockstep::test
