// Tests the stand-in for cuBLASLt: its products are right with any transposition, leading dimension and epilogue, it
// refuses the same calls as the library, and it accepts the same descriptions. And tests Matmul on it.
#include "support/cublaslt_on_cpu.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/matmul.hpp"
#include "model/formulas/bfloat16.hpp"
#include "support/runtime_on_cpu.hpp"

namespace lockstep::model::cuda {
namespace {

using lockstep::test::take_refusals;
using testing::ElementsAre;
using testing::HasSubstr;
using Bytes32 = std::uint32_t;

/// A matrix in the device's memory in the library's layout: column-major, columns `leading` elements apart.
class ColumnMajor {
 public:
  ColumnMajor(DeviceMemory& memory, std::int64_t rows, std::int64_t columns, std::int64_t leading)
      : leading_(leading), block_(memory, static_cast<std::size_t>(leading * columns) * sizeof(float)) {
    auto* const numbers = static_cast<float*>(block_.data());
    for (std::int64_t i = 0; i < leading * columns; ++i) numbers[i] = static_cast<float>(i % 19 - 9) / 8;
    check_status(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), leading));
  }
  ~ColumnMajor() { static_cast<void>(cublasLtMatrixLayoutDestroy(layout_)); }
  ColumnMajor(const ColumnMajor&) = delete;
  ColumnMajor& operator=(const ColumnMajor&) = delete;

  static void check_status(cublasStatus_t status) { ASSERT_EQ(status, CUBLAS_STATUS_SUCCESS); }
  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(static_cast<const float*>(block_.data())[column * leading_ + row]);
  }
  double turned(bool transposed, std::int64_t row, std::int64_t column) const {
    return transposed ? at(column, row) : at(row, column);
  }
  cublasLtMatrixLayout_t layout() const { return layout_; }
  /// Describes the matrix wrongly.
  void misdescribe(std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    static_cast<void>(cublasLtMatrixLayoutDestroy(layout_));
    check_status(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_32F, rows, columns, leading));
  }
  float* data() const { return static_cast<float*>(block_.data()); }
  /// The initial numbers: no product has run yet.
  std::vector<float> copy(std::int64_t columns) const { return {data(), data() + leading_ * columns}; }

 private:
  std::int64_t leading_;
  Block block_;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// D = op(A) op(B) + beta D of 5 x 7 elements and 3 terms, with a gap of `padding` elements between columns.
