/// \file
/// "instance-norm": normalises each channel of each sample over its positions: a group norm with one channel per group.
#include <algorithm>

#include "model/graph/operation_kinds.hpp"

namespace lockstep::model {

extern const OperationKind instance_norm_operation;
const OperationKind instance_norm_operation{
    .name = "instance-norm",
    .summary = "normalisation of each channel of each sample over its places",
    .arguments =
        {{.name = "epsilon", .value = 1e-5, .value_name = "X", .help = "added to the variance", .at_least = 1e-12}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return (*std::ranges::find(operation_kinds(), "group-norm", &OperationKind::name))->make(call);
    }};

}  // namespace lockstep::model
