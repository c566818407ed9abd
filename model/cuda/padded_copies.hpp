/// \file
/// Copies of a product's matrices in rows of whole packs (product_padding.hpp), and their memory.
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
    /// Called before memory that recorded work may use is released; empty: nothing is recorded.
    std::function<void()> forget_recordings = {};
  };
  PaddedCopies(DeviceMemory& memory, Options options) : memory_(memory), options_(std::move(options)) {}

  struct Matrices {
    Tensor a, b, out;
  };
  /// out = a b; matrices that are padded copies are only memory here.
  struct Product {
    Matrices stored, made;
    PaddedProduct padded;
    void* bias_room = nullptr;  ///< memory for a bias as long as rows of made.out, if that is a copy
  };
  Product product_of(const Matrices& stored, bool a_transposed, bool b_transposed);

  static void copy_factors(cudaStream_t stream, const Product& product);
  /// multiply(made a, made b, made out) enqueues out = or += a b.
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
