#include "model/cpu/cpu_images.hpp"

#include <algorithm>

#include "model/cpu/image_loops.hpp"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cpu {

namespace {

/// Smallest array for which a pass is worth waking a thread, in elements (about 10 us of one core).
constexpr std::size_t kThreadingElements = 64 * 1024;
/// Sums over pixels use at most kMaxBlocks blocks, of at least kBlockPixels pixels.
constexpr std::size_t kMaxBlocks = 32;
constexpr std::size_t kBlockPixels = 128;

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }
std::size_t pixels_of(const Tensor& x, std::size_t channels) { return size(x.count()) / channels; }
float* floats(const Tensor& x) { return x.elements<float>().data(); }

void put(float value, Accumulate accumulate, float& to) { to = accumulate == Accumulate::yes ? to + value : value; }

}  // namespace

CpuImages::CpuImages(ThreadPool& threads, Bf16Unit unit)
    : ImageOperations({.compute = ElementType::float32, .master = ElementType::float32}),
      threads_(threads),
      convolver_(threads, unit) {}

template <class Work>
void CpuImages::split(std::size_t count, std::size_t each, const Work& work) {
  threads_.split(count, 1, kThreadingElements / each + 2, [&](std::size_t begin, std::size_t end) {
    work(Slice{begin, end - begin});
  });
}

template <class Element>
std::span<Element> CpuImages::at_least(std::vector<Element>& scratch, std::size_t count) {
  if (scratch.size() < count) scratch.resize(count);
  return std::span(scratch).first(count);
}

template <class Block>
void CpuImages::sum_of_blocks(std::size_t pixels, std::size_t channels, std::span<double> sums, const Block& block) {
  const std::size_t blocks = std::clamp<std::size_t>(pixels / kBlockPixels, 1, kMaxBlocks), width = 2 * channels;
  const auto parts = at_least(block_sums_, blocks * width);
  threads_.split(blocks, 1, pixels * channels < kThreadingElements ? blocks + 1 : 2,
                 [&](std::size_t begin, std::size_t end) {
                   for (std::size_t i = begin; i < end; ++i) {
                     block(part_of(pixels, 1, i, blocks), parts.data() + i * width);
                   }
                 });
  std::ranges::copy(parts.first(width), sums.begin());
  for (std::size_t i = 1; i < blocks; ++i) {
    for (std::size_t k = 0; k < width; ++k) sums[k] += parts[i * width + k];
  }
}

void CpuImages::do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) {
  const std::uint64_t* const key = keys.elements<std::uint64_t>().data();
  const std::size_t each = 2 * size(spec.out.channels), count = size(out.rows);
  const auto scratch = at_least(colours_, threads_.size() * each);
  float* const to = floats(out);
  const auto run = [&](const auto* from) {
    const bool is_small = size(out.count()) < kThreadingElements;
    threads_.run([&](std::size_t thread) {
      const Slice range = is_small ? Slice{0, thread == 0 ? count : 0} : part_of(count, 1, thread, threads_.size());
      cpu::augment(spec, from, key, to, range, scratch.subspan(thread * each, each));
    });
  };
  if (images.type == ElementType::uint8) return run(images.elements<std::uint8_t>().data());
  if (images.type == ElementType::float32) return run(images.elements<float>().data());
  run(images.elements<double>().data());
}

void CpuImages::do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                                       Activation activation, const Tensor& y) {
  convolver_.forward(shape, x, w, bias, activation, y);
}

void CpuImages::do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                        Activation activation, Accumulate accumulate) {
  convolver_.backward(shape, operands, activation, accumulate);
}

void CpuImages::do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  split(size(y.rows * shape.out.depth * shape.out.height), size(shape.out.width * shape.out.channels),
        [&](Slice rows) { max_pool(shape, floats(x), floats(y), chosen.elements<std::uint8_t>().data(), rows); });
}

void CpuImages::do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) {
  split(size(d_x.rows * shape.in.depth * shape.in.height), size(shape.in.width * shape.in.channels), [&](Slice rows) {
    max_pool_gradient(shape, chosen.elements<std::uint8_t>().data(), floats(d_y), floats(d_x), rows);
  });
}

void CpuImages::do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  split(size(x.rows), size(in.elements()), [&](Slice images) { global_average(in, floats(x), floats(y), images); });
}

void CpuImages::do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  split(size(d_x.rows), size(in.elements()),
        [&](Slice images) { global_average_gradient(in, floats(d_y), floats(d_x), images); });
}

void CpuImages::do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y) {
  const std::size_t each = response_scratch(norm), pixels = pixels_of(x, size(norm.channels));
  const auto scratch = at_least(rows_, threads_.size() * each);
  threads_.run([&](std::size_t thread) {
    response_normalization(norm, floats(x), floats(y), part_of(pixels, 1, thread, threads_.size()),
                           scratch.subspan(thread * each, each));
  });
}

void CpuImages::do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                                   const Tensor& d_y, const Tensor& d_x) {
  const std::size_t each = response_scratch(norm), pixels = pixels_of(x, size(norm.channels));
  const auto scratch = at_least(rows_, threads_.size() * each);
  threads_.run([&](std::size_t thread) {
    response_normalization_gradient(norm, floats(x), floats(y), floats(d_y), floats(d_x),
                                    part_of(pixels, 1, thread, threads_.size()), scratch.subspan(thread * each, each));
  });
}

void CpuImages::do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                                     const Tensor& y) {
  split(size(y.rows), size(out.elements()),
        [&](Slice images) { subsample(in, out, stride, floats(x), floats(y), images); });
}

