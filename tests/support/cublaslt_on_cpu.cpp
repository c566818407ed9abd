#include "support/cublaslt_on_cpu.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numbers>
#include <type_traits>
#include <utility>

#include <cublasLt.h>

#include "model/formulas/bfloat16.hpp"
#include "support/runtime_on_cpu.hpp"

namespace {

using Epilogue = std::uint32_t;
using lockstep::test::MemoryAccess;

/// The content of the library's opaque types.
struct Product {
  cublasComputeType_t compute{};
  cudaDataType_t scale{};
  std::map<cublasLtMatmulDescAttributes_t, std::uint64_t> attributes;
};
struct Preference {
  std::map<cublasLtMatmulPreferenceAttributes_t, std::uint64_t> attributes;
};
struct Layout {
  cudaDataType_t type{};
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading_dimension = 0;
  std::map<cublasLtMatrixLayoutAttribute_t, std::uint64_t> attributes = {};

  std::size_t batch() const;
  std::int64_t batch_offset() const;  ///< number of elements from one matrix to the next
};
/// The content of cublasLtMatmulAlgo_t: the problem that it was proposed for, with the promised alignment and
/// workspace.
struct Algorithm {
  std::uint64_t problem = 0, workspace = 0;
  std::uint32_t alignment[4] = {};  ///< alignments of a, b, c, d
  int place = 0;                    ///< index among the proposals
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

const Product& product_of(cublasLtMatmulDesc_t it) { return *reinterpret_cast<const Product*>(it); }
const Layout& layout_of(cublasLtMatrixLayout_t it) { return *reinterpret_cast<const Layout*>(it); }

bool products_are_refused = false;
int refused_proposals = 0;
std::vector<std::string> the_refusals;

std::vector<lockstep::test::UnalignedProduct> the_unaligned;

cublasStatus_t refuse(cublasStatus_t status, std::string why) {
  the_refusals.push_back(std::move(why));
  return status;
}

/// Size of an attribute in bytes; 0: unknown attribute.
std::size_t bytes_of(cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return 4;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return 8;
    default:
      return 0;
  }
}
std::size_t bytes_of(cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return 8;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return 4;
    default:
      return 0;
  }
}
std::size_t bytes_of(cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return 4;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return 8;
    default:
      return 0;
  }
}
template <class Attribute>
cublasStatus_t set_attribute(std::map<Attribute, std::uint64_t>& attributes, Attribute attribute, const void* value,
                             std::size_t bytes) {
  if (value == nullptr || bytes == 0 || bytes != bytes_of(attribute)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size, or none that is known");
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, value, bytes);
  attributes[attribute] = bits;
  return CUBLAS_STATUS_SUCCESS;
}
template <class Attribute>
std::uint64_t attribute_of(const std::map<Attribute, std::uint64_t>& attributes, Attribute attribute,
                           std::uint64_t otherwise) {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? otherwise : found->second;
}

std::size_t Layout::batch() const { return attribute_of(attributes, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1); }
std::int64_t Layout::batch_offset() const {
  return static_cast<std::int64_t>(attribute_of(attributes, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0));
}

std::size_t size_of_type(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

double read_number(const void* data, cudaDataType_t type, std::size_t index) {
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(data)[index]);
  return static_cast<double>(
      lockstep::model::formulas::from_bfloat16_bits(static_cast<const std::uint16_t*>(data)[index]));
}
void write_number(double value, void* data, cudaDataType_t type, std::size_t index) {
  const auto rounded = static_cast<float>(value);
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[index] = rounded;
  } else {
    static_cast<std::uint16_t*>(data)[index] = lockstep::model::formulas::bfloat16_bits(rounded);
  }
}
/// Rounds to tf32's ten bits.
double as_tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (!std::isfinite(value)) return value;
  return static_cast<double>(std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu));
}

// The approximation by tanh, as in cuBLASLt.
double gelu_on_cpu(double x) {
  return 0.5 * x * (1 + std::tanh(std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x)));
}
double gelu_slope_on_cpu(double x) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

/// A product with all values of its descriptors.
struct View {
  cublasOperation_t a_operation, b_operation;
  Epilogue epilogue;
  void* vector;  ///< bias, or destination of its gradient
  cudaDataType_t vector_type;
  void* aux;
  cudaDataType_t aux_type;
  std::int64_t aux_leading_dimension;
  Layout a, b, c, d;
  bool tf32;

