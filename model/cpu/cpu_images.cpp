#include "model/cpu/cpu_images.hpp"

#include <algorithm>
#include <type_traits>

#include "model/cpu/loops/channel_lanes.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/image_loops.hpp"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cpu {

namespace {

/// Smallest array for which a pass uses several threads, in elements (about 10 us of one core).
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
    : ImageOperations({.compute = ElementType::float32, .master = ElementType::float32, .narrow = narrow_type(unit)}),
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

template <class Work>
void CpuImages::with_scratch(std::size_t count, std::size_t elements, std::size_t each, const Work& work) {
  const auto scratch = at_least(rows_, threads_.size() * each);
  const bool is_small = elements < kThreadingElements;
  threads_.run([&](std::size_t thread) {
    const Slice range = is_small ? Slice{0, thread == 0 ? count : 0} : part_of(count, 1, thread, threads_.size());
    work(range, scratch.subspan(thread * each, each));
  });
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
        [&](Slice rows) { max_pool(shape, x, y, chosen.elements<std::uint8_t>().data(), rows); });
}

void CpuImages::do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) {
  split(size(d_x.rows * shape.in.depth * shape.in.height), size(shape.in.width * shape.in.channels),
        [&](Slice rows) { max_pool_gradient(shape, chosen.elements<std::uint8_t>().data(), d_y, d_x, rows); });
}

void CpuImages::do_average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y) {
  const ImageShape& out = shape.pool.out;
  split(size(y.rows * out.depth * out.height), size(out.width * out.channels),
        [&](Slice rows) { average_pool(shape, x, y, rows); });
}

void CpuImages::do_average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x) {
  const ImageShape& in = shape.pool.in;
  split(size(d_x.rows * in.depth * in.height), size(in.width * in.channels),
        [&](Slice rows) { average_pool_gradient(shape, d_y, d_x, rows); });
}

void CpuImages::do_linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y) {
  with_scratch(
      size(y.rows * shape.out.depth * shape.out.height), size(y.count()), upsampling_scratch(shape),
      [&](Slice rows, std::span<float> scratch) { linear_upsampling(shape, floats(x), floats(y), rows, scratch); });
}

void CpuImages::do_linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y, const Tensor& d_x) {
  with_scratch(size(d_x.rows * shape.in.depth * shape.in.height), size(d_y.count()), upsampling_scratch(shape),
               [&](Slice rows, std::span<float> scratch) {
                 linear_upsampling_gradient(shape, floats(d_y), floats(d_x), rows, scratch);
               });
}

void CpuImages::do_global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  split(size(x.rows), size(in.elements()), [&](Slice images) { global_max(in, floats(x), floats(y), images); });
}

void CpuImages::do_global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                                       const Tensor& d_x) {
  split(size(x.rows), size(in.elements()),
        [&](Slice images) { global_max_gradient(in, floats(x), floats(y), floats(d_y), floats(d_x), images); });
}

void CpuImages::do_softmax_forward(const Tensor& x, const Tensor& y) {
  split(size(x.rows), size(x.columns), [&](Slice rows) { softmax_rows(floats(x), floats(y), size(x.columns), rows); });
}

void CpuImages::do_softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  split(size(y.rows), size(y.columns),
        [&](Slice rows) { softmax_gradient_rows(floats(y), floats(d_y), floats(d_x), size(y.columns), rows); });
}

void CpuImages::do_multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  const std::size_t served = size(a.rows / b.rows), columns = size(a.columns);
  split(size(b.rows), served * columns,
        [&](Slice rows) { multiply_rows(floats(a), floats(b), floats(y), columns, served, rows); });
}

void CpuImages::do_multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b) {
  const std::size_t served = size(a.rows / d_b.rows), columns = size(a.columns);
  split(size(d_b.rows), served * columns,
        [&](Slice rows) { multiply_sums_of_rows(floats(a), floats(d_y), floats(d_b), columns, served, rows); });
}

void CpuImages::do_copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y) {
  split(size(x.rows), size(copy.to_elements),
        [&](Slice samples) { cpu::copy_strided(copy, floats(x), floats(y), samples); });
}

