#include "model/cpu/bf16/filters.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "model/cpu/bf16/emulation.hpp"
#include "model/cpu/thread_pool.hpp"

namespace lockstep::model::cpu {

namespace {

/// Largest number of parts, and thus of threads.
constexpr std::size_t kMaxParts = 8;
/// Elements of x and d_y in a part, per element of the filters, so that adding the sums of parts costs little.
constexpr std::size_t kPartFactor = 4;
/// Elements of a strip: 512 KiB.
constexpr std::size_t kStripElements = std::size_t{256} << 10;
/// Largest filters: 4 MiB of sums.
constexpr std::size_t kMaxFilters = std::size_t{1024} << 10;
/// Up to this many channels, half of a tile, the positions of a filter's row are folded into channels.
constexpr std::size_t kMaxFoldedChannels = 8;
constexpr std::size_t kSums = kFilterTile * kFilterTile;
constexpr std::size_t kRightStep = kFilterStep * kFilterTile;

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }
std::size_t pieces(std::size_t count, std::size_t piece) { return (count + piece - 1) / piece; }

// ---- the emulation ----

void plain_turn(const Bf16* image, std::size_t stride, std::size_t channels, const FilterRows& rows, Bf16* to,
                std::size_t pitch) {
  for (std::size_t c = 0; c < kFilterTile; ++c) {
    Bf16* const cells = to + c * pitch;
    std::fill_n(cells, rows.count * rows.cells, Bf16{0});
    for (std::size_t i = 0; i < rows.count * rows.pixels && c < channels; ++i) {
      cells[i / rows.pixels * rows.cells + rows.first + i % rows.pixels] = image[i * stride + c];
    }
  }
}

void plain_pair(const Bf16* image, std::size_t stride, std::size_t channels, std::size_t pixels, Bf16* to) {
  std::fill_n(to, pieces(pixels, 2) * 2 * kFilterTile, Bf16{0});
  for (std::size_t i = 0; i < pixels; ++i) {
    for (std::size_t c = 0; c < channels; ++c) to[(i / 2 * kFilterTile + c) * 2 + i % 2] = image[i * stride + c];
  }
}

LOCKSTEP_CLONES void emulated_multiply(const FilterProducts& products) {
  for (std::size_t i = 0; i < products.lefts; ++i) {
    for (std::size_t row = 0; row < products.rights * kFilterTile; ++row) {
      const Bf16* const left = products.left[i] + row % kFilterTile * products.pitch;
      const Bf16* const right = products.right + row / kFilterTile * products.next_right;
      float* const to = products.sums[i] + row * kFilterTile;
      EmulatedSums<kFilterTile> sums;
      std::copy_n(to, kFilterTile, sums.begin());
      for (std::size_t step = 0; step < products.steps; ++step) {
        add_amx_step(left + step * kFilterStep, right + step * kRightStep, sums);
      }
      std::ranges::copy(sums, to);
    }
  }
}

constexpr FilterKernels kEmulated{.turn = plain_turn, .pair = plain_pair, .multiply = emulated_multiply};

/// Returns `count` numbers of an image from `first` on as bf16: in place, or rounded into `scratch`.
const Bf16* numbers(const Tensor& image, std::size_t first, std::size_t count, std::vector<Bf16>& scratch) {
  if (image.type == ElementType::bfloat16) return static_cast<const Bf16*>(image.data) + first;
  if (scratch.size() < count) scratch.resize(count);
  round_to_bf16(image.elements<float>().subspan(first, count), std::span(scratch).first(count));
  return scratch.data();
}

Bf16* aligned(std::vector<Bf16>& memory, std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(Bf16);
  if (memory.size() < count + kLine) memory.resize(count + kLine);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(Bf16);
}

}  // namespace

const FilterKernels& filter_kernels(Bf16Unit unit) noexcept {
  return unit == Bf16Unit::amx ? *amx_filter_kernels() : kEmulated;
}

