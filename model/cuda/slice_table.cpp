#include "model/cuda/slice_table.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

std::vector<UpdateChunk> cut_into_chunks(std::span<const UpdateSlice> slices) {
  std::vector<UpdateChunk> chunks;
  for (const UpdateSlice& slice : slices) {
    for (std::size_t done = 0; done < slice.count; done += kUpdateChunk) {
      const std::size_t count = std::min<std::size_t>(slice.count - done, kUpdateChunk);
      chunks.push_back({slice.offset + done, static_cast<std::uint32_t>(count), slice.decayed ? 1u : 0u});
    }
  }
  return chunks;
}

UpdateChunks SliceTable::chunks(std::span<const UpdateSlice> slices, [[maybe_unused]] bool recording) {
  const auto same = [](const UpdateSlice& a, const UpdateSlice& b) {
    return a.offset == b.offset && a.count == b.count && a.decayed == b.decayed;
  };
  for (const Entry& entry : entries_) {
    if (std::ranges::equal(entry.slices, slices, same)) return entry.chunks;
  }
  assert(!recording);
  const std::vector<UpdateChunk> list = cut_into_chunks(slices);
  if (list.size() > 0x7fffffffu) throw std::invalid_argument("update: more chunks than a grid has blocks");
  Entry entry{{slices.begin(), slices.end()}, Block(memory_, list.size() * sizeof(UpdateChunk)), {}};
  if (!list.empty()) {
    check(cudaMemcpyAsync(entry.block.data(), list.data(), list.size() * sizeof(UpdateChunk), cudaMemcpyHostToDevice,
                          stream_),
          "copying the table of slices");
    check(cudaStreamSynchronize(stream_), "copying the table of slices");
  }
  entry.chunks = {static_cast<const UpdateChunk*>(entry.block.data()), static_cast<std::uint32_t>(list.size())};
  entries_.push_back(std::move(entry));
  return entries_.back().chunks;
}

}  // namespace lockstep::model::cuda
