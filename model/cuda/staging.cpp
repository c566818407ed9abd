#include "model/cuda/staging.hpp"

namespace lockstep::model::cuda {

namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Staging::Staging(DeviceMemory& memory, int slots, const StageBytes& bytes)
    : block_(memory, static_cast<std::size_t>(slots) *
                         (rounded(bytes.x) + rounded(bytes.y) + rounded(bytes.keys) + rounded(bytes.weights))),
      copies_(make_stream()) {
  auto* next = static_cast<std::byte*>(block_.data());
  for (int i = 0; i < slots; ++i) {
    std::byte* const y = next + rounded(bytes.x);
    std::byte* const keys = y + rounded(bytes.y);
    std::byte* const weights = keys + rounded(bytes.keys);
    slots_.push_back({next, y, keys, weights, make_event(), make_event()});
    next = weights + rounded(bytes.weights);
  }
}

Batch Staging::stage(int slot, const Batch& host, cudaStream_t compute) {
  Slot& to = slots_[static_cast<std::size_t>(slot)];
  // If the event was never recorded, the stream does not wait.
  check(cudaStreamWaitEvent(copies_.get(), to.released.get(), 0), "waiting for a slot of the input");
  Batch batch = host;
  batch.x = upload(host.x, to.x);
  if (host.y.present()) batch.y = upload(host.y, to.y);
  if (host.keys.present()) batch.keys = upload(host.keys, to.keys);
  if (host.weights.present()) batch.weights = upload(host.weights, to.weights);
  check(cudaEventRecord(to.uploaded.get(), copies_.get()), "marking an upload");
  check(cudaStreamWaitEvent(compute, to.uploaded.get(), 0), "waiting for an upload");
  latest_ = to.uploaded.get();
  return batch;
}

void Staging::release(int slot, cudaStream_t compute) {
  check(cudaEventRecord(slots_[static_cast<std::size_t>(slot)].released.get(), compute),
        "releasing a slot of the input");
}

void Staging::wait() {
  if (latest_ != nullptr) check(cudaEventSynchronize(latest_), "uploading a batch");
}

Tensor Staging::upload(const Tensor& host, std::byte* to) {
  const std::size_t bytes = host.bytes();
  if (bytes > 0) {
    check(cudaMemcpyAsync(to, host.data, bytes, cudaMemcpyHostToDevice, copies_.get()), "uploading a batch");
  }
  return {to, host.type, host.rows, host.columns};
}

}  // namespace lockstep::model::cuda
