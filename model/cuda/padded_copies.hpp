/// \file
/// Copies of a product's matrices with padded rows (product_padding.hpp), and their memory.
#pragma once

#include <functional>
#include <utility>

#include <cuda_runtime_api.h>

#include "model/backend.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/kernels/kernels.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model::cuda {

class PaddedCopies {
 public:
  struct Options {
    double worth = kFlopsPerCopiedByte;  ///< FLOPs per byte above which a product uses copies
    /// Called before memory that recorded work may use is released. Empty if nothing is recorded.
    std::function<void()> forget_recordings = {};
  };
  PaddedCopies(DeviceMemory& memory, Options options) : memory_(memory), options_(std::move(options)) {}

  struct Matrices {
    Tensor a, b, out;
  };
  /// out = a b. The content of padded copies is not set yet.
  struct Product {
    Matrices stored, made;
    PaddedProduct padded;
    void* bias_room = nullptr;  ///< if made.out is a copy: memory for a bias with its columns
  };
  Product product_of(const Matrices& stored, bool a_transposed, bool b_transposed);

  static void copy_factors(cudaStream_t stream, const Product& product);
  /// Pads the operands, calls multiply(padded a, padded b, padded out), which must enqueue out = or += a b, and copies
  /// the result back.
  template <class Multiply>
  static void run(cudaStream_t stream, const Product& product, Accumulate accumulate, const Multiply& multiply) {
    copy_factors(stream, product);
    const auto& [stored, made, padded, bias_room] = product;
    if (padded.copies_out && accumulate == Accumulate::yes) copy_rows(stream, stored.out, made.out);
    multiply(made.a, made.b, made.out);
    if (padded.copies_out) copy_rows(stream, made.out, stored.out);
  }

 private:
  std::byte* room_for(std::size_t bytes);

  DeviceMemory& memory_;
  Options options_;
  Block room_;
};

}  // namespace lockstep::model::cuda