class CublasLtOnCpu : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 5, kColumns = 7, kTerms = 3;

  ~CublasLtOnCpu() override {
    static_cast<void>(cublasLtMatmulDescDestroy(operation_));
    static_cast<void>(cublasLtMatmulPreferenceDestroy(preference_));
  }
  template <class T>
  void describe(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  void SetUp() override {
    ASSERT_EQ(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
  }
  void make(bool a_transposed, bool b_transposed, std::int64_t padding) {
    const auto matrix = [&](std::optional<ColumnMajor>& it, std::int64_t rows, std::int64_t columns) {
      it.emplace(memory_, rows, columns, rows + padding);
    };
    a_transposed ? matrix(a_, kTerms, kRows) : matrix(a_, kRows, kTerms);
    b_transposed ? matrix(b_, kColumns, kTerms) : matrix(b_, kTerms, kColumns);
    matrix(d_, kRows, kColumns);
    describe(CUBLASLT_MATMUL_DESC_TRANSA, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    describe(CUBLASLT_MATMUL_DESC_TRANSB, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  }
  cublasStatus_t plan(std::uint64_t workspace = 0) {
    static_cast<void>(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                           &workspace, sizeof workspace));
    int returned = 0;
    return cublasLtMatmulAlgoGetHeuristic(nullptr, operation_, a_->layout(), b_->layout(), d_->layout(), d_->layout(),
                                          preference_, 1, &plan_, &returned);
  }
  cublasStatus_t run(float beta = 0, void* workspace = nullptr, std::size_t workspace_bytes = 0,
                     std::ptrdiff_t shift = 0) {
    const float alpha = 1;
    const cublasStatus_t status = cublasLtMatmul(nullptr, operation_, &alpha, a_->data() + shift, a_->layout(),
                                                 b_->data(), b_->layout(), &beta, d_->data(), d_->layout(), d_->data(),
                                                 d_->layout(), &plan_.algo, workspace, workspace_bytes, stream_.get());
    check(cudaStreamSynchronize(stream_.get()), "waiting");
    return status;
  }
  double sum(bool a_transposed, bool b_transposed, std::int64_t row, std::int64_t column) const {
    double value = 0;
    for (std::int64_t term = 0; term < kTerms; ++term) {
      value += a_->turned(a_transposed, row, term) * b_->turned(b_transposed, term, column);
    }
    return value;
  }

  DeviceMemory memory_{0};
  Stream stream_ = make_stream();
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::optional<ColumnMajor> a_, b_, d_;
  cublasLtMatmulHeuristicResult_t plan_{};
};

TEST_F(CublasLtOnCpu, ProductsWithAnyTranspositionAndLeadingDimension) {
  for (int variant = 0; variant < 16; ++variant) {
    const bool a_transposed = variant % 2 != 0, b_transposed = variant / 2 % 2 != 0, keeps = variant / 4 % 2 != 0;
    const std::int64_t padding = variant / 8 * 3;
    make(a_transposed, b_transposed, padding);
    const std::vector<float> before = d_->copy(kColumns);
    ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run(keeps ? 1 : 0), CUBLAS_STATUS_SUCCESS);
    for (std::int64_t column = 0; column < kColumns; ++column) {
      for (std::int64_t row = 0; row < kRows + padding; ++row) {
        const auto old = static_cast<double>(before[static_cast<std::size_t>(column * (kRows + padding) + row)]);
        const double expected = row >= kRows ? old : sum(a_transposed, b_transposed, row, column) + (keeps ? old : 0.0);
        ASSERT_EQ(d_->at(row, column), expected) << "variant " << variant << ", at " << row << ", " << column;
      }
    }
  }
}

/// Two products with operands that are neighbours in memory.
TEST_F(CublasLtOnCpu, Batches) {
  make(false, false, 0);
  const Block a(memory_, 2 * kRows * kTerms * sizeof(float)), b(memory_, 2 * kTerms * kColumns * sizeof(float));
  const Block d(memory_, 2 * kRows * kColumns * sizeof(float));
  const auto numbers = [](const Block& block) { return static_cast<float*>(block.data()); };
  const auto describe_batch = [&](const ColumnMajor& it, std::int64_t offset, std::int32_t count) {
    for (const auto& [attribute, value, bytes] :
         {std::tuple{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<const void*>(&count), sizeof count},
          std::tuple{CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<const void*>(&offset), sizeof offset}}) {
      ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(it.layout(), attribute, value, bytes), CUBLAS_STATUS_SUCCESS);
    }
  };
  for (std::size_t i = 0; i < a.bytes() / sizeof(float); ++i) numbers(a)[i] = static_cast<float>(i * 7 % 11) - 5;
  for (std::size_t i = 0; i < b.bytes() / sizeof(float); ++i) numbers(b)[i] = static_cast<float>(i * 5 % 13) - 6;
  describe_batch(*a_, kRows * kTerms, 2);
  describe_batch(*b_, kTerms * kColumns, 2);
  EXPECT_EQ(plan(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("batches")));
  describe_batch(*d_, kRows * kColumns, 2);
  const Bytes32 alignment = sizeof(float);  // alignment of the second ones
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &alignment, sizeof alignment),
              CUBLAS_STATUS_SUCCESS);
  }
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasLtMatmul(nullptr, operation_, &alpha, a.data(), a_->layout(), b.data(), b_->layout(), &beta, d.data(),
                           d_->layout(), d.data(), d_->layout(), &plan_.algo, nullptr, 0, stream_.get()),
            CUBLAS_STATUS_SUCCESS);
  check(cudaStreamSynchronize(stream_.get()), "waiting");
  for (std::int64_t i = 0; i < 2 * kRows * kColumns; ++i) {
    const std::int64_t which = i / (kRows * kColumns), row = i % kRows, column = i / kRows % kColumns;
    float expected = 0;
    for (std::int64_t term = 0; term < kTerms; ++term) {
      expected +=
          numbers(a)[(which * kTerms + term) * kRows + row] * numbers(b)[(which * kColumns + column) * kTerms + term];
    }
    ASSERT_EQ(numbers(d)[i], expected) << i;
  }
}

