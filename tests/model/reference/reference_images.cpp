#include "model/reference/reference_images.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "model/formulas/augmentation.hpp"
#include "model/formulas/normalization.hpp"
#include "model/reference/reference_activations.hpp"

namespace lockstep::model {

namespace {

/// A pixel of an image or a volume.
struct Place {
  std::int64_t plane, row, column;
};

/// Access to a batch of images by (image, row, column, channel), or of volumes by (image, place, channel).
template <class T>
class Images {
 public:
  Images(const Tensor& tensor, const ImageShape& shape) : elements_(tensor.elements<T>()), shape_(shape) {}
  T& operator()(std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t channel) const {
    return (*this)(image, Place{0, row, column}, channel);
  }
  T& operator()(std::int64_t image, const Place& at, std::int64_t channel) const {
    return elements_[static_cast<std::size_t>(
        (((image * shape_.depth + at.plane) * shape_.height + at.row) * shape_.width + at.column) * shape_.channels +
        channel)];
  }

 private:
  std::span<T> elements_;
  ImageShape shape_;
};

double& at(const Tensor& tensor, std::int64_t index) {
  return tensor.elements<double>()[static_cast<std::size_t>(index)];
}
double& at(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return at(tensor, row * tensor.columns + column);
}
/// `=` or `+=`.
void write(double value, Accumulate accumulate, double& to) { to = accumulate == Accumulate::yes ? to + value : value; }

/// Calls `visit(place, position)` for each pixel of `in` inside the window at `out`; position: within the window,
/// row-major.
template <class Visit>
void visit_window(const ImageShape& in, const Sliding& window, const Place& out, Visit visit) {
  const auto source = [](const Sweep& sweep, std::int64_t at, std::int64_t i) {
    return at * sweep.stride - sweep.before + i * sweep.dilation;
  };
  const auto is_in = [](std::int64_t at, std::int64_t extent) { return at >= 0 && at < extent; };
  std::int64_t position = 0;
  for (std::int64_t h = 0; h < window.depth.size; ++h) {
    for (std::int64_t i = 0; i < window.height.size; ++i) {
      for (std::int64_t j = 0; j < window.width.size; ++j, ++position) {
        const Place from{source(window.depth, out.plane, h), source(window.height, out.row, i),
                         source(window.width, out.column, j)};
        if (!is_in(from.plane, in.depth) || !is_in(from.row, in.height) || !is_in(from.column, in.width)) continue;
        visit(from, position);
      }
    }
  }
}

/// Calls `visit(image, place, channel)` for each element of a batch.
template <class Visit>
void visit_places(std::int64_t batch, const ImageShape& shape, Visit visit) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t pixel = 0; pixel < shape.pixels(); ++pixel) {
      const std::int64_t line = pixel / shape.width;
      const Place place{line / shape.height, line % shape.height, pixel % shape.width};
      for (std::int64_t channel = 0; channel < shape.channels; ++channel) visit(b, place, channel);
    }
  }
}

/// Calls `visit(channel of in, row of the filters)` for each channel at a position that output channel `o` reads.
template <class Visit>
void visit_channels(const Convolution& shape, std::int64_t o, std::int64_t position, Visit visit) {
  const std::int64_t first = o / (shape.out.channels / shape.groups) * shape.channels_read();
  for (std::int64_t i = 0; i < shape.channels_read(); ++i) visit(first + i, position * shape.channels_read() + i);
}

/// Calls `visit(image, row, column, channel)` for each element of a batch.
template <class Visit>
void visit_all(std::int64_t batch, const ImageShape& shape, Visit visit) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t row = 0; row < shape.height; ++row) {
      for (std::int64_t column = 0; column < shape.width; ++column) {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) visit(b, row, column, channel);
      }
    }
  }
}

