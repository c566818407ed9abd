/// \file
/// How a network is usually trained goes with the data that it was made for: photographs in classes. What does not suit
/// other data is left out.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "io/datasets/dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Takes back those of the network's own defaults (TrainOptions::from_network) that do not suit the data; what the user
/// has given stays. Numbers to predict are learnt with Adam from samples that nothing changes. Pictures that are no
/// photographs (of 3 or 4 channels) are not mirrored, and keep their brightness; a crop or a margin is for images of
/// the size that it was made for. Returns what was left out and why, as a sentence; "": nothing.
std::string fit_network_defaults(const io::DatasetInfo& info, model::LossKind loss, TrainOptions& options);

/// Whether the last of three extents of a sample counts channels: up to 4, or few beside height and width. Else the
/// samples are volumes, whose numbers are all of one kind.
bool has_channels(const io::Field& x);

}  // namespace lockstep::app
