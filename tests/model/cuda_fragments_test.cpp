// Layouts of fragments for tensor cores and ldmatrix: compares the twins of model/cuda/kernels/tensor_cores.cuh with
// the layouts of CuTe for the same instructions (CUTLASS, cute/atom/mma_traits_sm80.hpp: 16 x 8 x 16, TN, bf16;
// copy_traits_sm75.hpp: LDSM x4, plain and transposed). A layout here is a list of (extent, stride): a position is the
// sum of the digits of the index times their strides.
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/cuda/kernels/tensor_cores.cuh"
#include "model/kernel_harness.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the harness of these tests

struct Mode {
  unsigned extent, stride;
};
/// Layout that maps a lane and one of its values to a position.
struct FragmentLayout {
  std::vector<Mode> lanes, values;

  unsigned at(unsigned lane, unsigned value) const { return position(lane, lanes) + position(value, values); }

 private:
  static unsigned position(unsigned index, const std::vector<Mode>& modes) {
    unsigned sum = 0;
    for (const auto& [extent, stride] : modes) {
      sum += index % extent * stride;
      index /= extent;
    }
    return sum;
  }
};

/// Map to row + 16 * term, column + 8 * term, row + 16 * column.
const FragmentLayout kLeft{{{4, 32}, {8, 1}}, {{2, 16}, {2, 8}, {2, 128}}};
const FragmentLayout kRight{{{4, 16}, {8, 1}}, {{2, 8}, {2, 64}}};
const FragmentLayout kOut{{{4, 32}, {8, 1}}, {{2, 16}, {2, 8}}};
/// Map to the bit of the four matrices of eight rows of 128 bits; lane l provides row l.
const FragmentLayout kLoaded{{{32, 32}}, {{32, 1}, {4, 1024}}};
const FragmentLayout kLoadedTransposed{{{4, 256}, {8, 16}}, {{16, 1}, {2, 128}, {4, 1024}}};

/// registers: [lane][register].
__global__ void multiply_fragments(const std::uint32_t* left, const std::uint32_t* right, float* out) {
  std::uint32_t a[4];
  for (unsigned r = 0; r < 4; ++r) a[r] = left[threadIdx.x * 4 + r];
  float sums[4] = {};
  multiply_add(a, right[threadIdx.x * 2], right[threadIdx.x * 2 + 1], sums);
  for (unsigned r = 0; r < 4; ++r) out[threadIdx.x * 4 + r] = sums[r];
}

enum class Load { matrices, transposed, left, right, right_transposed, rows };

struct FragmentTile {
  CoreTile<32, 32> tile;
};

/// Stores a lane's registers from a tile whose element in row r and column c is from[r * 32 + c].
__global__ void load_fragments(const Bfloat16* from, Load load, std::uint32_t* to) {
  auto& tile = shared<FragmentTile>().tile;
  for (unsigned c = 0; c < 32; ++c) tile.at[threadIdx.x][c] = from[threadIdx.x * 32 + c];
  __syncwarp();
  std::uint32_t loaded[1][4];
  switch (load) {
    case Load::matrices:
      load_matrices(&tile.at[threadIdx.x][0], loaded[0]);
      break;
    case Load::transposed:
      load_transposed(&tile.at[threadIdx.x][0], loaded[0]);
      break;
    case Load::left:
      load_left(tile, 0, 0, loaded[0]);
      break;
    case Load::right:
      load_right(tile, 0, 0, loaded[0]);
      break;
    case Load::right_transposed:
      load_right_transposed(tile, 0, 0, loaded[0]);
      break;
    case Load::rows:
      load_rows<16>(from, 32, 16, loaded);
      break;
  }
  for (unsigned r = 0; r < 4; ++r) to[threadIdx.x * 4 + r] = loaded[0][r];
}

using Registers = std::vector<std::uint32_t>;

std::uint16_t bits_of(float value) { return static_cast<std::uint16_t>(pair_of(value, 0) & 0xffffu); }

/// Returns the values of each lane, in pairs; element_at(position) returns an element.
template <class ElementAt>
Registers fragments_of(const FragmentLayout& layout, unsigned values, const ElementAt& element_at) {
  Registers registers;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned v = 0; v < values; v += 2) {
      registers.push_back(static_cast<std::uint32_t>(element_at(layout.at(lane, v + 1))) << 16 |
                          element_at(layout.at(lane, v)));
    }
  }
  return registers;
}

