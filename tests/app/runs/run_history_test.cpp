/// Runs as pages and pictures, from made-up folders.
#include "app/runs/run_history.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/train_options.hpp"
#include "app/runs/run_charts.hpp"
#include "app/runs/run_page.hpp"
#include "app/runs/run_ranking.hpp"
#include "app/runs/sweep.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class RunsTest : public testing::Test {
 protected:
  /// A run of 20 steps, validated twice: best with `accuracy` at step 10.
  fs::path make(const std::string& name, double accuracy, double rate = 0.1) const {
    const fs::path run = folder_ / name;
    fs::create_directories(run);
    TrainOptions options;
    options.data.path = "/data/<odd>";
    options.network.name = "linear";
    options.schedule.base = rate;
    std::ofstream(run / "config.ini") << options.to_ini();
    std::ofstream(run / "log.txt") << "lockstep 0.1.0\nold plan\nstep 1/20  loss 3\nlockstep 0.1.0\nnew plan & more\n"
                                      "step 11/20  loss 2\n";
    std::ofstream metrics(run / "metrics.jsonl");
    metrics << R"({"kind":"start","step":0,"epoch":0.0,"ranks":2,"time":"2026-01-02 03:04:05 UTC"})"
            << "\n";
    for (int step = 5; step <= 20; step += 5) {
      metrics << io::to_json_line({{"kind", "train"},
                                   {"step", std::int64_t{step}},
                                   {"epoch", step / 10.0},
                                   {"loss", 100.0 / step},
                                   {"accuracy", 0.5},
                                   {"learning_rate", rate},
                                   {"gradient_norm", 1.0},
                                   {"samples_per_second", 100.0},
                                   {"input_seconds", 0.1},
                                   {"compute_seconds", 0.2},
                                   {"communication_seconds", 0.3},
                                   {"other_seconds", 0.4}})
              << "\n";
      if (step % 10 == 0) {
        metrics << io::to_json_line({{"kind", "validation"},
                                     {"step", std::int64_t{step}},
                                     {"epoch", step / 10.0},
                                     {"loss", 10.0 / step},
                                     {"accuracy", step == 10 ? accuracy : 0.1},
                                     {"seconds", 0.5}})
                << "\n";
      }
    }
    metrics << R"({"kind":"end","step":20,"how":"done"})"
            << "\n{ torn";
    return run;
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(RunsTest, AFolderTellsWhatARunHasComeTo) {
  const RunHistory run = read_run(make("a", 0.75), "a");
  EXPECT_EQ(run.metric, "accuracy");
  EXPECT_EQ(run.plan, "lockstep 0.1.0\nnew plan & more\n");
  EXPECT_EQ(run.problem, "");
  const RunSummary summary = summary_of(run);
  EXPECT_EQ(summary.steps, 20);
  EXPECT_EQ(summary.best, 0.75);
  EXPECT_EQ(summary.best_step, 10);
  EXPECT_EQ(summary.best_validation_loss, 1);
  EXPECT_EQ(summary.best_training_loss, 10);
  EXPECT_EQ(summary.validation_loss, 0.5);
  EXPECT_EQ(summary.training_loss, 5);
  EXPECT_EQ(summary.state, "done");
  RunHistory later = run;
  later.records.push_back({{"kind", "validation"}, {"step", std::int64_t{25}}, {"loss", 1.0}, {"training_loss", 4.5}});
  EXPECT_EQ(summary_of(later).training_loss, 4.5);
  EXPECT_EQ(summary.starts, 1);
  EXPECT_DOUBLE_EQ(summary.split.total, 4);
  EXPECT_DOUBLE_EQ(summary.rate, 100);
  EXPECT_DOUBLE_EQ(summary.steps_per_second, 5);
  RunHistory of_another = run;
  of_another.records[0] = {{"kind", "start"}, {"step", std::int64_t{4}}};  // steps 1 to 4 are in no record
  EXPECT_DOUBLE_EQ(summary_of(of_another).steps_per_second, 4);
  EXPECT_DOUBLE_EQ(summary.validation_seconds, 1);
  EXPECT_THROW(read_run(folder_, "none"), io::FileError);
}

TEST_F(RunsTest, AreFoundInAFolderInTheOrderOfTheirNumbers) {
  for (const char* name : {"10", "2", "1"}) make(name, 0.5);
  std::vector<std::string> names;
  for (const RunHistory& run : read_runs({folder_ / ""})) names.push_back(run.folder.filename());
  EXPECT_THAT(names, ElementsAre("1", "2", "10"));
}

TEST_F(RunsTest, AreRankedWithWhatDiffers) {
  make("1", 0.5, 0.1), make("2", 0.9, 0.01), make("3", 0.7, 0.1);
  const std::vector<RunHistory> runs = read_runs({folder_});
  EXPECT_THAT(ranking_of(runs), ElementsAre(1, 2, 0));
  const std::vector<DifferentOption> different = differences_of(runs);
  ASSERT_EQ(different.size(), 1u);
  EXPECT_EQ(different[0].name, "learning-rate");
  EXPECT_THAT(different[0].values, ElementsAre("0.1", "0.01", "0.1"));
  EXPECT_THAT(format_ranking(runs), AllOf(HasSubstr("--learning-rate"), HasSubstr("90.00 %")));
}

TEST_F(RunsTest, AreRankedByTheMetricOfTheirValidations) {
  using enum BestBy;
  struct Case {
    BestBy by;
    const char* key;
    const char* usual;
    bool greater_is_better;
  };
  for (const Case& one :
       {Case{usual, "accuracy", "accuracy", true}, Case{usual, "perplexity", "perplexity", false},
        Case{mean_iou, "mean_iou", "accuracy", true}, Case{accuracy, "accuracy", "accuracy", true},
        Case{accuracy, "class_accuracy", "mean_absolute_error", true}, Case{loss, "loss", "accuracy", false},
        Case{f1, "f1", "label_accuracy", true}, Case{f1_macro, "f1_macro", "label_accuracy", true},
        Case{roc_auc, "roc_auc", "accuracy", true}, Case{balanced_accuracy, "balanced_accuracy", "accuracy", true},
        Case{mean_absolute_error, "mean_absolute_error", "mean_absolute_error", false}}) {
    for (const char* name : {"1", "2"}) {
      fs::create_directories(folder_ / name);
      TrainOptions options;
      options.validation.best_by = one.by;
      std::ofstream(folder_ / name / "config.ini") << options.to_ini();
      io::MetricRecord record{{"kind", "validation"}, {"step", std::int64_t{1}}, {one.key, *name == '1' ? 0.5 : 0.75}};
      if (one.usual != std::string_view(one.key)) record.emplace_back(one.usual, *name == '1' ? 0.2 : 0.1);
      std::ofstream(folder_ / name / "metrics.jsonl") << io::to_json_line(record) << "\n";
    }
    const std::vector<RunHistory> runs = read_runs({folder_});
    EXPECT_EQ(runs[0].metric, one.key);
    EXPECT_EQ(summary_of(runs[1]).best, 0.75) << one.key;
    EXPECT_EQ(ranking_of(runs)[0], one.greater_is_better ? 1u : 0u) << one.key;
  }
}

TEST_F(RunsTest, OptionsThatDifferStandBesideTheMetric) {
  make("1", 0.5, 0.1), make("2", 0.9, 0.01);
  const std::vector<RunHistory> runs = read_runs({folder_});
  EXPECT_THAT(format_ranking(runs), HasSubstr("accuracy  --learning-rate  at step"));
  EXPECT_THAT(format_ranking(runs), testing::ContainsRegex(" 20 +5 "));      // steps, and those per second
  EXPECT_THAT(format_ranking(runs), testing::ContainsRegex(" 10 +1 +20 "));  // the best step, its loss, steps
  EXPECT_EQ(different_options(differences_of(runs), 1), "--learning-rate 0.01");
}

TEST_F(RunsTest, OnlyTheSameMetricOnTheSameDataIsCompared) {
  make("1", 0.5), make("2", 0.9), make("3", 0.7), make("4", 0.8), make("5", 0.6);
  std::vector<RunHistory> runs = read_runs({folder_});
  runs[1].validation_path = "/data/other";
  runs[2].metric = "mean_absolute_error";
  for (io::MetricRecord& record : runs[2].records) {
    for (auto& entry : record) entry.first = entry.first == "accuracy" ? "mean_absolute_error" : entry.first;
  }
  std::vector<RunGroup> groups = groups_of(runs);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].title, "accuracy on /data/<odd>");
  EXPECT_EQ(groups[0].runs.size(), 3u);
  EXPECT_EQ(groups[1].title, "accuracy on /data/other");
  EXPECT_EQ(groups[2].title, "mean absolute error on /data/<odd>");
  EXPECT_THAT(ranking_of(runs), ElementsAre(3, 4, 0, 1, 2));
  EXPECT_THAT(format_ranking(runs), AllOf(HasSubstr("accuracy on /data/other:\n"), HasSubstr("1.  "), HasSubstr("3.  "),
                                          Not(HasSubstr("4.  "))));
  const std::string page = page_of(runs);
  EXPECT_THAT(page, AllOf(HasSubstr("3 groups"), HasSubstr("id=\"group-1-ranking-table\""),
                          HasSubstr("id=\"group-2-loss\""), HasSubstr("Course of training: mean absolute error on")));

  // The records' description of the data has priority over the path.
  for (RunHistory& run : runs) run.validation_data = "same";
  EXPECT_EQ(groups_of(runs).size(), 2u);
  runs[0].validation_data = "another";
  EXPECT_EQ(groups_of(runs).size(), 3u);
}

