#include "model/cuda/matmul.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "model/cuda/handles.hpp"
#include "model/cuda/kernels/plain_matmul.hpp"

namespace lockstep::model::cuda {

namespace {

constexpr std::uint32_t kPackBytes = 16;
/// Some kernels read the epilogue's vectors 16 bytes at a time, and the heuristics have no preference to exclude them.
constexpr std::uint32_t kBiasAlignment = kPackBytes;
/// Numbers of proposals to request from the heuristics: to take the first that runs, and to time them.
constexpr int kProposals = 8, kTimedProposals = 16;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("{}: cuBLASLt, {}: {}", describe_current_device(), what, cublasLtGetStatusString(status)));
}
using cuda::check;

/// True if cuBLASLt cannot run the product and has enqueued nothing. A device error may also appear as INTERNAL_ERROR;
/// the kernel that runs instead will report it.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_INTERNAL_ERROR;
}

/// Returns the text of an epilogue, which follows the text of the product.
const char* name_of_epilogue(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
      return ", with its bias";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return ", with its bias and GELU";
    case CUBLASLT_EPILOGUE_DGELU:
      return ", through GELU";
    default:
      return "";
  }
}

cudaDataType_t data_type(ElementType type) {
  assert(type == ElementType::float32 || type == ElementType::bfloat16);
  return type == ElementType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Returns the largest power of two up to 256 that divides the address and `step`, in bytes.
std::uint32_t alignment_of(const void* pointer, std::size_t step = 0) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | step | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

bool has_packed_rows(const Tensor& z) {
  return z.type == ElementType::bfloat16 && z.columns % 8 == 0 && alignment_of(z.data) >= kBiasAlignment;
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a product");
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), "describing a matrix");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "stating preferences");
}

std::int64_t rows_of(const Matmul::Operand& operand) {
  return operand.transposed == Matmul::Transposed::yes ? operand.tensor.columns : operand.tensor.rows;
}
std::int64_t columns_of(const Matmul::Operand& operand) {
  return operand.transposed == Matmul::Transposed::yes ? operand.tensor.rows : operand.tensor.columns;
}

}  // namespace

Matmul::Matmul(DeviceMemory& memory, const Options& options) : options_(options), memory_(memory) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
}

