// Compares kernels of the losses on the host with loops in float64.
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/kernel_harness.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

struct Rows {
  std::int64_t rows, classes, padding = 0;
};

/// Shared memory of a block on Hopper, which reads a long row of bf16 once. 0: every device.
constexpr std::size_t kHopper = 227 * 1024;

TEST(SoftmaxCrossEntropy, MatchesFloat64) {
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
    for (const auto [rows, classes, padding] : all) {
      for (const auto& [want_gradient, smoothing, shared_bytes] : {std::tuple{true, 0.0f, kHopper},
                                                                   {true, 0.1f, kHopper},
                                                                   {false, 0.0f, kHopper},
                                                                   {false, 0.2f, kHopper},
                                                                   {true, 0.0f, std::size_t{0}},
                                                                   {false, 0.2f, std::size_t{0}}}) {
        if (shared_bytes == 0 && (type != ElementType::bfloat16 || classes <= 512)) continue;  // same test
        // These cases are about grids that wrap around.
        const bool goes_round = smoothing == 0 && (padding > 0 ? type == ElementType::bfloat16 && shared_bytes > 0
                                                               : type == ElementType::float32 && want_gradient);
        if (rows > 1024 && !goes_round) continue;
        const std::size_t shift = static_cast<std::size_t>(rows) % 2;
        const std::string what = shape_name("softmax", type, rows, classes, shift) +
                                 fmt::format(" smoothing {}, {} columns of padding", smoothing, padding);
        const auto columns = static_cast<std::size_t>(classes + padding);
        const double scale = 0.125, of_each = double{smoothing} / static_cast<double>(classes);
        std::vector<double> z;
        const auto labels = model::test::labels(rows, classes);
        in_every_order(
            shift,
            [&, rows = rows, classes = classes, padding = padding, want_gradient = want_gradient, smoothing = smoothing,
             shared_bytes = shared_bytes](Tensors& t) {
              GuardedTensor& logits = t.add_filled("logits", type, rows, classes + padding, 8);
              GuardedTensor& answers = t.add("labels", ElementType::int32, rows, 1);
              for (std::size_t b = 0; b < answers.count(); ++b) answers.set(b, labels[b]);
              // Every third row is right, every fourth has its greatest logit twice.
              for (std::size_t b = 0; b < answers.count(); ++b) {
                const std::size_t row = b * columns;
                for (auto o = static_cast<std::size_t>(classes); o < columns; ++o) logits.set(row + o, 100);
                const auto label = static_cast<std::size_t>(labels[b]);
                if (b % 3 == 0) logits.set(row + label, 9);
                if (b % 4 == 0) logits.set(row + static_cast<std::size_t>(classes) - 1, 9);
              }
              z = logits.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              sums.set(0, 3);
              sums.set(1, 5);
              sums.set(2, 7);
              softmax_cross_entropy(nullptr, logits.tensor(), answers.tensor(),
                                    {.scale = scale,
                                     .want_gradient = want_gradient,
                                     .smoothing = smoothing,
                                     .classes = padding > 0 ? classes : 0},
                                    sums.tensor(), t.scratch(0), shared_bytes);
            },
            [&, classes = classes, want_gradient = want_gradient, smoothing = smoothing](Tensors& t) {
              double loss = 3, metric = 5, top5 = 7;
              std::vector<double> expected = z;
              for (std::size_t b = 0; b < labels.size(); ++b) {
                const auto row = std::span(z).subspan(b * columns, static_cast<std::size_t>(classes));
                const auto label = static_cast<std::size_t>(labels[b]);
                const auto greatest = std::ranges::max_element(row);
                double total = 0;
                for (const double v : row) total += std::exp(v - *greatest);
                metric += static_cast<std::size_t>(greatest - row.begin()) == label ? 1 : 0;
                int before = 0;
                for (std::size_t o = 0; o < row.size(); ++o) {
                  const double target = (o == label ? 1 - double{smoothing} : 0) + of_each;
                  if (target != 0) loss += target * (std::log(total) + *greatest - row[o]);
                  before += row[o] > row[label] || (row[o] == row[label] && o < label) ? 1 : 0;
                  if (want_gradient) {
                    expected[b * columns + o] = (std::exp(row[o] - *greatest) / total - target) * scale;
                  }
                }
                for (std::size_t o = row.size(); want_gradient && o < columns; ++o) {
                  expected[b * columns + o] = 0;
                  EXPECT_EQ(t["logits"].get(b * columns + o), 0) << what;
                }
                if (!want_gradient && before < 5) top5 += 1;
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-6 * std::abs(loss)) << what;
              EXPECT_EQ(t["sums"].get(1), metric) << what;
              EXPECT_EQ(t["sums"].get(2), top5) << what;
              if (!want_gradient) {
                ASSERT_EQ(t["logits"].values(), expected) << what;
              } else {
                // The gradient of a probability near 1 is a difference with no more digits than fp32 has for 1.
                const double floor = 1.2e-7 * scale * std::sqrt(static_cast<double>(labels.size()));
                expect_close(t["logits"].values(), expected, tolerance(type), what, floor);
              }
            },
            rows > 1024 ? 2 : 3);
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
  std::vector<Rows> all;
  for (const std::int64_t rows : {1, 3, 33}) {
    for (const std::int64_t classes : {2, 10, 31, 32, 33, 129}) all.push_back({rows, classes});
  }
  for (const Rows each : {Rows{257, 10}, Rows{257, 129}, Rows{2, 5003}, Rows{8200, 3}, Rows{5, 37, 3}, Rows{3, 3, 5}}) {
    all.push_back(each);
  }
  for (const ElementType type : kTypes) {
    for (const auto [rows, classes, padding] : all) {
      if (padding > 0 && type == ElementType::float32) continue;  // has no padding
      for (const auto& [want_gradient, smoothing, weighted] :
           {std::tuple{true, 0.0f, false}, {true, 0.1f, true}, {false, 0.0f, true}, {false, 0.2f, false}}) {
        // These cases are about grids that wrap around.
        if (rows > 1024 && weighted != (type == ElementType::float32)) continue;
        const std::size_t shift = static_cast<std::size_t>(rows) % 2;
        const std::string what = shape_name("soft", type, rows, classes, shift) + fmt::format(" padding {}", padding);
        const auto columns = static_cast<std::size_t>(classes + padding), count = static_cast<std::size_t>(classes);
        const double scale = 0.125, soft = double{smoothing};
        const auto target = model::test::probabilities(rows, classes);
        const auto weight = model::test::weights(rows);
        std::vector<double> z;
        in_every_order(
            shift,
            [&, rows = rows, classes = classes, padding = padding, want_gradient = want_gradient, smoothing = smoothing,
             weighted = weighted](Tensors& t) {
              GuardedTensor& logits = t.add_filled("logits", type, rows, classes + padding, 8);
              GuardedTensor& targets = t.add("targets", ElementType::float32, rows, classes);
              GuardedTensor& weights = t.add("weights", ElementType::float32, rows, 1);
              for (std::size_t i = 0; i < targets.count(); ++i) targets.set(i, static_cast<double>(target[i]));
              for (std::size_t i = 0; i < weights.count(); ++i) weights.set(i, static_cast<double>(weight[i]));
              z = logits.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              sums.set(0, 3);
              sums.set(1, 5);
              sums.set(2, 7);
              soft_cross_entropy(nullptr, logits.tensor(), targets.tensor(),
                                 {.scale = scale,
                                  .want_gradient = want_gradient,
                                  .smoothing = smoothing,
                                  .weights = weighted ? weights.tensor() : Tensor{}},
                                 sums.tensor(), t.scratch(0));
            },
            [&, want_gradient = want_gradient, weighted = weighted](Tensors& t) {
              double loss = 3, metric = 5, top5 = 7;
              std::vector<double> expected = z;
              for (std::size_t b = 0; b < z.size() / columns; ++b) {
                const auto row = std::span(z).subspan(b * columns, count);
                const auto own = std::span(target).subspan(b * count, count);
                const auto label = static_cast<std::size_t>(std::ranges::max_element(own) - own.begin());
                const double greatest = *std::ranges::max_element(row);
                const double factor = weighted ? static_cast<double>(weight[b]) : 1;
                double total = 0, sum = 0;
                int before = 0;
                const auto wanted = [&](std::size_t o) {
                  return (1 - soft) * static_cast<double>(own[o]) + soft / static_cast<double>(count);
                };
                for (const double v : row) total += std::exp(v - greatest);
                for (std::size_t o = 0; o < count; ++o) {
                  sum += wanted(o);
                  loss += factor * wanted(o) * (std::log(total) + greatest - row[o]);
                  before += row[o] > row[label] || (row[o] == row[label] && o < label) ? 1 : 0;
                }
                metric += before == 0 ? 1 : 0;
                top5 += !want_gradient && before < 5 ? 1 : 0;
                for (std::size_t o = 0; want_gradient && o < columns; ++o) {
                  expected[b * columns + o] =
                      o < count ? (std::exp(row[o] - greatest) / total * sum - wanted(o)) * scale * factor : 0;
                }
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-6 * std::abs(loss)) << what;
              EXPECT_EQ(t["sums"].get(1), metric) << what;
              EXPECT_EQ(t["sums"].get(2), top5) << what;
              if (!want_gradient) {
                ASSERT_EQ(t["logits"].values(), expected) << what;
              } else {
                const double floor = 1.2e-7 * scale * std::sqrt(static_cast<double>(z.size()));
                expect_close(t["logits"].values(), expected, tolerance(type), what, floor);
              }
            },
            rows > 1024 ? 2 : 3);
      }
    }
  }
}

TEST(SoftDice, MatchesFloat64) {
  struct Masks {
    std::int64_t samples, positions, classes, padding = 0;
  };
  for (const ElementType type : kTypes) {
    for (const auto [samples, positions, classes, padding] :
         {Masks{1, 1, 2}, Masks{3, 5, 3}, Masks{2, 300, 1}, Masks{2, 700, 4}, Masks{1, 9000, 3}, Masks{257, 2, 2},
          Masks{2, 40, 33}, Masks{2, 20, 300}, Masks{3, 17, 5, 3}}) {
      for (const bool want_gradient : {true, false}) {
        // This case is about the sum over more samples than a block has threads.
        if (samples > 256 && (type != ElementType::float32 || !want_gradient)) continue;
        const std::int64_t rows = samples * positions;
        const std::size_t shift = static_cast<std::size_t>(rows) % 2;
        const std::string what = shape_name("Dice", type, rows, classes, shift);
        const auto columns = static_cast<std::size_t>(classes + padding), count = static_cast<std::size_t>(classes);
        auto answers = model::test::labels(rows, classes);
        for (std::size_t i = 1; i < answers.size(); i += 4) answers[i] = kNoClass;
        const double scale = 0.125;
        std::vector<double> z;
        in_every_order(
            shift,
            [&, samples = samples, classes = classes, padding = padding](Tensors& t) {
              GuardedTensor& logits = t.add_filled("logits", type, rows, classes + padding, 4);
              GuardedTensor& labels = t.add("labels", ElementType::int32, rows, 1);
              for (std::size_t i = 0; i < answers.size(); ++i) labels.set(i, answers[i]);
              z = logits.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              GuardedTensor& work = t.add("work", ElementType::float64, samples, dice_work(classes));
              for (std::size_t i = 0; i < 3; ++i) sums.set(i, 3);
              soft_dice(nullptr, logits.tensor(), labels.tensor(),
                        {.scale = scale, .want_gradient = want_gradient, .classes = classes}, work.tensor(),
                        sums.tensor());
            },
            [&, samples = samples, positions = positions](Tensors& t) {
              double loss = 3, right = 3;
              std::vector<double> expected = z;
              const auto each = static_cast<std::size_t>(positions);
              const auto per_class = static_cast<double>(positions) / static_cast<double>(count);
              for (std::size_t sample = 0; sample < static_cast<std::size_t>(samples); ++sample) {
                std::vector<double> p(each * count), common(count), sizes(count);
                for (std::size_t i = 0; i < each; ++i) {
                  const std::size_t row = sample * each + i;
                  if (answers[row] == kNoClass) continue;
                  const auto own = std::span(z).subspan(row * columns, count);
                  const auto greatest = std::ranges::max_element(own);
                  double total = 0;
                  for (const double v : own) total += std::exp(v - *greatest);
                  for (std::size_t c = 0; c < count; ++c) {
                    const bool is_label = answers[row] == static_cast<std::int32_t>(c);
                    p[i * count + c] = std::exp(own[c] - *greatest) / total;
                    sizes[c] += p[i * count + c] + (is_label ? 1 : 0);
                    common[c] += is_label ? p[i * count + c] : 0;
                  }
                  right += greatest - own.begin() == answers[row] ? 1 : 0;
                }
                for (std::size_t c = 0; c < count; ++c) loss += per_class * (1 - (2 * common[c] + 1) / (sizes[c] + 1));
                for (std::size_t i = 0; want_gradient && i < each; ++i) {
                  const std::size_t row = sample * each + i;
                  const auto slope = [&](std::size_t c) {
                    const double t_c = answers[row] == static_cast<std::int32_t>(c) ? 1 : 0, whole = sizes[c] + 1;
                    return -per_class * (2 * t_c * whole - (2 * common[c] + 1)) / (whole * whole);
                  };
                  double mean = 0;
                  for (std::size_t c = 0; c < count; ++c) mean += slope(c) * p[i * count + c];
                  for (std::size_t c = 0; c < columns; ++c) {
                    expected[row * columns + c] = c < count ? p[i * count + c] * (slope(c) - mean) * scale : 0;
                  }
                }
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-6 * loss) << what;
              EXPECT_EQ(t["sums"].get(1), right) << what;
              EXPECT_EQ(t["sums"].get(2), 3) << what;
              if (!want_gradient) {
                ASSERT_EQ(t["logits"].values(), expected) << what;
              } else {
                expect_close(t["logits"].values(), expected, tolerance(type), what, 1e-7);
              }
            },
            samples > 256 ? 2 : 3);
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

TEST(MeanSquaredError, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, outputs] : shapes()) {
      for (const bool want_gradient : {true, false}) {
        const std::size_t shift = static_cast<std::size_t>(rows + outputs) % 2;
        const std::string what = shape_name("squared error", type, rows, outputs, shift);
        std::vector<double> p, target;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& predictions = t.add_filled("predictions", type, rows, outputs);
              GuardedTensor& targets = t.add_filled("targets", ElementType::float32, rows, outputs);
              p = predictions.values();
              target = targets.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              sums.set(0, 3);
              sums.set(1, 5);
              sums.set(2, 7);
              mean_error(nullptr, predictions.tensor(), targets.tensor(),
                         {.scale = 0.25, .want_gradient = want_gradient}, sums.tensor(), t.scratch(0));
            },
            [&](Tensors& t) {
              const auto count = static_cast<double>(outputs);
              double loss = 3, metric = 5;
              std::vector<double> expected = p;
              for (std::size_t i = 0; i < p.size(); ++i) {
                const double error = p[i] - target[i];
                loss += error * error / count;
                metric += std::abs(error) / count;
                if (want_gradient) expected[i] = 2 * error / count * 0.25;
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-12 * loss) << what;
              EXPECT_NEAR(t["sums"].get(1), metric, 1e-12 * metric) << what;
              EXPECT_EQ(t["sums"].get(2), 7) << what;
              expect_close(t["predictions"].values(), expected, want_gradient ? tolerance(type) : 0, what);
            });
      }
    }
  }
}

TEST(BinaryCrossEntropy, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, labels] : shapes()) {
      for (const auto& [want_gradient, smoothing] : {std::pair{true, 0.0f}, {true, 0.25f}, {false, 0.0f}}) {
        const std::size_t shift = static_cast<std::size_t>(rows + labels) % 2;
        const std::string what = shape_name("binary cross-entropy", type, rows, labels, shift);
        std::vector<double> z, target;
        in_every_order(
            shift,
            [&, rows = rows, labels = labels, want_gradient = want_gradient, smoothing = smoothing](Tensors& t) {
              GuardedTensor& logits = t.add_filled("logits", type, rows, labels, 6);
              GuardedTensor& targets = t.add("targets", ElementType::float32, rows, labels);
              const auto there = model::test::binary(rows * labels);
              for (std::size_t i = 0; i < targets.count(); ++i) targets.set(i, static_cast<double>(there[i]));
              z = logits.values();
              target = targets.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              sums.set(0, 3);
              sums.set(1, 5);
              sums.set(2, 7);
              binary_cross_entropy(nullptr, logits.tensor(), targets.tensor(),
                                   {.scale = 0.25, .want_gradient = want_gradient, .smoothing = smoothing},
                                   sums.tensor(), t.scratch(0));
            },
            [&, labels = labels, want_gradient = want_gradient, smoothing = smoothing](Tensors& t) {
              const auto count = static_cast<double>(labels), soft = static_cast<double>(smoothing);
              double loss = 3, right = 5, found = 7;
              std::vector<double> expected = z;
              for (std::size_t i = 0; i < z.size(); ++i) {
                const double wanted = target[i] * (1 - soft) + soft / 2, said = 1 / (1 + std::exp(-z[i]));
                loss -= (wanted * std::log(said) + (1 - wanted) * std::log(1 - said)) / count;
                right += (z[i] > 0) == (target[i] == 1) ? 1 / count : 0;
                found += z[i] > 0 && target[i] == 1 ? 1 / count : 0;
                if (want_gradient) expected[i] = (said - wanted) / count * 0.25;
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-6 * loss) << what;
              EXPECT_NEAR(t["sums"].get(1), right, 1e-12 * right) << what;
              EXPECT_NEAR(t["sums"].get(2), found, 1e-12 * found) << what;
              expect_close(t["logits"].values(), expected, want_gradient ? tolerance(type) : 0, what);
            });
      }
    }
  }
}