TEST_F(RunsTest, GroupsOfOnePathSayHowTheirDataAreRecorded) {
  make("1", 0.5), make("2", 0.9), make("3", 0.7);
  std::vector<RunHistory> runs = read_runs({folder_});
  runs[0].validation_data = "0123456789", runs[1].validation_data = "9876543210";
  runs[2].validation_data = "0123456789";
  const std::vector<RunGroup> groups = groups_of(runs);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].title, "accuracy on /data/<odd>, recorded as 01234567");
  EXPECT_EQ(groups[1].title, "accuracy on /data/<odd>, recorded as 98765432");
}

TEST_F(RunsTest, ARunOfAnOlderVersionIsComparedByItsFilesAlone) {
  make("1", 0.5), make("2", 0.9);
  std::vector<RunHistory> runs = read_runs({folder_});
  runs[0].validation_data = "files";
  runs[1].validation_data = "contents", runs[1].validation_files = "files";
  EXPECT_EQ(groups_of(runs).size(), 1u);
  runs[0].validation_data = "other files";
  EXPECT_EQ(groups_of(runs).size(), 2u);
}

TEST_F(RunsTest, ARunThatHasNotReportedGoesWithThoseOnItsData) {
  make("1", 0.5), make("2", 0.9);
  std::vector<RunHistory> runs = read_runs({folder_});
  runs[0].records.clear();
  runs[0].metric.clear();
  EXPECT_EQ(groups_of(runs).size(), 1u);
  EXPECT_THAT(format_ranking(runs), HasSubstr("accuracy"));
}

