#include "app/plan/task.hpp"

#include <cmath>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Task task_of(std::int64_t classes, model::LossKind loss = model::LossKind::softmax_cross_entropy) {
  return Task(loss, *model::make_network({.name = "linear"}, {.features = 2, .outputs = classes, .image = {}}));
}

Task language(const BytesPerToken& bytes_per_token) {
  const auto network =
      model::make_network({.name = "gpt"}, {.features = 8, .outputs = 20, .image = {}, .tokens = true});
  return Task(model::LossKind::softmax_cross_entropy, *network, bytes_per_token);
}

TEST(Task, ClassesAreCountedAndSoAreTheFirstFiveOfManyClasses) {
  const Score score = task_of(10).score({.loss = 5, .metric = 6, .found = 9}, 10, false);
  EXPECT_DOUBLE_EQ(score.loss, 0.5);
  EXPECT_EQ(task_of(10).format_evaluation(score), "loss 0.5  accuracy 60.00 %  top-5 90.00 %  (10 samples)");
  EXPECT_LT(task_of(10).score({.loss = 5, .metric = 6, .found = 9}, 10, true).top5, 0);
  EXPECT_THAT(task_of(9).format_evaluation(task_of(9).score({.found = 9}, 10, false)), Not(HasSubstr("top-5")));
  EXPECT_TRUE(task_of(10).is_better(0.9, 0.8));
}

TEST(Task, ZeroAndNanHaveNoSign) {
  const Task task = task_of(1, model::LossKind::mean_squared_error);
  const double none = -std::nan("");
  EXPECT_EQ(task.format_evaluation(task.score({.loss = none, .metric = none}, 1, false)),
            "loss nan  mean absolute error nan  (1 sample)");
  EXPECT_EQ(task.format_evaluation(task.score({.loss = -0.0, .metric = -0.0}, 2, false)),
            "loss 0  mean absolute error 0  (2 samples)");
}

TEST(Task, ErrorsAreBetterWhenSmaller) {
  const Task task = task_of(1, model::LossKind::mean_squared_error);
  EXPECT_STREQ(task.metric_key(), "mean_absolute_error");
  EXPECT_TRUE(task.is_better(0.1, 0.2));
}

/// 10 samples of 4 labels: 30 of the 40 answers are right, 5 labels are true and found.
TEST(Task, LabelsAreCountedAndSoIsWhatIsFoundOfThem) {
  const Task task = task_of(4, model::LossKind::binary_cross_entropy);
  const Score score = task.score({.loss = 3, .metric = 7.5, .found = 1.25}, 10, false);
  EXPECT_DOUBLE_EQ(score.f1, 0.5) << "10 / (10 + 10)";
  EXPECT_EQ(task.format_evaluation(score), "loss 0.3  label accuracy 75.00 %  F1 0.5000  (10 samples)");
  EXPECT_EQ(io::to_json_line(task.record(score)), R"({"loss":0.3,"label_accuracy":0.75,"f1":0.5})");
  EXPECT_LT(task.score({.metric = 7.5}, 10, true).f1, 0);
  EXPECT_LT(task.score({.metric = 10}, 10, false).f1, 0) << "nothing is there, nothing is said";
  EXPECT_TRUE(task.is_better(0.9, 0.8));
  EXPECT_EQ(task.format_metric(0.75), "75.00 %");
}

/// 10 samples of 8 tokens; a loss of ln 4 nats is 2 bits a token.
TEST(Task, LanguageIsMeasuredPerTokenAndPerByte) {
  const Task task = language({.trained = 2, .evaluated = 4});
  const Score score = task.score({.loss = 80 * std::log(4.0), .metric = 40}, 10, false);
  EXPECT_NEAR(score.metric, 4, 1e-12);
  EXPECT_EQ(task.format(score), "perplexity 4  bits per byte 0.5000");
  EXPECT_THAT(task.format_evaluation(score), HasSubstr("(80 tokens)"));
  EXPECT_TRUE(task.is_better(4, 5));
  EXPECT_EQ(io::to_json_line(task.record(score)),
            R"({"loss":1.3862943611198906,"perplexity":4.0,"bits_per_byte":0.5})");
  const Score trained = task.score({.loss = 80 * std::log(4.0)}, 10, true);
  EXPECT_EQ(task.format(trained), "perplexity 4  bits per byte 1.0000")
      << "the texts of training and validation differ";
  const Task unknown = language({});
  EXPECT_EQ(unknown.format(unknown.score({.loss = 80 * std::log(4.0)}, 10, false)), "perplexity 4");
}

}  // namespace
}  // namespace lockstep::app
