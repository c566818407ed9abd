// Compares the kernels of attention on the host with the float64 reference: contexts that are no multiple of a tile,
// head sizes for plain arithmetic and for tensor cores, with and without dropout.
#include <algorithm>

#include "model/cuda/kernels/flash_attention.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/cuda/kernels/tensor_cores.cuh"
#include "model/kernel_harness.hpp"
#include "model/reference/reference_sequences.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

struct Case {
  std::int64_t samples, context, heads, head_size;
  float rate = 0;
  bool causal = true;
  std::int64_t document = 0;  ///< length of documents; 0: no mask
};

std::string name_of_case(const Case& each, ElementType type) {
  return fmt::format("{} samples of {}, {} heads of {}, {}, dropout {}{}{}", each.samples, each.context, each.heads,
                     each.head_size, name_of(type), each.rate, each.causal ? "" : ", both sides",
                     each.document == 0 ? "" : fmt::format(", documents of {}", each.document));
}

/// Returns the place of a position in its document. The first document of a sample is a rest of one.
std::int32_t place_of(const Case& each, std::int64_t sample, std::int64_t position) {
  const std::int64_t rest = 11 * (sample + 1) % each.document;
  return static_cast<std::int32_t>(position < rest ? position : (position - rest) % each.document);
}

struct Results {
  std::vector<double> y, log_sums, d_joint;
};

Results expected_of(const Attention& shape, std::int64_t samples, std::vector<double> joint, std::vector<double> d_y,
                    const Tensor& keys, const AttentionMask& mask) {
  using model::test::view;
  const std::int64_t rows = samples * shape.context, width = shape.width();
  Results out{d_y, std::vector<double>(static_cast<std::size_t>(rows * shape.heads)), joint};
  const Tensor in = view(joint, rows, 3 * width), y = view(out.y, rows, width);
  const Tensor log_sums = view(out.log_sums, samples * shape.heads, shape.context);
  ReferenceSequences reference;
  reference.attention_forward(shape, {.joint = in, .dropout_keys = keys, .mask = mask, .y = y, .log_sums = log_sums});
  reference.attention_backward(shape, {.joint = in,
                                       .dropout_keys = keys,
                                       .mask = mask,
                                       .y = y,
                                       .log_sums = log_sums,
                                       .d_y = view(d_y, rows, width),
                                       .d_joint = view(out.d_joint, rows, 3 * width)});
  return out;
}

/// Returns the third of d_joint's columns for queries, keys or values.
std::vector<double> part_of(const std::vector<double>& joint, std::size_t width, std::size_t part) {
  std::vector<double> some;
  for (std::size_t i = 0; i < joint.size(); ++i) {
    if (i / width % 3 == part) some.push_back(joint[i]);
  }
  return some;
}

void run_case(const Case& each, ElementType type, std::size_t shift, std::size_t orders) {
  const std::string what = name_of_case(each, type);
  const Attention shape{.context = each.context,
                        .heads = each.heads,
                        .head_size = each.head_size,
                        .dropout = {.rate = each.rate, .stream = 19},
                        .causal = each.causal};
  const std::int64_t rows = each.samples * each.context, width = shape.width();
  in_every_order(
      shift,
      [&](Tensors& t) {
        GuardedTensor& keys = t.add("keys", ElementType::uint64, each.samples, 1);
        const auto all = keys.tensor().elements<std::uint64_t>();
        for (std::size_t s = 0; s < all.size(); ++s) all[s] = key_of(static_cast<std::int64_t>(s));
        // Scores from about -6 to 6, so some rows are nearly one-hot.
        const Tensor joint = t.add_filled("joint", type, rows, 3 * width, 2.5).tensor();
        const Tensor y = t.add("y", type, rows, width).tensor();
        const Tensor sums = t.add("log_sums", ElementType::float32, each.samples * each.heads, each.context).tensor();
        const Tensor given = each.rate > 0 ? keys.tensor() : Tensor{};
        GuardedTensor& places = t.add("places", ElementType::int32, each.document == 0 ? 0 : rows, 1);
        for (std::size_t i = 0; i < places.count(); ++i) {
          const auto row = static_cast<std::int64_t>(i);
          places.set(i, place_of(each, row / each.context, row % each.context));
        }
        const AttentionMask mask = each.document == 0 ? AttentionMask{} : AttentionMask{.places = places.tensor()};
        attention_forward(nullptr, shape,
                          {.joint = joint, .dropout_keys = given, .mask = mask, .y = y, .log_sums = sums});
        const Tensor d_y = t.add_filled("d_y", type, rows, width).tensor();
        attention_backward(nullptr, shape,
                           {.joint = joint,
                            .dropout_keys = given,
                            .mask = mask,
                            .y = y,
                            .log_sums = sums,
                            .d_y = d_y,
                            .d_joint = t.add("d_joint", type, rows, 3 * width).tensor()},
                           t.add("deltas", ElementType::float32, sums.rows, sums.columns).tensor());
      },
      [&](Tensors& t) {
        const Tensor keys = each.rate > 0 ? t["keys"].tensor() : Tensor{};
        const AttentionMask mask = each.document == 0 ? AttentionMask{} : AttentionMask{.places = t["places"].tensor()};
        const Results expected = expected_of(shape, each.samples, t["joint"].values(), t["d_y"].values(), keys, mask);
        const double tolerated = type == ElementType::bfloat16 ? 1e-2 : 2e-5;
        expect_close(t["y"].values(), expected.y, tolerated, what);
        expect_close(t["log_sums"].values(), expected.log_sums, 1e-5, what);
        for (const std::size_t part : {0, 1, 2}) {
          expect_close(part_of(t["d_joint"].values(), static_cast<std::size_t>(width), part),
                       part_of(expected.d_joint, static_cast<std::size_t>(width), part), tolerated,
                       what + fmt::format(", gradient {}", part), 1e-6);
        }
      },
      orders);
}

