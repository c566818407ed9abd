// Dependencies of operations other than kernels, for kernels that run on the host: device memory is host memory, and a
// product is the plain kernel of plain_matmul.hpp. Replaces device_memory.cpp, matmul.cpp and the libraries that they
// use.
#include <cstring>
#include <new>
#include <utility>

#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/kernels/plain_matmul.hpp"
#include "model/cuda/matmul.hpp"
#include "model/device.hpp"

extern "C" {

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) { return CUBLAS_STATUS_SUCCESS; }

}  // extern "C"

namespace lockstep::model::cuda {

namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

void fail(cudaError_t error, const char* what) { throw DeviceError(std::string(what) + ": " + std::to_string(error)); }

void* DeviceMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  static_cast<void>(device_);
  void* const block = ::operator new (bytes, std::align_val_t{alignment});
  std::memset(block, 0xff, bytes);
  return block;
}
void DeviceMemory::do_deallocate(void* block, std::size_t, std::size_t alignment) {
  ::operator delete (block, std::align_val_t{alignment});
}
bool DeviceMemory::do_is_equal(const std::pmr::memory_resource& other) const noexcept { return this == &other; }

Block::Block(std::pmr::memory_resource& memory, std::size_t bytes)
    : memory_(&memory), data_(memory.allocate(bytes, kAlignment)), bytes_(bytes) {}
Block::~Block() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes_, kAlignment);
}
void Block::swap(Block& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

Matmul::Matmul(DeviceMemory& memory, const Options& options) : options_(options), memory_(memory) {}

void Matmul::multiply(cudaStream_t stream, const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& out,
                      Sums) {
  const bool a_turned = a.transposed == Transposed::yes, b_turned = b.transposed == Transposed::yes;
  PaddedCopies::run(stream, room_of(stream).copies.product_of({a.tensor, b.tensor, out}, a_turned, b_turned),
                    accumulate, [&](const Tensor& left, const Tensor& right, const Tensor& to) {
                      plain_matmul(stream, left, a_turned, right, b_turned, accumulate, to);
                    });
}
bool Matmul::multiply_with_bias(cudaStream_t, const Operand&, const Operand&, const Tensor&, const Tensor&) {
  return false;
}

}  // namespace lockstep::model::cuda