/// Calls `visit(place)` for each pixel of a sample.
template <class Visit>
void visit_sample(const ImageShape& shape, Visit visit) {
  visit_places(1, {shape.height, shape.width, 1, shape.depth},
               [&](std::int64_t, const Place& place, std::int64_t) { visit(place); });
}

/// Applies each step of augmentation.hpp separately, one sample after the other.
template <class T>
void augment_samples(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) {
  const formulas::AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  const Images<T> from(images, spec.in);
  const Images<double> to(out, spec.out);
  for (std::int64_t b = 0; b < images.rows; ++b) {
    const formulas::SampleAugmentation sample =
        keys.present()
            ? formulas::draw_augmentation(numbers, keys.elements<std::uint64_t>()[static_cast<std::size_t>(b)])
            : formulas::central_crop(numbers);
    // Returns the value at a place of the crop.
    const auto value_at = [&](Place at, std::int64_t channel) {
      at = {at.plane + sample.front, at.row + sample.top, at.column + sample.left};
      if (at.plane < 0 || at.plane >= spec.in.depth || at.row < 0 || at.row >= spec.in.height || at.column < 0 ||
          at.column >= spec.in.width) {
        return 0.0;
      }
      return static_cast<double>(from(b, at, channel));
    };
    const auto stored = [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
      return value_at({0, row, column}, channel);
    };
    const auto cropped = [&](const Place& at, std::int64_t channel) {
      const std::int64_t row = at.row, column = at.column;
      if (!sample.scaled) return value_at(at, channel);
      const auto tap = [](std::int64_t index, std::int32_t in, std::int64_t scaled_to) {
        return formulas::tap_of(static_cast<std::int32_t>(index), in, static_cast<std::int32_t>(scaled_to));
      };
      const formulas::Tap r = tap(row, sample.height, spec.out.height), c = tap(column, sample.width, spec.out.width);
      const double below = r.share, beside = c.share;
      const double upper =
          stored(r.first, c.first, channel) * (1 - beside) + stored(r.first, c.second, channel) * beside;
      const double lower =
          stored(r.second, c.first, channel) * (1 - beside) + stored(r.second, c.second, channel) * beside;
      return upper * (1 - below) + lower * below;
    };
    const ImageShape& shape = spec.out;
    const double brightness = sample.brightness, contrast = sample.contrast;
    const auto flips = [&](std::uint32_t direction) { return (sample.flips & direction) != 0; };
    visit_sample(shape, [&](const Place& place) {
      const std::array<std::int64_t, 3> at{place.plane, place.row, place.column};
      const auto along = [&](int direction) { return at[static_cast<std::size_t>(sample.order.of[direction])]; };
      const Place shown{flips(formulas::kFlipDepth) ? shape.depth - 1 - along(0) : along(0),
                        flips(formulas::kFlipHeight) ? shape.height - 1 - along(1) : along(1),
                        flips(formulas::kFlipWidth) ? shape.width - 1 - along(2) : along(2)};
      for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        to(b, place, channel) = cropped(shown, channel) + brightness;
      }
    });
    if (contrast != 1) {
      for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        double mean = 0;
        visit_sample(shape,
                     [&](const Place& place) { mean += to(b, place, channel) / static_cast<double>(shape.pixels()); });
        visit_sample(shape, [&](const Place& place) {
          double& x = to(b, place, channel);
          x = (x - mean) * contrast + mean;
        });
      }
    }
    const auto crop = out.elements<double>().subspan(static_cast<std::size_t>(b * shape.elements()),
                                                     static_cast<std::size_t>(shape.elements()));
    if (spec.per_image) {
      const auto count = static_cast<double>(crop.size());
      double mean = 0, variance = 0;
      for (const double x : crop) mean += x / count;
      for (const double x : crop) variance += (x - mean) * (x - mean) / count;
      const double deviation = std::sqrt(variance), least = 1 / std::sqrt(count);
      for (double& x : crop) x = (x - mean) / (deviation < least ? least : deviation);
    } else {
      for (std::size_t i = 0; i < crop.size(); ++i) {
        const std::size_t channel = std::min(i % static_cast<std::size_t>(shape.channels), kMaxAugmentedChannels - 1);
        crop[i] = crop[i] * static_cast<double>(spec.scale[channel]) + static_cast<double>(spec.shift[channel]);
      }
    }
  }
}

}  // namespace

