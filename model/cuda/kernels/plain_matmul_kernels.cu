#include <algorithm>
#include <stdexcept>

#include "model/cuda/kernels/plain_matmul.hpp"
#include "model/cuda/kernels/plain_matmul_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

template <class T>
MatrixView<T> view_of(const Tensor& tensor, bool transposed) {
  const auto* const data = static_cast<const T*>(tensor.data);
  if (transposed) return {data, tensor.columns, tensor.rows, 1, tensor.columns};
  return {data, tensor.rows, tensor.columns, tensor.columns, 1};
}

template <class In, class Out>
void run(cudaStream_t stream, const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed,
         Accumulate accumulate, const Tensor& out) {
  const auto tiles = [](std::int64_t count) { return (count + kTile - 1) / kTile; };
  const Grid grid{.blocks = static_cast<unsigned>(tiles(out.columns)),
                  .parts = static_cast<unsigned>(std::min<std::int64_t>(tiles(out.rows), kMaxTileRows)),
                  .threads = kTile * kTile,
                  .shared_bytes = sizeof(ProductTiles)};
  launch("plain_product", plain_product<In, Out>, grid, stream, view_of<In>(a, a_transposed),
         view_of<In>(b, b_transposed), static_cast<Out*>(out.data), accumulate == Accumulate::yes);
}

}  // namespace

void plain_matmul(cudaStream_t stream, const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed,
                  Accumulate accumulate, const Tensor& out) {
  if (a.type != b.type) throw std::invalid_argument("plain_matmul: a and b must have one type");
  const auto run_as = [&]<class In, class Out>() {
    run<In, Out>(stream, a, a_transposed, b, b_transposed, accumulate, out);
  };
  if (a.type == ElementType::float32 && out.type == ElementType::float32) {
    run_as.template operator()<float, float>();
  } else if (a.type == ElementType::bfloat16 && out.type == ElementType::float32) {
    run_as.template operator()<Bfloat16, float>();
  } else if (a.type == ElementType::bfloat16 && out.type == ElementType::bfloat16) {
    run_as.template operator()<Bfloat16, Bfloat16>();
  } else {
    throw std::invalid_argument(std::string("plain_matmul: ") + name_of(a.type) + " to " + name_of(out.type));
  }
}

}  // namespace lockstep::model::cuda
