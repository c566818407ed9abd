// Compares kernels of the losses on the host with the float64 reference.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/kernel_harness.hpp"
#include "model/reference/reference_backend.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

/// A loss of logits, or predictions, on the host. Columns beyond the classes are padding.
struct LossCase {
  std::string what;
  ElementType type;
  std::int64_t rows, classes, padding = 0;
  double spread = 1;  ///< greatest of the logits
  LossOptions options = {};
  bool weighted = false;
  double loss_error = 1e-6, metric_error = 0;  ///< as shares
  double floor = 1e-30;                        ///< error of a gradient's norm
  std::size_t orders = 3;
};

/// given(t) adds the labels or targets, "given"; kernel(t, z, y, options, sums) and judge(backend, z, y, options, sums)
/// compute the loss.
template <class Given, class Kernel, class Judge>
void expect_loss(const LossCase& at, const Given& given, const Kernel& kernel, const Judge& judge) {
  const std::size_t shift = static_cast<std::size_t>(at.rows) % 2;
  const std::string what = shape_name(at.what.c_str(), at.type, at.rows, at.classes, shift) +
                           fmt::format(" smoothing {}, {} columns of padding", at.options.smoothing, at.padding);
  const auto options_with = [&](Tensors& t) {
    LossOptions options = at.options;
    if (at.weighted) options.weights = t["weights"].tensor();
    return options;
  };
  std::vector<double> z;
  in_every_order(
      shift,
      [&](Tensors& t) {
        t.add_filled("logits", at.type, at.rows, at.classes + at.padding, at.spread);
        set_all(t.add("weights", ElementType::float32, at.rows, 1), model::test::weights(at.rows));
        given(t);
        z = t["logits"].values();
        set_all(t.add("sums", ElementType::float64, 1, 3), std::array{3, 5, 7});
        kernel(t, t["logits"].tensor(), t["given"].tensor(), options_with(t), t["sums"].tensor());
      },
      [&](Tensors& t) {
        const auto is_padding = [&](std::size_t i) {
          return static_cast<std::int64_t>(i) % (at.classes + at.padding) >= at.classes;
        };
        std::vector<double> got, expected, sums{3, 5, 7};
        for (std::size_t i = 0; i < z.size(); ++i) {
          const double after = t["logits"].get(i);
          if (is_padding(i)) {
            EXPECT_EQ(after, at.options.want_gradient ? 0 : z[i]) << what << ", padding";
          } else {
            got.push_back(after);
            expected.push_back(z[i]);
          }
        }
        ReferenceBackend reference;
        std::invoke(judge, reference, model::test::view(expected, at.rows, at.classes), t["given"].tensor(),
                    options_with(t), model::test::view(sums, 1, 3));
        EXPECT_NEAR(t["sums"].get(0), sums[0], at.loss_error * std::abs(sums[0])) << what;
        for (const std::size_t i : {1, 2}) EXPECT_NEAR(t["sums"].get(i), sums[i], at.metric_error * sums[i]) << what;
        if (at.options.want_gradient) {
          expect_close(got, expected, tolerance(at.type), what, at.floor);
        } else {
          ASSERT_EQ(got, expected) << what;
        }
      },
      at.orders);
}

/// Shared memory of a block on Hopper, which reads a long row of bf16 once. 0: every device.
constexpr std::size_t kHopper = 227 * 1024;