void ReferenceImages::do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec,
                                 const Tensor& out) {
  if (images.type == ElementType::uint8) augment_samples<std::uint8_t>(images, keys, spec, out);
  if (images.type == ElementType::float32) augment_samples<float>(images, keys, spec, out);
  if (images.type == ElementType::float64) augment_samples<double>(images, keys, spec, out);
}

void ReferenceImages::do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w,
                                             const Tensor& bias, Activation activation, const Tensor& y) {
  const Images<double> in(x, shape.in), out(y, shape.out);
  visit_places(x.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t o) {
    double sum = bias.present() ? at(bias, o) : 0;
    visit_window(shape.in, shape.window, to, [&](const Place& from, std::int64_t position) {
      visit_channels(shape, o, position,
                     [&](std::int64_t i, std::int64_t row) { sum += in(b, from, i) * at(w, row, o); });
    });
    out(b, to, o) = activate(activation, sum);
  });
}

void ReferenceImages::do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                              Activation activation, Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const Images<double> in(x, shape.in), d_out(d_y, shape.out);
  if (activation != Activation::none) {
    for (std::int64_t i = 0; i < d_y.count(); ++i) at(d_y, i) = activation_gradient(activation, at(y, i), at(d_y, i));
  }
  if (accumulate == Accumulate::no) {
    if (d_w.present()) std::ranges::fill(d_w.elements<double>(), 0.0);
    if (d_bias.present()) std::ranges::fill(d_bias.elements<double>(), 0.0);
  }
  if (d_x.present()) std::ranges::fill(d_x.elements<double>(), 0.0);
  visit_places(d_y.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t o) {
    const double d = d_out(b, to, o);
    if (d_bias.present()) at(d_bias, o) += d;
    visit_window(shape.in, shape.window, to, [&](const Place& from, std::int64_t position) {
      visit_channels(shape, o, position, [&](std::int64_t i, std::int64_t row) {
        if (d_w.present()) at(d_w, row, o) += d * in(b, from, i);
        if (d_x.present()) Images<double>(d_x, shape.in)(b, from, i) += d * at(w, row, o);
      });
    });
  });
}

void ReferenceImages::do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y,
                                            const Tensor& d_x) {
  const Images<double> d_in(d_x, shape.in), d_out(d_y, shape.out);
  visit_places(d_y.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t o) {
    const double d = d_out(b, to, o);
    visit_window(shape.in, shape.window, to, [&](const Place& from, std::int64_t position) {
      visit_channels(shape, o, position,
                     [&](std::int64_t i, std::int64_t row) { d_in(b, from, i) += d * at(w, row, o); });
    });
  });
}

void ReferenceImages::do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  const Images<double> in(x, shape.in), out(y, shape.out);
  const Images<std::uint8_t> choice(chosen, shape.out);
  visit_places(x.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    bool first = true;
    double greatest = 0;
    visit_window(shape.in, shape.window, to, [&](const Place& from, std::int64_t position) {
      const double value = in(b, from, channel);
      const bool wins = first || value > greatest || (std::isnan(value) && !std::isnan(greatest));
      first = false;
      if (!wins) return;
      greatest = value;
      choice(b, to, channel) = static_cast<std::uint8_t>(position);
    });
    out(b, to, channel) = greatest;
  });
}

