#include "model/cuda/slice_table.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

UpdateChunks SliceTable::chunks(std::span<const UpdateSlice> slices, [[maybe_unused]] bool recording) {
  const auto same = [](const UpdateSlice& a, const UpdateSlice& b) {
    return a.offset == b.offset && a.count == b.count && a.decayed == b.decayed && a.statistic == b.statistic &&
           a.rate_scale == b.rate_scale;
  };
  for (const Entry& entry : entries_) {
    if (std::ranges::equal(entry.slices, slices, same)) return entry.chunks;
  }
  assert(!recording);
  const std::vector<UpdateChunk> list = cut_into_chunks(slices);
  if (list.size() > 0x7fffffffu) throw std::invalid_argument("update: more chunks than a grid has blocks");
  const std::vector<ChunksOfSlice> by_slice = chunks_by_slice(list, slices.size());
  Entry entry{{slices.begin(), slices.end()}, {}, {}, {}, {}, {}};
  const auto copied = [&](const void* from, std::size_t bytes) {
    Block block(memory_, bytes);
    if (bytes > 0) {
      check(cudaMemcpyAsync(block.data(), from, bytes, cudaMemcpyHostToDevice, stream_), "copying the table of slices");
      check(cudaStreamSynchronize(stream_), "copying the table of slices");
    }
    return block;
  };
  entry.chunk_block = copied(list.data(), list.size() * sizeof(UpdateChunk));
  entry.slice_block = copied(by_slice.data(), by_slice.size() * sizeof(ChunksOfSlice));
  entry.part_block = Block(memory_, list.size() * 2 * sizeof(double));
  entry.ratio_block = Block(memory_, by_slice.size() * sizeof(float));
  entry.chunks = {.data = static_cast<const UpdateChunk*>(entry.chunk_block.data()),
                  .count = static_cast<std::uint32_t>(list.size()),
                  .slices = static_cast<const ChunksOfSlice*>(entry.slice_block.data()),
                  .slice_count = static_cast<std::uint32_t>(by_slice.size()),
                  .parts = static_cast<double*>(entry.part_block.data()),
                  .ratios = static_cast<float*>(entry.ratio_block.data())};
  entries_.push_back(std::move(entry));
  return entries_.back().chunks;
}

}  // namespace lockstep::model::cuda