TEST(SoftmaxCrossEntropy, MatchesFloat64) {
  struct Rows {
    std::int64_t rows, classes, padding = 0;
  };
  std::vector<Rows> all;
  for (const std::int64_t rows : {0, 1, 3, 33}) {
    for (const std::int64_t classes : {1, 2, 10, 31, 32, 33, 128, 129}) all.push_back({rows, classes});
  }
  for (const Rows each :
       {Rows{257, 10}, Rows{257, 129}, Rows{5, 511}, Rows{5, 512}, Rows{5, 513}, Rows{9, 1000}, Rows{3, 5003},
        Rows{2, 50257}, Rows{8200, 3}, Rows{1030, 514}, Rows{5, 37, 3}, Rows{3, 1, 7}, Rows{6, 509, 3},
        Rows{5, 500, 20}, Rows{4, 5003, 117}, Rows{3, 1000, 5}, Rows{2, 50257, 47}, Rows{1030, 515, 5}}) {
    all.push_back(each);
  }
  for (const ElementType type : kTypes) {
    for (const auto& [rows, classes, padding] : all) {
      for (const auto& [want_gradient, smoothing, shared_bytes] : {std::tuple{true, 0.0f, kHopper},
                                                                   {true, 0.1f, kHopper},
                                                                   {false, 0.0f, kHopper},
                                                                   {false, 0.2f, kHopper},
                                                                   {true, 0.0f, std::size_t{0}},
                                                                   {false, 0.2f, std::size_t{0}}}) {
        if (shared_bytes == 0 && (type != ElementType::bfloat16 || classes <= 512)) continue;  // same test
        // These cases test grids whose blocks process several rows.
        const bool goes_round = smoothing == 0 && (padding > 0 ? type == ElementType::bfloat16 && shared_bytes > 0
                                                               : type == ElementType::float32 && want_gradient);
        if (rows > 1024 && !goes_round) continue;
        const auto labels = model::test::labels(rows, classes);
        const std::size_t columns = static_cast<std::size_t>(classes + padding), shared = shared_bytes,
                          count = static_cast<std::size_t>(classes);
        const double scale = 0.125;
        expect_loss(
            {.what = "softmax",
             .type = type,
             .rows = rows,
             .classes = classes,
             .padding = padding,
             .spread = 8,
             .options = {.scale = scale,
                         .want_gradient = want_gradient,
                         .smoothing = smoothing,
                         .classes = padding > 0 ? classes : 0},
             // The gradient of a probability near 1 is a difference with no more digits than fp32 has for 1.
             .floor = 1.2e-7 * scale * std::sqrt(static_cast<double>(rows)),
             .orders = rows > 1024 ? std::size_t{2} : 3},
            [&](Tensors& t) {
              set_all(t.add("given", ElementType::int32, static_cast<std::int64_t>(labels.size()), 1), labels);
              GuardedTensor& logits = t["logits"];
              // Every third row is right, every fourth has its greatest logit twice.
              for (std::size_t b = 0; b < labels.size(); ++b) {
                const std::size_t row = b * columns;
                for (std::size_t o = count; o < columns; ++o) logits.set(row + o, 100);
                if (b % 3 == 0) logits.set(row + static_cast<std::size_t>(labels[b]), 9);
                if (b % 4 == 0) logits.set(row + count - 1, 9);
              }
            },
            [&](Tensors& t, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              softmax_cross_entropy(nullptr, z, y, options, sums, t.scratch(0), shared);
            },
            &Backend::softmax_cross_entropy);
      }
    }
  }
}

/// Result for the logits of one row: {loss, correct answers}, whether the label is among the first five, and the
/// gradient.
struct Judged {
  double loss, correct, top5;
  std::vector<double> gradient;
};
Judged judge(ElementType type, const std::vector<double>& row, std::int32_t label, float smoothing = 0,
             std::size_t shared_bytes = kHopper) {
  GuardedTensor logits(type, 1, static_cast<std::int64_t>(row.size())), labels(ElementType::int32, 1, 1);
  GuardedTensor evaluated(type, 1, static_cast<std::int64_t>(row.size()));
  GuardedTensor sums(ElementType::float64, 1, 3), memory(ElementType::float64, 1, 4096);
  for (std::size_t o = 0; o < row.size(); ++o) {
    logits.set(o, row[o]);
    evaluated.set(o, row[o]);
  }
  labels.set(0, label);
  const Scratch scratch{memory.tensor().data, memory.bytes().size()};
  const auto run = [&](const GuardedTensor& z, bool want_gradient) {
    for (std::size_t i = 0; i < 3; ++i) sums.set(i, 0);
    softmax_cross_entropy(nullptr, z.tensor(), labels.tensor(),
                          {.want_gradient = want_gradient, .smoothing = smoothing}, sums.tensor(), scratch,
                          shared_bytes);
  };
  run(evaluated, false);
  const double loss = sums.get(0), correct = sums.get(1), top5 = sums.get(2);
  run(logits, true);
  EXPECT_TRUE(sums.get(0) == loss || (std::isnan(sums.get(0)) && std::isnan(loss))) << "with gradient or without";
  EXPECT_EQ(sums.get(1), correct);
  EXPECT_EQ(sums.get(2), 0) << "not counted with the gradient";
  return {loss, correct, top5, logits.values()};
}

