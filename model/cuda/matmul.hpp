/// \file
/// Matrix products through cuBLASLt.
///
/// Tensors are row-major; cuBLASLt's native layout is column-major. The bytes of a row-major [r, c] tensor are those of
/// its transpose as a column-major [c, r] matrix with leading dimension c. So out = a b is computed as out' = b' a':
/// operands are swapped and nothing is transposed. A bias for the columns of `out` is then one for the rows of out', as
/// in cuBLASLt's bias epilogue.
///
/// A plan is the algorithm for one shape, types, epilogue, alignment and number of multiprocessors. It is the first
/// proposal of cuBLASLt's heuristics that runs, so it is the same in every run on one kind of device. A sum may be
/// split over several blocks only if a separate step adds the parts in fp32, so results are deterministic.
///
/// A call of cuBLASLt may refuse an algorithm that its heuristics proposed, and then enqueues nothing. The plan
/// continues with the next proposal. After the last one, plain_matmul() computes the product and the caller runs the
/// epilogue; notes() reports this.
///
/// Products on different streams may run concurrently: each stream has its own workspace, from its first product on.
///
/// In bfloat16, large enough products use padded copies (product_padding.hpp). Their memory belongs to the stream and
/// grows with the largest product. If two matrices differ in a common extent, the smaller one is padded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cublasLt.h>

#include "model/backend.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/padded_copies.hpp"
#include "model/cuda/tuning.hpp"

namespace lockstep::model::cuda {

class Matmul {
 public:
  struct Options {
    Precision precision = Precision::fp32;
    std::size_t workspace = 0;  ///< bytes, for each stream
    Tuning tuning = Tuning::first;
    PaddedCopies::Options padding = {};
  };
  enum class Transposed : bool { no, yes };
  /// Selects if a sum may be split over several blocks. A second kernel then adds the parts; in a chain of short
  /// products it costs more than it saves.
  enum class Sums : bool { may_be_split, whole };
  struct Operand {
    const Tensor& tensor;
    Transposed transposed = Transposed::no;
  };

  Matmul(DeviceMemory& memory, const Options& options);

  /// Limits later products to this many streaming multiprocessors; 0, the initial value: all. Plans depend on it.
  void use_processors(int processors) noexcept { processors_ = processors; }

  /// out = a b or out += a b. a and b have one type, float32 or bfloat16; out has that type or float32. Sums are fp32.
  /// With an empty inner dimension, out becomes zero or does not change.
  void multiply(cudaStream_t stream, const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& out,
                Sums sums = Sums::may_be_split);
  /// out = partial products of a b', which the caller must add: `parts` products over equal ranges of the terms, one
  /// below the other. a [rows, terms], b [columns, terms], out float32 [parts * rows, columns]. One kernel computes all
  /// of them, without split sums. Returns false and does nothing if cuBLASLt has no such kernel, or if rows of a part
  /// are not whole 16 bytes.
  [[nodiscard]] bool multiply_in_parts(cudaStream_t stream, const Tensor& a, const Tensor& b, int parts,
                                       const Tensor& out);
  /// out = a b + bias, rounded once, in one kernel. bias has a value for each column of out. Returns false and does
  /// nothing if there is no such kernel. There is no activation, because cuBLASLt's ReLU turns NaN into 0, and
  /// non-finite numbers must be kept.
  [[nodiscard]] bool multiply_with_bias(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                                        const Tensor& out);

  /// The same with another matrix: out = added + a b + bias.
  [[nodiscard]] bool multiply_with_sum(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                                       const Tensor& added, const Tensor& out);

  /// z = a b + bias, rounded, and y = gelu of the sum before rounding (formulas/gelu.hpp); or out = (a b) gelu'(z).
  /// Both run in one kernel. They return false and do nothing if there is no such kernel, or unless all operands are
  /// bfloat16 with rows of multiples of 16 bytes.
  [[nodiscard]] bool multiply_with_gelu(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                                        const Tensor& z, const Tensor& y);
  [[nodiscard]] bool multiply_through_gelu(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& z,
                                           const Tensor& out);

  /// "13.0.2"
  static std::string version();
  /// Returns the number of shapes that cuBLASLt cannot run. Our simple, slow kernel computes them.
  int unplanned() const noexcept { return unplanned_; }
  /// Returns notes about proposals that cuBLASLt refused, and their replacements: one sentence per product, for a few
  /// products.
  std::vector<std::string> notes() const;

