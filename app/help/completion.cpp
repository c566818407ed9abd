#include "app/help/completion.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::app {
namespace {

constexpr std::string_view kMade = "# Made by `lockstep help --completion {}` of the options that the program knows.\n";

bool takes_files(const HelpRow& row) {
  return row.value_name.starts_with("FILE") || row.value_name == "FOLDER" || row.value_name == "PATH";
}

/// The option names of a command, as typed.
std::vector<std::string> option_words(const CommandHelp& command) {
  std::vector<std::string> words;
  for (const HelpRow& row : all_rows(command)) {
    words.push_back("--" + row.name);
    if (row.shape == OptionShape::yes_or_no) words.push_back("--no-" + row.name);
  }
  if (command.page.takes_config) words.emplace_back("--config");
  words.emplace_back("--help");
  return words;
}

/// The first words of the commands, each once. second_words() returns the words that follow `first`.
std::vector<std::string> first_words(std::span<const CommandHelp> commands) {
  std::vector<std::string> words;
  for (const CommandHelp& command : commands) {
    const std::string word = command.name.substr(0, command.name.find(' '));
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return words;
}

std::vector<std::string> second_words(std::span<const CommandHelp> commands, const std::string& first) {
  std::vector<std::string> words;
  for (const CommandHelp& command : commands) {
    if (command.name.starts_with(first + " ")) words.push_back(command.name.substr(first.size() + 1));
  }
  return words;
}

/// The first words that need a second word.
std::vector<std::string> families(std::span<const CommandHelp> commands) {
  std::vector<std::string> words = first_words(commands);
  std::erase_if(words, [&](const std::string& word) { return second_words(commands, word).empty(); });
  return words;
}

std::string bash_script(std::span<const CommandHelp> commands) {
  std::string options, values;
  for (const std::string& family : families(commands)) {
    options += fmt::format("    {}) options=\"{}\" ;;\n", family, fmt::join(second_words(commands, family), " "));
  }
  for (const CommandHelp& command : commands) {
    options += fmt::format("    \"{}\") options=\"{}\" ;;\n", command.name, fmt::join(option_words(command), " "));
    for (const HelpRow& row : all_rows(command)) {
      if (row.shape == OptionShape::yes_or_no) continue;
      const std::string words = !row.words.empty() ? fmt::format("{}", fmt::join(row.words, " "))
                                : takes_files(row) ? "-"
                                                   : "?";
      values += fmt::format("    \"{} --{}\") values=\"{}\" ;;\n", command.name, row.name, words);
    }
    if (command.page.takes_config) values += fmt::format("    \"{} --config\") values=\"-\" ;;\n", command.name);
  }
  std::string text = fmt::format(fmt::runtime(kMade), "bash");
  text += fmt::format(
      R"(_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} options="" values=""
  COMPREPLY=()
  if [ "$current" = = ]; then # --option=
    current=""
  elif [ "$option" = = ]; then # --option=value
    option=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case $command in {}) [ "$COMP_CWORD" = 2 ] || command+=" ${{COMP_WORDS[2]}}" ;; esac
  # The words that the value of an option may be; -: names of files; ?: anything.
  case "$command $option" in
{}  esac
  case $values in
    \?) return ;;
    -) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); return ;;
    ?*) COMPREPLY=($(compgen -W "$values" -- "$current")); return ;;
  esac
  case $command in
{}  esac
  COMPREPLY=($(compgen -W "$options" -- "$current"))
  if [ ${{#COMPREPLY[@]}} = 0 ]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -F _lockstep lockstep
)",
      fmt::join(first_words(commands), " "), fmt::join(families(commands), "|"), values, options);
  return text;
}

/// Prepares text for single quotes of zsh and fish: puts a backslash before the characters in `special` and replaces '
/// by ’.
std::string quoted_text(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c == '\'' ? "’" : std::string(1, c);
  }
  return result;
}

std::string zsh_value(const HelpRow& row) {
  if (!row.words.empty()) return fmt::format(":{}:({})", row.value_name, fmt::join(row.words, " "));
  return fmt::format(":{}:{}", quoted_text(row.value_name, ":"), takes_files(row) ? "_files" : "");
}