TEST(SoftmaxCrossEntropy, SpecialValues) {
  for (const ElementType type : kTypes) {
    for (const std::size_t classes : {3, 40, 600, 4099}) {
      const std::size_t last = classes - 1;
      for (const std::size_t at : {std::size_t{0}, classes / 2, last}) {
        std::vector<double> row(classes, 1.0);
        row[1] = 2;
        row[at] = kNan;
        Judged judged = judge(type, row, 1);
        EXPECT_TRUE(std::isnan(judged.loss)) << classes << " " << at;
        EXPECT_EQ(judged.correct, 0);
        EXPECT_EQ(judged.top5, 0);
        for (const double v : judged.gradient) ASSERT_TRUE(std::isnan(v));

        row[at] = kInfinity;
        judged = judge(type, row, 1);
        EXPECT_TRUE(std::isnan(judged.loss));
        EXPECT_EQ(judged.correct, 0);

        // An impossible class: probability 0, and infinite loss if it is the right one.
        row.assign(classes, -kInfinity);
        row[at] = 5;
        const auto label = static_cast<std::int32_t>(at);
        judged = judge(type, row, label);
        EXPECT_EQ(judged.loss, 0);
        EXPECT_EQ(judged.correct, 1);
        for (const double v : judged.gradient) ASSERT_EQ(v, 0);
        judged = judge(type, row, at == 0 ? 1 : 0);
        EXPECT_EQ(judged.loss, kInfinity);
        EXPECT_EQ(judged.correct, 0);
        EXPECT_EQ(judged.gradient[at], 1);
      }
      const std::vector<double> equal(classes, -3), hopeless(classes, -kInfinity);
      EXPECT_EQ(judge(type, equal, 0).correct, 1) << "the first of equal ones is the answer";
      EXPECT_EQ(judge(type, equal, static_cast<std::int32_t>(last)).correct, 0);
      EXPECT_NEAR(judge(type, equal, 0).loss, std::log(static_cast<double>(classes)), 1e-5);
      EXPECT_TRUE(std::isnan(judge(type, hopeless, 0).loss));
      // Far from 0 on both sides.
      EXPECT_NEAR(judge(type, std::vector<double>(classes, 3e38), 0).loss, std::log(static_cast<double>(classes)),
                  1e-5);
      // Among equal ones the first five count.
      for (const std::size_t label : {std::size_t{0}, std::size_t{4}, std::size_t{5}, last}) {
        if (label >= classes) continue;
        EXPECT_EQ(judge(type, equal, static_cast<std::int32_t>(label)).top5, label < 5 ? 1 : 0) << classes << label;
      }
      // An impossible class with smoothed targets: infinite loss.
      std::vector<double> impossible(classes, 1);
      impossible[last] = -kInfinity;
      EXPECT_EQ(judge(type, impossible, 0, 0.1f).loss, kInfinity);
      EXPECT_TRUE(std::isfinite(judge(type, impossible, 0).loss));
      for (const std::int32_t label : {-1, static_cast<std::int32_t>(classes), 1 << 30}) {
        EXPECT_TRUE(std::isnan(judge(type, equal, label).loss)) << label;
        EXPECT_EQ(judge(type, equal, label).top5, 0) << label;
      }
    }
  }
}