  std::size_t rows() const { return d.rows; }
  std::size_t columns() const { return d.columns; }
  std::size_t terms() const { return a_operation == CUBLAS_OP_N ? a.columns : a.rows; }

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_relu() const { return (epilogue & CUBLASLT_EPILOGUE_RELU) != 0; }
  bool has_gelu() const { return (epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
  bool has_gelu_gradient() const { return (epilogue & 64) != 0; }
  bool has_vector_gradient() const {
    return (epilogue & (16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0;
  }
  bool has_aux() const { return (epilogue & 128) != 0; }
  std::size_t vector_size() const { return (epilogue & CUBLASLT_EPILOGUE_BGRADB) != 0 ? columns() : rows(); }
};

View view_of(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto get = [&](cublasLtMatmulDescAttributes_t attribute, std::uint64_t otherwise) {
    return attribute_of(product.attributes, attribute, otherwise);
  };
  const auto type_or_d = [&](cublasLtMatmulDescAttributes_t attribute) {
    const auto type = static_cast<std::int32_t>(get(attribute, static_cast<std::uint32_t>(-1)));
    return type == -1 ? d.type : static_cast<cudaDataType_t>(type);
  };
  return {.a_operation = static_cast<cublasOperation_t>(get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N)),
          .b_operation = static_cast<cublasOperation_t>(get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N)),
          .epilogue = static_cast<Epilogue>(get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT)),
          .vector = reinterpret_cast<void*>(get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0)),
          .vector_type = type_or_d(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE),
          .aux = reinterpret_cast<void*>(get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 0)),
          .aux_type = type_or_d(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE),
          .aux_leading_dimension = static_cast<std::int64_t>(get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0)),
          .a = a,
          .b = b,
          .c = c,
          .d = d,
          .tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32};
}

/// Returns a fault of the descriptors; null: none.
const char* obstacle_in(const Product& product, const View& view) {
  if ((product.compute != CUBLAS_COMPUTE_32F && !view.tf32) || product.scale != CUDA_R_32F) {
    return "sums and factors other than float32";
  }
  for (const Layout* const layout : {&view.a, &view.b, &view.c, &view.d}) {
    if (layout->type != CUDA_R_32F && layout->type != CUDA_R_16BF) return "a type other than float32 and bfloat16";
    if (layout->rows == 0 || layout->columns == 0) return "an empty matrix";
    if (layout->leading_dimension < static_cast<std::int64_t>(layout->rows)) {
      return "a leading dimension smaller than a column";
    }
    if (layout->batch() != view.d.batch()) return "batches of different sizes";
  }
  if (view.d.batch() != 1 && view.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return "an epilogue of a batch";
  if (view.a.type != view.b.type || view.c.type != view.d.type ||
      (view.a.type != view.d.type && view.d.type != CUDA_R_32F)) {
    return "types that do not go together";
  }
  if (view.tf32 && view.a.type != CUDA_R_32F) return "tf32 of another type than float32";
  for (const cublasOperation_t operation : {view.a_operation, view.b_operation}) {
    if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T) return "an operation that is no transposition";
  }
  const auto turned = [](const Layout& layout, cublasOperation_t operation) {
    return operation == CUBLAS_OP_N ? std::pair(layout.rows, layout.columns) : std::pair(layout.columns, layout.rows);
  };
  const auto [rows, terms] = turned(view.a, view.a_operation);
  const auto [terms_of_b, columns] = turned(view.b, view.b_operation);
  if (rows != view.d.rows || columns != view.d.columns || terms != terms_of_b || view.c.rows != rows ||
      view.c.columns != columns) {
    return "shapes that do not fit together";
  }
  switch (view.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return nullptr;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      return view.aux_leading_dimension % 8 != 0 || view.aux_leading_dimension < static_cast<std::int64_t>(rows)
                 ? "a leading dimension of the auxiliary matrix that is no multiple of 8, or smaller than a column"
                 : nullptr;
    default:
      return "an epilogue that is not known here";
  }
}

/// Returns a number that is equal for equal problems.
std::uint64_t fingerprint(const View& view) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3, hash ^= hash >> 29; };
  for (const Layout* const layout : {&view.a, &view.b, &view.c, &view.d}) {
    mix(static_cast<std::uint64_t>(layout->type)), mix(layout->rows), mix(layout->columns);
    mix(static_cast<std::uint64_t>(layout->leading_dimension));
    mix(layout->batch()), mix(static_cast<std::uint64_t>(layout->batch_offset()));
  }
  mix(view.a_operation), mix(view.b_operation), mix(view.epilogue), mix(view.tf32);
  mix(static_cast<std::uint64_t>(view.vector_type)), mix(static_cast<std::uint64_t>(view.aux_type));
  return hash;
}

/// Returns op(matrix) as doubles, column by column.
std::vector<double> turned_matrix(const void* data, const Layout& layout, bool transposed, bool tf32) {
  std::vector<double> numbers(layout.rows * layout.columns);
  for (std::size_t column = 0; column < layout.columns; ++column) {
    for (std::size_t row = 0; row < layout.rows; ++row) {
      const double value =
          read_number(data, layout.type, column * static_cast<std::size_t>(layout.leading_dimension) + row);
      numbers[transposed ? row * layout.columns + column : column * layout.rows + row] = tf32 ? as_tf32(value) : value;
    }
  }
  return numbers;
}