 private:
  struct Destroy {
    void operator()(cublasLtContext* handle) const noexcept { static_cast<void>(cublasLtDestroy(handle)); }
    void operator()(cublasLtMatmulDesc_t it) const noexcept { static_cast<void>(cublasLtMatmulDescDestroy(it)); }
    void operator()(cublasLtMatrixLayout_t it) const noexcept { static_cast<void>(cublasLtMatrixLayoutDestroy(it)); }
    void operator()(cublasLtMatmulPreference_t it) const noexcept {
      static_cast<void>(cublasLtMatmulPreferenceDestroy(it));
    }
  };
  template <class T>
  using Owned = std::unique_ptr<T, Destroy>;

  /// A product in cuBLASLt's view, out' = left right, where `left` is b and `right` is a. It determines the leading
  /// dimensions.
  struct Problem {
    std::int64_t rows = 0, columns = 0, terms = 0;  ///< extents of a part
    bool left_transposed = false, right_transposed = false;
    ElementType in = ElementType::float32, out = ElementType::float32;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    bool accumulate = false;
    bool adds = false;  ///< adds a matrix other than the result
    Sums sums = Sums::may_be_split;
    int parts = 1;  ///< number of ranges of the terms, with a product each
    std::uint32_t left_alignment = 0, right_alignment = 0, out_alignment = 0;  ///< bytes
    std::uint32_t bias_alignment = 0, aux_alignment = 0, added_alignment = 0;
    int processors = 0;

    /// True if plain_matmul() can replace the product. Otherwise the caller uses other kernels.
    bool has_plain_kernel() const noexcept { return epilogue == CUBLASLT_EPILOGUE_DEFAULT && parts == 1; }
    auto operator<=>(const Problem&) const = default;
  };
  struct Pointers {
    const void* left;
    const void* right;
    void* out;
    const void* bias;
    const void* aux;
    const void* added = nullptr;  ///< null: the result itself, if it accumulates
  };
  struct Plan {
    Owned<cublasLtMatmulDescOpaque_t> operation;
    Owned<cublasLtMatrixLayoutOpaque_t> left, right, out;
    /// In the order of attempts. The first is used until it is refused.
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    int refused = 0;     ///< number of dropped proposals
    std::string reason;  ///< reason of the last refusal

    bool found() const noexcept { return !algorithms.empty(); }
    void refuse_first(cublasStatus_t status);
  };

  /// Memory for the products of one stream.
  struct Room {
    Room(DeviceMemory& memory, const Options& options)
        : workspace(memory, options.workspace), copies(memory, options.padding) {}
    Block workspace;
    PaddedCopies copies;
  };
  Room& room_of(cudaStream_t stream) { return rooms_.try_emplace(stream, memory_, options_).first->second; }

  /// Multiplies matrices whose extents match, after padding.
  void multiply_made(cudaStream_t stream, const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& out,
                     Sums sums);

  /// Work on a product before it is stored. `aux` and `added` have the shape of the product.
  struct Epilogue {
    cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
    Tensor bias = {}, aux = {}, added = {};
  };
  Problem problem_of(const Operand& a, const Operand& b, const Epilogue& epilogue, Accumulate accumulate,
                     const Tensor& out) const;
  /// Returns false and does nothing if cuBLASLt has no algorithm for it.
  bool multiply_with(cudaStream_t stream, const Operand& a, const Operand& b, const Epilogue& epilogue,
                     const Tensor& out);
  static std::string describe(const Problem& problem);
  static std::string refusal_of(const Problem& problem, const Plan& plan);
  static void point_at(cublasLtMatmulDesc_t operation, const Pointers& pointers);
  Plan& plan_for(cudaStream_t stream, const Problem& problem, const Pointers& pointers);
  Plan make_plan(cudaStream_t stream, const Problem& problem, const Pointers& pointers);
  /// Appends proposals of the heuristics that use one of these reduction schemes.
  void propose(const Problem& problem, std::uint32_t reductions, Plan& plan) const;
  cublasStatus_t launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                        const Problem& problem, const Pointers& pointers);
  /// Returns false and does nothing if cuBLASLt refuses every proposal.
  [[nodiscard]] bool run(cudaStream_t stream, const Problem& problem, Plan& plan, const Pointers& pointers);
  /// Moves the fastest algorithm to the front and removes refused ones. Does nothing if it cannot measure.
  void time_algorithms(cudaStream_t stream, const Problem& problem, Plan& plan, const Pointers& pointers);

  Options options_;
  DeviceMemory& memory_;
  std::map<cudaStream_t, Room> rooms_;
  Owned<cublasLtContext> handle_;
  std::map<Problem, Plan> plans_;
  int processors_ = 0;
  int unplanned_ = 0;
};

}  // namespace lockstep::model::cuda