// Without strides, the padding before a row is also the padding after the previous row.
FilterGradient::Axis::Axis(const Sweep& sweep, std::size_t in_extent, std::size_t out_extent)
    : in(in_extent),
      out(out_extent),
      size(cpu::size(sweep.size)),
      stride(cpu::size(sweep.stride)),
      dilation(cpu::size(sweep.dilation)),
      before(cpu::size(sweep.before)),
      remainders(std::min(stride, (size - 1) * dilation + 1)),
      reach((size - 1) * dilation / stride),
      cells(stride > 1 ? out + reach : std::max(out, in + std::max(before, cpu::size(sweep.after)))) {}

FilterGradient::Axis::Run FilterGradient::Axis::run(std::size_t remainder) const noexcept {
  const std::size_t first = before > remainder ? pieces(before - remainder, stride) : 0,
                    pixel = first * stride + remainder - before;
  if (first >= cells || pixel >= in) return {};
  return {first, std::min(pieces(in - pixel, stride), cells - first), pixel};
}

FilterGradient::FilterGradient(const Convolution& shape, Bf16Unit unit)
    : kernels_(filter_kernels(unit)),
      shape_(shape),
      depth_(shape.window.depth, size(shape.in.depth), size(shape.out.depth)),
      height_(shape.window.height, size(shape.in.height), size(shape.out.height)),
      width_(shape.window.width, size(shape.in.width), size(shape.out.width)),
      folds_(size(shape.in.channels) <= kMaxFoldedChannels && width_.size > 1 && width_.dilation == 1),
      channels_(size(shape.in.channels) * (folds_ ? width_.size : 1)),
      positions_(depth_.size * height_.size * (folds_ ? 1 : width_.size)),
      grids_(depth_.remainders * height_.remainders * (folds_ ? 1 : width_.remainders)),
      lefts_(pieces(channels_, kFilterTile)),
      rights_(pieces(size(shape.out.channels), kFilterTile)) {
  if (folds_) width_.cells = width_.out;
  width_.cells += width_.cells % 2;  // an even number: a pair of cells lies in one row
}

bool is_dilated(const Sliding& window) noexcept {
  return std::ranges::any_of(window.sweeps(), [](const Sweep& sweep) { return sweep.dilation > 1; });
}

bool FilterGradient::takes(const Convolution& shape, Bf16Unit unit) noexcept {
  // For dilated windows oneDNN's gradients are slow or wrong: Convolver::Library::type_of().
  return (unit == Bf16Unit::amx || unit == Bf16Unit::emulated_amx) && shape.groups == 1 &&
         (size(shape.patch() * shape.out.channels) <= kMaxFilters || is_dilated(shape.window));
}

std::size_t FilterGradient::sums() const noexcept { return positions_ * lefts_ * rights_ * kSums; }

std::size_t FilterGradient::parts(std::size_t images) const noexcept {
  const std::size_t rows = images * depth_.cells * height_.cells,
                    elements = images * size(shape_.in.elements() + shape_.out.elements());
  return std::clamp<std::size_t>(elements / (kPartFactor * sums()), 1, std::min(kMaxParts, rows));
}

/// Returns the rows of a strip: a number whose cells fill whole steps, if the strip size allows it.
std::size_t FilterGradient::strip_rows() const noexcept {
  const std::size_t channels = (grids_ * lefts_ + rights_) * kFilterTile,
                    rows = std::max<std::size_t>(kStripElements / (channels * width_.cells), 1),
                    granule = kFilterStep / std::gcd(kFilterStep, width_.cells);
  return rows >= granule ? rows / granule * granule : rows;
}

FilterGradient::Place FilterGradient::place(std::size_t row) const noexcept {
  const std::size_t plane = row / height_.cells;
  return {plane / depth_.cells, plane % depth_.cells, row % height_.cells};
}

// The channels of neighbouring pixels are consecutive in memory, like the channels of the folded positions.
void FilterGradient::turn_folded(const Bf16* row, Bf16* to, std::size_t pitch, std::vector<Bf16>& padded) const {
  const std::size_t channels = size(shape_.in.channels), pixels = (width_.out - 1) * width_.stride + width_.size;
  padded.assign(pixels * channels, Bf16{0});
  if (pixels > width_.before) {
    std::copy_n(row, std::min(pixels - width_.before, width_.in) * channels,
                padded.begin() + static_cast<std::ptrdiff_t>(width_.before * channels));
  }
  for (std::size_t c = 0; c < channels_; c += kFilterTile) {
    kernels_.turn(padded.data() + c, width_.stride * channels, std::min(kFilterTile, channels_ - c),
                  {.pixels = width_.out, .cells = width_.cells}, to + c * pitch, pitch);
  }
}