void ReferenceImages::do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y,
                                           const Tensor& d_x) {
  const Images<double> d_in(d_x, shape.in), d_out(d_y, shape.out);
  const Images<std::uint8_t> choice(chosen, shape.out);
  std::ranges::fill(d_x.elements<double>(), 0.0);
  visit_places(d_y.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    visit_window(shape.in, shape.window, to, [&](const Place& from, std::int64_t position) {
      if (choice(b, to, channel) == position) d_in(b, from, channel) += d_out(b, to, channel);
    });
  });
}

namespace {

/// Calls `visit(place, share)` for each pixel of the window at `out`.
template <class Visit>
void visit_shares(const AveragePool& shape, const Place& out, Visit visit) {
  double divisor = shape.divisor == AveragePool::Divisor::positions
                       ? static_cast<double>(shape.pool.window.positions())
                       : (shape.divisor == AveragePool::Divisor::one ? 1 : 0);
  if (shape.divisor == AveragePool::Divisor::seen) {
    visit_window(shape.pool.in, shape.pool.window, out, [&](const Place&, std::int64_t) { ++divisor; });
  }
  visit_window(shape.pool.in, shape.pool.window, out,
               [&](const Place& from, std::int64_t) { visit(from, 1 / divisor); });
}

}  // namespace

void ReferenceImages::do_average_pool_forward(const AveragePool& shape, const Tensor& x, const Tensor& y) {
  const Images<double> in(x, shape.pool.in), out(y, shape.pool.out);
  visit_places(x.rows, shape.pool.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    double sum = 0;
    visit_shares(shape, to, [&](const Place& from, double share) { sum += share * in(b, from, channel); });
    out(b, to, channel) = sum;
  });
}

void ReferenceImages::do_average_pool_backward(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x) {
  const Images<double> d_in(d_x, shape.pool.in), d_out(d_y, shape.pool.out);
  std::ranges::fill(d_x.elements<double>(), 0.0);
  visit_places(d_y.rows, shape.pool.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    visit_shares(shape, to,
                 [&](const Place& from, double share) { d_in(b, from, channel) += share * d_out(b, to, channel); });
  });
}

namespace {

/// Calls visit(place, share) for each input place that `out` reads.
template <class Visit>
void visit_taps(const LinearUpsampling& shape, const Place& out, Visit visit) {
  struct Taps {
    std::int64_t at[2];
    double share[2];
  };
  const auto taps_of = [](std::int64_t p, std::int64_t in, std::int64_t factor) {
    const double centre = (static_cast<double>(p) + 0.5) / static_cast<double>(factor) - 0.5,
                 s = std::clamp(centre, 0.0, static_cast<double>(in - 1)), first = std::floor(s);
    const auto at = static_cast<std::int64_t>(first);
    return Taps{{at, std::min(at + 1, in - 1)}, {1 - (s - first), s - first}};
  };
  const auto factors = shape.factors();
  const Taps planes = taps_of(out.plane, shape.in.depth, factors[0]),
             rows = taps_of(out.row, shape.in.height, factors[1]),
             columns = taps_of(out.column, shape.in.width, factors[2]);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const double share = planes.share[h] * rows.share[i] * columns.share[j];
        if (share != 0) visit(Place{planes.at[h], rows.at[i], columns.at[j]}, share);
      }
    }
  }
}

}  // namespace

void ReferenceImages::do_linear_upsampling_forward(const LinearUpsampling& shape, const Tensor& x, const Tensor& y) {
  const Images<double> in(x, shape.in), out(y, shape.out);
  visit_places(x.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    double sum = 0;
    visit_taps(shape, to, [&](const Place& from, double share) { sum += share * in(b, from, channel); });
    out(b, to, channel) = sum;
  });
}

void ReferenceImages::do_linear_upsampling_backward(const LinearUpsampling& shape, const Tensor& d_y,
                                                    const Tensor& d_x) {
  const Images<double> d_in(d_x, shape.in), d_out(d_y, shape.out);
  std::ranges::fill(d_x.elements<double>(), 0.0);
  visit_places(d_y.rows, shape.out, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    visit_taps(shape, to,
               [&](const Place& from, double share) { d_in(b, from, channel) += share * d_out(b, to, channel); });
  });
}

