#include "model/cpu/convolution.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "model/cpu/bf16/filters.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/loops/image_loops.hpp"
#include "model/cpu/onednn_steps.hpp"

// Partition of a batch.
//
// Forward and the gradient of x run in blocks of a few images. The input and output of a block fill about half of a
// second-level cache, so that our own passes for bias and activation find y in the cache. (oneDNN could apply both
// itself, but its ReLU turns a NaN into zero, and a NaN must be kept.) Blocks do not slow oneDNN down: with one thread
// on a Zen 4 core, one image of 8 x 8 x 64 runs at 136 GFLOP/s, and so do 64 at once.
//
// The gradient of w runs in runs of blocks. Each run computes a gradient and adds it to the sum of its part. Threads
// take parts, at most kMaxParts, and the sums of parts are added at the end, in order. A run has enough images that
// adding its gradient costs little compared with computing it. If a run is a single block, the gradient of w is
// computed right after that of x, from the same d_y in the cache.
//
// All images are plain NHWC. Measured with one thread of that core against a blocked layout (nChw16c), GFLOP/s forward
// / gradient of x / gradient of w, plain : blocked: 5x5 64 -> 64 at 12 x 12 141/139/136 : 143/142/137; 3x3 16 -> 16 at
// 32 x 32 114/120/119 : 88/120/100; 32 -> 32 at 16 x 16 122/127/123 : 127/127/114; 64 -> 64 at 8 x 8 137/139/131 :
// 139/139/121; with stride 2 within 7 %. Only with three input channels is plain slower (5x5 3 -> 64: 101 and 80
// against 121 and 121), and blocks of images make up for it (120 and 126). A matrix of patches would run through
// OpenBLAS at 105.

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{512} << 10;
constexpr std::size_t kMaxBlockImages = 16;
/// Largest number of parts, and thus of threads that a gradient of w can use.
constexpr std::size_t kMaxParts = 8;
/// Elements of x and y in a run, per element of w.
constexpr std::size_t kRunFactor = 4;

/// Partition of the batches of a shape; see above.
struct Cuts {
  std::size_t in = 0, out = 0;  ///< elements of one image of x and of y
  std::size_t block = 1;        ///< images
  std::size_t run = 1;          ///< images, a multiple of `block`

  /// element_bytes: size of an element of x and y.
  Cuts(const Convolution& shape, std::size_t element_bytes)
      : in(static_cast<std::size_t>(shape.in.elements())), out(static_cast<std::size_t>(shape.out.elements())) {
    block = std::clamp<std::size_t>(kBlockBytes / ((in + out) * element_bytes), 1, kMaxBlockImages);
    const auto filters = static_cast<std::size_t>(shape.patch() * shape.out.channels);
    const std::size_t images = (kRunFactor * filters + in + out - 1) / (in + out);
    run = (std::max<std::size_t>(images, 1) + block - 1) / block * block;
  }
  static std::size_t pieces(std::size_t images, std::size_t piece) { return (images + piece - 1) / piece; }
  std::size_t blocks(std::size_t images) const { return pieces(images, block); }
  std::size_t runs(std::size_t images) const { return pieces(images, run); }
  std::size_t parts(std::size_t images) const { return std::min(runs(images), kMaxParts); }
};

}  // namespace

bool is_fallback(std::string_view implementation) noexcept {
  return implementation.find("ref") != std::string_view::npos || implementation.find("gemm") != std::string_view::npos;
}

/// The oneDNN calls of one shape. A direction has one step for whole pieces and one for each size of a last piece so
/// far. All of them use filters in the format of the first step.
struct Steps {
  Steps(const Convolution& convolution, Bf16Unit unit, FactorType factors, std::size_t element_bytes)
      : cuts(convolution, element_bytes), shape(convolution), type(factors) {
    if (FilterGradient::takes(shape, unit)) filters.emplace(shape, unit);
  }
  using OfDirection = std::vector<std::unique_ptr<ConvolutionStep>>;
  /// Returns the steps that write results of this type.
  OfDirection& of(Direction direction, ElementType result) {
    return all[static_cast<std::size_t>(direction)][result == ElementType::bfloat16 ? 1 : 0];
  }
  Cuts cuts;
  Convolution shape;
  FactorType type;
  std::array<std::array<OfDirection, 2>, 3> all;
  std::optional<FilterGradient> filters;  ///< computes the gradient of w if oneDNN does not
};

