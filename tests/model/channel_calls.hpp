/// \file
/// Calls of operations on channels, average pools and biases, to compare backends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/image_operations.hpp"
#include "model/window_shapes.hpp"

namespace lockstep::model::test {

struct ChannelOperand {
  enum Holds { values, master, sums } holds = values;
  std::int64_t rows = 0, columns = 0;
  bool image = false;  ///< may be in the backend's narrow type
};
struct ChannelCall {
  std::string what;
  std::vector<ChannelOperand> operands;
  std::function<void(ImageOperations&, const std::vector<Tensor>&)> run;
};

inline std::vector<ChannelCall> channel_calls() {
  using Tensors = std::vector<Tensor>;
  std::vector<ChannelCall> calls;
  for (const std::int64_t batch : {0, 1, 5}) {
    for (const Pool& pool : pools_of_any_windows()) {
      const std::int64_t in = pool.in.elements(), out = pool.out.elements(), channels = pool.in.channels;
      for (const auto divisor :
           {AveragePool::Divisor::seen, AveragePool::Divisor::positions, AveragePool::Divisor::one}) {
        calls.push_back({"average pool",
                         {{.rows = batch, .columns = in, .image = true},
                          {.rows = batch, .columns = out, .image = true},
                          {.rows = batch, .columns = out, .image = true},
                          {.rows = batch, .columns = in, .image = true}},
                         [=](ImageOperations& images, const Tensors& t) {
                           images.average_pool_forward({pool, divisor}, t[0], t[1]);
                           images.average_pool_backward({pool, divisor}, t[2], t[3]);
                         }});
      }
      calls.push_back({"global maximum",
                       {{.rows = batch, .columns = in},
                        {.rows = batch, .columns = channels},
                        {.rows = batch, .columns = channels},
                        {.rows = batch, .columns = in}},
                       [=](ImageOperations& images, const Tensors& t) {
                         images.global_max_forward(pool.in, t[0], t[1]);
                         images.global_max_backward(pool.in, t[0], t[1], t[2], t[3]);
                       }});
    }
    for (const LinearUpsampling& shape : std::vector<LinearUpsampling>{{{1, 5, 3}, {1, 10, 3}},
                                                                       {{3, 4, 16}, {6, 8, 16}},
                                                                       {{4, 1, 6}, {12, 5, 6}},
                                                                       {{5, 6, 1}, {5, 18, 1}},
                                                                       {{3, 2, 8, 4}, {6, 4, 8, 8}},
                                                                       {{2, 3, 40, 3}, {4, 3, 40, 9}},
                                                                       {{20, 24, 32, 5}, {40, 48, 32, 10}}}) {
      const std::int64_t in = shape.in.elements(), out = shape.out.elements();
      if (batch > 1 && out > 100000) continue;
      calls.push_back({"linear upsampling",
                       {{.rows = batch, .columns = in},
                        {.rows = batch, .columns = out},
                        {.rows = batch, .columns = out},
                        {.rows = batch, .columns = in}},
                       [=](ImageOperations& images, const Tensors& t) {
                         images.linear_upsampling_forward(shape, t[0], t[1]);
                         images.linear_upsampling_backward(shape, t[2], t[3]);
                       }});
    }
    // No groups of two numbers: their gradient is nearly zero.
    for (const auto& [places, channels, groups] :
         std::vector<std::array<std::int64_t, 3>>{{1, 10, 2}, {7, 6, 1}, {5, 16, 4}, {40, 3, 3}, {300, 32, 8}}) {
      const GroupNorm norm{.places = places, .channels = channels, .groups = groups};
      const std::int64_t all = norm.elements();
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        calls.push_back(
            {"group norm",
             {{.rows = batch, .columns = all, .image = true},
              {.rows = 1, .columns = channels},
              {.rows = 1, .columns = channels},
              {ChannelOperand::master, batch, groups},
              {ChannelOperand::master, batch, groups},
              {.rows = batch, .columns = all, .image = true},
              {.rows = batch, .columns = all, .image = true},
              {ChannelOperand::master, 1, channels},
              {ChannelOperand::master, 1, channels},
              {ChannelOperand::sums, batch, 2 * (channels + groups)},
              {.rows = batch, .columns = all, .image = true}},
             [=](ImageOperations& images, const Tensors& t) {
               images.group_norm_forward(norm, {t[0], t[1], t[2], t[3], t[4], t[5]});
               images.group_norm_backward(norm, {t[0], t[6], t[3], t[4], t[1], t[7], t[8], t[9], t[10]}, accumulate);
             }});
      }
    }
    for (const std::int64_t columns : {1, 5, 16, 40}) {
      calls.push_back({"softmax",
                       {{.rows = 3 * batch, .columns = columns},
                        {.rows = 3 * batch, .columns = columns},
                        {.rows = 3 * batch, .columns = columns}},
                       [](ImageOperations& images, const Tensors& t) {
                         images.softmax_forward(t[0], t[1]);
                         images.softmax_backward(t[1], t[2], t[2]);
                       }});
      for (const std::int64_t served : {1, 7}) {
        calls.push_back({"product",
                         {{.rows = served * batch, .columns = columns},
                          {.rows = batch, .columns = columns},
                          {.rows = served * batch, .columns = columns},
                          {.rows = served * batch, .columns = columns},
                          {.rows = batch, .columns = columns}},
                         [](ImageOperations& images, const Tensors& t) {
                           images.multiply(t[0], t[1], t[2]);
                           images.multiply_sums(t[0], t[3], t[4]);
                         }});
      }
      for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid}) {
        calls.push_back({"bias",
                         {{.rows = 1, .columns = columns},
                          {.rows = 50 * batch, .columns = columns, .image = true},
                          {.rows = 50 * batch, .columns = columns, .image = true},
                          {.rows = 50 * batch, .columns = columns, .image = true},
                          {ChannelOperand::master, 1, columns}},
                         [=](ImageOperations& images, const Tensors& t) {
                           images.bias_forward(t[0], activation, t[1]);
                           images.bias_backward(activation, t[2], t[3], Accumulate::yes, t[4]);
                         }});
      }
    }
    for (const StridedCopy& copy : {StridedCopy{.extents = {1, 2, 3, 2, 8},
                                   .from_steps = {0, 96, 16, 8, 1},
                                   .to_steps = {0, 48, 16, 8, 1},
                                   .from_first = 32,
                                   .from_elements = 192,
                                   .to_elements = 96},
                                    StridedCopy{.extents = {1, 1, 4, 3, 2},
                                    .from_steps = {0, 0, 1, 4, 12},
                                    .to_steps = {0, 0, 6, 2, 1},
                                    .from_elements = 24,
                                    .to_elements = 24},
                                    StridedCopy{.extents = {2, 1, 1, 1, 3},
                                    .from_steps = {7, 0, 0, 0, 2},
                                    .to_steps = {3, 0, 0, 0, 1},
                                    .from_first = 1,
                                    .from_elements = 14,
                                    .to_elements = 6}}) {
      calls.push_back({"copy",
                       {{.rows = batch, .columns = copy.from_elements}, {.rows = batch, .columns = copy.to_elements}},
                       [=](ImageOperations& images, const Tensors& t) { images.copy_strided(copy, t[0], t[1]); }});
    }
  }
  return calls;
}

}  // namespace lockstep::model::test