void compute(const View& view, float alpha, const void* a, const void* b, float beta, const void* c, void* d) {
  const std::size_t rows = view.rows(), columns = view.columns(), terms = view.terms();
  const std::vector<double> left = turned_matrix(a, view.a, view.a_operation == CUBLAS_OP_T, view.tf32);
  const std::vector<double> right = turned_matrix(b, view.b, view.b_operation == CUBLAS_OP_T, view.tf32);
  const auto d_step = static_cast<std::size_t>(view.d.leading_dimension);
  const auto aux_step = static_cast<std::size_t>(view.aux_leading_dimension);
  std::vector<double> sums(rows), gradient(view.vector_size());
  for (std::size_t column = 0; column < columns; ++column) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t term = 0; term < terms; ++term) {
      const double factor = right[column * terms + term];
      const double* const from = left.data() + term * rows;
      for (std::size_t row = 0; row < rows; ++row) sums[row] += from[row] * factor;
    }
    for (std::size_t row = 0; row < rows; ++row) {
      double value = static_cast<double>(alpha) * sums[row];
      if (beta != 0) {
        value += static_cast<double>(beta) *
                 read_number(c, view.c.type, column * static_cast<std::size_t>(view.c.leading_dimension) + row);
      }
      if (view.has_bias()) value += read_number(view.vector, view.vector_type, row);
      if (view.has_aux() && view.has_gelu()) write_number(value, view.aux, view.aux_type, column * aux_step + row);
      if (view.has_gelu()) value = gelu_on_cpu(value);
      if (view.has_relu()) value = value > 0 ? value : 0;  // NaN becomes 0, as in the library
      if (view.has_gelu_gradient()) {
        value *= gelu_slope_on_cpu(read_number(view.aux, view.aux_type, column * aux_step + row));
      }
      if (view.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) gradient[row] += value;
      write_number(value, d, view.d.type, column * d_step + row);
    }
  }
  if (view.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    for (std::size_t i = 0; i < rows * terms; ++i) gradient[i % rows] += left[i];
  } else if (view.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    for (std::size_t i = 0; i < terms * columns; ++i) gradient[i / terms] += right[i];
  }
  for (std::size_t i = 0; view.has_vector_gradient() && i < gradient.size(); ++i) {
    write_number(gradient[i], view.vector, view.vector_type, i);
  }
}

void note_alignment(const View& view) {
  const auto starts_aligned = [](const Layout& layout) {
    return layout.leading_dimension * static_cast<std::int64_t>(size_of_type(layout.type)) % 16 == 0;
  };
  if (view.a.type != CUDA_R_16BF) return;
  if (starts_aligned(view.a) && starts_aligned(view.b) && starts_aligned(view.d)) return;
  the_unaligned.push_back(
      {2.0 * static_cast<double>(view.rows()) * static_cast<double>(view.columns()) * static_cast<double>(view.terms()),
       "a product of " + std::to_string(view.columns()) + " x " + std::to_string(view.terms()) + " x " +
           std::to_string(view.rows()) + ", columns " + std::to_string(view.a.leading_dimension) + ", " +
           std::to_string(view.b.leading_dimension) + " and " + std::to_string(view.d.leading_dimension) + " apart"});
}

MemoryAccess matrix_access(const void* data, const Layout& layout, bool writes) {
  const auto elements = static_cast<std::size_t>(layout.leading_dimension) * (layout.columns - 1) + layout.rows;
  return {
      data,
      (elements + (layout.batch() - 1) * static_cast<std::size_t>(layout.batch_offset())) * size_of_type(layout.type),
      writes};
}

/// The address of a matrix in its batch.
template <class Void>
Void* in_batch(Void* data, const Layout& layout, std::size_t index) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + index * static_cast<std::size_t>(layout.batch_offset()) * size_of_type(layout.type);
}

}  // namespace

namespace lockstep::test {

void refuse_products(bool refuse) { products_are_refused = refuse; }
void refuse_proposals(int count) { refused_proposals = count; }
std::vector<std::string> take_refusals() { return std::exchange(the_refusals, {}); }
std::vector<UnalignedProduct> take_unaligned_products() { return std::exchange(the_unaligned, {}); }

}  // namespace lockstep::test