/// Elements that our own passes over bf16 images widen, change and round at a time, in the first-level cache.
constexpr std::size_t kChunk = 2048;

/// Runs work(first element, elements) over chunks of whole pixels.
template <class Work>
void for_chunks(std::size_t elements, std::size_t channels, const Work& work) {
  const std::size_t chunk = std::max<std::size_t>(kChunk / channels, 1) * channels;
  for (std::size_t at = 0; at < elements; at += chunk) work(at, std::min(chunk, elements - at));
}

bool is_bf16(const Tensor& image) { return image.type == ElementType::bfloat16; }
/// True if the activation works on bf16 numbers directly, without fp32 copies in memory.
bool is_plain(Activation activation) { return activation == Activation::none || activation == Activation::relu; }
Bf16* bf16(const Tensor& image) { return static_cast<Bf16*>(image.data); }

class Convolver::Library {
 public:
  Library(ThreadPool& threads, Bf16Unit unit)
      : threads_(threads),
        unit_(unit),
        type_(unit == Bf16Unit::none                        ? FactorType::fp32
              : !is_emulated(unit) && use_onednn_bf16(unit) ? FactorType::bf16
                                                            : FactorType::rounded),
        element_bytes_(unit == Bf16Unit::none ? sizeof(float) : sizeof(Bf16)),
        workspace_(threads.size()),
        x_factors_(threads.size()),
        y_factors_(threads.size()),
        results_(threads.size()),
        filter_scratch_(threads.size()) {}

  void forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
               const Tensor& y);
  void backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                Accumulate accumulate);
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  /// Returns the step for `images` images; makes it if needed.
  ConvolutionStep& step(Steps& steps, Direction direction, ElementType result, std::size_t images);
  /// Makes the steps for a batch in pieces of `piece` images, before threads use them.
  void prepare(Steps& steps, Direction direction, ElementType result, std::size_t images, std::size_t piece);
  Steps& steps_of(const Convolution& shape);
  /// Works around oneDNN 2.6, which with AMX computes wrong filter gradients for dilated convolutions whose input
  /// channels are not a multiple of 16. Once it has used AMX, it uses it everywhere. Such a convolution runs in fp32
  /// with rounded factors.
  FactorType type_of(const Convolution& shape) const;
  /// Returns a factor as the products read it: the factor itself, or a converted copy in `scratch`.
  static const void* factor(FactorType type, std::span<const float> plain, ScratchFloats& scratch);
  static const void* factor(FactorType type, const Tensor& image, std::size_t first, std::size_t count,
                            ScratchFloats& scratch);
  /// Returns the filters in oneDNN's format; valid until the next call.
  const void* arrange(const Steps& steps, const ConvolutionStep& like, const Tensor& w);
  /// Computes the gradient of w by our own products.
  void add_filter_gradient(const FilterGradient& filters, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                           std::span<float> d_w);
  /// Turns some elements of d_y into the gradient before the activation, and computes its sums per channel.
  void through_activation(std::size_t thread, Activation activation, const Tensor& y, const Tensor& d_y, Slice elements,
                          std::size_t channels, std::span<float> sums);

  ThreadPool& threads_;
  std::map<std::array<std::int64_t, 21>, std::unique_ptr<Steps>> steps_;  ///< by numbers_of()
  std::vector<std::string> notes_;
  const Bf16Unit unit_;
  const FactorType type_;
  const std::size_t element_bytes_;  ///< size of an element of most images
  OnednnWorkspace workspace_;
  std::vector<ScratchFloats> x_factors_, y_factors_;  ///< converted, by thread
  std::vector<ScratchFloats> results_;                ///< fp32 results before rounding, by thread
  ScratchFloats rounded_filters_;
  ScratchFloats filters_;        ///< w in oneDNN's format; in backward, for the gradient of x
  ScratchFloats run_gradients_;  ///< one gradient of w per thread
  ScratchFloats part_gradients_;
  ScratchFloats plain_gradient_;               ///< gradient of w before it is added to d_w
  ScratchFloats bias_gradients_;               ///< one gradient of the bias per block
  std::vector<FilterScratch> filter_scratch_;  ///< by thread
};

