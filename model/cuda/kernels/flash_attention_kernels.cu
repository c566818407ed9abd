#include "model/cuda/kernels/flash_attention.cuh"
#include "model/cuda/kernels/flash_attention_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

/// Calls run<kHead, kDrops, kDocuments>().
template <class Run>
void for_kind(const FlashData& data, const Run& run) {
  const auto with_head = [&]<int kHead>() {
    if (data.places != nullptr) {
      data.dropout_keys != nullptr ? run.template operator()<kHead, true, true>()
                                   : run.template operator()<kHead, false, true>();
    } else {
      data.dropout_keys != nullptr ? run.template operator()<kHead, true, false>()
                                   : run.template operator()<kHead, false, false>();
    }
  };
  data.head_size == 64 ? with_head.template operator()<64>() : with_head.template operator()<128>();
}

}  // namespace

bool takes_flash_attention(const FlashData& data) {
  constexpr int kWidth = kWideWidth<Bfloat16>;
  return data.causal && data.lengths == nullptr && (data.head_size == 64 || data.head_size == 128) &&
         takes_packs<kWidth>(data.joint) && takes_packs<kWidth>(data.y) && takes_packs<kWidth>(data.d_y) &&
         takes_packs<kWidth>(data.d_joint);
}

void flash_attention_forward(cudaStream_t stream, const FlashData& data) {
  for_kind(data, [&]<int kHead, bool kDrops, bool kDocuments>() {
    launch("attention_forward", flash_attention<kHead, kDrops, kDocuments>,
           {.blocks = blocks_of_tiles(data, kFlashRows),
            .threads = kFlashThreads,
            .shared_bytes = sizeof(KeysWorkspace<kHead>)},
           stream, data);
  });
}

void flash_attention_backward(cudaStream_t stream, const FlashData& data) {
  for_kind(data, [&]<int kHead, bool kDrops, bool kDocuments>() {
    const unsigned blocks = blocks_of_tiles(data, kFlashRows);
    launch("attention_backward of queries", flash_attention_queries<kHead, kDrops, kDocuments>,
           {.blocks = blocks, .threads = kFlashThreads, .shared_bytes = sizeof(KeysWorkspace<kHead>)}, stream, data);
    launch("attention_backward of keys", flash_attention_keys<kHead, kDrops, kDocuments>,
           {.blocks = blocks, .threads = kFlashThreads, .shared_bytes = sizeof(QueriesWorkspace<kHead>)}, stream, data);
  });
}

}  // namespace lockstep::model::cuda