TEST_F(RunsTest, CurvesGoAlongStepsEpochsOrTime) {
  const RunHistory run = read_run(make("a", 0.75), "a");
  const auto places = [&](std::string_view kind, Progress along) {
    std::vector<double> x;
    for (const ChartPoint& point : curve_of(run, kind, "loss", along)) x.push_back(point.x);
    return x;
  };
  EXPECT_THAT(places("validation", Progress::steps), ElementsAre(10, 20));
  EXPECT_THAT(places("validation", Progress::epochs), ElementsAre(1, 2));
  EXPECT_THAT(places("train", Progress::time),
              ElementsAre(testing::DoubleEq(1), testing::DoubleEq(2), testing::DoubleEq(3.5), testing::DoubleEq(4.5)));
  EXPECT_THAT(places("validation", Progress::time), ElementsAre(testing::DoubleEq(2.5), testing::DoubleEq(5)));
  const std::vector<RunChart> charts = charts_of({run}, {}, Progress::time);
  EXPECT_EQ(charts[0].chart.x.title, "time");
}

TEST_F(RunsTest, WhatAConstantReachesIsALineOfTheChart) {
  RunHistory run = read_run(make("a", 0.75), "a");
  for (io::MetricRecord& record : run.records) {
    if (string_of(record, "kind") == "validation") record.emplace_back("constant_accuracy", 0.25);
  }
  for (const RunChart& picture : charts_of({run}, {})) {
    const ChartSeries& last = picture.chart.series.back();
    EXPECT_EQ(last.reference, picture.id == "accuracy");
    if (last.reference) {
      EXPECT_EQ(last.points.back().y, 25);
    }
  }
}

TEST_F(RunsTest, APageIsOneFileThatNeedsNothing) {
  make("1", 0.5, 0.1), make("2", 0.9, 0.01);
  const std::vector<RunHistory> both = read_runs({folder_});
  for (const std::string& page : {page_of(both), page_of({both[0]})}) {
    EXPECT_THAT(page, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("<h2 id=\"pictures\">"), HasSubstr("</html>"),
                            HasSubstr("prefers-color-scheme:dark"), HasSubstr("new plan &amp; more")));
    // The page loads no address: it contains only names of standards.
    EXPECT_THAT(page, AllOf(Not(HasSubstr("src=")), Not(HasSubstr("<link")), Not(HasSubstr("url(http")),
                            Not(HasSubstr("@import")), Not(HasSubstr("<odd>"))));
    EXPECT_THAT(page, HasSubstr("<tr data-x=\"20\" data-y=\"5\">"));
  }
  EXPECT_THAT(page_of(both), AllOf(HasSubstr("Ranking"), HasSubstr("--learning-rate")));
  EXPECT_THAT(page_of({both[1]}), AllOf(HasSubstr("90.00 %"), HasSubstr("began 2026-01-02 03:04:05 UTC")));
}