namespace {

/// Numbers per channel of one sample of a group norm.
struct GroupNumbers {
  std::span<float> mean, gain, slope, shift;
  GroupNumbers(std::span<float> all, std::size_t channels)
      : mean(all.first(channels)),
        gain(all.subspan(channels, channels)),
        slope(all.subspan(2 * channels, channels)),
        shift(all.subspan(3 * channels, channels)) {}
};

}  // namespace

void CpuImages::do_group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands) {
  const auto& [x, scale, shift, mean, inverse, y] = operands;
  const std::size_t channels = size(norm.channels), groups = size(norm.groups), each = channels / groups,
                    places = size(norm.places), samples = size(x.rows);
  const auto all_numbers = at_least(numbers_, threads_.size() * 4 * channels);
  const auto all_sums = at_least(block_sums_, threads_.size() * 2 * channels);
  const double count = static_cast<double>(places * each);
  const float *const scales = floats(scale), *const shifts = floats(shift);
  float *const means = floats(mean), *const inverses = floats(inverse);
  const auto normalize_samples = [&](std::size_t thread, auto* from) {
    using Element = std::remove_pointer_t<decltype(from)>;
    const GroupNumbers of(all_numbers.subspan(thread * 4 * channels, 4 * channels), channels);
    double* const sums = all_sums.data() + thread * 2 * channels;
    const Slice mine = part_of(samples, 1, thread, threads_.size());
    for (std::size_t b = mine.offset; b < mine.end(); ++b) {
      const Slice here{b * places, places};
      channel_sums(channels, from, here, sums);
      for (std::size_t g = 0; g < groups; ++g) {
        double sum = 0, squares = 0;
        for (std::size_t c = g * each; c < (g + 1) * each; ++c) {
          sum += sums[c];
          squares += sums[channels + c];
        }
        const auto moments = formulas::moments_of(sum, squares, count);
        const double one = formulas::inverse_deviation(moments.variance, static_cast<double>(norm.epsilon));
        means[b * groups + g] = static_cast<float>(moments.mean);
        inverses[b * groups + g] = static_cast<float>(one);
        for (std::size_t c = g * each; c < (g + 1) * each; ++c) {
          of.mean[c] = static_cast<float>(moments.mean);
          of.gain[c] = static_cast<float>(static_cast<double>(scales[c]) * one);
        }
      }
      normalize({.channels = norm.channels},
                NormalizeArrays<Element>{.x = from,
                                         .mean = of.mean.data(),
                                         .gain = of.gain.data(),
                                         .shift = shifts,
                                         .y = static_cast<Element*>(y.data)},
                here);
    }
  };
  threads_.run([&](std::size_t thread) { with_elements(x, [&](auto* from) { normalize_samples(thread, from); }); });
}

