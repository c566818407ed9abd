#include "model/cuda/kernels/flash_attention.cuh"
#include "model/cuda/kernels/flash_attention_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

/// Calls run<kHead, kDrops>().
template <class Run>
void for_kind(const FlashData& data, const Run& run) {
  const bool drops = data.dropout_keys != nullptr;
  if (data.head_size == 64) {
    drops ? run.template operator()<64, true>() : run.template operator()<64, false>();
  } else {
    drops ? run.template operator()<128, true>() : run.template operator()<128, false>();
  }
}

}  // namespace

bool takes_flash_attention(const FlashData& data) {
  constexpr int kWidth = kWideWidth<Bfloat16>;
  return data.causal && data.places == nullptr && data.lengths == nullptr &&
         (data.head_size == 64 || data.head_size == 128) && takes_packs<kWidth>(data.joint) &&
         takes_packs<kWidth>(data.y) && takes_packs<kWidth>(data.d_y) && takes_packs<kWidth>(data.d_joint);
}

void flash_attention_forward(cudaStream_t stream, const FlashData& data) {
  for_kind(data, [&]<int kHead, bool kDrops>() {
    launch("attention_forward", flash_attention<kHead, kDrops>,
           {.blocks = blocks_of_tiles(data, kFlashRows),
            .threads = kFlashThreads,
            .shared_bytes = sizeof(KeysWorkspace<kHead>)},
           stream, data);
  });
}

void flash_attention_backward(cudaStream_t stream, const FlashData& data) {
  for_kind(data, [&]<int kHead, bool kDrops>() {
    const unsigned blocks = blocks_of_tiles(data, kFlashRows);
    launch("attention_backward of queries", flash_attention_queries<kHead, kDrops>,
           {.blocks = blocks, .threads = kFlashThreads, .shared_bytes = sizeof(KeysWorkspace<kHead>)}, stream, data);
    launch("attention_backward of keys", flash_attention_keys<kHead, kDrops>,
           {.blocks = blocks, .threads = kFlashThreads, .shared_bytes = sizeof(QueriesWorkspace<kHead>)}, stream, data);
  });
}

}  // namespace lockstep::model::cuda