const void* Convolver::Library::factor(FactorType type, std::span<const float> plain, ScratchFloats& scratch) {
  if (type == FactorType::fp32) return plain.data();
  const std::size_t floats = type == FactorType::rounded ? plain.size() : (plain.size() + 1) / 2;
  const std::span<float> to = scratch.at_least(floats);
  if (type == FactorType::rounded) {
    round_to_bf16(plain, to);
  } else {
    round_to_bf16(plain, std::span(reinterpret_cast<Bf16*>(to.data()), plain.size()));
  }
  return to.data();
}

const void* Convolver::Library::factor(FactorType type, const Tensor& image, std::size_t first, std::size_t count,
                                       ScratchFloats& scratch) {
  if (!is_bf16(image)) return factor(type, image.elements<float>().subspan(first, count), scratch);
  if (type == FactorType::bf16) return bf16(image) + first;
  const std::span<float> to = scratch.at_least(count);
  widen({bf16(image) + first, count}, to);
  return to.data();
}

const void* Convolver::Library::arrange(const Steps& steps, const ConvolutionStep& like, const Tensor& w) {
  const std::span<const float> plain = w.elements<float>();
  const bool rounds = steps.type == FactorType::rounded;
  const void* const from = rounds ? factor(steps.type, plain, rounded_filters_) : plain.data();
  return like.arrange_filters(static_cast<const float*>(from), filters_);
}

FactorType Convolver::Library::type_of(const Convolution& shape) const {
  const bool is_wrong = is_dilated(shape.window) && shape.channels_read() % 16 != 0;
  const bool by_library = type_ == FactorType::bf16 && !FilterGradient::takes(shape, unit_);
  return by_library && is_wrong ? FactorType::rounded : type_;
}

Steps& Convolver::Library::steps_of(const Convolution& shape) {
  auto& found = steps_[numbers_of(shape)];
  if (!found) found = std::make_unique<Steps>(shape, unit_, type_of(shape), element_bytes_);
  return *found;
}

ConvolutionStep& Convolver::Library::step(Steps& steps, Direction direction, ElementType result, std::size_t images) {
  auto& all = steps.of(direction, result);
  const auto found = std::ranges::find(all, images, [](const auto& step) { return step->images(); });
  if (found != all.end()) return **found;
  const ConvolutionStep* const like = all.empty() ? nullptr : all.front().get();
  all.push_back(
      std::make_unique<ConvolutionStep>(workspace_, steps.shape, steps.type, direction, result, images, like));
  const std::string& implementation = all.back()->implementation();
  if (is_fallback(implementation) && (like == nullptr || !is_fallback(like->implementation()))) {
    notes_.push_back(fmt::format("oneDNN has no direct code for {} of a {}: it runs as {}, slower", name_of(direction),
                                 to_string(steps.shape), implementation));
  }
  return *all.back();
}

void Convolver::Library::prepare(Steps& steps, Direction direction, ElementType result, std::size_t images,
                                 std::size_t piece) {
  if (images >= piece) step(steps, direction, result, piece);
  if (images % piece != 0) step(steps, direction, result, images % piece);
}

void Convolver::Library::forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                                 Activation activation, const Tensor& y) {
  const auto images = static_cast<std::size_t>(x.rows);
  if (images == 0) return;
  Steps& steps = steps_of(shape);
  const Cuts& cuts = steps.cuts;
  const auto shift = bias.elements<float>();
  const bool has_epilogue = !shift.empty() || activation != Activation::none;
  const ElementType result =
      is_bf16(y) && steps.type == FactorType::bf16 && !has_epilogue ? ElementType::bfloat16 : ElementType::float32;
  prepare(steps, Direction::forward, result, images, cuts.block);
  const void* const filters = arrange(steps, *steps.of(Direction::forward, result).front(), w);
  const auto channels = static_cast<std::size_t>(shape.out.channels);
  threads_.run([&](std::size_t thread) {
    const Slice mine = part_of(cuts.blocks(images), 1, thread, threads_.size());
    for (std::size_t block = mine.offset; block < mine.end(); ++block) {
      const std::size_t image = block * cuts.block, count = std::min(cuts.block, images - image),
                        begin = image * cuts.out, elements = count * cuts.out;
      const void* const in = factor(steps.type, x, image * cuts.in, count * cuts.in, x_factors_[thread]);
      ConvolutionStep& run = step(steps, Direction::forward, result, count);
      if (result == ElementType::bfloat16) {
        run.run(thread, in, filters, bf16(y) + begin);
        continue;
      }
      const auto out = is_bf16(y) ? results_[thread].at_least(elements) : y.elements<float>().subspan(begin, elements);
      run.run(thread, in, filters, out.data());
      if (is_bf16(y)) {
        for_chunks(elements, channels, [&](std::size_t at, std::size_t size) {
          const auto chunk = out.subspan(at, size);
          if (is_plain(activation)) {
            return add_bias_and_round(activation == Activation::relu,
                                      {chunk.data(), shift.empty() ? nullptr : shift.data(), bf16(y) + begin + at},
                                      channels, size / channels);
          }
          add_bias_and_activate(chunk, channels, shift, activation);
          round_to_bf16(chunk, std::span(bf16(y) + begin + at, size));
        });
      } else if (has_epilogue) {
        add_bias_and_activate(out, channels, shift, activation);
      }
    }
  });
}

