#include "app/check/check_report.hpp"

#include "app/check/check.hpp"
#include "app/check/synthetic_facts.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kHosts{"node1", "node2", "node3", "node4", "node5"};

Finding finding(Severity severity, std::vector<std::string> hosts = {}) {
  return {.severity = severity, .what = "something", .where = "there", .remedy = "mend it", .hosts = std::move(hosts)};
}

TEST(CheckReport, OneLineForEachSubject) {
  EXPECT_EQ(format_subject({.name = "data", .summary = "3 files"}), "data          ok       3 files");
  EXPECT_EQ(format_subject({.name = "data", .summary = "no --data", .looked_at = false}),
            "data          -        no --data");
  EXPECT_THAT(format_subject({.name = "a", .summary = "b", .findings = {finding(Severity::warning)}}),
              HasSubstr(" warning "));
  EXPECT_THAT(
      format_subject({.name = "a", .summary = "b", .findings = {finding(Severity::error), finding(Severity::warning)}}),
      HasSubstr(" error "));
}

TEST(CheckReport, EndsWithOk) {
  std::vector<Subject> subjects{{.name = "a", .summary = "b"}};
  EXPECT_EQ(format_verdict(subjects, kHosts), "OK");
  EXPECT_FALSE(has_errors(subjects));
  EXPECT_EQ(first_error(subjects), "");
  subjects[0].findings = {finding(Severity::warning)};
  EXPECT_EQ(format_verdict(subjects, kHosts),
            "1. warning: something\n   where: there\n   do:    mend it\nOK, with 1 warning");
  EXPECT_FALSE(has_errors(subjects));
}

TEST(CheckReport, EndsWithWhatToFix) {
  const std::vector<Subject> subjects{
      {.name = "a", .summary = "b", .findings = {finding(Severity::warning), finding(Severity::error, {"node2"})}}};
  EXPECT_EQ(format_verdict(subjects, kHosts),
            "1. error: something\n   where: there\n   do:    mend it\n"
            "2. warning: something\n   where: there\n   do:    mend it\n"
            "To leave out the hosts at fault, tell Slurm:\n--exclude=node2\nNOT OK: 1 error to fix, 1 warning");
  EXPECT_TRUE(has_errors(subjects));
  EXPECT_EQ(first_error(subjects), "something");
}

TEST(CheckReport, ExcludesFewHosts) {
  const auto exclude = [](std::vector<Finding> findings) {
    return exclude_line(std::vector<Subject>{{.name = "a", .summary = "b", .findings = std::move(findings)}}, kHosts);
  };
  EXPECT_EQ(exclude({}), "");
  EXPECT_EQ(exclude({finding(Severity::error)}), "");
  EXPECT_EQ(exclude({finding(Severity::error, {"node4"}), finding(Severity::warning, {"node2"})}),
            "--exclude=node2,node4");
  EXPECT_EQ(exclude({finding(Severity::error, {"node4"}), finding(Severity::warning, {"node1", "node2"})}),
            "--exclude=node4")
      << "with the warnings too few hosts would be left";
  EXPECT_EQ(exclude({finding(Severity::error, {"node1", "node2", "node3"})}), "");
  Finding busy = finding(Severity::warning, {"node1", "node2"});
  busy.busy = true;
  EXPECT_EQ(exclude({busy}), "--exclude=node1,node2");
  EXPECT_EQ(exclude({busy, finding(Severity::warning, {"node4"})}), "--exclude=node4")
      << "busy hosts hide no host with a fault of its own";
}

TEST(CheckReport, ListsSome) {
  EXPECT_EQ(list_some({}), "");
  const std::vector<std::string> names{"a", "b", "c", "d"};
  EXPECT_EQ(list_some(std::span(names).first(1)), "a");
  EXPECT_EQ(list_some(names), "a, b, c and d");
  EXPECT_EQ(list_some(names, 2), "a, b and 2 more");
}

TEST(CheckReport, ForMachines) {
  const std::vector<Subject> subjects{
      {.name = "a", .summary = "b", .findings = {finding(Severity::error, {"node1", "node2"})}}};
  const std::vector<io::MetricRecord> records = to_records(subjects);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(io::to_json_line(records[0]), R"({"kind":"subject","subject":"a","state":"error","summary":"b"})");
  EXPECT_THAT(io::to_json_line(records[1]), HasSubstr(R"("severity":"error","what":"something","where":"there")"));
  EXPECT_THAT(io::to_json_line(records[1]), HasSubstr(R"("hosts":"node1,node2")"));
}

TEST(CheckOptionsTest, TakesTheOptionsOfTrain) {
  const CheckOptions o = parse_check({"--seconds", "2", "--data", "d", "--hidden", "8", "--batch", "4", "--json", "f"});
  EXPECT_EQ(o.seconds, 2);
  EXPECT_EQ(o.train.data.path, "d");
  EXPECT_EQ(o.train.work.batch, 4);
  EXPECT_EQ(o.json, "f");
  EXPECT_TRUE(parse_check({}).train.data.path.empty());
  const auto complaint = [](const std::vector<std::string>& arguments) -> std::string {
    return test::message_of<UsageError>([&] { parse_check(arguments); });
  };
  EXPECT_THAT(complaint({"--second", "2"}), HasSubstr("did you mean --seconds?"));
  EXPECT_THAT(complaint({"--seconds", "0"}), HasSubstr("--seconds"));
  EXPECT_THAT(complaint({"--batch", "4", "--global-batch", "8"}), HasSubstr("contradict"));
}

}  // namespace
}  // namespace lockstep::app