std::string Matmul::version() {
  std::array<int, 3> parts{};
  const std::array<libraryPropertyType, 3> names{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (std::size_t i = 0; i < parts.size(); ++i) check(cublasLtGetProperty(names[i], &parts[i]), "asking its version");
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

void Matmul::multiply(cudaStream_t stream, const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& out,
                      Sums sums) {
  if (out.count() == 0) return;
  if (columns_of(a) == 0) {
    if (accumulate == Accumulate::yes) return;
    check(cudaMemsetAsync(out.data, 0, out.bytes(), stream), "clearing an empty product");
    return;
  }
  const PaddedCopies::Product product = room_of(stream).copies.product_of(
      {a.tensor, b.tensor, out}, a.transposed == Transposed::yes, b.transposed == Transposed::yes);
  PaddedCopies::run(stream, product, accumulate, [&](const Tensor& left, const Tensor& right, const Tensor& to) {
    multiply_made(stream, {left, a.transposed}, {right, b.transposed}, accumulate, to, sums);
  });
}

void Matmul::multiply_made(cudaStream_t stream, const Operand& a, const Operand& b, Accumulate accumulate,
                           const Tensor& out, Sums sums) {
  Problem problem = problem_of(a, b, {}, accumulate, out);
  problem.sums = sums;
  const Pointers pointers{b.tensor.data, a.tensor.data, out.data, nullptr, nullptr};
  if (run(stream, problem, plan_for(stream, problem, pointers), pointers)) return;
  plain_matmul(stream, a.tensor, a.transposed == Transposed::yes, b.tensor, b.transposed == Transposed::yes, accumulate,
               out);
}

bool Matmul::multiply_in_parts(cudaStream_t stream, const Tensor& a, const Tensor& b, int parts, const Tensor& out) {
  assert(a.columns % parts == 0 && out.rows == parts * a.rows && out.type == ElementType::float32);
  const std::int64_t terms = a.columns / parts;
  const std::size_t step = static_cast<std::size_t>(terms) * size_of(a.type);
  if (out.count() == 0) return true;
  if (terms == 0 || alignment_of(a.data, step) < kPackBytes || alignment_of(b.data, step) < kPackBytes) return false;
  Problem problem = problem_of({a}, {b, Transposed::yes}, {}, Accumulate::no, out.row_range(0, a.rows));
  problem.terms = terms;
  problem.sums = Sums::whole;
  problem.parts = parts;
  problem.left_alignment = alignment_of(b.data, step);
  problem.right_alignment = alignment_of(a.data, step);
  problem.out_alignment = alignment_of(out.data, static_cast<std::size_t>(a.rows * out.columns) * size_of(out.type));
  const Pointers pointers{b.data, a.data, out.data, nullptr, nullptr};
  return run(stream, problem, plan_for(stream, problem, pointers), pointers);
}

bool Matmul::multiply_with_bias(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                                const Tensor& out) {
  if (out.count() == 0) return true;
  if (!bias.present() || columns_of(a) == 0) return false;
  if (alignment_of(bias.data) < kBiasAlignment || bias.type != out.type || bias.columns != out.columns) return false;
  return multiply_with(stream, a, b, {.kind = CUBLASLT_EPILOGUE_BIAS, .bias = bias}, out);
}

bool Matmul::multiply_with_sum(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                               const Tensor& added, const Tensor& out) {
  if (out.count() == 0) return true;
  if (alignment_of(bias.data) < kBiasAlignment || !has_packed_rows(out) || !has_packed_rows(added)) return false;
  return multiply_with(stream, a, b, {.kind = CUBLASLT_EPILOGUE_BIAS, .bias = bias, .added = added}, out);
}

bool Matmul::multiply_with_gelu(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& bias,
                                const Tensor& z, const Tensor& y) {
  if (y.count() == 0) return true;
  if (!bias.present() || alignment_of(bias.data) < kBiasAlignment || !has_packed_rows(z)) return false;
  return multiply_with(stream, a, b, {.kind = CUBLASLT_EPILOGUE_GELU_AUX_BIAS, .bias = bias, .aux = z}, y);
}

bool Matmul::multiply_through_gelu(cudaStream_t stream, const Operand& a, const Operand& b, const Tensor& z,
                                   const Tensor& out) {
  if (out.count() == 0) return true;
  return has_packed_rows(z) && multiply_with(stream, a, b, {.kind = CUBLASLT_EPILOGUE_DGELU, .aux = z}, out);
}

bool Matmul::multiply_with(cudaStream_t stream, const Operand& a, const Operand& b, const Epilogue& epilogue,
                           const Tensor& out) {
  if (columns_of(a) == 0) return false;
  const PaddedCopies::Product product = room_of(stream).copies.product_of(
      {a.tensor, b.tensor, out}, a.transposed == Transposed::yes, b.transposed == Transposed::yes);
  const auto& [left, right, result] = product.made;
  Tensor bias = epilogue.bias;
  if (product.padded.copies_out) {
    if (epilogue.kind != CUBLASLT_EPILOGUE_BIAS || epilogue.added.present()) return false;
    bias = {product.bias_room, bias.type, 1, result.columns};
  }
  const Problem problem = problem_of(
      {left, a.transposed}, {right, b.transposed},
      {.kind = epilogue.kind, .bias = bias, .aux = epilogue.aux, .added = epilogue.added}, Accumulate::no, result);
  const Pointers pointers{right.data, left.data, result.data, bias.data, epilogue.aux.data, epilogue.added.data};
  Plan& plan = plan_for(stream, problem, pointers);
  if (!plan.found()) return false;
  if (product.padded.copies_out) copy_rows(stream, epilogue.bias, bias);
  bool done = false;  // if false, the caller overwrites the copied result
  PaddedCopies::run(stream, product, Accumulate::no, [&](const Tensor&, const Tensor&, const Tensor&) {
    point_at(plan.operation.get(), pointers);
    done = run(stream, problem, plan, pointers);
  });
  return done;
}

void Matmul::point_at(cublasLtMatmulDesc_t operation, const Pointers& pointers) {
  if (pointers.bias != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
  if (pointers.aux != nullptr) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.aux);
}

Matmul::Problem Matmul::problem_of(const Operand& a, const Operand& b, const Epilogue& epilogue, Accumulate accumulate,
                                   const Tensor& out) const {
  assert(rows_of(a) == out.rows && columns_of(b) == out.columns && columns_of(a) == rows_of(b));
  assert(a.tensor.type == b.tensor.type && (out.type == a.tensor.type || out.type == ElementType::float32));
  const Problem problem{.rows = out.columns,
                        .columns = out.rows,
                        .terms = columns_of(a),
                        .left_transposed = b.transposed == Transposed::yes,
                        .right_transposed = a.transposed == Transposed::yes,
                        .in = a.tensor.type,
                        .out = out.type,
                        .epilogue = epilogue.kind,
                        .accumulate = accumulate == Accumulate::yes,
                        .adds = epilogue.added.present(),
                        .left_alignment = alignment_of(b.tensor.data),
                        .right_alignment = alignment_of(a.tensor.data),
                        .out_alignment = alignment_of(out.data),
                        .bias_alignment = !epilogue.bias.present() ? 0 : alignment_of(epilogue.bias.data),
                        .aux_alignment = !epilogue.aux.present() ? 0 : alignment_of(epilogue.aux.data),
                        .added_alignment = !epilogue.added.present() ? 0 : alignment_of(epilogue.added.data),
                        .processors = processors_};
  if (std::max({problem.rows, problem.columns, problem.terms}) > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument(describe(problem) + ": cuBLASLt counts to 2^31 - 1 in each direction");
  }
  return problem;
}

std::string Matmul::describe(const Problem& problem) {
  return fmt::format("a product [{}, {}]{} x [{}, {}]{}, {} to {}{}{}", problem.columns, problem.terms,
                     problem.right_transposed ? " (first transposed)" : "", problem.terms, problem.rows,
                     problem.left_transposed ? " (second transposed)" : "", name_of(problem.in), name_of(problem.out),
                     problem.adds ? ", added to another matrix with its bias" : name_of_epilogue(problem.epilogue),
                     problem.parts == 1 ? "" : fmt::format(", {} at once", problem.parts));
}

std::string Matmul::refusal_of(const Problem& problem, const Plan& plan) {
  const std::string what = plan.refused == 1 ? "an algorithm" : fmt::format("{} algorithms", plan.refused);
  const char* const instead = plan.found()                 ? "its next proposal is used"
                              : problem.has_plain_kernel() ? "a simple, slow kernel computes it"
                                                           : "separate kernels compute it";
  return fmt::format("cuBLASLt refuses {} that it proposed for {} ({}): {}", what, describe(problem), plan.reason,
                     instead);
}

std::vector<std::string> Matmul::notes() const {
  constexpr std::size_t kMaxNotes = 6;
  std::vector<std::string> notes;
  std::size_t others = 0;
  for (const auto& [problem, plan] : plans_) {
    if (plan.refused == 0) continue;
    if (notes.size() < kMaxNotes) {
      notes.push_back(refusal_of(problem, plan));
    } else {
      ++others;
    }
  }
  if (others > 0) notes.push_back(fmt::format("cuBLASLt refuses algorithms of {} more products", others));
  return notes;
}

void Matmul::Plan::refuse_first(cublasStatus_t status) {
  algorithms.erase(algorithms.begin());
  ++refused;
  reason = cublasLtGetStatusString(status);
  static_cast<void>(cudaGetLastError());  // clears the error, so that the next check does not report it
}

Matmul::Plan& Matmul::plan_for(cudaStream_t stream, const Problem& problem, const Pointers& pointers) {
  const auto known = plans_.find(problem);
  if (known != plans_.end()) return known->second;
  Plan& plan = plans_.emplace(problem, make_plan(stream, problem, pointers)).first->second;
  if (!plan.found() && problem.has_plain_kernel()) ++unplanned_;
  return plan;
}

Matmul::Plan Matmul::make_plan(cudaStream_t stream, const Problem& problem, const Pointers& pointers) {
  const bool tf32 = problem.in == ElementType::float32 && options_.precision == Precision::tf32;
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
  Plan plan;
  plan.operation.reset(operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{problem.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{problem.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(problem.epilogue));
  if (pointers.bias != nullptr) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(data_type(problem.out)));
  }
  if (pointers.aux != nullptr) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{problem.rows});
  point_at(operation, pointers);
  if (problem.processors > 0) {
    set(operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{problem.processors});
  }

  // Column-major and dense: the leading dimension is the number of rows, of all parts in one column.
  const auto layout = [&](ElementType type, std::int64_t rows, std::int64_t columns, int parts_of_column) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), parts_of_column * rows),
          "describing a matrix");
    Owned<cublasLtMatrixLayoutOpaque_t> owner(made);
    if (problem.parts > 1) {
      set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{problem.parts});
      set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
          parts_of_column == problem.parts ? rows : std::int64_t{rows * columns});
    }
    return owner;
  };
  const auto operand = [&](bool terms_in_column, std::int64_t others) {
    return terms_in_column ? layout(problem.in, problem.terms, others, problem.parts)
                           : layout(problem.in, others, problem.terms, 1);
  };
  plan.left = operand(problem.left_transposed, problem.rows);
  plan.right = operand(!problem.right_transposed, problem.columns);
  plan.out = layout(problem.out, problem.rows, problem.columns, 1);

  // Excludes INPLACE, which adds in the type of the output, and OUTPUT_TYPE, which rounds the parts to it. Other
  // schemes add in fp32.
  if (problem.sums == Sums::whole) propose(problem, CUBLASLT_REDUCTION_SCHEME_NONE, plan);
  if (!plan.found() && problem.parts == 1) {
    propose(problem, CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, plan);
  }
  if (options_.tuning == Tuning::timed && plan.found()) time_algorithms(stream, problem, plan, pointers);
  return plan;
}