TEST(SoftCrossEntropy, MatchesFloat64) {
  struct Rows {
    std::int64_t rows, classes, padding = 0;
  };
  std::vector<Rows> all;
  for (const std::int64_t rows : {1, 3, 33}) {
    for (const std::int64_t classes : {2, 10, 31, 32, 33, 129}) all.push_back({rows, classes});
  }
  for (const Rows each : {Rows{257, 10}, Rows{257, 129}, Rows{2, 5003}, Rows{8200, 3}, Rows{5, 37, 3}, Rows{3, 3, 5}}) {
    all.push_back(each);
  }
  for (const ElementType type : kTypes) {
    for (const Rows& at : all) {
      if (at.padding > 0 && type == ElementType::float32) continue;  // has no padding
      for (const auto& [want_gradient, smoothing, weighted] :
           {std::tuple{true, 0.0f, false}, {true, 0.1f, true}, {false, 0.0f, true}, {false, 0.2f, false}}) {
        // These cases are about grids that wrap around.
        if (at.rows > 1024 && weighted != (type == ElementType::float32)) continue;
        const double scale = 0.125, elements = static_cast<double>(at.rows * (at.classes + at.padding));
        expect_loss(
            {.what = "soft",
             .type = type,
             .rows = at.rows,
             .classes = at.classes,
             .padding = at.padding,
             .spread = 8,
             .options = {.scale = scale, .want_gradient = want_gradient, .smoothing = smoothing},
             .weighted = weighted,
             .floor = 1.2e-7 * scale * std::sqrt(elements),
             .orders = at.rows > 1024 ? std::size_t{2} : 3},
            [&](Tensors& t) {
              set_all(t.add("given", ElementType::float32, at.rows, at.classes),
                      model::test::probabilities(at.rows, at.classes));
            },
            [](Tensors& t, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              soft_cross_entropy(nullptr, z, y, options, sums, t.scratch(0));
            },
            &Backend::soft_cross_entropy);
      }
    }
  }
}

TEST(SoftDice, MatchesFloat64) {
  struct Masks {
    std::int64_t samples, positions, classes, padding = 0;
  };
  for (const ElementType type : kTypes) {
    for (const Masks& at : {Masks{1, 1, 2}, Masks{3, 5, 3}, Masks{2, 300, 1}, Masks{2, 700, 4}, Masks{1, 9000, 3},
                            Masks{257, 2, 2}, Masks{2, 40, 33}, Masks{2, 20, 300}, Masks{3, 17, 5, 3}}) {
      for (const bool want_gradient : {true, false}) {
        // This case is about the sum over more samples than a block has threads.
        if (at.samples > 256 && (type != ElementType::float32 || !want_gradient)) continue;
        const std::int64_t rows = at.samples * at.positions;
        auto answers = model::test::labels(rows, at.classes);
        for (std::size_t i = 1; i < answers.size(); i += 4) answers[i] = kNoClass;
        expect_loss(
            {.what = "Dice",
             .type = type,
             .rows = rows,
             .classes = at.classes,
             .padding = at.padding,
             .spread = 4,
             .options = {.scale = 0.125, .want_gradient = want_gradient, .classes = at.classes},
             .floor = 1e-7,
             .orders = at.samples > 256 ? std::size_t{2} : 3},
            [&](Tensors& t) {
              set_all(t.add("given", ElementType::int32, rows, 1), answers);
              t.add("work", ElementType::float64, at.samples, dice_work(at.classes));
            },
            [](Tensors& t, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              soft_dice(nullptr, z, y, options, t["work"].tensor(), sums);
            },
            [&](Backend& reference, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              std::vector<double> work(static_cast<std::size_t>(at.samples * dice_work(at.classes)));
              reference.soft_dice(z, y, options, model::test::view(work, at.samples, dice_work(at.classes)), sums);
            });
      }
    }
  }
}