struct CoreWorkspace {
  CoreTile<16, 16> left;
  CoreTile<16, 16> right, right_transposed;  // columns x terms, terms x columns
};

/// One warp computes out = left right for [16, 16] times [16, 16], with the right side from either of two tiles, and
/// the left side from shared or global memory. kWaits: waits for the copies.
template <bool kWaits>
__global__ void core_product(const Bfloat16* left, const Bfloat16* right, const Bfloat16* right_transposed, int rows,
                             bool transposed, bool direct, float* out) {
  auto& workspace = shared<CoreWorkspace>();
  copy_tile<32>(left, 16, rows, workspace.left);
  copy_tile<32>(right, 16, 16, workspace.right);
  copy_tile<32>(right_transposed, 16, 16, workspace.right_transposed);
  end_group();
  if constexpr (kWaits) wait_groups<0>();
  __syncwarp();
  std::uint32_t a[1][4], b[4];
  if (direct) {
    load_rows<16>(left, 16, rows, a);
  } else {
    load_left(workspace.left, 0, 0, a[0]);
  }
  if (transposed) {
    load_right_transposed(workspace.right_transposed, 0, 0, b);
  } else {
    load_right(workspace.right, 0, 0, b);
  }
  float sums[2][4] = {};
  multiply_add(a[0], b[0], b[1], sums[0]);
  multiply_add(a[0], b[2], b[3], sums[1]);
  const unsigned group = threadIdx.x / 4, member = threadIdx.x % 4;
  for (unsigned n = 0; n < 2; ++n) {
    for (unsigned c = 0; c < 4; ++c) out[(group + c / 2 * 8) * 16 + n * 8 + member * 2 + c % 2] = sums[n][c];
  }
  if constexpr (!kWaits) wait_groups<0>();
}

TEST(TensorCores, MultiplyWhatTilesHold) {
  for (const bool transposed : {false, true}) {
    for (const bool direct : {false, true}) {
      for (const int rows : {16, 11}) {
        in_every_order(
            0,
            [&](Tensors& t) {
              const auto data_of = [](const GuardedTensor& tensor) {
                return static_cast<const Bfloat16*>(tensor.tensor().data);
              };
              const GuardedTensor& left = t.add_filled("left", ElementType::bfloat16, 16, 16);
              GuardedTensor& across = t.add_filled("terms x columns", ElementType::bfloat16, 16, 16);
              GuardedTensor& along = t.add("columns x terms", ElementType::bfloat16, 16, 16);
              for (std::size_t i = 0; i < 256; ++i) along.set(i, across.get(i % 16 * 16 + i / 16));
              launch("core_product", core_product<true>, {.threads = 32, .shared_bytes = sizeof(CoreWorkspace)},
                     nullptr, data_of(left), data_of(along), data_of(across), rows, transposed, direct,
                     static_cast<float*>(t.add("out", ElementType::float32, 16, 16).tensor().data));
            },
            [&](Tensors& t) {
              std::vector<double> expected(256);
              for (std::size_t i = 0; i < 256 && i / 16 < static_cast<std::size_t>(rows); ++i) {
                for (std::size_t k = 0; k < 16; ++k) {
                  expected[i] += t["left"].get(i / 16 * 16 + k) * t["terms x columns"].get(k * 16 + i % 16);
                }
              }
              expect_close(t["out"].values(), expected, 1e-6, "product");
            });
      }
    }
  }
}