void ReferenceImages::do_global_max_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  const Images<double> images(x, in);
  visit_places(x.rows, in, [&](std::int64_t b, const Place& from, std::int64_t channel) {
    const double value = images(b, from, channel);
    double& greatest = at(y, b, channel);
    const bool is_first = from.plane == 0 && from.row == 0 && from.column == 0;
    if (is_first || value > greatest || (std::isnan(value) && !std::isnan(greatest))) greatest = value;
  });
}

void ReferenceImages::do_global_max_backward(const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                                             const Tensor& d_x) {
  const Images<double> images(x, in), d_images(d_x, in);
  std::vector<bool> found(static_cast<std::size_t>(y.count()));
  visit_places(x.rows, in, [&](std::int64_t b, const Place& place, std::int64_t channel) {
    const double value = images(b, place, channel), greatest = at(y, b, channel);
    const auto i = static_cast<std::size_t>(b * in.channels + channel);
    const bool is_it = !found[i] && (value == greatest || (std::isnan(value) && std::isnan(greatest)));
    if (is_it) found[i] = true;
    d_images(b, place, channel) = is_it ? at(d_y, b, channel) : 0;
  });
}

void ReferenceImages::do_group_norm_forward(const GroupNorm& norm, const GroupNormForwardOperands& operands) {
  const auto& [x, scale, shift, mean, inverse, y] = operands;
  const std::int64_t each = norm.channels / norm.groups;
  const auto count = static_cast<double>(norm.places * each);
  for (std::int64_t b = 0; b < x.rows; ++b) {
    for (std::int64_t g = 0; g < norm.groups; ++g) {
      const auto visit = [&](auto work) {
        for (std::int64_t place = 0; place < norm.places; ++place) {
          for (std::int64_t c = g * each; c < (g + 1) * each; ++c) work(place * norm.channels + c, c);
        }
      };
      double sum = 0, squares = 0;
      visit([&](std::int64_t i, std::int64_t) { sum += at(x, b, i) / count; });
      visit([&](std::int64_t i, std::int64_t) { squares += (at(x, b, i) - sum) * (at(x, b, i) - sum) / count; });
      at(mean, b, g) = sum;
      at(inverse, b, g) = 1 / std::sqrt(squares + static_cast<double>(norm.epsilon));
      visit([&](std::int64_t i, std::int64_t c) {
        at(y, b, i) = at(scale, c) * (at(x, b, i) - sum) * at(inverse, b, g) + at(shift, c);
      });
    }
  }
}

void ReferenceImages::do_group_norm_backward(const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                                             Accumulate accumulate) {
  const auto& [x, d_y, mean, inverse, scale, d_scale, d_shift, sums, d_x] = operands;
  const std::int64_t each = norm.channels / norm.groups;
  const auto count = static_cast<double>(norm.places * each);
  std::vector<double> scales(static_cast<std::size_t>(norm.channels)), shifts(scales.size());
  for (std::int64_t b = 0; b < x.rows; ++b) {
    for (std::int64_t g = 0; g < norm.groups; ++g) {
      const auto visit = [&](auto work) {
        for (std::int64_t place = 0; place < norm.places; ++place) {
          for (std::int64_t c = g * each; c < (g + 1) * each; ++c) {
            const std::int64_t i = place * norm.channels + c;
            work(i, c, (at(x, b, i) - at(mean, b, g)) * at(inverse, b, g));
          }
        }
      };
      double first = 0, second = 0;
      visit([&](std::int64_t i, std::int64_t c, double normal) {
        scales[static_cast<std::size_t>(c)] += at(d_y, b, i) * normal;
        shifts[static_cast<std::size_t>(c)] += at(d_y, b, i);
        first += at(d_y, b, i) * at(scale, c) / count;
        second += at(d_y, b, i) * at(scale, c) * normal / count;
      });
      if (!d_x.present()) continue;
      visit([&](std::int64_t i, std::int64_t c, double normal) {
        at(d_x, b, i) = at(inverse, b, g) * (at(d_y, b, i) * at(scale, c) - first - normal * second);
      });
    }
  }
  for (std::int64_t c = 0; c < norm.channels; ++c) {
    if (d_scale.present()) write(scales[static_cast<std::size_t>(c)], accumulate, at(d_scale, c));
    if (d_shift.present()) write(shifts[static_cast<std::size_t>(c)], accumulate, at(d_shift, c));
  }
}