void CpuImages::do_group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                                       Accumulate accumulate) {
  const auto& [x, d_y, mean, inverse, scale, d_scale, d_shift, sums, d_x] = operands;
  const std::size_t channels = size(norm.channels), groups = size(norm.groups), each = channels / groups,
                    places = size(norm.places), samples = size(x.rows), width = 2 * (channels + groups);
  const auto all_numbers = at_least(numbers_, threads_.size() * 4 * channels);
  const double count = static_cast<double>(places * each);
  const float *const scales = floats(scale), *const means = floats(mean), *const inverses = floats(inverse);
  double* const of_channels = sums.elements<double>().data();
  const BatchNorm plain{.channels = norm.channels};
  const auto differentiate_samples = [&](std::size_t thread, auto* from) {
    using Element = std::remove_pointer_t<decltype(from)>;
    auto *const gradient = static_cast<Element*>(d_y.data), *const to = static_cast<Element*>(d_x.data);
    const GroupNumbers of(all_numbers.subspan(thread * 4 * channels, 4 * channels), channels);
    const Slice mine = part_of(samples, 1, thread, threads_.size());
    for (std::size_t b = mine.offset; b < mine.end(); ++b) {
      const Slice here{b * places, places};
      for (std::size_t c = 0; c < channels; ++c) of.mean[c] = means[b * groups + c / each];
      double* const own = of_channels + b * width;
      normalize_gradient_sums(
          plain, NormalizeGradientSums<Element>{.x = from, .d_y = gradient, .mean = of.mean.data(), .sums = own}, here);
      for (std::size_t g = 0; g < groups; ++g) {
        const auto one = static_cast<double>(inverses[b * groups + g]);
        double first = 0, second = 0;
        for (std::size_t c = g * each; c < (g + 1) * each; ++c) {
          own[channels + c] *= one;
          first += static_cast<double>(scales[c]) * own[c] / count;
          second += static_cast<double>(scales[c]) * own[channels + c] / count;
        }
        for (std::size_t c = g * each; c < (g + 1) * each; ++c) {
          of.gain[c] = static_cast<float>(static_cast<double>(scales[c]) * one);
          of.slope[c] = static_cast<float>(-one * one * second);
          of.shift[c] = static_cast<float>(-one * first);
        }
      }
      if (to == nullptr) continue;
      normalize_gradient(plain,
                         NormalizeGradient<Element>{.x = from,
                                                    .d_y = gradient,
                                                    .mean = of.mean.data(),
                                                    .gain = of.gain.data(),
                                                    .slope = of.slope.data(),
                                                    .shift = of.shift.data(),
                                                    .d_x = to},
                         here);
    }
  };
  threads_.run([&](std::size_t thread) { with_elements(x, [&](auto* from) { differentiate_samples(thread, from); }); });
  const auto add_up = [&](std::size_t first, const Tensor& total) {
    for (std::size_t c = 0; c < channels && total.present(); ++c) {
      double sum = 0;
      for (std::size_t b = 0; b < samples; ++b) sum += of_channels[b * width + first + c];
      put(static_cast<float>(sum), accumulate, floats(total)[c]);
    }
  };
  add_up(0, d_shift);
  add_up(channels, d_scale);
}

namespace {

/// Returns the rows of a bf16 image that a pass widens, changes and rounds at a time, in the first-level cache.
std::size_t rows_of_chunk(std::size_t channels) { return std::max<std::size_t>(2048 / channels, 1); }

Bf16* halves(const Tensor& x) { return static_cast<Bf16*>(x.data); }

}  // namespace

void CpuImages::do_bias_forward(const Tensor& bias, Activation activation, const Tensor& y) {
  const std::size_t channels = size(y.columns);
  const auto shift = bias.elements<float>();
  if (y.type == ElementType::float32) {
    const auto all = y.elements<float>();
    return split(size(y.rows), channels, [&](Slice rows) {
      add_bias_and_activate(all.subspan(rows.offset * channels, rows.count * channels), channels, shift, activation);
    });
  }
  const std::size_t chunk = rows_of_chunk(channels);
  with_scratch(size(y.rows), size(y.count()), chunk * channels, [&](Slice rows, std::span<float> scratch) {
    for (std::size_t row = rows.offset; row < rows.end(); row += chunk) {
      const std::size_t count = std::min(chunk, rows.end() - row) * channels;
      const std::span<Bf16> stored(halves(y) + row * channels, count);
      widen(stored, scratch);
      add_bias_and_activate(scratch.first(count), channels, shift, activation);
      round_to_bf16(scratch.first(count), stored);
    }
  });
}