void Matmul::propose(const Problem& problem, std::uint32_t reductions, Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "stating preferences");
  const Owned<cublasLtMatmulPreferenceOpaque_t> owner(preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{options_.workspace});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.left_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.right_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      problem.adds ? problem.added_alignment : problem.out_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.out_alignment);

  std::array<cublasLtMatmulHeuristicResult_t, kTimedProposals> results{};
  const int wanted = options_.tuning == Tuning::timed ? kTimedProposals : kProposals;
  int returned = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation.get(), plan.left.get(), plan.right.get(),
                                     plan.out.get(), plan.out.get(), preference, wanted, results.data(), &returned);
  if (is_refusal(status)) return;
  check(status, "choosing an algorithm");
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(returned))) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= options_.workspace) {
      plan.algorithms.push_back(result.algo);
    }
  }
}

cublasStatus_t Matmul::launch(cudaStream_t stream, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                              const Problem& problem, const Pointers& pointers) {
  const float alpha = 1, beta = problem.accumulate || problem.adds ? 1 : 0;
  const void* const added = problem.adds ? pointers.added : pointers.out;
  const Block& workspace = room_of(stream).workspace;
  return cublasLtMatmul(handle_.get(), plan.operation.get(), &alpha, pointers.left, plan.left.get(), pointers.right,
                        plan.right.get(), &beta, added, plan.out.get(), pointers.out, plan.out.get(), &algorithm,
                        workspace.data(), workspace.bytes(), stream);
}