void CpuImages::do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                      const Tensor& d_y, const Tensor& d_x) {
  split(size(d_y.rows), size(out.elements()),
        [&](Slice images) { subsample_gradient(in, out, stride, floats(d_y), floats(d_x), images); });
}

void CpuImages::do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  const std::size_t channels = size(norm.channels), pixels = pixels_of(x, channels);
  const auto all = sums.elements<double>();
  sum_of_blocks(pixels, channels, all.first(2 * channels),
                [&](Slice range, double* part) { channel_sums(channels, floats(x), range, part); });
  all[2 * channels] = static_cast<double>(pixels);
}

void CpuImages::do_batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  const auto& [x, sums, scale, shift, residual, mean, inverse, y] = operands;
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  const auto gain = at_least(numbers_, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto moments = formulas::moments_of(all[c], all[channels + c], all[2 * channels]);
    const double one = formulas::inverse_deviation(moments.variance, static_cast<double>(norm.epsilon));
    floats(mean)[c] = static_cast<float>(moments.mean);
    floats(inverse)[c] = static_cast<float>(one);
    gain[c] = static_cast<float>(static_cast<double>(floats(scale)[c]) * one);
  }
  split(pixels_of(x, channels), channels, [&](Slice pixels) {
    normalize(norm,
              {.x = floats(x),
               .mean = floats(mean),
               .gain = gain.data(),
               .shift = floats(shift),
               .residual = floats(residual),
               .y = floats(y)},
              pixels);
  });
}

void CpuImages::do_batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight,
                                         Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance) {
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  const double count = all[2 * channels];
  for (std::size_t c = 0; c < channels; ++c) {
    const auto moments = formulas::moments_of(all[c], all[channels + c], count);
    put(static_cast<float>(weight * moments.mean), accumulate, floats(d_mean)[c]);
    put(static_cast<float>(weight * formulas::unbiased_variance(moments.variance, count)), accumulate,
        floats(d_variance)[c]);
  }
}

void CpuImages::do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
  const auto& [x, mean, variance, scale, shift, residual, y] = operands;
  const std::size_t channels = size(norm.channels);
  const auto gain = at_least(numbers_, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    gain[c] = static_cast<float>(
        static_cast<double>(floats(scale)[c]) *
        formulas::inverse_deviation(static_cast<double>(floats(variance)[c]), static_cast<double>(norm.epsilon)));
  }
  split(pixels_of(x, channels), channels, [&](Slice pixels) {
    normalize(norm,
              {.x = floats(x),
               .mean = floats(mean),
               .gain = gain.data(),
               .shift = floats(shift),
               .residual = floats(residual),
               .y = floats(y)},
              pixels);
  });
}

void CpuImages::do_batch_norm_inference_backward(const BatchNorm& norm,
                                                 const BatchNormInferenceBackwardOperands& operands) {
  const auto& [y, d_y, variance, scale, d_x] = operands;
  const std::size_t channels = size(norm.channels);
  const auto gain = at_least(numbers_, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    gain[c] = static_cast<float>(
        static_cast<double>(floats(scale)[c]) *
        formulas::inverse_deviation(static_cast<double>(floats(variance)[c]), static_cast<double>(norm.epsilon)));
  }
  const float* const value = floats(y);
  float *const gradient = floats(d_y), *const to = floats(d_x);
  split(pixels_of(d_y, channels), channels, [&](Slice pixels) {
    for (std::size_t i = pixels.offset * channels; i < pixels.end() * channels; i += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        if (norm.relu && !(value[i + c] > 0)) gradient[i + c] = 0;
        to[i + c] = gain[c] * gradient[i + c];
      }
    }
  });
}

void CpuImages::do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                            Accumulate accumulate) {
  const auto& [x, y, d_y, mean, inverse, no_scale, no_shift, d_scale, d_shift, sums] = operands;
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  sum_of_blocks(pixels_of(x, channels), channels, all, [&](Slice range, double* part) {
    normalize_gradient_sums(
        norm, {.x = floats(x), .y = floats(y), .d_y = floats(d_y), .mean = floats(mean), .sums = part}, range);
  });
  for (std::size_t c = 0; c < channels; ++c) {
    all[channels + c] *= static_cast<double>(floats(inverse)[c]);
    if (d_scale.present()) put(static_cast<float>(all[channels + c]), accumulate, floats(d_scale)[c]);
    if (d_shift.present()) put(static_cast<float>(all[c]), accumulate, floats(d_shift)[c]);
  }
}

void CpuImages::do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  const auto& [x, d_y, mean, inverse, scale, no_shift, forward_sums, sums, d_x] = operands;
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  const double count = forward_sums.elements<double>()[2 * channels];
  const auto numbers = at_least(numbers_, 3 * channels);
  const auto gain = numbers.first(channels), slope = numbers.subspan(channels, channels),
             shift = numbers.subspan(2 * channels, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto one = static_cast<double>(floats(inverse)[c]);
    const double factor = static_cast<double>(floats(scale)[c]) * one;
    gain[c] = static_cast<float>(factor);
    slope[c] = static_cast<float>(-factor * one * all[channels + c] / count);
    shift[c] = static_cast<float>(-factor * all[c] / count);
  }
  split(pixels_of(x, channels), channels, [&](Slice pixels) {
    normalize_gradient(norm,
                       {.x = floats(x),
                        .d_y = floats(d_y),
                        .mean = floats(mean),
                        .gain = gain.data(),
                        .slope = slope.data(),
                        .shift = shift.data(),
                        .d_x = floats(d_x)},
                       pixels);
  });
}

}  // namespace lockstep::model::cpu