namespace lockstep::model {

std::string gpu_library_error() { return ""; }

}  // namespace lockstep::model

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) {
  return the_refusals.empty() ? "cuBLASLt on the CPU" : the_refusals.back().c_str();
}
cublasStatus_t cublasLtGetProperty(libraryPropertyType, int* value) { return *value = 0, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute_type,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute_type, scale, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t it) {
  return delete reinterpret_cast<Product*>(it), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t it, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return set_attribute(reinterpret_cast<Product*>(it)->attributes, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t it) {
  return delete reinterpret_cast<Preference*>(it), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t it,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return set_attribute(reinterpret_cast<Preference*>(it)->attributes, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading_dimension, {}});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t it, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  return set_attribute(reinterpret_cast<Layout*>(it)->attributes, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t it) {
  return delete reinterpret_cast<Layout*>(it), CUBLAS_STATUS_SUCCESS;
}

/// Proposes at most two algorithms: one sums all terms at once; the other sums two halves of the terms, with the sums
/// in the workspace. The second one comes first for many terms.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* returned) {
  *returned = 0;
  if (wanted < 1) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm was asked for");
  const View view = view_of(product_of(operation), layout_of(a), layout_of(b), layout_of(c), layout_of(d));
  if (const char* const obstacle = obstacle_in(product_of(operation), view)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, obstacle);
  }
  if (products_are_refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto& attributes = reinterpret_cast<const Preference*>(preference)->attributes;
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t attribute) {
    return static_cast<std::uint32_t>(attribute_of(attributes, attribute, 256));
  };
  const Algorithm whole{.problem = fingerprint(view),
                        .alignment = {alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                                      alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                                      alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                                      alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)}};
  Algorithm halves = whole;
  halves.workspace = 2 * sizeof(float) * view.rows() * view.columns() * view.d.batch();
  std::vector<Algorithm> proposals{whole};
  const bool in_halves = (attribute_of(attributes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ~0u) &
                          CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  if (in_halves && halves.workspace <= attribute_of(attributes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0)) {
    proposals.insert(view.terms() > view.rows() ? proposals.begin() : proposals.end(), halves);
  }
  for (Algorithm& each : proposals) {
    if (*returned == wanted) break;
    each.place = *returned;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    std::memcpy(&result.algo, &each, sizeof each);
    result.workspaceSize = each.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const View view = view_of(product_of(operation), layout_of(a_layout), layout_of(b_layout), layout_of(c_layout),
                            layout_of(d_layout));
  if (const char* const obstacle = obstacle_in(product_of(operation), view)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, obstacle);
  }
  Algorithm chosen;
  std::memcpy(static_cast<void*>(&chosen), algorithm, sizeof chosen);
  if (chosen.problem != fingerprint(view)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that was proposed for another problem");
  }
  const void* const pointers[] = {a, b, c, d};
  const Layout* const layouts[] = {&view.a, &view.b, &view.c, &view.d};
  for (int i = 0; i < 4; ++i) {
    const void* const last = in_batch(pointers[i], *layouts[i], view.d.batch() > 1 ? 1 : 0);
    if ((reinterpret_cast<std::uintptr_t>(pointers[i]) | reinterpret_cast<std::uintptr_t>(last)) %
            chosen.alignment[i] !=
        0) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a pointer that is less aligned than was promised");
    }
  }
  if (chosen.workspace > workspace_bytes || reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is smaller than the algorithm's, or not aligned");
  }
  const bool has_vector = view.has_bias() || view.has_vector_gradient();
  if ((has_vector && view.vector == nullptr) || (view.has_aux() && view.aux == nullptr)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an epilogue without its pointer");
  }
  if (chosen.place < refused_proposals) return CUBLAS_STATUS_NOT_SUPPORTED;
  note_alignment(view);
  float factor = 0, kept = 0;
  std::memcpy(&factor, alpha, sizeof factor);
  std::memcpy(&kept, beta, sizeof kept);
  std::vector<MemoryAccess> accesses{matrix_access(a, view.a, false),
                                     matrix_access(b, view.b, false),
                                     matrix_access(d, view.d, true),
                                     {workspace, chosen.workspace, true}};
  if (kept != 0) accesses.push_back(matrix_access(c, view.c, false));
  if (has_vector) {
    accesses.push_back({view.vector, view.vector_size() * size_of_type(view.vector_type), view.has_vector_gradient()});
  }
  if (view.has_aux()) {
    const Layout aux{view.aux_type, view.d.rows, view.d.columns, view.aux_leading_dimension, {}};
    accesses.push_back(matrix_access(view.aux, aux, !view.has_gelu_gradient()));
  }
  const cudaError_t error = lockstep::test::enqueue_on_cpu(stream, "a product", std::move(accesses), [=] {
    if (chosen.workspace > 0) std::memset(workspace, 0xff, chosen.workspace);
    for (std::size_t i = 0; i < view.d.batch(); ++i) {
      compute(view, factor, in_batch(a, view.a, i), in_batch(b, view.b, i), kept, in_batch(c, view.c, i),
              in_batch(d, view.d, i));
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