void FilterGradient::turn_rows(const Tensor& x, Slice grid_rows, std::size_t images, Bf16* to, std::size_t pitch,
                               FilterScratch& scratch) const {
  const std::size_t channels = size(shape_.in.channels), tiles = lefts_ * kFilterTile, grid = tiles * pitch;
  const std::size_t line = width_.in * channels, width_grids = folds_ ? 1 : width_.remainders;
  for (std::size_t copy = 0; copy < grids_; ++copy, to += grid) {
    const Axis::Run planes = depth_.run(copy / width_grids / height_.remainders),
                    lines = height_.run(copy / width_grids % height_.remainders),
                    columns = folds_ ? Axis::Run{} : width_.run(copy % width_grids);
    const bool are_neighbours = !folds_ && height_.stride == 1 && width_.stride == 1 && columns.count == width_.in;
    for (std::size_t row = 0; row < grid_rows.count;) {
      const Place at = place(grid_rows.offset + row);
      Bf16* const cells = to + row * width_.cells;
      const bool is_in_plane = at.image < images && at.plane - planes.first < planes.count,
                 is_pixels = is_in_plane && at.row - lines.first < lines.count && (folds_ || columns.count > 0);
      if (!is_pixels) {
        for (std::size_t c = 0; c < tiles; ++c) std::fill_n(cells + c * pitch, width_.cells, Bf16{0});
        ++row;
        continue;
      }
      const std::size_t left = lines.first + lines.count - at.row,
                        count = are_neighbours ? std::min(left, grid_rows.count - row) : 1;
      const std::size_t plane = planes.pixel + (at.plane - planes.first) * depth_.stride,
                        first = lines.pixel + (at.row - lines.first) * height_.stride;
      const Bf16* const from =
          numbers(x, ((at.image * depth_.in + plane) * height_.in + first) * line, count * line, scratch.row);
      if (folds_) turn_folded(from, cells, pitch, scratch.padded);
      for (std::size_t c = 0; c < channels && !folds_; c += kFilterTile) {
        kernels_.turn(from + columns.pixel * channels + c, width_.stride * channels,
                      std::min(kFilterTile, channels - c),
                      {.count = count, .pixels = columns.count, .first = columns.first, .cells = width_.cells},
                      cells + c * pitch, pitch);
      }
      row += count;
    }
  }
}

void FilterGradient::pair_row(const Tensor& d_y, std::size_t row, std::size_t images, Bf16* to, std::size_t next,
                              std::vector<Bf16>& scratch) const {
  const Place at = place(row);
  const std::size_t channels = size(shape_.out.channels);
  const bool is_pixels = at.image < images && at.plane < depth_.out && at.row < height_.out;
  const std::size_t count = is_pixels ? width_.out : 0, written = (count + count % 2) * kFilterTile;
  const Bf16* const from =
      is_pixels ? numbers(d_y, ((at.image * depth_.out + at.plane) * height_.out + at.row) * count * channels,
                          count * channels, scratch)
                : nullptr;
  for (std::size_t c = 0; c < channels; c += kFilterTile, to += next) {
    if (count > 0) kernels_.pair(from + c, channels, std::min(kFilterTile, channels - c), count, to);
    std::fill_n(to + written, width_.cells * kFilterTile - written, Bf16{0});
  }
}