void Convolver::Library::through_activation(std::size_t thread, Activation activation, const Tensor& y,
                                            const Tensor& d_y, Slice elements, std::size_t channels,
                                            std::span<float> sums) {
  const auto [first, count] = elements;
  if (!is_bf16(d_y)) {
    const auto value = y.elements<float>(), gradient = d_y.elements<float>();
    return activation_gradient(activation, value.empty() ? value : value.subspan(first, count),
                               gradient.subspan(first, count), channels, 0, channels, sums);
  }
  if (activation == Activation::none && sums.empty()) return;
  for_chunks(count, channels, [&, first = first](std::size_t at, std::size_t size) {
    const std::span<Bf16> stored(bf16(d_y) + first + at, size);
    const Bf16* const value = activation == Activation::none ? nullptr : bf16(y) + first + at;
    if (is_plain(activation)) {
      return bias_gradient(activation == Activation::relu, {value, stored.data(), sums.empty() ? nullptr : sums.data()},
                           channels, size / channels);
    }
    const auto scratch = results_[thread].at_least(2 * size), gradient = scratch.first(size);
    widen(stored, gradient);
    widen({value, size}, scratch.last(size));
    activation_gradient(activation, scratch.last(size), gradient, channels, 0, channels, sums);
    round_to_bf16(gradient, stored);
  });
}

