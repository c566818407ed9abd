/// \file
/// Causal attention on tensor cores, in bfloat16 with head size 64 or 128.
#pragma once

#include "model/cuda/kernels/attention_data.cuh"

namespace lockstep::model::cuda {

/// True if these kernels can run the call: causal, without AttentionMask, head size 64 or 128, and tensors aligned for
/// packs.
bool takes_flash_attention(const AttentionData<Bfloat16>& data);
void flash_attention_forward(cudaStream_t stream, const AttentionData<Bfloat16>& data);
void flash_attention_backward(cudaStream_t stream, const AttentionData<Bfloat16>& data);

}  // namespace lockstep::model::cuda
