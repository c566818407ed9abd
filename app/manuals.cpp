#include "app/manuals.hpp"

#include <fstream>
#include <optional>

#include "app/help/completion.hpp"
#include "app/help/manual_page.hpp"
#include "app/options/usage_error.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/program_build.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

HelpPage page_of(const Command& command, const Arguments& arguments) {
  try {
    command.prepare(arguments);
  } catch (const HelpRequested& help) {
    return help.page();
  }
  throw std::logic_error(command.name + " has no help");
}

CommandHelp help_of(const Command& command) {
  CommandHelp help{.name = command.name, .summary = command.summary, .page = page_of(command, {"--help"})};
  for (const HelpPage::Network& network : help.page.networks) {
    help.networks.push_back(page_of(command, {"--model", network.name, "--help"}));
  }
  return help;
}

std::vector<CommandHelp> help_of_all(const std::vector<Command>& commands) {
  std::vector<CommandHelp> all;
  for (const Command& command : commands) all.push_back(help_of(command));
  return all;
}

const Command& named(const std::string& name, const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const std::string hint = model::did_you_mean(name, names);
  throw UsageError(fmt::format("there is no command {}{}", name,
                               hint.empty() ? "; the commands are " + model::list_names(names, "and") : hint));
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw io::FileError(fmt::format("cannot write {}: choose another folder with --write", file.string()));
}

/// Writes all manual pages and completions, with their paths below /usr/share. Returns the number of files.
int write_all(const std::filesystem::path& folder, const std::vector<CommandHelp>& all) {
  int files = 0;
  const auto write = [&](const std::filesystem::path& file, const std::string& text) {
    write_text(folder / file, text);
    ++files;
  };
  write("man/man1/lockstep.1", program_manual(all, program_version()));
  for (const CommandHelp& command : all) {
    write("man/man1/" + manual_name(command.name) + ".1", manual_page(command, program_version()));
  }
  write("bash-completion/completions/lockstep", completion_script(Shell::bash, all));
  write("zsh/site-functions/_lockstep", completion_script(Shell::zsh, all));
  write("fish/vendor_completions.d/lockstep.fish", completion_script(Shell::fish, all));
  return files;
}

std::string text_of(const HelpOptions& options, const std::vector<Command>& commands) {
  if (options.shell) return completion_script(*options.shell, help_of_all(commands));
  if (!options.manual) return to_text(page_of(named(options.command, commands), {"--help"}));
  if (options.command.empty()) return program_manual(help_of_all(commands), program_version());
  return manual_page(help_of(named(options.command, commands)), program_version());
}

}  // namespace

int run_help(const HelpOptions& options, const std::vector<Command>& commands) {
  Console console(true);
  if (!options.write.empty()) {
    const int files = write_all(options.write, help_of_all(commands));
    console.info(fmt::format("{} manual pages and completions are in {}", files, options.write.string()));
    return kExitDone;
  }
  console.text(text_of(options, commands));
  console.require_output();
  return kExitDone;
}

}  // namespace lockstep::app
