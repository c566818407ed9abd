/// \file
/// Rewrites of a description before its graph is made: operations that one kind computes in one pass over memory, and
/// the order of rows that recurrent operations read. The description that users write, and that is stored, is the one
/// before them.
///
/// A rewrite takes calls of which none but the last is read by any other, and keeps the names of parameters:
///   dense or conv, then relu, tanh, sigmoid or gelu        the activation of the dense or conv
///   batch-norm, then add, then relu (one of them or both)  a batch-norm with a second input and a relu, where the sum
///   was dense with gelu, then dense                            "dense, gelu, dense" (operations/feed_forward.cpp)
///   lstm, then dropout or not, then lstm of its width      an lstm of several layers
/// All calls of the result say what they read.
/// The sum of two values and the layer-norm behind it need no rewrite: the program makes them in one
/// (OperationNeeds::makes_sum).
#pragma once

#include "model/graph/description.hpp"
#include "model/graph/operation_kinds.hpp"

namespace lockstep::model {

/// Recurrent operations read time-major rows: brings tokens into that order where they come in, as a call.
Description in_time_major_order(Description description, OperationKinds kinds = operation_kinds());
/// The same network in fewer calls, in time-major order. Calls that make no sense stay, for Graph to refuse.
Description rewritten(Description description, OperationKinds kinds = operation_kinds());

}  // namespace lockstep::model
