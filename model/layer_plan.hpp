/// \file
/// A line of the plan that --dry-run prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/product_padding.hpp"

namespace lockstep::model {

struct LayerPlan {
  std::string name;         ///< "dense_1"
  std::string description;  ///< "784 -> 512, relu"
  std::int64_t parameters = 0;
  std::int64_t activation_elements = 0;       ///< per sample
  double forward_flops = 0;                   ///< per sample; a multiply-add counts as two
  double backward_flops = 0;                  ///< per sample
  std::int64_t patch_elements = 0;            ///< patches of its largest convolution (im2col), per sample
  std::int64_t score_elements = 0;            ///< scores_in_tiles() of attention without dropout, per sample
  std::vector<LinearMap> products = {};       ///< rows per sample
  std::vector<LinearMap> side_products = {};  ///< products that a device runs concurrently in a side queue (Queue)
  std::vector<std::size_t> declares = {};     ///< indices of its parameters in the network's table
};

}  // namespace lockstep::model