TEST(TensorCores, ShowACopyThatNobodyWaitsFor) {
  GuardedTensor one(ElementType::bfloat16, 16, 16), out(ElementType::float32, 16, 16);
  for (std::size_t i = 0; i < 256; ++i) one.set(i, 1);
  const auto* const data = static_cast<const Bfloat16*>(one.tensor().data);
  launch("core_product", core_product<false>, {.threads = 32, .shared_bytes = sizeof(CoreWorkspace)}, nullptr, data,
         data, data, 16, false, false, static_cast<float*>(out.tensor().data));
  for (const double v : out.values()) EXPECT_TRUE(std::isnan(v));
}

TEST(AttentionKernels, GoThroughAFewPairsAtATime) {
  EXPECT_EQ(pairs_together({.context = 1024, .heads = 12, .head_size = 64, .dropout = {}}, 2), 64);
  EXPECT_EQ(pairs_together({.context = 1 << 20, .heads = 1, .head_size = 128, .dropout = {}}, 2), 1);
  for (const AttentionOrder order : {AttentionOrder{10, 3, 4}, AttentionOrder{1, 5, 7}, AttentionOrder{8, 2, 4},
                                     AttentionOrder{3, 1, 1}, AttentionOrder{5, 4, 100}}) {
    std::vector<int> seen(static_cast<std::size_t>(order.pairs * order.tiles));
    for (int block = 0; block < order.pairs * order.tiles; ++block) {
      const auto [pair, tile] = order.at(block);
      ASSERT_TRUE(pair >= 0 && pair < order.pairs && tile >= 0 && tile < order.tiles) << block;
      ++seen[static_cast<std::size_t>(pair * order.tiles + tile)];
      EXPECT_EQ(pair / order.together, block / order.tiles / order.together) << "another group's";
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

TEST(AttentionKernels, TakeTensorCoresByAStaticRule) {
  const auto takes = [](std::int64_t head_size, std::size_t shift) {
    const GuardedTensor joint(ElementType::bfloat16, 4, 3 * head_size, shift);
    const Attention shape{.context = 4, .heads = 1, .head_size = head_size, .dropout = {}};
    return takes_flash_attention(attention_data<Bfloat16>(
        shape, {.joint = joint.tensor(), .y = {}, .log_sums = {}, .d_y = {}, .d_joint = {}}, {}));
  };
  EXPECT_TRUE(takes(64, 0));
  EXPECT_TRUE(takes(128, 0));
  EXPECT_FALSE(takes(64, 1));
  EXPECT_FALSE(takes(32, 0));
  EXPECT_FALSE(takes(96, 0));
  const GuardedTensor joint(ElementType::bfloat16, 4, 3 * 64), marks(ElementType::int32, 4, 1);
  const Attention shape{.context = 4, .heads = 1, .head_size = 64, .dropout = {}};
  const auto with = [&](const AttentionMask& mask) {
    return takes_flash_attention(attention_data<Bfloat16>(
        shape, {.joint = joint.tensor(), .mask = mask, .y = {}, .log_sums = {}, .d_y = {}, .d_joint = {}}, {}));
  };
  EXPECT_TRUE(with({.places = marks.tensor()}));
  EXPECT_FALSE(with({.lengths = marks.tensor()}));
}

TEST(AttentionKernels, MatchFloat64InPlainArithmetic) {
  for (const ElementType type : kTypes) {
    for (const Case& each :
         {Case{0, 5, 2, 8}, Case{1, 1, 1, 1}, Case{2, 5, 3, 8}, Case{1, 33, 2, 20}, Case{2, 70, 1, 32, 0.25f},
          Case{1, 40, 1, 33, 0.5f}, Case{1, 49, 1, 100}, Case{2, 5, 3, 8, 0, false}, Case{1, 45, 2, 20, 0.25f, false},
          Case{1, 33, 1, 64, 0, false}, Case{2, 45, 2, 20, 0, true, 17}, Case{1, 70, 1, 64, 0.25f, true, 30}}) {
      run_case(each, type, static_cast<std::size_t>(each.context) % 2, each.context < 40 ? 3 : 1);
    }
  }
}

TEST(AttentionKernels, MatchFloat64OnTensorCores) {
  for (const Case& each : {Case{1, 1, 1, 64}, Case{2, 16, 1, 64}, Case{1, 65, 2, 64}, Case{1, 130, 1, 64, 0.25f},
                           Case{1, 23, 1, 128, 0.5f}, Case{1, 97, 1, 128}}) {
    run_case(each, ElementType::bfloat16, 0, each.context < 70 ? 3 : 1);
  }
}

// Documents within a tile, over several tiles, of two tokens, and longer than the context; with dropout, too.
TEST(AttentionKernels, KeepDocumentsApartOnTensorCores) {
  for (const Case& each :
       {Case{2, 65, 2, 64, 0, true, 7}, Case{2, 200, 1, 64, 0, true, 90}, Case{1, 69, 1, 64, 0, true, 2},
        Case{1, 130, 1, 64, 0, true, 1000}, Case{2, 150, 1, 64, 0.25f, true, 53}, Case{2, 97, 1, 128, 0, true, 40},
        Case{1, 70, 1, 128, 0.5f, true, 30}}) {
    run_case(each, ElementType::bfloat16, 0, each.context < 70 ? 3 : 1);
  }
}

TEST(AttentionKernels, TakeTensorsThatAreNotAlignedForTensorCores) {
  run_case({1, 19, 1, 64}, ElementType::bfloat16, 1, 1);
  run_case({1, 19, 1, 64}, ElementType::float32, 0, 1);
}

TEST(AttentionKernels, LetWhatIsNotANumberThrough) {
  for (const ElementType type : kTypes) {
    for (const double bad : {kNan, kInfinity}) {
      for (const std::size_t part : {0, 1, 2}) {  // a query, a key, a value of position 20
        constexpr std::size_t kContext = 40, kHead = 64, kBad = 20;
        GuardedTensor joint(type, kContext, 3 * kHead), y(type, kContext, kHead), d_y(type, kContext, kHead);
        GuardedTensor d_joint(type, kContext, 3 * kHead);
        GuardedTensor sums(ElementType::float32, 1, kContext), deltas(ElementType::float32, 1, kContext);
        for (std::size_t i = 0; i < joint.count(); ++i) joint.set(i, sample("joint", i));
        for (std::size_t i = 0; i < d_y.count(); ++i) d_y.set(i, sample("d_y", i));
        joint.set((kBad * 3 + part) * kHead + 5, bad);
        const Attention shape{.context = kContext, .heads = 1, .head_size = kHead, .dropout = {}};
        attention_forward(nullptr, shape, {.joint = joint.tensor(), .y = y.tensor(), .log_sums = sums.tensor()});
        attention_backward(nullptr, shape,
                           {.joint = joint.tensor(),
                            .y = y.tensor(),
                            .log_sums = sums.tensor(),
                            .d_y = d_y.tensor(),
                            .d_joint = d_joint.tensor()},
                           deltas.tensor());
        // An infinite query or key gives scores of +infinity or -infinity. A row with a score of -infinity may be
        // finite.
        for (std::size_t row = part == 0 ? kBad : kBad + 1; row < (part == 0 ? kBad + 1 : kContext); ++row) {
          bool finite = true;
          for (std::size_t d = 0; d < kHead; ++d) finite = finite && std::isfinite(y.get(row * kHead + d));
          if (part == 2 || std::isnan(bad)) {
            EXPECT_FALSE(finite) << name_of(type) << " part " << part << " row " << row;
          }
        }
        bool finite = true;
        for (const double v : d_joint.values()) finite = finite && std::isfinite(v);
        EXPECT_FALSE(finite) << name_of(type) << " part " << part << " of " << bad;
      }
    }
  }
}

TEST(AttentionKernels, RefuseHeadsThatAreTooLarge) {
  GuardedTensor joint(ElementType::float32, 2, 3 * 129), y(ElementType::float32, 2, 129);
  GuardedTensor sums(ElementType::float32, 1, 2);
  const Attention shape{.context = 2, .heads = 1, .head_size = 129, .dropout = {}};
  EXPECT_THROW(attention_forward(nullptr, shape, {.joint = joint.tensor(), .y = y.tensor(), .log_sums = sums.tensor()}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model::cuda