TEST(MeanError, OtherErrorsMatchFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, outputs] : shapes()) {
      for (const ErrorLoss of_error : {ErrorLoss::absolute, ErrorLoss::huber}) {
        const std::size_t shift = static_cast<std::size_t>(rows + outputs) % 2;
        const std::string what = shape_name("error", type, rows, outputs, shift);
        std::vector<double> p, target;
        in_every_order(
            shift,
            [&, rows = rows, outputs = outputs](Tensors& t) {
              GuardedTensor& predictions = t.add_filled("predictions", type, rows, outputs, 3);
              GuardedTensor& targets = t.add_filled("targets", ElementType::float32, rows, outputs);
              p = predictions.values();
              target = targets.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
              for (std::size_t i = 0; i < 3; ++i) sums.set(i, 3);
              mean_error(nullptr, predictions.tensor(), targets.tensor(),
                         {.scale = 0.25, .want_gradient = true, .of_error = of_error}, sums.tensor(), t.scratch(0));
            },
            [&, outputs = outputs](Tensors& t) {
              const auto count = static_cast<double>(outputs);
              double loss = 3, metric = 3;
              std::vector<double> expected = p;
              for (std::size_t i = 0; i < p.size(); ++i) {
                const double error = p[i] - target[i], size = std::abs(error);
                const bool within = of_error == ErrorLoss::huber && size <= 1;
                loss += (of_error == ErrorLoss::absolute ? size : within ? error * error / 2 : size - 0.5) / count;
                metric += size / count;
                expected[i] = (within ? error : error > 0 ? 1 : error < 0 ? -1 : 0) / count * 0.25;
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-12 * loss) << what;
              EXPECT_NEAR(t["sums"].get(1), metric, 1e-12 * metric) << what;
              expect_close(t["predictions"].values(), expected, tolerance(type), what);
            });
      }
    }
  }
}

/// For every kernel of the losses: weighted rows together equal the sum of single rows, each times its weight.
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
