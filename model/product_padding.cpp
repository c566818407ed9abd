#include "model/product_padding.hpp"

#include <algorithm>

namespace lockstep::model {

namespace {

constexpr std::int64_t kPack = 8, kLargePack = 128, kLarge = 1024, kFewOutputs = 256;

std::int64_t rounded_up(std::int64_t count, std::int64_t granule) { return (count + granule - 1) / granule * granule; }

/// Rows, inner extent and columns of the product.
struct Dimensions {
  std::int64_t rows, terms, columns;
};

PaddedProduct made_of(const StoredProduct& product, const Dimensions& to) {
  const auto turned = [](bool transposed, std::int64_t rows, std::int64_t columns) {
    return transposed ? Extents{columns, rows} : Extents{rows, columns};
  };
  PaddedProduct made{.a = turned(product.a_transposed, to.rows, to.terms),
                     .b = turned(product.b_transposed, to.terms, to.columns),
                     .out = {to.rows, to.columns}};
  made.copies_a = made.a != product.a;
  made.copies_b = made.b != product.b;
  made.copies_out = made.out != product.out;
  return made;
}

}  // namespace

std::int64_t padded_columns(std::int64_t columns) noexcept {
  return rounded_up(columns, columns < kLarge ? kPack : kLargePack);
}

std::int64_t whole_packs(std::int64_t columns) noexcept { return rounded_up(columns, kPack); }

std::int64_t padded_outputs(std::int64_t outputs) noexcept {
  return outputs < kFewOutputs || outputs % kPack == 0 ? outputs : padded_columns(outputs);
}

std::size_t PaddedProduct::bytes(const StoredProduct& product) const noexcept {
  const auto of = [](bool copied, const Extents& extents, ElementType type) {
    const auto bytes = static_cast<std::size_t>(extents.count()) * size_of(type);
    return copied ? (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment : 0;
  };
  return of(copies_a, a, product.in) + of(copies_b, b, product.in) + of(copies_out, out, product.result) +
         of(copies_out, {1, out.columns}, product.result);
}

PaddedProduct padded(const StoredProduct& product, double worth) noexcept {
  const auto& [in, result, a, b, out, a_transposed, b_transposed] = product;
  const Dimensions needed{.rows = std::max(a_transposed ? a.columns : a.rows, out.rows),
                          .terms = std::max(a_transposed ? a.rows : a.columns, b_transposed ? b.columns : b.rows),
                          .columns = std::max(b_transposed ? b.rows : b.columns, out.columns)};
  const PaddedProduct as_needed = made_of(product, needed);
  if (in != ElementType::bfloat16) return as_needed;
  // Pads each extent that is contiguous in memory in any of the three matrices.
  Dimensions whole = needed;
  if (a_transposed) whole.rows = whole_packs(needed.rows);
  if (!a_transposed || b_transposed) whole.terms = whole_packs(needed.terms);
  const bool of_four_bytes = b_transposed && result == ElementType::float32;
  whole.columns = rounded_up(needed.columns, of_four_bytes ? kPack / 2 : kPack);
  const PaddedProduct aligned = made_of(product, whole);
  const double flops =
      2.0 * static_cast<double>(needed.rows) * static_cast<double>(needed.terms) * static_cast<double>(needed.columns);
  const auto more = static_cast<double>(aligned.bytes(product)) - static_cast<double>(as_needed.bytes(product));
  return flops >= worth * more ? aligned : as_needed;
}

std::size_t padding_bytes(const LinearMap& map, ElementType compute, ElementType master) noexcept {
  const Extents x{map.rows, std::max(map.inputs, map.stored_inputs)};
  const Extents y{map.rows, std::max(map.outputs, map.stored_outputs)}, w{map.inputs, map.outputs};
  const StoredProduct products[] = {{.in = compute, .result = compute, .a = x, .b = w, .out = y},
                                    {.in = compute, .result = master, .a = x, .b = y, .out = w, .a_transposed = true},
                                    {.in = compute, .result = compute, .a = y, .b = w, .out = x, .b_transposed = true}};
  std::size_t most = 0;
  for (const StoredProduct& product : products) most = std::max(most, padded(product).bytes(product));
  return most;
}

}  // namespace lockstep::model
