/// \file
/// A network's usual training options suit the data that it was made for: photographs in classes. Options that do not
/// suit other data are dropped.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Takes back those of the network's own defaults (TrainOptions::from_network) that do not suit the data; the user's
/// options stay. Networks for numbers are trained with Adam on unchanged samples. Pictures that are no photographs (of
/// 3 or 4 channels) are not mirrored and keep their brightness; crops and margins apply only to images of the size that
/// they were made for. Returns the dropped options and the reasons as a sentence; "": none.
std::string fit_network_defaults(const io::DatasetInfo& info, model::LossKind loss, TrainOptions& options);

}  // namespace lockstep::app