std::string zsh_script(std::span<const CommandHelp> commands) {
  constexpr std::string_view kSpecial = "[]:\\";
  std::string text = "#compdef lockstep\n" + fmt::format(fmt::runtime(kMade), "zsh");
  text += "_lockstep() {\n  local -a commands specs\n  commands=(\n";
  for (const std::string& word : first_words(commands)) {
    const auto named = std::ranges::find_if(commands, [&](const CommandHelp& c) { return c.name == word; });
    text +=
        fmt::format("    '{}{}'\n", word, named == commands.end() ? "" : ":" + quoted_text(named->summary, kSpecial));
  }
  text += "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n";
  text += "  local command=$words[2] taken=2\n";
  for (const std::string& family : families(commands)) {
    text += fmt::format(
        "  if [[ $command == {0} ]]; then\n    if (( CURRENT == 3 )); then compadd -- {1}; return; fi\n"
        "    command=\"{0} $words[3]\" taken=3\n  fi\n",
        family, fmt::join(second_words(commands, family), " "));
  }
  text += "  case $command in\n";
  for (const CommandHelp& command : commands) {
    text += fmt::format("    '{}') specs=(\n", command.name);
    for (const HelpRow& row : all_rows(command)) {
      const std::string help = quoted_text(row.help, kSpecial);
      const std::string times = "(--" + row.name + ")";
      if (row.shape == OptionShape::yes_or_no) {
        text += fmt::format("      '{0}--{1}[{2}]'\n      '(--no-{1})--no-{1}[not\\: {2}]'\n", times, row.name, help);
      } else {
        const std::string_view optional = row.shape == OptionShape::optional_value ? ":" : "";
        text += fmt::format("      '{}--{}=[{}]{}{}'\n", times, row.name, help, optional, zsh_value(row));
      }
    }
    if (command.page.takes_config) text += "      '--config=[options from an INI file]:FILE:_files'\n";
    text += "      '--help[print this help]'\n      '*:file:_files') ;;\n";
  }
  return text +
         "    *) return 1 ;;\n  esac\n"
         "  words=(\"$command\" \"${(@)words[taken + 1,-1]}\")\n  (( CURRENT -= taken - 1 ))\n"
         "  _arguments $specs\n}\n"
         "if [ \"$funcstack[1]\" = _lockstep ]; then _lockstep \"$@\"; else compdef _lockstep lockstep; fi\n";
}

std::string fish_script(std::span<const CommandHelp> commands) {
  constexpr std::string_view kSpecial = "\\";
  std::string text = fmt::format(fmt::runtime(kMade), "fish");
  text += fmt::format(
      R"(function __lockstep_command -d 'Whether the command of the line is this one'
  set -l words (commandline -opc)
  set -l command "$words[2]"
  if contains -- "$command" {}
    set command "$command $words[3]"
  end
  test (string trim -- "$command") = "$argv[1]"
end
complete -c lockstep -n '__lockstep_command ""' -f
)",
      fmt::join(families(commands), " "));
  for (const std::string& word : first_words(commands)) {
    const auto named = std::ranges::find_if(commands, [&](const CommandHelp& c) { return c.name == word; });
    text += fmt::format("complete -c lockstep -n '__lockstep_command \"\"' -f -a '{}'{}\n", word,
                        named == commands.end() ? "" : fmt::format(" -d '{}'", quoted_text(named->summary, kSpecial)));
  }
  for (const std::string& family : families(commands)) {
    text += fmt::format("complete -c lockstep -n '__lockstep_command \"{}\"' -f -a '{}'\n", family,
                        fmt::join(second_words(commands, family), " "));
  }
  for (const CommandHelp& command : commands) {
    const std::string begin = fmt::format("complete -c lockstep -n '__lockstep_command \"{}\"'", command.name);
    for (const HelpRow& row : all_rows(command)) {
      const std::string help = quoted_text(row.help, kSpecial);
      std::string takes;
      if (row.shape == OptionShape::value) takes = takes_files(row) ? " -r" : " -x";
      if (!row.words.empty()) takes += fmt::format(" -a '{}'", fmt::join(row.words, " "));
      text += fmt::format("{} -l {}{} -d '{}'\n", begin, row.name, takes, help);
      if (row.shape == OptionShape::yes_or_no) text += fmt::format("{} -l no-{} -d 'not: {}'\n", begin, row.name, help);
    }
    if (command.page.takes_config) text += fmt::format("{} -l config -r -d 'options from an INI file'\n", begin);
    text += fmt::format("{} -l help -d 'print this help'\n", begin);
  }
  return text;
}

}  // namespace

std::string completion_script(Shell shell, std::span<const CommandHelp> commands) {
  switch (shell) {
    case Shell::bash:
      return bash_script(commands);
    case Shell::zsh:
      return zsh_script(commands);
    case Shell::fish:
      break;
  }
  return fish_script(commands);
}

}  // namespace lockstep::app