TEST(CombineLosses, AddsEachTimesItsShare) {
  GuardedTensor parts(ElementType::float64, 1, 6), sums(ElementType::float64, 1, 5);
  for (std::size_t i = 0; i < 6; ++i) parts.set(i, static_cast<double>(i + 1));
  for (std::size_t i = 0; i < 5; ++i) sums.set(i, 10);
  const std::array shares{LossShare{.loss = 2, .metric = 1}, LossShare{.loss = 0.5, .metric = 0, .accuracy = 0.5}};
  combine_losses(nullptr, parts.tensor(), shares, sums.tensor());
  EXPECT_EQ(sums.values(), (std::vector<double>{10 + 2 * 1 + 0.5 * 4, 12, 13 + 0.5 * 5, 11, 14}));
}

TEST(MeanError, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [each_rows, each_outputs] : shapes()) {
      const std::int64_t rows = each_rows, outputs = each_outputs;
      for (const auto& [of_error, want_gradient, spread] : {std::tuple{ErrorLoss::squared, true, 1},
                                                            {ErrorLoss::squared, false, 1},
                                                            {ErrorLoss::absolute, true, 3},
                                                            {ErrorLoss::huber, true, 3}}) {
        expect_loss(
            {.what = fmt::format("error {}", static_cast<int>(of_error)),
             .type = type,
             .rows = rows,
             .classes = outputs,
             .spread = static_cast<double>(spread),
             .options = {.scale = 0.25, .want_gradient = want_gradient, .of_error = of_error},
             .loss_error = 1e-12,
             .metric_error = 1e-12},
            [&](Tensors& t) { t.add_filled("given", ElementType::float32, rows, outputs); },
            [](Tensors& t, const Tensor& x, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              mean_error(nullptr, x, y, options, sums, t.scratch(0));
            },
            &Backend::mean_error);
      }
    }
  }
}

TEST(BinaryCrossEntropy, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [each_rows, each_labels] : shapes()) {
      const std::int64_t rows = each_rows, labels = each_labels;
      for (const auto& [want_gradient, smoothing] : {std::pair{true, 0.0f}, {true, 0.25f}, {false, 0.0f}}) {
        expect_loss(
            {.what = "binary cross-entropy",
             .type = type,
             .rows = rows,
             .classes = labels,
             .spread = 6,
             .options = {.scale = 0.25, .want_gradient = want_gradient, .smoothing = smoothing},
             .metric_error = 1e-12},
            [&](Tensors& t) {
              set_all(t.add("given", ElementType::float32, rows, labels), model::test::binary(rows * labels));
            },
            [](Tensors& t, const Tensor& z, const Tensor& y, const LossOptions& options, const Tensor& sums) {
              binary_cross_entropy(nullptr, z, y, options, sums, t.scratch(0));
            },
            &Backend::binary_cross_entropy);
      }
    }
  }
}