bool Matmul::run(cudaStream_t stream, const Problem& problem, Plan& plan, const Pointers& pointers) {
  const bool was_found = plan.found();
  while (plan.found()) {
    const cublasStatus_t status = launch(stream, plan, plan.algorithms.front(), problem, pointers);
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (!is_refusal(status)) check(status, describe(problem).c_str());
    plan.refuse_first(status);
  }
  if (was_found && problem.has_plain_kernel()) ++unplanned_;
  return false;
}

void Matmul::time_algorithms(cudaStream_t stream, const Problem& problem, Plan& plan, const Pointers& pointers) {
  if (is_recorded(stream)) return;
  constexpr int kRounds = 5;
  std::optional<Block> spare;
  try {
    spare.emplace(memory_,
                  static_cast<std::size_t>(problem.parts * problem.rows * problem.columns) * size_of(problem.out));
  } catch (const DeviceError&) {  // no memory for trials: keeps the first proposal
    return;
  }
  check(cudaMemsetAsync(spare->data(), 0, spare->bytes(), stream), "clearing memory");
  Pointers trial = pointers;
  trial.out = spare->data();
  struct Timed {
    cublasLtMatmulAlgo_t algorithm;
    float time;
  };
  std::vector<Timed> timed;
  while (plan.found()) {
    const cublasLtMatmulAlgo_t algorithm = plan.algorithms.front();
    const cublasStatus_t status = launch(stream, plan, algorithm, problem, trial);
    if (is_refusal(status)) {
      plan.refuse_first(status);
      continue;
    }
    if (status != CUBLAS_STATUS_SUCCESS) check(status, describe(problem).c_str());
    plan.algorithms.erase(plan.algorithms.begin());
    timed.push_back({algorithm, time_of(stream, kRounds, [&] {
                       check(launch(stream, plan, algorithm, problem, trial), "timing algorithms");
                     })});
  }
  std::ranges::stable_sort(timed, {}, &Timed::time);
  for (const Timed& each : timed) plan.algorithms.push_back(each.algorithm);
}

}  // namespace lockstep::model::cuda