void Convolver::Library::backward(const Convolution& shape, const LinearBackwardOperands& operands,
                                  Activation activation, Accumulate accumulate) {
  const auto& [x, w, y, d_y, d_w, d_bias, d_x] = operands;
  const auto images = static_cast<std::size_t>(d_y.rows);
  const auto filter_gradient = d_w.elements<float>();
  const auto bias_gradient = d_bias.elements<float>();
  if (images == 0) {
    if (accumulate == Accumulate::no) {
      std::ranges::fill(filter_gradient, 0.0f);
      std::ranges::fill(bias_gradient, 0.0f);
    }
    return;
  }
  constexpr auto kFilters = Direction::backward_filters, kInput = Direction::backward_input;
  constexpr auto kFloat = ElementType::float32;
  Steps& steps = steps_of(shape);
  const Cuts& cuts = steps.cuts;
  const auto channels = static_cast<std::size_t>(shape.out.channels);
  const ElementType result = is_bf16(d_x) && steps.type == FactorType::bf16 ? ElementType::bfloat16 : kFloat;
  const void* filters = nullptr;
  if (d_x.present()) {
    prepare(steps, kInput, result, images, cuts.block);
    filters = arrange(steps, *steps.of(kInput, result).front(), w);
  }
  const std::size_t blocks = cuts.blocks(images);
  const auto bias_gradients = bias_gradients_.at_least(bias_gradient.empty() ? 0 : blocks * channels);

  const auto do_block = [&](std::size_t thread, std::size_t block) {
    const std::size_t image = block * cuts.block, count = std::min(cuts.block, images - image);
    const auto sums = bias_gradient.empty() ? bias_gradient : bias_gradients.subspan(block * channels, channels);
    std::ranges::fill(sums, 0.0f);
    through_activation(thread, activation, y, d_y, {image * cuts.out, count * cuts.out}, channels, sums);
    if (filters == nullptr) return;
    const void* const out = factor(steps.type, d_y, image * cuts.out, count * cuts.out, y_factors_[thread]);
    ConvolutionStep& run = step(steps, kInput, result, count);
    const std::size_t begin = image * cuts.in, elements = count * cuts.in;
    if (result == ElementType::bfloat16) return run.run(thread, bf16(d_x) + begin, filters, out);
    if (!is_bf16(d_x)) return run.run(thread, d_x.elements<float>().data() + begin, filters, out);
    const auto sum = results_[thread].at_least(elements);
    run.run(thread, sum.data(), filters, out);
    round_to_bf16(sum, std::span(bf16(d_x) + begin, elements));
  };
  const bool run_is_block = cuts.run == cuts.block && !filter_gradient.empty() && !steps.filters;
  if (!run_is_block) {
    threads_.run([&](std::size_t thread) {
      const Slice mine = part_of(blocks, 1, thread, threads_.size());
      for (std::size_t block = mine.offset; block < mine.end(); ++block) do_block(thread, block);
    });
  }
  const auto sum_bias = [&] {
    for (std::size_t channel = 0; channel < bias_gradient.size(); ++channel) {
      double sum = accumulate == Accumulate::yes ? static_cast<double>(bias_gradient[channel]) : 0;
      for (std::size_t block = 0; block < blocks; ++block) {
        sum += static_cast<double>(bias_gradients[block * channels + channel]);
      }
      bias_gradient[channel] = static_cast<float>(sum);
    }
  };
  if (filter_gradient.empty()) return sum_bias();
  if (steps.filters) {
    add_filter_gradient(*steps.filters, x, d_y, accumulate, filter_gradient);
    return sum_bias();
  }
  prepare(steps, kFilters, kFloat, images, cuts.run);
  const ConvolutionStep& like = *steps.of(kFilters, kFloat).front();
  const std::size_t runs = cuts.runs(images), parts = cuts.parts(images), size = like.filter_elements();
  const auto run_gradients = run_gradients_.at_least(threads_.size() * size);
  const auto part_gradients = part_gradients_.at_least(parts * size);
  threads_.run([&](std::size_t thread) {
    const Slice my_parts = part_of(parts, 1, thread, threads_.size());
    for (std::size_t part = my_parts.offset; part < my_parts.end(); ++part) {
      const auto total = part_gradients.subspan(part * size, size);
      const Slice my_runs = part_of(runs, 1, part, parts);
      for (std::size_t run = my_runs.offset; run < my_runs.end(); ++run) {
        if (run_is_block) do_block(thread, run);
        const std::size_t image = run * cuts.run, count = std::min(cuts.run, images - image);
        const auto one = run == my_runs.offset ? total : run_gradients.subspan(thread * size, size);
        const void* const in = factor(steps.type, x, image * cuts.in, count * cuts.in, x_factors_[thread]);
        const void* const out = factor(steps.type, d_y, image * cuts.out, count * cuts.out, y_factors_[thread]);
        step(steps, kFilters, kFloat, count).run(thread, in, one.data(), out);
        if (run != my_runs.offset) add_scaled(one, 1, total);
      }
    }
  });
  for (std::size_t part = 1; part < parts; ++part) {
    add_scaled(part_gradients.subspan(part * size, size), 1, part_gradients.first(size));
  }
  like.return_filters(part_gradients.data(), filter_gradient, accumulate, plain_gradient_);
  sum_bias();
}

void Convolver::Library::add_filter_gradient(const FilterGradient& filters, const Tensor& x, const Tensor& d_y,
                                             Accumulate accumulate, std::span<float> d_w) {
  const std::size_t parts = filters.parts(static_cast<std::size_t>(d_y.rows)), size = filters.sums();
  const auto all = part_gradients_.at_least(parts * size);
  threads_.run([&](std::size_t thread) {
    const Slice mine = part_of(parts, 1, thread, threads_.size());
    for (std::size_t part = mine.offset; part < mine.end(); ++part) {
      filters.run(x, d_y, part, all.subspan(part * size, size), filter_scratch_[thread]);
    }
  });
  for (std::size_t part = 1; part < parts; ++part) add_scaled(all.subspan(part * size, size), 1, all.first(size));
  filters.put(all.first(size), accumulate, d_w);
}

Convolver::Convolver(ThreadPool& threads, Bf16Unit unit) : library_(std::make_unique<Library>(threads, unit)) {}
Convolver::~Convolver() = default;

void Convolver::forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                        Activation activation, const Tensor& y) {
  library_->forward(shape, x, w, bias, activation, y);
}

void Convolver::backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                         Accumulate accumulate) {
  library_->backward(shape, operands, activation, accumulate);
}

std::vector<std::string> Convolver::notes() const { return library_->notes(); }

}  // namespace lockstep::model::cpu