double gelu_of(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

TEST_F(CublasLtOnCpu, Epilogues) {
  constexpr std::int64_t kAuxLeading = 8;
  const Block vector(memory_, kColumns * sizeof(float)), aux(memory_, kAuxLeading * kColumns * sizeof(float));
  auto* const numbers = static_cast<float*>(vector.data());
  auto* const inputs = static_cast<float*>(aux.data());
  const auto input = [&](std::int64_t row, std::int64_t column) {
    return static_cast<double>(inputs[column * kAuxLeading + row]);
  };
  const auto run_with = [&](cublasLtEpilogue_t epilogue) {
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<Bytes32>(epilogue));
    describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.data());
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kAuxLeading);
    ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run(), CUBLAS_STATUS_SUCCESS);
  };
  const auto each = [&](const auto& visit) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t column = 0; column < kColumns; ++column) visit(row, column, sum(false, true, row, column));
    }
  };
  make(false, true, 0);
  for (std::size_t i = 0; i < kColumns; ++i) numbers[i] = static_cast<float>(i) - 2;
  run_with(CUBLASLT_EPILOGUE_BIAS);
  each([&](auto row, auto column, double value) {
    ASSERT_EQ(d_->at(row, column), value + static_cast<double>(row - 2));
  });
  run_with(CUBLASLT_EPILOGUE_RELU_BIAS);
  each([&](auto row, auto column, double value) {
    ASSERT_EQ(d_->at(row, column), std::max(0.0, value + static_cast<double>(row - 2)));
  });
  run_with(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  each([&](auto row, auto column, double value) {
    ASSERT_EQ(input(row, column), value + static_cast<double>(row - 2));
    ASSERT_NEAR(d_->at(row, column), gelu_of(value + static_cast<double>(row - 2)), 1e-6);
  });
  run_with(CUBLASLT_EPILOGUE_DGELU_BGRAD);
  std::vector<double> gradient(kRows);
  each([&](auto row, auto column, double value) {
    const double x = input(row, column), slope = (gelu_of(x + 1e-5) - gelu_of(x - 1e-5)) / 2e-5;
    gradient[static_cast<std::size_t>(row)] += value * slope;
    ASSERT_NEAR(d_->at(row, column), value * slope, 1e-6);
  });
  for (std::size_t row = 0; row < kRows; ++row) ASSERT_NEAR(numbers[row], gradient[row], 1e-5);
  run_with(CUBLASLT_EPILOGUE_BGRADA);
  for (std::int64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(numbers[row], a_->at(row, 0) + a_->at(row, 1) + a_->at(row, 2));
  }
  run_with(CUBLASLT_EPILOGUE_BGRADB);
  for (std::int64_t column = 0; column < kColumns; ++column) {
    ASSERT_EQ(numbers[column], b_->at(column, 0) + b_->at(column, 1) + b_->at(column, 2));
  }
}

TEST_F(CublasLtOnCpu, FindsAWrongTransposition) {
  make(true, false, 0);
  describe(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  EXPECT_EQ(plan(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("shapes")));
  make(true, false, 0);
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  describe(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);  // after planning
  EXPECT_EQ(run(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("shapes")));
}

TEST_F(CublasLtOnCpu, FindsAWrongLeadingDimension) {
  make(false, false, -1);
  EXPECT_EQ(plan(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("leading dimension")));
  make(false, false, 2);
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  make(false, false, 0);
  EXPECT_EQ(run(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("another problem")));
  a_.emplace(memory_, kRows, kTerms, kRows);
  a_->misdescribe(kRows, kTerms, 60);
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(lockstep::test::take_stream_faults(), ElementsAre(HasSubstr("a product goes 500 bytes far")));
  const std::int64_t too_small = 4;
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<Bytes32>(CUBLASLT_EPILOGUE_GELU_AUX));
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, too_small);
  EXPECT_EQ(plan(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("auxiliary")));
}

