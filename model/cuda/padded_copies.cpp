#include "model/cuda/padded_copies.hpp"

namespace lockstep::model::cuda {

PaddedCopies::Product PaddedCopies::product_of(const Matrices& stored, bool a_transposed, bool b_transposed) {
  const auto extents_of = [](const Tensor& tensor) { return Extents{tensor.rows, tensor.columns}; };
  const StoredProduct product{.in = stored.a.type,
                              .result = stored.out.type,
                              .a = extents_of(stored.a),
                              .b = extents_of(stored.b),
                              .out = extents_of(stored.out),
                              .a_transposed = a_transposed,
                              .b_transposed = b_transposed};
  Product result{.stored = stored, .made = stored, .padded = model::padded(product, options_.worth)};
  const PaddedProduct& padded = result.padded;
  if (!padded.copies()) return result;
  std::byte* room = room_for(padded.bytes(product));
  const auto take = [&](bool copied, const Extents& extents, Tensor& tensor) {
    if (!copied) return;
    tensor = {room, tensor.type, extents.rows, extents.columns};
    room += (tensor.bytes() + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  };
  take(padded.copies_a, padded.a, result.made.a);
  take(padded.copies_b, padded.b, result.made.b);
  take(padded.copies_out, padded.out, result.made.out);
  if (padded.copies_out) result.bias_room = room;
  return result;
}

void PaddedCopies::copy_factors(cudaStream_t stream, const Product& product) {
  if (product.padded.copies_a) copy_rows(stream, product.stored.a, product.made.a);
  if (product.padded.copies_b) copy_rows(stream, product.stored.b, product.made.b);
}

std::byte* PaddedCopies::room_for(std::size_t bytes) {
  if (bytes > room_.bytes()) {
    // Releases the old memory, which must be unused, before it allocates the new: both together may not fit.
    if (room_.data() != nullptr && options_.forget_recordings) options_.forget_recordings();
    { const Block old = std::move(room_); }
    room_ = Block(memory_, bytes);
  }
  return static_cast<std::byte*>(room_.data());
}

}  // namespace lockstep::model::cuda
