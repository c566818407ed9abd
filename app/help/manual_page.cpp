#include "app/help/manual_page.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace lockstep::app {
namespace {

/// Escapes text for roff, so that no character starts a request.
std::string escaped(std::string_view text) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) result += "\\&";
    at_start = c == '\n';
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '\'':
        result += "\\(aq";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '~':
        result += "\\(ti";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string heading(std::string_view name, std::string_view version) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(".TH {} 1 \"\" \"lockstep {}\" \"Lockstep\"\n", escaped(upper), version);
}

/// Formats prose whose paragraphs are separated by empty lines.
std::string paragraphs(std::string_view text) {
  std::string result;
  bool begins = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) {
      begins = true;
      continue;
    }
    if (begins && !result.empty()) result += ".PP\n";
    begins = false;
    result += escaped(line) + "\n";
  }
  return result;
}

std::string item(std::string_view bold, std::string_view italic, std::string_view text) {
  std::string left = fmt::format("\\fB{}\\fR", escaped(bold));
  if (!italic.empty()) left += fmt::format("\\fI{}\\fR", escaped(italic));
  return fmt::format(".TP\n{}\n{}\n", left, escaped(text));
}

std::string option_item(const HelpRow& row) {
  const std::string spelled = row.spelled();
  const std::size_t end = std::min(spelled.find(row.shape == OptionShape::optional_value ? '[' : ' '), spelled.size());
  return item(std::string_view(spelled).substr(0, end), std::string_view(spelled).substr(end), row.explanation());
}

std::string option_groups(std::span<const HelpRow> rows) {
  std::string text, group;
  for (const HelpRow& row : rows) {
    if (row.group != group) {
      group = row.group;
      text += fmt::format(".SS {}\n", escaped(group));
    }
    text += option_item(row);
  }
  return text;
}

constexpr std::string_view kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n\\fB0\\fR\nDone.\n.TP\n\\fB1\\fR\nFailed.\n.TP\n\\fB2\\fR\nWrong usage.\n"
    ".TP\n\\fB75\\fR\nTraining was told to stop, and stopped with a checkpoint or before its first step.\n";

}  // namespace

std::string manual_name(std::string_view command) {
  std::string name = fmt::format("lockstep-{}", command);
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const CommandHelp& command, std::string_view version) {
  const HelpPage& page = command.page;
  const std::string name = manual_name(command.name);
  std::string text = heading(name, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", escaped(name), escaped(command.summary));
  text += fmt::format(".SH SYNOPSIS\n{}\n.SH DESCRIPTION\n{}", escaped(page.synopsis), paragraphs(page.description));
  text += ".SH OPTIONS\n" + escaped(notes_on_options(page)) + "\n";
  const bool has_networks = !command.networks.empty();
  std::vector<HelpRow> rows;
  for (const HelpRow& row : page.rows) {
    const bool of_some =
        has_networks && row.group == "Network" && std::ranges::any_of(command.networks, [&](const HelpPage& network) {
          return std::ranges::none_of(network.rows, [&](const HelpRow& its) { return its.name == row.name; });
        });
    if (!of_some) rows.push_back(row);
  }
  text += option_groups(rows);
  text += ".SS General\n";
  for (const GeneralOption& option : general_options(page)) text += item(option.spelled, "", option.help);
  if (has_networks) {
    text += ".SH NETWORKS\n" +
            escaped(fmt::format("Each network has defaults of its own: `{} --model NAME --help` shows them.",
                                page.command)) +
            "\n";
    for (const HelpPage& network : command.networks) {
      for (const HelpPage::Network& its : network.chosen) {
        text += fmt::format(".SS {}\n{}\n", escaped(its.name), escaped(its.summary));
      }
      for (const HelpRow& row : own_rows(command, network)) text += option_item(row);
    }
  }
  if (!page.examples.empty()) {
    text += ".SH EXAMPLES\n.nf\n";
    for (const std::string& line : page.examples) text += escaped(line) + "\n";
    text += ".fi\n";
  }
  text += kExitStatus;
  text += ".SH SEE ALSO\n\\fBlockstep\\fR(1)\n";
  return text;
}

std::string program_manual(std::span<const CommandHelp> commands, std::string_view version) {
  std::string text = heading("lockstep", version);
  text +=
      ".SH NAME\nlockstep \\- train neural networks on many processes as if they were one\n"
      ".SH SYNOPSIS\nlockstep COMMAND [options]\n.br\nmpirun \\-np RANKS lockstep COMMAND [options]\n"
      ".SH DESCRIPTION\n"
      "Training is data\\-parallel and synchronous: each rank computes its part of every batch, the gradients are\n"
      "summed over MPI, and all ranks make the same step. Start the program with mpirun or srun for many ranks,\n"
      "or without for one rank: the numbers are the same.\n"
      ".SH COMMANDS\n";
  for (const CommandHelp& command : commands) text += item(command.name, "", command.summary);
  text += kExitStatus;
  text += ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < commands.size(); ++i) {
    text +=
        fmt::format("\\fB{}\\fR(1){}\n", escaped(manual_name(commands[i].name)), i + 1 < commands.size() ? "," : "");
  }
  return text;
}

}  // namespace lockstep::app