void CpuImages::do_bias_backward(Activation activation, const Tensor& y, const Tensor& d_y, Accumulate accumulate,
                                 const Tensor& d_bias) {
  const std::size_t rows = size(d_y.rows), channels = size(d_y.columns);
  const std::size_t blocks = std::clamp<std::size_t>(rows / kBlockPixels, 1, kMaxBlocks);
  const bool is_bf16 = d_y.type == ElementType::bfloat16;
  const std::size_t chunk = rows_of_chunk(channels) * channels, sums = d_bias.present() ? channels : 0;
  const auto parts = at_least(rows_, blocks * (sums + (is_bf16 ? 2 * chunk : 0)));
  split(blocks, rows * channels / blocks + 1, [&](Slice some) {
    for (std::size_t i = some.offset; i < some.end(); ++i) {
      const Slice block = part_of(rows, 1, i, blocks);
      const std::size_t first = block.offset * channels, count = block.count * channels;
      const auto own = parts.subspan(i * sums, sums);
      std::ranges::fill(own, 0.0f);
      if (!is_bf16) {
        const auto value = y.elements<float>();
        activation_gradient(activation, value.empty() ? value : value.subspan(first, count),
                            d_y.elements<float>().subspan(first, count), channels, 0, channels, own);
        continue;
      }
      const auto scratch = parts.subspan(blocks * sums + i * 2 * chunk, 2 * chunk);
      for (std::size_t at = 0; at < count; at += chunk) {
        const std::size_t now = std::min(chunk, count - at);
        const std::span<Bf16> stored(halves(d_y) + first + at, now);
        const auto gradient = scratch.first(now),
                   value = scratch.subspan(chunk, activation == Activation::none ? 0 : now);
        widen(stored, gradient);
        if (!value.empty()) widen({halves(y) + first + at, now}, value);
        activation_gradient(activation, value, gradient, channels, 0, channels, own);
        if (!value.empty()) round_to_bf16(gradient, stored);
      }
    }
  });
  for (std::size_t c = 0; c < sums; ++c) {
    double sum = 0;
    for (std::size_t i = 0; i < blocks; ++i) sum += static_cast<double>(parts[i * channels + c]);
    put(static_cast<float>(sum), accumulate, floats(d_bias)[c]);
  }
}

void CpuImages::do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  split(size(x.rows), size(in.elements()), [&](Slice images) { global_average(in, x, y, images); });
}

void CpuImages::do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  split(size(d_x.rows), size(in.elements()), [&](Slice images) { global_average_gradient(in, d_y, d_x, images); });
}

void CpuImages::do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y) {
  const std::size_t each = response_scratch(norm), pixels = pixels_of(x, size(norm.channels));
  const auto scratch = at_least(rows_, threads_.size() * each);
  threads_.run([&](std::size_t thread) {
    response_normalization(norm, x, y, part_of(pixels, 1, thread, threads_.size()),
                           scratch.subspan(thread * each, each));
  });
}

void CpuImages::do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                                   const Tensor& d_y, const Tensor& d_x) {
  const std::size_t each = response_scratch(norm), pixels = pixels_of(x, size(norm.channels));
  const auto scratch = at_least(rows_, threads_.size() * each);
  threads_.run([&](std::size_t thread) {
    response_normalization_gradient(norm, x, y, d_y, d_x, part_of(pixels, 1, thread, threads_.size()),
                                    scratch.subspan(thread * each, each));
  });
}

void CpuImages::do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                                     const Tensor& y) {
  split(size(y.rows), size(out.elements()), [&](Slice images) { subsample(in, out, stride, x, y, images); });
}

void CpuImages::do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                      const Tensor& d_y, const Tensor& d_x) {
  split(size(d_y.rows), size(out.elements()),
        [&](Slice images) { subsample_gradient(in, out, stride, d_y, d_x, images); });
}