void ReferenceImages::do_softmax_forward(const Tensor& x, const Tensor& y) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    double greatest = at(x, row, 0), sum = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) greatest = std::max(greatest, at(x, row, c));
    for (std::int64_t c = 0; c < x.columns; ++c) sum += std::exp(at(x, row, c) - greatest);
    for (std::int64_t c = 0; c < x.columns; ++c) at(y, row, c) = std::exp(at(x, row, c) - greatest) / sum;
  }
}

void ReferenceImages::do_softmax_backward(const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  for (std::int64_t row = 0; row < y.rows; ++row) {
    double sum = 0;
    for (std::int64_t c = 0; c < y.columns; ++c) sum += at(y, row, c) * at(d_y, row, c);
    for (std::int64_t c = 0; c < y.columns; ++c) at(d_x, row, c) = at(y, row, c) * (at(d_y, row, c) - sum);
  }
}

void ReferenceImages::do_multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t c = 0; c < a.columns; ++c) at(y, row, c) = at(a, row, c) * at(b, row / (a.rows / b.rows), c);
  }
}

void ReferenceImages::do_multiply_sums(const Tensor& a, const Tensor& d_y, const Tensor& d_b) {
  std::ranges::fill(d_b.elements<double>(), 0.0);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t c = 0; c < a.columns; ++c) {
      at(d_b, row / (a.rows / d_b.rows), c) += at(a, row, c) * at(d_y, row, c);
    }
  }
}

void ReferenceImages::do_copy_strided(const StridedCopy& copy, const Tensor& x, const Tensor& y) {
  std::int64_t count = 1;
  for (const std::int64_t extent : copy.extents) count *= extent;
  for (std::int64_t b = 0; b < x.rows; ++b) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, from = copy.from_first, to = copy.to_first;
      for (std::size_t k = copy.extents.size(); k-- > 0; rest /= copy.extents[k]) {
        from += rest % copy.extents[k] * copy.from_steps[k];
        to += rest % copy.extents[k] * copy.to_steps[k];
      }
      at(y, b, to) = at(x, b, from);
    }
  }
}

void ReferenceImages::do_bias_forward(const Tensor& bias, Activation activation, const Tensor& y) {
  for (std::int64_t i = 0; i < y.count(); ++i) {
    at(y, i) = activate(activation, at(y, i) + (bias.present() ? at(bias, i % y.columns) : 0));
  }
}

void ReferenceImages::do_bias_backward(Activation activation, const Tensor& y, const Tensor& d_y, Accumulate accumulate,
                                       const Tensor& d_bias) {
  for (std::int64_t i = 0; i < d_y.count() && activation != Activation::none; ++i) {
    at(d_y, i) = activation_gradient(activation, at(y, i), at(d_y, i));
  }
  for (std::int64_t channel = 0; channel < d_bias.columns && d_bias.present(); ++channel) {
    double sum = 0;
    for (std::int64_t row = 0; row < d_y.rows; ++row) sum += at(d_y, row, channel);
    write(sum, accumulate, at(d_bias, channel));
  }
}

