/// \file
/// The default training options of a network suit the data that it was designed for: photographs in classes. This file
/// drops defaults that do not suit the data of a job.
#pragma once

#include <span>
#include <string>

#include "app/data/field_axes.hpp"
#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Drops the defaults of the network (TrainOptions::from_network) that do not suit the data; options of the user stay.
/// - Networks that predict numbers: no augmentation, and the general defaults (Adam). Networks from a user's file keep
///   their own defaults.
/// - Images that are no photographs (3 or 4 channels of bytes, or of floats up to 1 or 255): no flips, no changes of
///   brightness or contrast, no normalisation over all channels of an image.
/// - Images of other sizes than the defaults suit: no crops or padding.
/// Returns one sentence with the dropped options and the reasons; "": nothing was dropped. May read some samples, for
/// their range.
std::string fit_network_defaults(const io::Dataset& data, std::span<const FieldAxes> inputs, model::LossKind loss,
                                 TrainOptions& options);

}  // namespace lockstep::app
