#include <algorithm>
#include <array>

#include "model/cpu/loops/image_loops.hpp"
#include "model/formulas/augmentation.hpp"

namespace lockstep::model::cpu {

namespace {

using formulas::AugmentationNumbers;
using formulas::SampleAugmentation;

/// Copies a crop of `stored` as float. A line of the output reads pixels at a constant stride; they are neighbours
/// unless directions are permuted.
template <class Stored>
void crop(const AugmentationNumbers& numbers, const SampleAugmentation& sample, const Stored* stored, float* out) {
  const std::int32_t channels = numbers.channels, width = numbers.out_width;
  const std::array<std::int32_t, 3> in{numbers.in_depth, numbers.in_height, numbers.in_width};
  const std::array<std::int64_t, 3> strides{static_cast<std::int64_t>(in[1]) * in[2], in[2], 1};
  // Direction of the stored image along a line of the output, and its sense.
  const std::size_t along = sample.order.of[0] == 2 ? 0 : sample.order.of[1] == 2 ? 1 : 2;
  const bool backwards = (sample.flips & formulas::kFlipWidth >> (2 - along)) != 0;
  const std::int64_t step = (backwards ? -strides[along] : strides[along]) * channels;
  for (std::int32_t plane = 0; plane < numbers.out_depth; ++plane) {
    for (std::int32_t row = 0; row < numbers.out_height; ++row, out += width * channels) {
      const formulas::CropPixel first = formulas::shown_pixel(numbers, sample, {plane, row, 0});
      const std::array<std::int32_t, 3> at{sample.front + first.plane, sample.top + first.row,
                                           sample.left + first.column};
      bool inside = true;
      for (std::size_t i = 0; i < 3; ++i) inside = inside && (i == along || (at[i] >= 0 && at[i] < in[i]));
      // Columns of the output that lie inside the image; the others are zero.
      const std::int32_t here = at[along];
      const std::int32_t begin = std::clamp(backwards ? here - in[along] + 1 : -here, 0, width);
      const std::int32_t end = std::clamp(backwards ? here + 1 : in[along] - here, begin, width);
      if (!inside || begin == end) {
        std::fill_n(out, width * channels, 0.0f);
        continue;
      }
      const std::int64_t base = (at[0] * strides[0] + at[1] * strides[1] + at[2]) * channels;
      std::fill_n(out, begin * channels, 0.0f);
      if (step == channels) {
        for (std::int32_t i = begin * channels; i < end * channels; ++i) out[i] = static_cast<float>(stored[base + i]);
      } else {
        for (std::int32_t column = begin; column < end; ++column) {
          const Stored* const from = stored + base + column * step;
          for (std::int32_t c = 0; c < channels; ++c) out[column * channels + c] = static_cast<float>(from[c]);
        }
      }
      std::fill(out + end * channels, out + width * channels, 0.0f);
    }
  }
}

/// Copies a scaled rectangle of `stored`, which is an image.
template <class Stored>
void scale(const AugmentationNumbers& numbers, const SampleAugmentation& sample, const Stored* stored, float* out) {
  const std::int32_t channels = numbers.channels;
  const auto line = static_cast<std::int64_t>(numbers.in_width) * channels;
  const bool turned = sample.order.of[1] != 1;
  for (std::int32_t i = 0; i < numbers.out_height; ++i) {
    formulas::Tap row{};
    const Stored *above = nullptr, *below = nullptr;
    for (std::int32_t j = 0; j < numbers.out_width; ++j) {
      const formulas::CropPixel shown = formulas::shown_pixel(numbers, sample, {0, i, j});
      if (turned || j == 0) {
        row = formulas::tap_of(shown.row, sample.height, numbers.out_height);
        above = stored + (sample.top + row.first) * line + sample.left * channels;
        below = stored + (sample.top + row.second) * line + sample.left * channels;
      }
      const formulas::Tap column = formulas::tap_of(shown.column, sample.width, numbers.out_width);
      for (std::int32_t c = 0; c < channels; ++c) {
        const std::int32_t left = column.first * channels + c, right = column.second * channels + c;
        *out++ = formulas::blend(static_cast<float>(above[left]), static_cast<float>(above[right]),
                                 static_cast<float>(below[left]), static_cast<float>(below[right]), row, column);
      }
    }
  }
}

/// out = gain * out + offset, per channel. Gain and offset depend on sums over the channel if needs_sums().
void colour(const AugmentationNumbers& numbers, const SampleAugmentation& sample, float* out,
            std::span<double> scratch) {
  const auto channels = static_cast<std::size_t>(numbers.channels);
  const std::size_t pixels = static_cast<std::size_t>(numbers.out_depth) *
                             static_cast<std::size_t>(numbers.out_height) * static_cast<std::size_t>(numbers.out_width);
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