/// Small whole numbers: their products and sums are exact.
float left_of(unsigned row, unsigned term) { return static_cast<float>((row * 5 + term * 3) % 13) - 6; }
float right_of(unsigned term, unsigned column) { return static_cast<float>((term * 7 + column * 2) % 11) - 5; }

std::vector<float> products_of(const FragmentLayout& left_layout) {
  const Registers left = fragments_of(left_layout, 8, [](unsigned at) { return bits_of(left_of(at % 16, at / 16)); });
  const Registers right = fragments_of(kRight, 4, [](unsigned at) { return bits_of(right_of(at / 8, at % 8)); });
  std::vector<float> out(128);
  launch("multiply_fragments", multiply_fragments, {.threads = 32}, nullptr, left.data(), right.data(), out.data());
  std::vector<float> matrix(128);
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned v = 0; v < 4; ++v) matrix[kOut.at(lane, v)] = out[lane * 4 + v];
  }
  return matrix;
}

TEST(Fragments, OfProductsLieWhereCuteSays) {
  std::vector<float> expected(128);
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      for (unsigned term = 0; term < 16; ++term) {
        expected[row + 16 * column] += left_of(row, term) * right_of(term, column);
      }
    }
  }
  EXPECT_EQ(products_of(kLeft), expected);
  FragmentLayout wrong = kLeft;
  std::swap(wrong.values[1], wrong.values[2]);
  EXPECT_NE(products_of(wrong), expected) << "or the test finds nothing";
}

Registers loaded_by(Load load) {
  std::vector<Bfloat16> tile(32 * 32);
  for (std::size_t i = 0; i < tile.size(); ++i) {
    const auto number = static_cast<std::uint16_t>(i);  // the bits themselves; nothing is computed
    std::memcpy(static_cast<void*>(&tile[i]), &number, sizeof number);
  }
  Registers registers(128);
  launch("load_fragments", load_fragments, {.threads = 32, .shared_bytes = sizeof(FragmentTile)}, nullptr, tile.data(),
         load, registers.data());
  return registers;
}
/// The element at row and column of that tile.
std::uint16_t number_at(unsigned row, unsigned column) { return static_cast<std::uint16_t>(row * 32 + column); }

/// For layouts that count bits: every lane's 32 bits of each register begin with those of a 16-bit element.
Registers expected_of(const FragmentLayout& layout) {
  Registers registers;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned r = 0; r < 4; ++r) {
      const auto element = [&](unsigned half) {
        const unsigned bit = layout.at(lane, r * 32 + half * 16);
        return static_cast<std::uint32_t>(number_at(bit / 128, bit % 128 / 16));
      };
      registers.push_back(element(1) << 16 | element(0));
    }
  }
  return registers;
}

TEST(Fragments, AreLoadedFromWhereCuteSays) {
  EXPECT_EQ(loaded_by(Load::matrices), expected_of(kLoaded));
  EXPECT_EQ(loaded_by(Load::transposed), expected_of(kLoadedTransposed));
  EXPECT_NE(loaded_by(Load::matrices), expected_of(kLoadedTransposed)) << "or the test finds nothing";
}

TEST(Fragments, OfTilesAreThoseOfProducts) {
  const auto left = [](unsigned at) { return number_at(at % 16, at / 16); };
  EXPECT_EQ(loaded_by(Load::left), fragments_of(kLeft, 8, left));
  EXPECT_EQ(loaded_by(Load::rows), fragments_of(kLeft, 8, left));
  // Registers 0, 1 hold columns 0 to 7, registers 2, 3 columns 8 to 15.
  const auto right_sides = [](const auto& element_at) {
    Registers both(128);
    for (unsigned side = 0; side < 2; ++side) {
      const Registers one = fragments_of(kRight, 4, [&](unsigned at) { return element_at(at / 8, at % 8 + 8 * side); });
      for (unsigned lane = 0; lane < 32; ++lane) {
        for (unsigned r = 0; r < 2; ++r) both[lane * 4 + side * 2 + r] = one[lane * 2 + r];
      }
    }
    return both;
  };
  EXPECT_EQ(loaded_by(Load::right),
            right_sides([](unsigned term, unsigned column) { return number_at(column, term); }));
  EXPECT_EQ(loaded_by(Load::right_transposed), right_sides(number_at));
}

}  // namespace
}  // namespace lockstep::model::cuda
