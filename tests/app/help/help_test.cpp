// Manual pages and completions of an invented command. tests/cli/installed.sh asks man and the shells themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/help/completion.hpp"
#include "app/help/manual_page.hpp"

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

HelpRow network_row(const std::string& name) {
  return {.name = name, .group = "Network", .value_name = "N", .help = "how many", .words = {}, .usual = "1"};
}

CommandHelp made_up() {
  HelpPage page =
      help_page("lockstep bench thing", "Usage: lockstep bench thing PATH\n\nDoes it.\n.It's a\\b.\n\nTwice.\n",
                "\nExamples\n  lockstep bench thing x\n      does x\n");
  page.rows = {network_row("width"),
               {.name = "wire",
                .group = "How",
                .value_name = "NAME",
                .help = "what: it's [sent]",
                .words = {"fp32", "bf16"},
                .usual = "fp32"},
               {.name = "verify",
                .group = "How",
                .shape = OptionShape::yes_or_no,
                .value_name = "",
                .help = "look",
                .words = {},
                .usual = "yes"},
               {.name = "out", .group = "How", .value_name = "FILE", .help = "there", .words = {}, .usual = ""}};
  page.takes_config = true;
  HelpPage wide = page, deep = page;
  wide.chosen = {{"wide", "a wide one"}};
  deep.chosen = {{"deep", "a deep one"}};
  deep.rows[0] = network_row("layers");
  page.networks = {{"wide", "a wide one"}, {"deep", "a deep one"}};
  return {.name = "bench thing", .summary = "do a thing", .page = page, .networks = {wide, deep}};
}

std::vector<std::string> names(const std::vector<HelpRow>& rows) {
  std::vector<std::string> names;
  for (const HelpRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(CommandHelp, HasTheOptionsOfAllNetworks) {
  const CommandHelp command = made_up();
  EXPECT_THAT(names(all_rows(command)), ElementsAre("width", "wire", "verify", "out", "layers"));
  EXPECT_THAT(names(own_rows(command, command.networks[0])), ElementsAre("width"));
  EXPECT_THAT(names(own_rows(command, command.networks[1])), ElementsAre("layers"));
}

TEST(ManualPage, HasEverySectionAndNoRequestsOfTheText) {
  const std::string page = manual_page(made_up(), "1.2");
  EXPECT_THAT(page, testing::StartsWith(".TH LOCKSTEP\\-BENCH\\-THING 1 \"\" \"lockstep 1.2\" \"Lockstep\"\n.SH NAME\n"
                                        "lockstep\\-bench\\-thing \\- do a thing\n"));
  EXPECT_THAT(page, HasSubstr("Does it.\n\\&.It\\(aqs a\\eb.\n.PP\nTwice.\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-wire\\fR\\fI NAME\\fR\nwhat: it\\(aqs [sent] (fp32 or bf16) [fp32]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-[no\\-]verify\\fR\nlook [yes]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-config FILE\\fR\n"));
  EXPECT_THAT(page, HasSubstr(".SS deep\na deep one\n.TP\n\\fB\\-\\-layers\\fR"));
  EXPECT_THAT(page.substr(0, page.find(".SH NETWORKS")), Not(HasSubstr("width"))) << "of one network alone";
  EXPECT_THAT(page, HasSubstr(".nf\n  lockstep bench thing x\n      does x\n.fi\n"));
}

TEST(ProgramManual, NamesItsCommandsAndTheirPages) {
  const CommandHelp commands[] = {made_up()};
  const std::string page = program_manual(commands, "1.2");
  EXPECT_THAT(page, HasSubstr(".TP\n\\fBbench thing\\fR\ndo a thing\n"));
  EXPECT_THAT(page, HasSubstr("\\fBlockstep\\-bench\\-thing\\fR(1)\n"));
}

TEST(Completion, KnowsWordsAndFilesInEveryShell) {
  const CommandHelp commands[] = {made_up()};
  const std::string bash = completion_script(Shell::bash, commands);
  EXPECT_THAT(bash, HasSubstr("bench) options=\"thing\""));
  EXPECT_THAT(bash, HasSubstr("\"bench thing --wire\") values=\"fp32 bf16\""));
  EXPECT_THAT(bash, HasSubstr("\"bench thing --out\") values=\"-\""));
  EXPECT_THAT(bash, HasSubstr("--verify --no-verify"));
  const std::string zsh = completion_script(Shell::zsh, commands);
  EXPECT_THAT(zsh, HasSubstr("'(--wire)--wire=[what\\: it’s \\[sent\\]]:NAME:(fp32 bf16)'"));
  EXPECT_THAT(zsh, HasSubstr("--out=[there]:FILE:_files"));
  const std::string fish = completion_script(Shell::fish, commands);
  EXPECT_THAT(fish, HasSubstr("'__lockstep_command \"bench thing\"' -l wire -x -a 'fp32 bf16' -d 'what: it’s [sent]'"));
  EXPECT_THAT(fish, HasSubstr("-l out -r"));
}

}  // namespace
}  // namespace lockstep::app
