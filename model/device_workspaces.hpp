/// \file
/// What a GPU's backend takes at most beside the arenas of a model: memory that operations work in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::model {

/// For matrix products: parts of sums that are split over blocks, as much as cuBLAS itself takes on Hopper. GPUs before
/// it take half. For each queue that products run in.
inline constexpr std::size_t kProductWorkspace = std::size_t{64} << 20;
/// For the patches of convolutions that are done as products. A tile is at least one image, whatever it takes.
inline constexpr std::size_t kMostPatchBytes = std::size_t{256} << 20;
/// For convolutions by a library: its plans that want more are not taken. The patches of what it has no plan for lie
/// there, too: one after the other.
inline constexpr std::size_t kMostLibraryWorkspace = std::size_t{256} << 20;
/// For the backward pass of attention by a library, of so many samples at a time as fit in it. On an H200 a step of GPT-2
/// with 32 samples took 56.2 ms with 1 GiB, 57.2 with 256 MiB and 60.5 with 64 MiB.
inline constexpr std::size_t kMostAttentionWorkspace = std::size_t{1} << 30;
/// What one sample takes of it: two bytes for each score, and what the library keeps for itself.
constexpr std::size_t library_attention_bytes(std::int64_t scores) {
  return static_cast<std::size_t>(scores) * 2 + 4096;
}
/// The same where the order of its sums does not matter: a float32 sum for each element of the queries' gradient. No
/// more than library_attention_bytes() where the context is at least twice the head size.
constexpr std::size_t query_sum_bytes(std::int64_t query_elements) {
  return static_cast<std::size_t>(query_elements) * sizeof(float);
}
/// For code, which CUDA loads when it is first used, and graphs. A process that had used cuBLAS held 287 MB with this
/// way of loading and 667 MB with all code at once, its context included (pytorch/pytorch pull request 86509); the
/// context is there before anybody looks at what is free.
inline constexpr std::size_t kKernelBytes = std::size_t{512} << 20;

}  // namespace lockstep::model
