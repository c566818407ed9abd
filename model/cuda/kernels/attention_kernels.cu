#include "model/cuda/kernels/attention_kernels.cuh"
#include "model/cuda/kernels/flash_attention.cuh"

namespace lockstep::model::cuda {

namespace {

template <int kHead, class T>
void plain_forward(cudaStream_t stream, const AttentionData<T>& data) {
  launch("attention_forward", plain_attention<kHead, T>,
         {.blocks = blocks_of_tiles(data, kOwnRows),
          .threads = kPlainThreads,
          .shared_bytes = sizeof(ForwardWorkspace<kHead>)},
         stream, data);
}

template <int kHead, class T>
void plain_backward(cudaStream_t stream, const AttentionData<T>& data) {
  const Grid grid{.blocks = blocks_of_tiles(data, kOwnRows),
                  .threads = kPlainThreads,
                  .shared_bytes = sizeof(BackwardWorkspace<kHead>)};
  const bool is_masked = data.places != nullptr || data.lengths != nullptr;
  launch("attention_backward of queries",
         is_masked ? plain_attention_queries<kHead, T, true> : plain_attention_queries<kHead, T, false>, grid, stream,
         data);
  launch("attention_backward of keys", plain_attention_keys<kHead, T>, grid, stream, data);
}

/// Calls run<kHead>() with the smallest kHead that is at least the head size.
template <class Run>
void for_head_size(std::int64_t head_size, const Run& run) {
  if (head_size <= 32) {
    run.template operator()<32>();
  } else if (head_size <= 64) {
    run.template operator()<64>();
  } else if (head_size <= kMaxHeadSize) {
    run.template operator()<kMaxHeadSize>();
  } else {
    throw std::invalid_argument("attention on a GPU: heads of " + std::to_string(head_size) + " (at most " +
                                std::to_string(kMaxHeadSize) + ")");
  }
}

}  // namespace

void attention_forward(cudaStream_t stream, const Attention& shape, const AttentionForwardOperands& operands) {
  const auto& [joint, dropout_keys, mask, y, log_sums] = operands;
  if (y.count() == 0) return;
  const AttentionBackwardOperands forward_alone{.joint = joint,
                                                .dropout_keys = dropout_keys,
                                                .mask = mask,
                                                .y = y,
                                                .log_sums = log_sums,
                                                .d_y = {},
                                                .d_joint = {}};
  with_compute_type("attention_forward", y, [&]<class T>() {
    const auto data = attention_data<T>(shape, forward_alone, {});
    if constexpr (sizeof(T) == sizeof(Bfloat16)) {
      if (takes_flash_attention(data)) return flash_attention_forward(stream, data);
    }
    for_head_size(shape.head_size, [&]<int kHead>() { plain_forward<kHead>(stream, data); });
  });
}

void attention_backward(cudaStream_t stream, const Attention& shape, const AttentionBackwardOperands& operands,
                        const Tensor& deltas) {
  if (operands.y.count() == 0) return;
  with_compute_type("attention_backward", operands.y, [&]<class T>() {
    const auto data = attention_data<T>(shape, operands, deltas);
    if constexpr (sizeof(T) == sizeof(Bfloat16)) {
      if (takes_flash_attention(data)) return flash_attention_backward(stream, data);
    }
    for_head_size(shape.head_size, [&]<int kHead>() { plain_backward<kHead>(stream, data); });
  });
}

}  // namespace lockstep::model::cuda