void ReferenceImages::do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) {
  std::ranges::fill(y.elements<double>(), 0.0);
  const Images<double> images(x, in);
  visit_places(x.rows, in, [&](std::int64_t b, const Place& from, std::int64_t channel) {
    at(y, b, channel) += images(b, from, channel) / static_cast<double>(in.pixels());
  });
}

void ReferenceImages::do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  const Images<double> d_images(d_x, in);
  visit_places(d_y.rows, in, [&](std::int64_t b, const Place& to, std::int64_t channel) {
    d_images(b, to, channel) = at(d_y, b, channel) / static_cast<double>(in.pixels());
  });
}

namespace {

/// Returns bias + alpha * sum of squares around channel c of the pixel that starts at `pixel`.
double response(const ResponseNormalization& norm, const Tensor& x, std::int64_t pixel, std::int64_t c) {
  double sum = 0;
  for (std::int64_t j = std::max<std::int64_t>(0, c - norm.radius); j < norm.channels && j <= c + norm.radius; ++j) {
    sum += at(x, pixel + j) * at(x, pixel + j);
  }
  return static_cast<double>(norm.bias) + static_cast<double>(norm.alpha) * sum;
}

}  // namespace

void ReferenceImages::do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x,
                                                        const Tensor& y) {
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    at(y, i) = at(x, i) / std::pow(response(norm, x, i - c, c), static_cast<double>(norm.beta));
  }
}

/// d y[j] / d x[c] = [j = c] s[j]^-beta - 2 alpha beta x[c] y[j] / s[j] if |j - c| <= radius.
void ReferenceImages::do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x,
                                                         const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  const double alpha = norm.alpha, beta = norm.beta;
  std::vector<double> d_pixel(static_cast<std::size_t>(norm.channels));
  for (std::int64_t pixel = 0; pixel < x.count(); pixel += norm.channels) {
    for (std::int64_t c = 0; c < norm.channels; ++c) {
      double sum = at(d_y, pixel + c) * std::pow(response(norm, x, pixel, c), -beta);
      for (std::int64_t j = 0; j < norm.channels; ++j) {
        if (std::abs(j - c) > norm.radius) continue;
        sum -=
            2 * alpha * beta * at(x, pixel + c) * at(d_y, pixel + j) * at(y, pixel + j) / response(norm, x, pixel, j);
      }
      d_pixel[static_cast<std::size_t>(c)] = sum;
    }
    std::ranges::copy(d_pixel, &at(d_x, pixel));
  }
}

void ReferenceImages::do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                           const Tensor& x, const Tensor& y) {
  const Images<double> from(x, in), to(y, out);
  const std::int64_t before = (out.channels - in.channels) / 2;
  visit_all(x.rows, out, [&](std::int64_t b, std::int64_t row, std::int64_t column, std::int64_t channel) {
    const std::int64_t c = channel - before;
    to(b, row, column, channel) = c >= 0 && c < in.channels ? from(b, row * stride, column * stride, c) : 0;
  });
}

void ReferenceImages::do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                            const Tensor& d_y, const Tensor& d_x) {
  const Images<double> d_from(d_x, in), d_to(d_y, out);
  const std::int64_t before = (out.channels - in.channels) / 2;
  const ImageShape taken{out.height, out.width, in.channels};
  visit_all(d_y.rows, taken, [&](std::int64_t b, std::int64_t row, std::int64_t column, std::int64_t c) {
    d_from(b, row * stride, column * stride, c) += d_to(b, row, column, before + c);
  });
}

void ReferenceImages::do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
  std::ranges::fill(sums.elements<double>(), 0.0);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    at(sums, i % norm.channels) += at(x, i);
    at(sums, norm.channels + i % norm.channels) += at(x, i) * at(x, i);
  }
  at(sums, 2 * norm.channels) = static_cast<double>(x.count() / norm.channels);
}

