#include <algorithm>

#include "model/cpu/image_loops.hpp"
#include "model/formulas/augmentation.hpp"

namespace lockstep::model::cpu {

namespace {

using formulas::AugmentationNumbers;
using formulas::SampleAugmentation;

/// A crop of `stored`, as float.
template <class Stored>
void crop(const AugmentationNumbers& numbers, const SampleAugmentation& sample, const Stored* stored, float* out) {
  const std::int32_t channels = numbers.channels;
  const std::int32_t line = numbers.out_width * channels;
  // Columns of the crop inside the image; the others are zero.
  const std::int32_t begin = std::clamp(-sample.left, 0, numbers.out_width);
  const std::int32_t end = std::clamp(numbers.in_width - sample.left, begin, numbers.out_width);
  for (std::int32_t i = 0; i < numbers.out_height; ++i, out += line) {
    const std::int32_t row = sample.top + i;
    if (row < 0 || row >= numbers.in_height || begin == end) {
      std::fill_n(out, line, 0.0f);
      continue;
    }
    const Stored* const from = stored + (static_cast<std::int64_t>(row) * numbers.in_width + sample.left) * channels;
    if (!sample.flipped) {
      std::fill_n(out, begin * channels, 0.0f);
      for (std::int32_t at = begin * channels; at < end * channels; ++at) out[at] = static_cast<float>(from[at]);
      std::fill(out + end * channels, out + line, 0.0f);
      continue;
    }
    for (std::int32_t j = 0; j < numbers.out_width; ++j) {
      const std::int32_t column = formulas::unflipped(numbers, sample, j);
      const bool shows = column >= begin && column < end;
      for (std::int32_t c = 0; c < channels; ++c) {
        out[j * channels + c] = shows ? static_cast<float>(from[column * channels + c]) : 0.0f;
      }
    }
  }
}

/// A rectangle of `stored`, scaled.
template <class Stored>
void scale(const AugmentationNumbers& numbers, const SampleAugmentation& sample, const Stored* stored, float* out) {
  const std::int32_t channels = numbers.channels;
  const auto line = static_cast<std::int64_t>(numbers.in_width) * channels;
  for (std::int32_t i = 0; i < numbers.out_height; ++i) {
    const formulas::Tap row = formulas::tap_of(i, sample.height, numbers.out_height);
    const Stored* const above = stored + (sample.top + row.first) * line + sample.left * channels;
    const Stored* const below = stored + (sample.top + row.second) * line + sample.left * channels;
    for (std::int32_t j = 0; j < numbers.out_width; ++j) {
      const formulas::Tap column =
          formulas::tap_of(formulas::unflipped(numbers, sample, j), sample.width, numbers.out_width);
      for (std::int32_t c = 0; c < channels; ++c) {
        const std::int32_t left = column.first * channels + c, right = column.second * channels + c;
        *out++ = formulas::blend(static_cast<float>(above[left]), static_cast<float>(above[right]),
                                 static_cast<float>(below[left]), static_cast<float>(below[right]), row, column);
      }
    }
  }
}

/// out = gain * out + offset per channel; gains and offsets come from the channels' sums if the sample needs them.
void colour(const AugmentationNumbers& numbers, const SampleAugmentation& sample, float* out,
            std::span<double> scratch) {
  const auto channels = static_cast<std::size_t>(numbers.channels);
  const auto pixels = static_cast<std::size_t>(numbers.out_height) * static_cast<std::size_t>(numbers.out_width);
  const auto sums = scratch.first(channels), squares = scratch.subspan(channels, channels);
  std::ranges::fill(scratch, 0.0);
  formulas::CropMoments moments{};
  if (formulas::needs_sums(numbers, sample)) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      for (std::size_t c = 0; c < channels; ++c) {
        const auto value = static_cast<double>(out[pixel * channels + c]);
        sums[c] += value;
        squares[c] += value * value;
      }
    }
    moments = formulas::crop_moments(sums.data(), squares.data(), numbers.channels, static_cast<double>(pixels),
                                     static_cast<double>(sample.contrast));
  }
  for (std::size_t c = 0; c < channels; ++c) {
    const formulas::Affine map = formulas::channel_map(numbers, sample, moments, sums[c] / static_cast<double>(pixels),
                                                       static_cast<std::int32_t>(c));
    for (std::size_t at = c; at < pixels * channels; at += channels) out[at] = map.gain * out[at] + map.offset;
  }
}

}  // namespace

template <class Stored>
void augment(const Augmentation& spec, const Stored* images, const std::uint64_t* keys, float* out, Slice range,
             std::span<double> scratch) {
  const AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  const auto in_size = static_cast<std::size_t>(spec.in.elements());
  const auto out_size = static_cast<std::size_t>(spec.out.elements());
  for (std::size_t image = range.offset; image < range.end(); ++image) {
    const SampleAugmentation sample =
        keys == nullptr ? formulas::central_crop(numbers) : formulas::draw_augmentation(numbers, keys[image]);
    float* const to = out + image * out_size;
    if (sample.scaled) {
      scale(numbers, sample, images + image * in_size, to);
    } else {
      crop(numbers, sample, images + image * in_size, to);
    }
    colour(numbers, sample, to, scratch);
  }
}

template void augment(const Augmentation&, const std::uint8_t*, const std::uint64_t*, float*, Slice, std::span<double>);
template void augment(const Augmentation&, const float*, const std::uint64_t*, float*, Slice, std::span<double>);
template void augment(const Augmentation&, const double*, const std::uint64_t*, float*, Slice, std::span<double>);

}  // namespace lockstep::model::cpu
