/// \file
/// Rewrites of a description before its graph is made. They fuse operations that one kind computes in one pass over
/// memory, and set the order of rows that recurrent operations read. Users write, and signatures identify, the
/// description before the rewrites.
///
/// A rewrite fuses calls if only the last one is read by other calls. Parameters keep their names. The rewrites:
/// - dense or conv, then relu, tanh, sigmoid or gelu: the dense or conv gets the activation.
/// - batch-norm, then add, then relu (one or both): a batch-norm with a second input and relu, at the last place.
/// - dense with gelu, then dense: "dense, gelu, dense" (operations/feed_forward.cpp).
/// - lstm, then lstm of equal width, with or without dropout in between: an lstm of several layers. Only for tokens.
///
/// In the result, each call names what it reads. The sum of two values before a layer-norm needs no rewrite: the
/// program fuses them (OperationNeeds::makes_sum).
#pragma once

#include "model/graph/description.hpp"
#include "model/graph/operation_kinds.hpp"

namespace lockstep::model {

/// Adds a call that brings tokens into time-major order, if an operation reads them in that order.
Description in_time_major_order(Description description, OperationKinds kinds = operation_kinds());
/// Returns the same network in fewer calls, with tokens in time-major order. Invalid calls do not change; Graph refuses
/// them.
Description rewritten(Description description, OperationKinds kinds = operation_kinds());

}  // namespace lockstep::model