void ReferenceImages::do_batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  const auto& [x, sums, scale, shift, residual, mean, inverse, y] = operands;
  const double count = at(sums, 2 * norm.channels);
  for (std::int64_t c = 0; c < norm.channels; ++c) {
    const formulas::Moments moments = formulas::moments_of(at(sums, c), at(sums, norm.channels + c), count);
    at(mean, c) = moments.mean;
    at(inverse, c) = formulas::inverse_deviation(moments.variance, static_cast<double>(norm.epsilon));
  }
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    double value = at(scale, c) * (at(x, i) - at(mean, c)) * at(inverse, c) + at(shift, c);
    if (residual.present()) value += at(residual, i);
    at(y, i) = norm.relu ? activate(Activation::relu, value) : value;
  }
}

void ReferenceImages::do_batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight,
                                               Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance) {
  const double count = at(sums, 2 * norm.channels);
  for (std::int64_t c = 0; c < norm.channels; ++c) {
    const formulas::Moments moments = formulas::moments_of(at(sums, c), at(sums, norm.channels + c), count);
    write(weight * moments.mean, accumulate, at(d_mean, c));
    write(weight * formulas::unbiased_variance(moments.variance, count), accumulate, at(d_variance, c));
  }
}

void ReferenceImages::do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
  const auto& [x, mean, variance, scale, shift, residual, y] = operands;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    const double inverse = formulas::inverse_deviation(at(variance, c), static_cast<double>(norm.epsilon));
    double value = at(scale, c) * (at(x, i) - at(mean, c)) * inverse + at(shift, c);
    if (residual.present()) value += at(residual, i);
    at(y, i) = norm.relu ? activate(Activation::relu, value) : value;
  }
}

void ReferenceImages::do_batch_norm_inference_backward(const BatchNorm& norm,
                                                       const BatchNormInferenceBackwardOperands& operands) {
  const auto& [y, d_y, variance, scale, d_x] = operands;
  for (std::int64_t i = 0; i < d_y.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    if (norm.relu) at(d_y, i) = activation_gradient(Activation::relu, at(y, i), at(d_y, i));
    at(d_x, i) =
        at(scale, c) * at(d_y, i) * formulas::inverse_deviation(at(variance, c), static_cast<double>(norm.epsilon));
  }
}

void ReferenceImages::do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                                  Accumulate accumulate) {
  const auto& [x, y, d_y, mean, inverse, scale, shift, d_scale, d_shift, sums] = operands;
  std::ranges::fill(sums.elements<double>(), 0.0);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    const double x_hat = (at(x, i) - at(mean, c)) * at(inverse, c);
    double gradient = at(d_y, i);
    if (shift.present()) {
      gradient = activation_gradient(Activation::relu, at(scale, c) * x_hat + at(shift, c), gradient);
    } else if (norm.relu) {
      at(d_y, i) = gradient = activation_gradient(Activation::relu, at(y, i), gradient);
    }
    at(sums, c) += gradient;
    at(sums, norm.channels + c) += gradient * x_hat;
  }
  for (std::int64_t c = 0; c < norm.channels; ++c) {
    if (d_shift.present()) write(at(sums, c), accumulate, at(d_shift, c));
    if (d_scale.present()) write(at(sums, norm.channels + c), accumulate, at(d_scale, c));
  }
}

void ReferenceImages::do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  const auto& [x, d_y, mean, inverse, scale, shift, forward_sums, sums, d_x] = operands;
  const double count = at(forward_sums, 2 * norm.channels);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t c = i % norm.channels;
    const double x_hat = (at(x, i) - at(mean, c)) * at(inverse, c);
    const double gradient = shift.present()
                                ? activation_gradient(Activation::relu, at(scale, c) * x_hat + at(shift, c), at(d_y, i))
                                : at(d_y, i);
    at(d_x, i) =
        at(scale, c) * at(inverse, c) * (gradient - (at(sums, c) + x_hat * at(sums, norm.channels + c)) / count);
  }
}

}  // namespace lockstep::model