TEST_F(RunsTest, ARunThatHasReportedNothingHasAPage) {
  const fs::path run = folder_ / "new";
  fs::create_directories(run);
  std::ofstream(run / "metrics.jsonl");
  const RunHistory history = read_run(run, "new");
  EXPECT_THAT(history.problem, testing::IsEmpty());
  EXPECT_TRUE(charts_of({history}, {}).empty());
  EXPECT_THAT(page_of({history}), HasSubstr("</html>"));
}

TEST_F(RunsTest, RunsOfOtherEpochsAreComparedByEpochs) {
  make("1", 0.5);
  EXPECT_EQ(progress_of(read_runs({folder_})), Progress::steps);
  fs::create_directories(folder_ / "2");
  std::ofstream(folder_ / "2" / "metrics.jsonl") << R"({"kind":"train","step":20,"epoch":1.0,"loss":2.0})"
                                                 << "\n";
  EXPECT_EQ(progress_of(read_runs({folder_})), Progress::epochs);
}

TEST(RunCharts, LongLinesKeepTheirExtremes) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10000; ++i) points.push_back({static_cast<double>(i), i == 7777 ? 100.0 : i % 7 / 7.0});
  const std::vector<ChartPoint> few = thinned(points, 400);
  EXPECT_LE(few.size(), 402u);
  EXPECT_EQ(few.front().x, 0);
  EXPECT_EQ(few.back().x, 9999);
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](const ChartPoint& p) { return p.y == 100; }));
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
  EXPECT_EQ(thinned(points, 20000).size(), points.size());
}

TEST(RunCharts, NamesWithoutTheFoldersThatAllHave) {
  const auto named = [](const char* name) { return RunHistory{.folder = name, .name = name}; };
  EXPECT_THAT(short_names({named("runs/sweep/1"), named("runs/sweep/2")}), ElementsAre("1", "2"));
  EXPECT_THAT(short_names({named("runs/a"), named("other")}), ElementsAre("runs/a", "other"));
  EXPECT_THAT(short_names({named("runs/a")}), ElementsAre("runs/a"));
}

TEST(Sweep, HalvesDownToOne) {
  EXPECT_EQ(rungs_of(1), 1);
  EXPECT_EQ(rungs_of(2), 2);
  EXPECT_EQ(rungs_of(5), 4);  // 5, 3, 2, 1
  EXPECT_EQ(rungs_of(8), 4);
  EXPECT_EQ(share_of_steps(0, 4), 0.125);
  EXPECT_EQ(share_of_steps(3, 4), 1);
  const auto result = [](std::optional<double> metric, const char* key) {
    return SweepResult{.line = "", .metric_key = key, .metric = metric, .exit_code = metric ? 0 : 1};
  };
  EXPECT_THAT(better_half({1, 2, 3, 4, 5}, {result(0.1, "accuracy"), result(0.9, "accuracy"), result(0.5, "accuracy"),
                                            result({}, ""), result(0.5, "accuracy")}),
              ElementsAre(2, 3, 5));
  EXPECT_THAT(better_half({7, 9}, {result(3.5, "perplexity"), result(2.5, "perplexity")}), ElementsAre(9));
  EXPECT_THAT(better_half({7, 9}, {result(0.5, "f1"), result(0.6, "f1")}), ElementsAre(9));
  EXPECT_THAT(better_half({1}, {result({}, "")}), testing::IsEmpty());
  EXPECT_THROW(better_half({7, 8, 9}, {result({}, ""), result(0.5, "f1"), result(0.6, "loss")}), io::FileError);
}

TEST_F(RunsTest, ATaskOfASweepHasOneOwner) {
  const SweepTask task{.rung = 0, .setting = 3};
  SweepFolder first(folder_), second(folder_);
  EXPECT_TRUE(first.claim(task));
  EXPECT_FALSE(second.claim(task));
  first.release();
  EXPECT_TRUE(second.claim(task));
  EXPECT_FALSE(second.result(task));
  second.record(task, {.line = "--l2 1", .metric_key = "accuracy", .metric = 0.5});
  ASSERT_TRUE(first.result(task));
  EXPECT_EQ(first.result(task)->metric, 0.5);
  EXPECT_EQ(first.result(task)->line, "--l2 1");
  second.release();
  // A process that died here, and one elsewhere that has been silent for long.
  const fs::path claim = folder_ / "sweep" / "rung-1-setting-3.claim";
  std::ofstream(claim) << "elsewhere 1";
  EXPECT_FALSE(first.claim(task));
  fs::last_write_time(claim, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(first.claim(task));
}

}  // namespace
}  // namespace lockstep::app
