#include "app/help/help_options.hpp"

#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::string_view kHelpUsage =
    "Usage: lockstep help [COMMAND] [options]\n"
    "\n"
    "Explains the program or a command as text or as a manual page, or prints a shell completion script.\n";
constexpr std::string_view kHelpExamples =
    "\n"
    "Examples\n"
    "  lockstep help train\n"
    "  lockstep help bench step --man | man -l -\n"
    "  source <(lockstep help --completion bash)\n"
    "  lockstep help --write ~/.local/share\n"
    "      write man/man1/lockstep-train.1 and so on, and completions where the shells look for them\n";

}  // namespace

HelpOptions parse_help(const std::vector<std::string>& arguments) {
  HelpOptions options;
  OptionTable table("lockstep help");
  table.group("Command and format");
  table
      .add_free(
          "command", Option::Shape::value, "COMMAND", "command to explain; the name --command may be omitted",
          [&options](const Option&, const std::string& word) {
            if (!word.empty()) options.command += (options.command.empty() ? "" : " ") + word;
            return std::string();
          },
          [&options] { return options.command; })
      .positional()
      .several();
  table.add("man", options.manual, "print the manual page (roff)");
  static const std::vector<Choice<std::optional<Shell>>> shells{
      {"none", std::nullopt}, {"bash", Shell::bash}, {"zsh", Shell::zsh}, {"fish", Shell::fish}};
  table.add_choice("completion", options.shell, "SHELL", "print the completion script for a shell", shells)
      .contradicts("man")
      .contradicts("command");
  table
      .add("write", options.write, "FOLDER",
           "write all manual pages and completions to FOLDER, laid out like /usr/share")
      .contradicts("man")
      .contradicts("command")
      .contradicts("completion");
  read_options(table, arguments, kHelpUsage, kHelpExamples);
  table.check_relations();
  return options;
}

}  // namespace lockstep::app
