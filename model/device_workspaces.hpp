/// \file
/// Workspace limits of the GPU backend, beside the arenas of a model.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::model {

/// Partial sums of split matrix products, for each queue that runs products. cuBLAS itself uses this size on Hopper,
/// and half of it on earlier GPUs.
inline constexpr std::size_t kProductWorkspace = std::size_t{64} << 20;
/// Patches of convolutions that run as matrix products. A tile holds at least one image, even if that is larger.
inline constexpr std::size_t kMaxPatchBytes = std::size_t{256} << 20;
/// Convolutions by a library. Plans that need more are rejected. Patches of convolutions without a plan use the same
/// memory, since convolutions run one at a time.
inline constexpr std::size_t kMaxLibraryWorkspace = std::size_t{256} << 20;
/// The backward pass of attention by a library, which processes as many samples at a time as fit. On an H200 a step of
/// GPT-2 with 32 samples took 56.2 ms with 1 GiB, 57.2 with 256 MiB and 60.5 with 64 MiB.
inline constexpr std::size_t kMaxAttentionWorkspace = std::size_t{1} << 30;
/// Number of scores of one sample in the library's workspace, which rounds the context up to whole tiles.
constexpr std::int64_t scores_in_tiles(std::int64_t heads, std::int64_t context) {
  constexpr std::int64_t kTile = 128;
  const std::int64_t places = (context + kTile - 1) / kTile * kTile;
  return heads * places * places;
}
/// Workspace of one sample: two bytes for each of scores_in_tiles(), and the library's own overhead.
constexpr std::size_t library_attention_bytes(std::int64_t scores) {
  return static_cast<std::size_t>(scores) * 2 + 4096;
}
/// Workspace of one sample if the order of the sums does not matter: a float32 sum for each element of the queries'
/// gradient. At most library_attention_bytes() if the context is at least twice the head size.
constexpr std::size_t query_sum_bytes(std::int64_t query_elements) {
  return static_cast<std::size_t>(query_elements) * sizeof(float);
}
/// Kernel code, which CUDA loads at first use, and CUDA graphs. A process that had used cuBLAS held 287 MB with lazy
/// loading and 667 MB with eager loading, its context included (pytorch/pytorch pull request 86509). The context exists
/// before anyone measures free memory.
inline constexpr std::size_t kKernelBytes = std::size_t{512} << 20;

}  // namespace lockstep::model