TEST_F(CublasLtOnCpu, FindsALessAlignedPointerThanPromised) {
  make(false, false, 0);
  const Bytes32 promised = 16;
  ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &promised, 4),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(0, nullptr, 0, 1), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("aligned")));
}

TEST_F(CublasLtOnCpu, FindsAWorkspaceThatIsTooSmall) {
  a_.emplace(memory_, 1, 50, 1);
  b_.emplace(memory_, 50, 1, 50);
  d_.emplace(memory_, 1, 1, 1);
  ASSERT_EQ(plan(1024), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(plan_.workspaceSize, 2 * sizeof(float)) << "in two halves";
  const Block workspace(memory_, plan_.workspaceSize);
  EXPECT_EQ(run(0, workspace.data(), workspace.bytes() - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("workspace")));
  EXPECT_EQ(run(0, workspace.data(), workspace.bytes()), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtOnCpu, FindsAnEpilogueWithoutItsPointer) {
  make(false, false, 0);
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<Bytes32>(CUBLASLT_EPILOGUE_BIAS));
  ASSERT_EQ(plan(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(take_refusals(), ElementsAre(HasSubstr("pointer")));
}

/// The library's own answers about attributes and their sizes, which need no device.
TEST(CublasLtItself, TakesAttributesAsItsStandInDoes) {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "not run: " << name << " is not here";
  const auto real = [&]<class Function>(Function*, const char* function) {
    return reinterpret_cast<Function*>(dlsym(library, function));
  };
#define LOCKSTEP_REAL(function) real(&function, #function)
  cublasLtMatmulDesc_t product = nullptr, stand_in_product = nullptr;
  cublasLtMatmulPreference_t preference = nullptr, stand_in_preference = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  for (const auto compute_type : {CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F}) {
    if (product != nullptr) LOCKSTEP_REAL(cublasLtMatmulDescDestroy)(product);
    ASSERT_EQ(LOCKSTEP_REAL(cublasLtMatmulDescCreate)(&product, compute_type, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  }
  ASSERT_EQ(cublasLtMatmulDescCreate(&stand_in_product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(LOCKSTEP_REAL(cublasLtMatmulPreferenceCreate)(&preference), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&stand_in_preference), CUBLAS_STATUS_SUCCESS);
  for (const cudaDataType_t type : {CUDA_R_32F, CUDA_R_16BF}) {
    ASSERT_EQ(LOCKSTEP_REAL(cublasLtMatrixLayoutCreate)(&layout, type, 768, 50304, 768), CUBLAS_STATUS_SUCCESS);
    cublasLtMatrixLayout_t stand_in_layout = nullptr;
    ASSERT_EQ(cublasLtMatrixLayoutCreate(&stand_in_layout, type, 768, 50304, 768), CUBLAS_STATUS_SUCCESS);
    const std::uint64_t number = 4;
    for (std::size_t bytes = 0; bytes <= 16; ++bytes) {
      for (const auto attribute : {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET}) {
        EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(stand_in_layout, attribute, &number, bytes),
                  LOCKSTEP_REAL(cublasLtMatrixLayoutSetAttribute)(layout, attribute, &number, bytes))
            << "attribute " << attribute << " of a layout, of " << bytes << " bytes";
      }
    }
    static_cast<void>(cublasLtMatrixLayoutDestroy(stand_in_layout));
    ASSERT_EQ(LOCKSTEP_REAL(cublasLtMatrixLayoutDestroy)(layout), CUBLAS_STATUS_SUCCESS);
  }
  const std::uint64_t value = 0;
  for (std::size_t bytes = 0; bytes <= 16; ++bytes) {
    for (const auto attribute :
         {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_EPILOGUE,
          CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
          CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE}) {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(stand_in_product, attribute, &value, bytes),
                LOCKSTEP_REAL(cublasLtMatmulDescSetAttribute)(product, attribute, &value, bytes))
          << "attribute " << attribute << " of " << bytes << " bytes";
    }
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(stand_in_preference, attribute, &value, bytes),
                LOCKSTEP_REAL(cublasLtMatmulPreferenceSetAttribute)(preference, attribute, &value, bytes))
          << "preference " << attribute << " of " << bytes << " bytes";
    }
  }
  static_cast<void>(LOCKSTEP_REAL(cublasLtMatmulDescDestroy)(product));
  static_cast<void>(LOCKSTEP_REAL(cublasLtMatmulPreferenceDestroy)(preference));
#undef LOCKSTEP_REAL
  static_cast<void>(cublasLtMatmulDescDestroy(stand_in_product));
  static_cast<void>(cublasLtMatmulPreferenceDestroy(stand_in_preference));
  EXPECT_THAT(take_refusals(), testing::Contains(HasSubstr("attribute of another size")));
}

/// Products that differ in one thing each, by one Matmul: none gets another's plan.
TEST(MatmulOnCpu, KeepsPlansApart) {
  constexpr std::int64_t kSize = 6, kElements = kSize * kSize;
  for (const bool refused : {false, true}) {
    lockstep::test::refuse_products(refused);
    DeviceMemory memory(0);
    const Stream stream = make_stream();
    Matmul matmul(memory, {.workspace = 4096});
    for (int variant = 0; variant < 128; ++variant) {
      const bool is_bf16 = (variant & 64) != 0;
      const ElementType in = is_bf16 ? ElementType::bfloat16 : ElementType::float32;
      const bool a_turned = (variant & 1) != 0, b_turned = (variant & 2) != 0, biased = (variant & 8) != 0;
      const bool adds = (variant & 4) != 0 && !biased;
      const std::ptrdiff_t a_shift = (variant & 16) != 0 ? 1 : 0, out_shift = (variant & 32) != 0 ? 1 : 0;
      const Block blocks[] = {Block(memory, 256), Block(memory, 256), Block(memory, 256), Block(memory, 256)};
      const auto at = [&](int which, ElementType type, std::ptrdiff_t shift) -> std::byte* {
        return static_cast<std::byte*>(blocks[which].data()) + shift * static_cast<std::ptrdiff_t>(size_of(type));
      };
      const auto put = [&](int which, ElementType type, std::ptrdiff_t shift, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          const float value = static_cast<float>((i * 7 + which) % 11 - 5);
          if (type == ElementType::float32) reinterpret_cast<float*>(at(which, type, shift))[i] = value;
          if (type == ElementType::bfloat16) {
            reinterpret_cast<std::uint16_t*>(at(which, type, shift))[i] = formulas::bfloat16_bits(value);
          }
        }
      };
      const auto number = [](int which, std::int64_t i) { return static_cast<double>((i * 7 + which) % 11 - 5); };
      put(0, in, a_shift, kElements);
      put(1, in, 0, kElements);
      put(2, ElementType::float32, out_shift, kElements);
      put(3, ElementType::float32, 0, kSize);
      const Tensor a{at(0, in, a_shift), in, kSize, kSize}, b{at(1, in, 0), in, kSize, kSize};
      const Tensor out{at(2, ElementType::float32, out_shift), ElementType::float32, kSize, kSize};
      const Tensor bias{at(3, ElementType::float32, 0), ElementType::float32, 1, kSize};
      const auto turned = [](bool yes) { return yes ? Matmul::Transposed::yes : Matmul::Transposed::no; };
      const Matmul::Operand left{a, turned(a_turned)}, right{b, turned(b_turned)};
      if (biased) {
        EXPECT_EQ(matmul.multiply_with_bias(stream.get(), left, right, bias, out), !refused);
        if (refused) continue;
      } else {
        matmul.multiply(stream.get(), left, right, adds ? Accumulate::yes : Accumulate::no, out);
      }
      check(cudaStreamSynchronize(stream.get()), "waiting");
      for (std::int64_t i = 0; i < kElements; ++i) {
        const std::int64_t row = i / kSize, column = i % kSize;
        double expected = biased ? number(3, column) : adds ? number(2, i) : 0.0;
        for (std::int64_t k = 0; k < kSize; ++k) {
          expected += number(0, a_turned ? k * kSize + row : row * kSize + k) *
                      number(1, b_turned ? column * kSize + k : k * kSize + column);
        }
        ASSERT_EQ(static_cast<double>(static_cast<const float*>(out.data)[i]), expected) << "variant " << variant;
      }
    }
    EXPECT_EQ(matmul.unplanned() > 0, refused);
    EXPECT_THAT(take_refusals(), testing::IsEmpty());
  }
  lockstep::test::refuse_products(false);
}

/// [rows, columns] of bfloat16 or float32.
class Numbers {
 public:
  Numbers(DeviceMemory& memory, ElementType type, std::int64_t rows, std::int64_t columns)
      : block_(memory, static_cast<std::size_t>(rows * columns) * size_of(type)),
        tensor_{block_.data(), type, rows, columns} {
    std::memset(block_.data(), 0, block_.bytes());
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  Block block_;
  Tensor tensor_;
};

TEST(MatmulOnCpu, GelusAreEpiloguesWhereRowsAreWholePacks) {
  DeviceMemory memory(0);
  const Stream stream = make_stream();
  Matmul matmul(memory, {.precision = Precision::bf16, .workspace = 4096});
  const auto takes = [&](ElementType type, std::int64_t hidden) {
    const Numbers x(memory, type, 3, 8), w(memory, type, 8, hidden), bias(memory, type, 1, hidden);
    const Numbers z(memory, type, 3, hidden), y(memory, type, 3, hidden);
    const bool forward =
        matmul.multiply_with_gelu(stream.get(), {x.tensor()}, {w.tensor()}, bias.tensor(), z.tensor(), y.tensor());
    const bool backward =
        matmul.multiply_through_gelu(stream.get(), {x.tensor()}, {w.tensor()}, z.tensor(), y.tensor());
    check(cudaStreamSynchronize(stream.get()), "waiting");
    EXPECT_EQ(forward, backward);
    return forward;
  };
  EXPECT_TRUE(takes(ElementType::bfloat16, 16));
  EXPECT_FALSE(takes(ElementType::bfloat16, 12));
  EXPECT_FALSE(takes(ElementType::float32, 16));
  lockstep::test::refuse_products(true);
  EXPECT_FALSE(takes(ElementType::bfloat16, 24)) << "the library has nothing";
  lockstep::test::refuse_products(false);
  EXPECT_THAT(take_refusals(), testing::IsEmpty());
}

TEST(MatmulOnCpu, MakesPartsWhoseSumIsTheProduct) {
  constexpr std::int64_t kRows = 3, kColumns = 5;
  DeviceMemory memory(0);
  const Stream stream = make_stream();
  Matmul matmul(memory, {.precision = Precision::bf16, .workspace = 4096});
  const auto takes = [&](std::int64_t terms, int parts) {
    const Numbers a(memory, ElementType::bfloat16, kRows, terms), b(memory, ElementType::bfloat16, kColumns, terms);
    const Numbers out(memory, ElementType::float32, parts * kRows, kColumns);
    const auto number = [](std::int64_t i) { return static_cast<float>(i * 7 % 11 - 5); };
    for (const Tensor* const each : {&a.tensor(), &b.tensor()}) {
      for (std::int64_t i = 0; i < each->count(); ++i) {
        static_cast<std::uint16_t*>(each->data)[i] = formulas::bfloat16_bits(number(i));
      }
    }
    if (!matmul.multiply_in_parts(stream.get(), a.tensor(), b.tensor(), parts, out.tensor())) return false;
    check(cudaStreamSynchronize(stream.get()), "waiting");
    for (std::int64_t i = 0; i < out.tensor().count(); ++i) {
      const std::int64_t part = i / (kRows * kColumns), row = i / kColumns % kRows, column = i % kColumns;
      float expected = 0;
      for (std::int64_t k = part * terms / parts; k < (part + 1) * terms / parts; ++k) {
        expected += number(row * terms + k) * number(column * terms + k);
      }
      EXPECT_EQ(static_cast<const float*>(out.tensor().data)[i], expected) << terms << " terms, element " << i;
    }
    return true;
  };
  EXPECT_TRUE(takes(32, 4));
  EXPECT_TRUE(takes(64, 4));
  EXPECT_TRUE(takes(64, 2));
  EXPECT_FALSE(takes(48, 4)) << "parts of 24 bytes";
  lockstep::test::refuse_products(true);
  EXPECT_FALSE(takes(96, 4)) << "the library has nothing";
  lockstep::test::refuse_products(false);
  EXPECT_EQ(matmul.unplanned(), 0) << "the caller's";
  EXPECT_THAT(take_refusals(), testing::IsEmpty());
}

/// A product of 3 x 40 x 8 has two algorithms: with the terms in two halves, and all at once.
TEST(MatmulOnCpu, GoesOnWhereProposalsAreRefused) {
  constexpr std::int64_t kRows = 3, kTerms = 40, kColumns = 8;
  for (const auto tuning : {Tuning::first, Tuning::timed}) {
    for (const int refused : {0, 1, 2}) {
      SCOPED_TRACE(fmt::format("{} refused, tuning {}", refused, static_cast<int>(tuning)));
      lockstep::test::refuse_proposals(refused);
      DeviceMemory memory(0);
      const Stream stream = make_stream();
      Matmul matmul(memory, {.workspace = 4096, .tuning = tuning});
      const Numbers a(memory, ElementType::float32, kRows, kTerms), b(memory, ElementType::float32, kTerms, kColumns);
      const Numbers out(memory, ElementType::float32, kRows, kColumns);
      std::fill_n(static_cast<float*>(a.tensor().data), kRows * kTerms, 0.5f);
      std::fill_n(static_cast<float*>(b.tensor().data), kTerms * kColumns, 2.0f);
      for (int time = 1; time <= 3; ++time) {
        matmul.multiply(stream.get(), {a.tensor()}, {b.tensor()}, Accumulate::yes, out.tensor());
        check(cudaStreamSynchronize(stream.get()), "waiting");
        for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
          ASSERT_EQ(static_cast<const float*>(out.tensor().data)[i], static_cast<float>(time * kTerms)) << i;
        }
      }
      EXPECT_EQ(matmul.unplanned(), refused == 2 ? 1 : 0);
      const auto notes = matmul.notes();
      ASSERT_EQ(notes.size(), refused == 0 ? 0u : 1u) << "once for a shape";
      if (refused == 0) continue;
      EXPECT_THAT(notes[0], HasSubstr("a product [3, 40] x [40, 8], float32 to float32"));
      EXPECT_THAT(notes[0], HasSubstr(refused == 1 ? "an algorithm" : "2 algorithms"));
      EXPECT_THAT(notes[0], HasSubstr(refused == 1 ? "its next proposal" : "slow kernel"));
    }
  }
  lockstep::test::refuse_proposals(0);
  EXPECT_THAT(take_refusals(), testing::IsEmpty());
}

/// Callers learn that nothing was done.
TEST(MatmulOnCpu, LeavesRefusedEpiloguesToTheCaller) {
  DeviceMemory memory(0);
  const Stream stream = make_stream();
  Matmul matmul(memory, {.precision = Precision::bf16, .workspace = 4096});
  const Numbers x(memory, ElementType::bfloat16, 3, 8), w(memory, ElementType::bfloat16, 8, 16);
  const Numbers bias(memory, ElementType::bfloat16, 1, 16), z(memory, ElementType::bfloat16, 3, 16);
  const Numbers y(memory, ElementType::bfloat16, 3, 16);
  lockstep::test::refuse_proposals(8);
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(matmul.multiply_with_bias(stream.get(), {x.tensor()}, {w.tensor()}, bias.tensor(), y.tensor()));
    EXPECT_FALSE(
        matmul.multiply_with_gelu(stream.get(), {x.tensor()}, {w.tensor()}, bias.tensor(), z.tensor(), y.tensor()));
    EXPECT_FALSE(matmul.multiply_through_gelu(stream.get(), {x.tensor()}, {w.tensor()}, z.tensor(), y.tensor()));
  }
  lockstep::test::refuse_proposals(0);
  check(cudaStreamSynchronize(stream.get()), "waiting");
  EXPECT_EQ(matmul.unplanned(), 0) << "callers make them of a product and a pass";
  EXPECT_THAT(matmul.notes(),
              testing::UnorderedElementsAre(HasSubstr(", with its bias ("), HasSubstr(", with its bias and GELU ("),
                                            HasSubstr(", through GELU (")));
  EXPECT_THAT(take_refusals(), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep::model::cuda