void CpuImages::do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  const std::size_t channels = size(norm.channels), pixels = pixels_of(x, channels);
  const auto all = sums.elements<double>();
  sum_of_blocks(pixels, channels, all.first(2 * channels), [&](Slice range, double* part) {
    with_elements(x, [&](const auto* from) { channel_sums(channels, from, range, part); });
  });
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
  with_elements(x, [&](auto* from) {
    using Element = std::remove_pointer_t<decltype(from)>;
    const NormalizeArrays<Element> arrays{.x = from,
                                          .mean = floats(mean),
                                          .gain = gain.data(),
                                          .shift = floats(shift),
                                          .residual = static_cast<Element*>(residual.data),
                                          .y = static_cast<Element*>(y.data)};
    split(pixels_of(x, channels), channels, [&](Slice pixels) { normalize(norm, arrays, pixels); });
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
  with_elements(x, [&](auto* from) {
    using Element = std::remove_pointer_t<decltype(from)>;
    const NormalizeArrays<Element> arrays{.x = from,
                                          .mean = floats(mean),
                                          .gain = gain.data(),
                                          .shift = floats(shift),
                                          .residual = static_cast<Element*>(residual.data),
                                          .y = static_cast<Element*>(y.data)};
    split(pixels_of(x, channels), channels, [&](Slice pixels) { normalize(norm, arrays, pixels); });
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
  with_elements(d_y, [&](auto* gradient) {
    using Element = std::remove_pointer_t<decltype(gradient)>;
    const NormalizeFixedGradient<Element> arrays{.y = static_cast<Element*>(y.data),
                                                 .d_y = gradient,
                                                 .gain = gain.data(),
                                                 .d_x = static_cast<Element*>(d_x.data)};
    split(pixels_of(d_y, channels), channels, [&](Slice pixels) { normalize_fixed_gradient(norm, arrays, pixels); });
  });
}

namespace {

/// Returns scale / deviation of channel c, for gradients.
float gain_of(const Tensor& scale, const Tensor& inverse, std::size_t c) {
  return static_cast<float>(static_cast<double>(floats(scale)[c]) * static_cast<double>(floats(inverse)[c]));
}

}  // namespace

void CpuImages::do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                            Accumulate accumulate) {
  const auto& [x, y, d_y, mean, inverse, scale, shift, d_scale, d_shift, sums] = operands;
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  const auto gain = at_least(numbers_, channels);
  for (std::size_t c = 0; c < channels && scale.present(); ++c) gain[c] = gain_of(scale, inverse, c);
  sum_of_blocks(pixels_of(x, channels), channels, all, [&](Slice range, double* part) {
    with_elements(x, [&](auto* from) {
      using Element = std::remove_pointer_t<decltype(from)>;
      normalize_gradient_sums(norm,
                              NormalizeGradientSums<Element>{.x = from,
                                                             .y = static_cast<Element*>(y.data),
                                                             .d_y = static_cast<Element*>(d_y.data),
                                                             .mean = floats(mean),
                                                             .gain = gain.data(),
                                                             .relu_shift = floats(shift),
                                                             .sums = part},
                              range);
    });
  });
  for (std::size_t c = 0; c < channels; ++c) {
    all[channels + c] *= static_cast<double>(floats(inverse)[c]);
    if (d_scale.present()) put(static_cast<float>(all[channels + c]), accumulate, floats(d_scale)[c]);
    if (d_shift.present()) put(static_cast<float>(all[c]), accumulate, floats(d_shift)[c]);
  }
}

void CpuImages::do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  const auto& [x, d_y, mean, inverse, scale, relu_shift, forward_sums, sums, d_x] = operands;
  const std::size_t channels = size(norm.channels);
  const auto all = sums.elements<double>();
  const double count = forward_sums.elements<double>()[2 * channels];
  const auto numbers = at_least(numbers_, 3 * channels);
  const auto gain = numbers.first(channels), slope = numbers.subspan(channels, channels),
             shift = numbers.subspan(2 * channels, channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const auto one = static_cast<double>(floats(inverse)[c]);
    const double factor = static_cast<double>(floats(scale)[c]) * one;
    gain[c] = gain_of(scale, inverse, c);
    slope[c] = static_cast<float>(-factor * one * all[channels + c] / count);
    shift[c] = static_cast<float>(-factor * all[c] / count);
  }
  with_elements(x, [&](auto* from) {
    using Element = std::remove_pointer_t<decltype(from)>;
    const NormalizeGradient<Element> arrays{.x = from,
                                            .d_y = static_cast<Element*>(d_y.data),
                                            .mean = floats(mean),
                                            .gain = gain.data(),
                                            .slope = slope.data(),
                                            .shift = shift.data(),
                                            .relu_shift = floats(relu_shift),
                                            .d_x = static_cast<Element*>(d_x.data)};
    split(pixels_of(x, channels), channels, [&](Slice pixels) { normalize_gradient(norm, arrays, pixels); });
  });
}

}  // namespace lockstep::model::cpu