/// For every loss kernel, the result of weighted rows equals the sum of the results of single rows times their weights.
TEST(Weights, AreFactorsOfEachRow) {
  enum class Kind { softmax, error, labels };
  struct WeightedCase {
    Kind kind;
    std::int64_t columns, outputs;
  };
  for (const ElementType type : kTypes) {
    for (const WeightedCase& of :
         {WeightedCase{Kind::softmax, 10, 10}, WeightedCase{Kind::softmax, 100, 90},
          WeightedCase{Kind::softmax, 512, 500}, WeightedCase{Kind::softmax, 1000, 1000},
          WeightedCase{Kind::softmax, 1003, 1000}, WeightedCase{Kind::error, 3, 3}, WeightedCase{Kind::error, 17, 17},
          WeightedCase{Kind::error, 8, 5}, WeightedCase{Kind::labels, 4, 4}}) {
      const auto [kind, columns, outputs] = of;
      if (columns != outputs && kind == Kind::error && type == ElementType::float32) continue;  // has no padding
      for (const std::int64_t rows : {1, 5, 40}) {
        for (const bool want_gradient : {true, false}) {
          const std::string what = shape_name("weights", type, rows, columns, 0);
          auto answers = model::test::labels(rows, outputs);
          // Rows with a weight of 0.
          for (std::size_t i = 3; kind == Kind::softmax && i < answers.size(); i += 10) answers[i] = kNoClass;
          const auto there = model::test::binary(rows * outputs);
          const auto weight = model::test::weights(rows);
          GuardedTensor all(type, rows, columns), memory(ElementType::float64, 1, 8192),
              sums(ElementType::float64, 1, 3);
          GuardedTensor weights(ElementType::float32, rows, 1), total(ElementType::float64, 1, 3);
          const Scratch scratch{memory.tensor().data, memory.bytes().size()};
          const auto value = [&](std::int64_t row, std::int64_t column) {
            return 3 * model::test::sample("z", static_cast<std::size_t>(row * columns + column));
          };
          const auto run = [&](std::int64_t first, std::int64_t count, GuardedTensor& z, LossOptions options,
                               GuardedTensor& into) {
            for (std::size_t i = 0; i < 3; ++i) into.set(i, 0);
            GuardedTensor labels(ElementType::int32, count, 1), targets(ElementType::float32, count, outputs);
            for (std::int64_t row = 0; row < count; ++row) {
              labels.set(static_cast<std::size_t>(row), answers[static_cast<std::size_t>(first + row)]);
              for (std::int64_t o = 0; o < columns; ++o) {
                z.set(static_cast<std::size_t>(row * columns + o), value(first + row, o));
                if (o >= outputs) continue;
                targets.set(static_cast<std::size_t>(row * outputs + o),
                            static_cast<double>(there[static_cast<std::size_t>((first + row) * outputs + o)]));
              }
            }
            if (kind == Kind::softmax) {
              options.classes = outputs;
              return softmax_cross_entropy(nullptr, z.tensor(), labels.tensor(), options, into.tensor(), scratch,
                                           kHopper);
            }
            if (kind == Kind::labels) {
              return binary_cross_entropy(nullptr, z.tensor(), targets.tensor(), options, into.tensor(), scratch);
            }
            mean_error(nullptr, z.tensor(), targets.tensor(), options, into.tensor(), scratch);
          };
          for (std::size_t i = 0; i < weight.size(); ++i) weights.set(i, static_cast<double>(weight[i]));
          const LossOptions options{.scale = 0.25, .want_gradient = want_gradient, .smoothing = 0.1f};
          LossOptions weighted = options;
          weighted.weights = weights.tensor();
          run(0, rows, all, weighted, total);
          double loss = 0, metric = 0, found = 0;
          std::vector<double> expected;
          for (std::int64_t row = 0; row < rows; ++row) {
            GuardedTensor one(type, 1, columns);
            run(row, 1, one, options, sums);
            const auto factor = static_cast<double>(weight[static_cast<std::size_t>(row)]);
            if (answers[static_cast<std::size_t>(row)] == kNoClass) {
              for (const double v : one.values()) expected.push_back(want_gradient ? 0 : v);
              continue;
            }
            loss += factor * sums.get(0), metric += sums.get(1), found += sums.get(2);
            for (const double v : one.values()) expected.push_back(want_gradient ? factor * v : v);
          }
          EXPECT_NEAR(total.get(0), loss, 1e-6 * (1 + loss)) << what;
          EXPECT_NEAR(total.get(1), metric, 1e-9 * (1 + metric)) << what;
          EXPECT_NEAR(total.get(2), found, 1e-9 * (1 + found)) << what;
          expect_close(all.values(), expected, tolerance(type), what, 1e-7);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model::cuda
