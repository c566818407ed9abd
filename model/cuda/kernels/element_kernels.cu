#include <algorithm>
#include <stdexcept>

#include "model/cuda/kernels/element_kernels.cuh"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/tiling.hpp"

namespace lockstep::model::cuda {

namespace {

template <class In, class Out>
void convert(cudaStream_t stream, const Tensor& in, const InputTransform& transform, const Tensor& out) {
  const ConvertInput<In, Out> body{static_cast<const In*>(in.data), static_cast<Out*>(out.data), transform.scale,
                                   transform.shift};
  constexpr int kWidth = kWideWidth<Out>;
  run_each<kWidth>("convert_input", stream, body, out.count(),
                   takes_packs<kWidth>(body.in) && takes_packs<kWidth>(body.out));
}

template <class Out>
void convert_to(cudaStream_t stream, const Tensor& in, const InputTransform& transform, const Tensor& out) {
  switch (in.type) {
    case ElementType::uint8:
      return convert<std::uint8_t, Out>(stream, in, transform, out);
    case ElementType::float32:
      return convert<float, Out>(stream, in, transform, out);
    case ElementType::float64:
      return convert<double, Out>(stream, in, transform, out);
    default:
      throw std::invalid_argument(std::string("convert_input: samples of ") + name_of(in.type));
  }
}

template <class In, class Out>
void cast_to(cudaStream_t stream, const Tensor& in, const Tensor& out) {
  const Cast<In, Out> body{static_cast<const In*>(in.data), static_cast<Out*>(out.data)};
  constexpr int kWidth = kWideWidth<Bfloat16>;
  run_each<kWidth>("cast", stream, body, in.count(), takes_packs<kWidth>(body.in) && takes_packs<kWidth>(body.out));
}

template <Activation kActivation, class T>
void activate_all(cudaStream_t stream, const Tensor& y, const Tensor& bias) {
  constexpr int kWidth = kWideWidth<T>;
  auto* const data = static_cast<T*>(y.data);
  if (!bias.present()) {
    if constexpr (kActivation != Activation::none) {
      run_each<kWidth>("activate", stream, Activate<T, kActivation>{data}, y.count(), takes_packs<kWidth>(data));
    }
    return;
  }
  if (y.count() == 0) return;
  const auto run = [&]<int kPack>() {
    const auto* const shift = static_cast<const T*>(bias.data);
    const Tiling tiling = tiling_of(y.rows, y.columns, kPack, kBlock);
    launch("add_bias_and_activate", add_bias_rows<kPack, T, kActivation>,
           {.blocks = tiling.tiles, .parts = tiling.parts, .threads = kBlock}, stream, data, shift, y.rows, y.columns,
           tiling.column_bits, takes_packs<kPack>(data) && takes_packs<kPack>(shift));
  };
  if (y.columns % kWidth == 0) {
    run.template operator()<kWidth>();
  } else {
    run.template operator()<1>();
  }
}

template <class T>
void activate_as(cudaStream_t stream, const Tensor& y, const Tensor& bias, Activation activation) {
  switch (activation) {
    case Activation::none:
      return activate_all<Activation::none, T>(stream, y, bias);
    case Activation::relu:
      return activate_all<Activation::relu, T>(stream, y, bias);
    case Activation::tanh:
      return activate_all<Activation::tanh, T>(stream, y, bias);
    case Activation::sigmoid:
      return activate_all<Activation::sigmoid, T>(stream, y, bias);
  }
}

template <class T>
void copy_rows_as(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  auto* const out = static_cast<T*>(to.data);
  const auto run = [&]<int kWidth>() {
    const Tiling tiling = tiling_of(to.rows, to.columns, kWidth, kBlock);
    launch("copy_rows", copy_rows_of<kWidth, T>, {.blocks = tiling.tiles, .parts = tiling.parts, .threads = kBlock},
           stream, static_cast<const T*>(from.data), from.rows, from.columns, to.rows, to.columns, tiling.column_bits,
           out);
  };
  if (to.columns % kWideWidth<T> == 0 && takes_packs<kWideWidth<T>>(out)) {
    run.template operator()<kWideWidth<T>>();
  } else {
    run.template operator()<1>();
  }
}

}  // namespace

void convert_input(cudaStream_t stream, const Tensor& in, const InputTransform& transform, const Tensor& out) {
  with_compute_type("convert_input", out, [&]<class T>() { convert_to<T>(stream, in, transform, out); });
}

void add_bias_and_activate(cudaStream_t stream, const Tensor& y, const Tensor& bias, Activation activation) {
  with_compute_type("add_bias_and_activate", y, [&]<class T>() { activate_as<T>(stream, y, bias, activation); });
}

void add(cudaStream_t stream, const Tensor& x, const Tensor& to) {
  with_compute_type("add", to, [&]<class T>() {
    const Add<T> body{static_cast<const T*>(x.data), static_cast<T*>(to.data)};
    constexpr int kWidth = kWideWidth<T>;
    run_each<kWidth>("add", stream, body, to.count(), takes_packs<kWidth>(body.x) && takes_packs<kWidth>(body.to));
  });
}

void apply(cudaStream_t stream, const Elementwise& f, const Tensor& x, const Tensor& y) {
  with_compute_type("elementwise", y, [&]<class T>() {
    formulas::for_function(f.function, [&]<Function kFunction>() {
      const Apply<T, kFunction> body{static_cast<const T*>(x.data), static_cast<T*>(y.data), f.parameter};
      constexpr int kWidth = kWideWidth<T>;
      run_each<kWidth>("elementwise", stream, body, x.count(),
                       takes_packs<kWidth>(body.x) && takes_packs<kWidth>(body.y));
    });
  });
}

void apply_slope(cudaStream_t stream, const Elementwise& f, const Tensor& read, const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("elementwise", d_x, [&]<class T>() {
    formulas::for_function(f.function, [&]<Function kFunction>() {
      const ApplySlope<T, kFunction> body{static_cast<const T*>(read.present() ? read.data : d_y.data),
                                          static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data), f.parameter};
      constexpr int kWidth = kWideWidth<T>;
      run_each<kWidth>(
          "elementwise_slope", stream, body, d_y.count(),
          takes_packs<kWidth>(body.read) && takes_packs<kWidth>(body.d_y) && takes_packs<kWidth>(body.d_x));
    });
  });
}

void cast(cudaStream_t stream, const Tensor& in, const Tensor& out) {
  if (in.type == out.type) {
    const Copy body{static_cast<const std::uint8_t*>(in.data), static_cast<std::uint8_t*>(out.data)};
    const auto bytes = in.count() * static_cast<std::int64_t>(size_of(in.type));
    return run_each<kWideBytes>("copy", stream, body, bytes,
                                takes_packs<kWideBytes>(body.in) && takes_packs<kWideBytes>(body.out));
  }
  if (in.type == ElementType::float32 && out.type == ElementType::bfloat16) {
    return cast_to<float, Bfloat16>(stream, in, out);
  }
  if (in.type == ElementType::bfloat16 && out.type == ElementType::float32) {
    return cast_to<Bfloat16, float>(stream, in, out);
  }
  throw std::invalid_argument(std::string("cast: ") + name_of(in.type) + " to " + name_of(out.type));
}

void copy_rows(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  if (to.count() == 0) return;
  with_compute_type("copy_rows", to, [&]<class T>() { copy_rows_as<T>(stream, from, to); });
}

}  // namespace lockstep::model::cuda
