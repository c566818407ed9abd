/// \file
/// Attention on tensor cores: bfloat16 with head sizes 64 and 128.
#pragma once

#include "model/cuda/kernels/attention_data.cuh"

namespace lockstep::model::cuda {

/// True if these kernels take the call: depends on the head size, and on the tensors' alignment for packs.
bool takes_flash_attention(const AttentionData<Bfloat16>& data);
void flash_attention_forward(cudaStream_t stream, const AttentionData<Bfloat16>& data);
void flash_attention_backward(cudaStream_t stream, const AttentionData<Bfloat16>& data);

}  // namespace lockstep::model::cuda