void FilterGradient::run(const Tensor& x, const Tensor& d_y, std::size_t part, std::span<float> sums,
                         FilterScratch& scratch) const {
  const std::size_t images = size(d_y.rows), per_image = depth_.cells * height_.cells;
  const Slice mine = part_of(images * per_image, 1, part, parts(images));
  const std::size_t rows = std::min(strip_rows(), mine.count),
                    halo = depth_.reach * height_.cells + height_.reach + 1,  // one more row: cells after a row's end
      steps = pieces(rows * width_.cells, kFilterStep), last = (rows + halo) * width_.cells;
  const std::size_t lines = pieces(last + kFilterStep, kFilterStep) | 1;  // odd: rows of a tile use different sets
  const std::size_t pitch = lines * kFilterStep, next = steps * kRightStep, grid = lefts_ * kFilterTile * pitch;
  Bf16* const left = aligned(scratch.x, grids_ * grid);
  Bf16* const right = aligned(scratch.d_y, rights_ * next);
  for (std::size_t i = 0; i < grids_ * lefts_ * kFilterTile; ++i) {
    std::fill_n(left + i * pitch + last, pitch - last, Bf16{0});
  }
  std::ranges::fill(sums, 0.0f);

  std::vector<FilterScratch::Left>& tiles = scratch.lefts;
  tiles.clear();
  const std::size_t width_positions = folds_ ? 1 : width_.size, width_grids = folds_ ? 1 : width_.remainders;
  for (std::size_t p = 0; p < positions_; ++p) {
    const std::size_t d = p / (height_.size * width_positions) * depth_.dilation,
                      h = p / width_positions % height_.size * height_.dilation,
                      w = p % width_positions * width_.dilation;
    const std::size_t of_grid =
        (d % depth_.stride * height_.remainders + h % height_.stride) * width_grids + (folds_ ? 0 : w % width_.stride);
    const std::size_t distance =
        (d / depth_.stride * height_.cells + h / height_.stride) * width_.cells + (folds_ ? 0 : w / width_.stride);
    for (std::size_t tile = 0; tile < lefts_; ++tile) {
      tiles.push_back({left + of_grid * grid + tile * kFilterTile * pitch + distance,
                       sums.data() + (p * lefts_ + tile) * rights_ * kSums});
    }
  }

  if (kernels_.begin != nullptr) kernels_.begin();
  for (std::size_t first = mine.offset; first < mine.end(); first += rows) {
    const std::size_t count = std::min(rows, mine.end() - first);
    turn_rows(x, {first, rows + halo}, images, left, pitch, scratch);
    // Rows after the last one of this part belong to the next part.
    for (std::size_t i = 0; i < rows; ++i) {
      pair_row(d_y, i < count ? first + i : images * per_image, images, right + i * width_.cells * kFilterTile, next,
               scratch.row);
    }
    for (std::size_t j = 0; j < rights_; ++j) {
      const std::size_t filled = rows * width_.cells * kFilterTile;
      std::fill_n(right + j * next + filled, next - filled, Bf16{0});
    }
    for (std::size_t j = 0; j < rights_; j += 2) {
      const std::size_t rights = std::min<std::size_t>(2, rights_ - j),
                        most = rights == 2 ? 2 : FilterProducts::kMaxLefts;
      const std::size_t groups = pieces(tiles.size(), most);
      for (std::size_t group = 0; group < groups; ++group) {
        const Slice now = part_of(tiles.size(), 1, group, groups);
        FilterProducts products{.lefts = now.count,
                                .rights = rights,
                                .steps = pieces(count * width_.cells, kFilterStep),
                                .pitch = pitch,
                                .right = right + j * next,
                                .next_right = next};
        for (std::size_t i = 0; i < now.count; ++i) {
          products.left[i] = tiles[now.offset + i].data;
          products.sums[i] = tiles[now.offset + i].sums + j * kSums;
        }
        kernels_.multiply(products);
      }
    }
  }
  if (kernels_.end != nullptr) kernels_.end();
}

void FilterGradient::put(std::span<const float> sums, Accumulate accumulate, std::span<float> d_w) const {
  const std::size_t outputs = size(shape_.out.channels);
  for (std::size_t row = 0; row < positions_ * channels_; ++row) {
    const std::size_t channel = row % channels_, tile = row / channels_ * lefts_ + channel / kFilterTile;
    const float* const from = sums.data() + tile * rights_ * kSums + channel % kFilterTile * kFilterTile;
    float* const to = d_w.data() + row * outputs;
    for (std::size_t o = 0; o < outputs; ++o) {
      const float value = from[o / kFilterTile * kSums + o % kFilterTile];
      to[o] = accumulate == Accumulate::yes ? to[o] + value : value;
    }
  }
}

}  // namespace lockstep::model::cpu
