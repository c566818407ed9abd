#include "app/engine/answer_metric.hpp"

#include <bit>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "comm/host/serial_communicator.hpp"

namespace lockstep::app {
namespace {

std::uint64_t scored(float score, bool positive) {
  return std::bit_cast<std::uint32_t>(score) + (positive ? kPositive : 0);
}

TEST(AreaUnderRoc, CountsPairsAndTiesByHalf) {
  std::vector<std::uint64_t> apart{scored(0.9f, true), scored(0.2f, false), scored(0.8f, true), scored(0, false)};
  EXPECT_EQ(area_under_roc(apart), 1);
  std::vector<std::uint64_t> wrong{scored(0.1f, true), scored(0.2f, false)};
  EXPECT_EQ(area_under_roc(wrong), 0);
  std::vector<std::uint64_t> equal{scored(0.5f, true), scored(0.5f, false), scored(0.5f, false)};
  EXPECT_EQ(area_under_roc(equal), 0.5);
  // Pairs: 0.4 against 0.4 (a half) and 0.1 (one); 0.3 against 0.4 (none) and 0.1 (one).
  std::vector<std::uint64_t> mixed{scored(0.3f, true), scored(0.4f, false), scored(0.4f, true), scored(0.1f, false)};
  EXPECT_EQ(area_under_roc(mixed), 2.5 / 4);
  std::vector<std::uint64_t> alike{scored(0.3f, true), scored(0.4f, true)};
  EXPECT_TRUE(std::isnan(area_under_roc(alike)));
  EXPECT_TRUE(std::isnan(area_under_roc({})));
}

class AnswerMetrics : public ::testing::Test {
 protected:
  static Task task(std::int64_t outputs, BestBy by, model::LossKind loss = model::LossKind::softmax_cross_entropy) {
    Task made(loss, *model::make_network({.name = "linear"}, {.features = 2, .outputs = outputs, .image = {}}));
    made.choose(by);
    return made;
  }
  template <class Target>
  double metric(const Task& of, std::vector<float> logits, std::vector<Target> targets) {
    AnswerMetric metric(of);
    metric.add(logits, std::as_bytes(std::span(targets)));
    return metric.over_all(communicator_);
  }

  comm::SerialCommunicator communicator_;
  // Six samples of three classes; the third class is never the answer, and a fourth has no samples.
  std::vector<float> logits_{3, 1, 0, -9, 3, 1, 0, -9, 1, 3, 0, -9, 0, 5, 1, -9, 2, 1, 0, -9, 0, 1, 0, -9};
  std::vector<std::int32_t> classes_{0, 0, 0, 1, 2, 1};
};

TEST_F(AnswerMetrics, BalancedAccuracyIsTheMeanOfRecalls) {
  EXPECT_DOUBLE_EQ(metric(task(4, BestBy::balanced_accuracy), logits_, classes_), (2.0 / 3 + 1 + 0) / 3);
}

TEST_F(AnswerMetrics, MacroF1IsTheMeanOverClassesThatAreThereOrAnswered) {
  EXPECT_DOUBLE_EQ(metric(task(4, BestBy::f1_macro), logits_, classes_), (2 * 2.0 / 6 + 2 * 2.0 / 5 + 0) / 3);
}

TEST_F(AnswerMetrics, LabelsEachCountByThemselves) {
  const std::vector<float> there{1, 0, 1, 1, 0, 0, 0, 0};
  const std::vector<float> logits{2, -1, 1, -1, -1, -1, 3, -2};
  const Task f1 = task(2, BestBy::f1_macro, model::LossKind::binary_cross_entropy);
  EXPECT_DOUBLE_EQ(metric(f1, logits, there), (2 * 2.0 / 5 + 0) / 2);
  const Task area = task(2, BestBy::roc_auc, model::LossKind::binary_cross_entropy);
  EXPECT_DOUBLE_EQ(metric(area, logits, there), (2.0 / 4 + 2.0 / 3) / 2);
}

TEST_F(AnswerMetrics, TwoClassesHaveOneArea) {
  const std::vector<std::int32_t> classes{1, 0, 1};
  EXPECT_EQ(metric(task(2, BestBy::roc_auc), {0, 1, 0, 0.5f, 0, -1}, classes), 0.5);
  EXPECT_TRUE(std::isnan(metric(task(2, BestBy::roc_auc), {0, 1, 0, 0.5f}, std::vector<std::int32_t>{1, 1})));
}

TEST_F(AnswerMetrics, AnAnswerThatIsNoNumberSpoilsTheMetric) {
  const std::vector<std::int32_t> classes{1, 0};
  for (const BestBy by : {BestBy::roc_auc, BestBy::f1_macro}) {
    EXPECT_TRUE(std::isnan(metric(task(2, by), {0, std::nanf(""), 0, 1}, classes)));
  }
}

TEST_F(AnswerMetrics, MetricsThatDoNotFitAreRefused) {
  const auto refused = [](std::int64_t outputs, BestBy by, model::LossKind loss) {
    EXPECT_THROW(task(outputs, by, loss), UsageError);
  };
  refused(1, BestBy::roc_auc, model::LossKind::huber);
  refused(3, BestBy::mean_absolute_error, model::LossKind::softmax_cross_entropy);
  refused(3, BestBy::balanced_accuracy, model::LossKind::binary_cross_entropy);
  EXPECT_STREQ(task(1, BestBy::loss, model::LossKind::huber).best_key(), "loss");
  EXPECT_TRUE(task(3, BestBy::loss).is_better(0.1, 0.2));
  EXPECT_TRUE(task(3, BestBy::roc_auc).is_better(0.2, 0.1));
}

}  // namespace
}  // namespace lockstep::app
