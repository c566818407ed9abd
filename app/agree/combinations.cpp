#include "app/agree/combinations.hpp"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "app/options/choices.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {

namespace {

/// Columns of the table: the modes of --agree, then --reproducible, which any mode may have.
enum Column { all, quorum, async, local, reproducible, kColumns };
constexpr std::array<std::string_view, kColumns> kOptions{"--agree all", "--agree quorum", "--agree async",
                                                          "--agree local", "--reproducible"};
constexpr std::array<std::string_view, kColumns> kHeadings{"all", "quorum=N", "async", "local=H", "--reproducible"};

/// Returns the refused part of a job as the command line names it; "" if the job does not have it.
using Part = std::string (*)(const Combination& job);

/// One cell of the table: an option (row) with a mode (column).
struct Cell {
  std::string_view text = "yes";  ///< text in the table, before the reason
  std::string_view reason = {};   ///< reason for the refusal; "": no refusal
  Part part = nullptr;            ///< the refused part; nullptr: the row's part
  Column same = kColumns;         ///< column whose cell also holds here; kColumns: none
};

constexpr Cell yes() { return {}; }
constexpr Cell says(std::string_view text) { return {.text = text}; }
constexpr Cell as(Column other) { return {.same = other}; }
constexpr Cell refuses(std::string_view reason) { return {.text = "", .reason = reason}; }
/// Refuses `part` only.
constexpr Cell refuses(std::string_view text, Part part, std::string_view reason) {
  return {.text = text, .reason = reason, .part = part};
}
/// The option needs another mode.
constexpr std::string_view kNeedsServers = "has an effect only with --agree quorum=RANKS or async";

std::string if_given(bool given, std::string_view option) { return std::string(given ? option : ""); }

struct Row {
  std::string_view option;  ///< text in the table
  Part part;                ///< the part that the cells refuse
  std::array<Cell, kColumns> cells;
};

std::string option_of_local(const Combination& job) {
  const AgreeOptions& agree = job.agree;
  if (agree.islands > 0) return "--islands";
  if (agree.after > 0) return "--agree-after";
  if (agree.outer != model::OuterOptimizerOptions{}) return "--outer-optimizer";
  if (agree.fragments > 1) return "--fragments";
  return agree.delay > 0 ? "--delay" : "";
}

std::string wire(const Combination& job) {
  const comm::WireFormat format = job.execution.wire;
  return format == comm::WireFormat::fp32 ? "" : fmt::format("--wire {}", word_of(format));
}

std::string optimizer_of_whole_parameters(const Combination& job) {
  const model::OptimizerKind kind = job.optimizer.kind;
  const bool is_one = kind == model::OptimizerKind::lars || kind == model::OptimizerKind::lamb;
  if (!is_one || job.servers <= 1) return "";
  return fmt::format("--optimizer {} on {} servers", model::name_of(kind), job.servers);
}

/// Rows are checked in this order. Cells are in the order of the columns.
const Row kRows[] = {
    {"`--servers`",
     [](const Combination& job) { return if_given(job.agree.servers != ServerChoice{}, "--servers"); },
     {refuses(kNeedsServers), yes(), yes(), as(all), says("as the mode")}},
    {"`--replay`",
     [](const Combination& job) { return if_given(!job.agree.replay.empty(), "--replay"); },
     {refuses(kNeedsServers), yes(), says("yes, on several servers, too"), as(all), says("as the mode")}},
    {"`--islands`, `--agree-after`, `--outer-optimizer`, `--fragments`, `--delay`",
     option_of_local,
     {says("no effect"), refuses("that is for --agree local"), as(quorum), yes(), says("as the mode")}},
    {"GPUs",
     [](const Combination& job) { return if_given(job.gpus, "GPUs yet"); },
     {yes(), refuses("give --device cpu"), as(quorum), as(quorum), yes()}},
    {"`--tune`",
     [](const Combination& job) { return if_given(job.gpus && job.execution.tune, "--tune"); },
     {yes(), says("no effect"), as(quorum), as(quorum),
      refuses("each rank would choose the algorithms of its products")}},
    {"`--shard-optimizer`",
     [](const Combination& job) { return if_given(job.execution.shard_optimizer, "--shard-optimizer"); },
     {yes(), refuses("the servers keep the optimiser in parts already"), as(quorum),
      refuses(
          "among the ranks of an island; with `--agree-after`: ",
          [](const Combination& job) {
            return if_given(job.execution.shard_optimizer && job.agree.after > 0,
                            "--shard-optimizer and --agree-after");
          },
          "first all ranks would share the update, and then those of an island"),
      refuses("each rank would sum the squares of its own part for the gradient norm")}},
    {"`--roll-back`",
     [](const Combination& job) {
       return if_given(job.run.roll_back > 0 && !job.agree.replay.empty(), "--roll-back beside --replay");
     },
     {yes(), refuses("yes; beside `--replay`: ", nullptr, "the record knows of no way back"), as(quorum), yes(),
      yes()}},
    {"`--reproducible`",
     [](const Combination& job) { return if_given(job.reproducible, "--reproducible"); },
     {yes(), refuses("gradients are added as they come"), as(quorum), refuses("the islands' number changes the result"),
      yes()}},
    {"`--wire`",
     wire,
     {yes(), refuses("gradients travel in full"), as(quorum), yes(), refuses("each rank would round its own sums")}},
    {"`--average-decay`",
     [](const Combination& job) { return if_given(job.optimizer.average_decay > 0, "--average-decay"); },
     {yes(), yes(), yes(), refuses("the average would be of one island's weights"), yes()}},
    {"`--checkpoint-writers`",
     [](const Combination& job) { return if_given(job.run.checkpoint_writers > 1, "--checkpoint-writers"); },
     {yes(), refuses("rank 0 brings together what servers keep"), as(quorum),
      refuses("rank 0 brings together what islands keep"), yes()}},
    {"`--sync-batch-norm`",
     [](const Combination& job) { return if_given(job.synchronizes, "--sync-batch-norm"); },
     {yes(), refuses("ranks are in different steps"), as(quorum), says("within an island"),
      refuses("batch statistics are those of a virtual rank")}},
    {"masks with `--ignore-label`, `--class-weight` or zeros around images",
     [](const Combination& job) {
       return if_given(job.counts_labels,
                       "a mean over some positions of masks (--ignore-label, --class-weight, padding)");
     },
     {says("a sum over the ranks in each step"), refuses("an update adds gradients of several steps"),
      refuses(
          "a mean for each gradient; with `--staleness 0`: ",
          [](const Combination& job) {
            return if_given(job.counts_labels && job.agree.staleness == 0,
                            "a mean over some positions of masks beside --staleness 0");
          },
          "an update adds gradients of several ranks"),
      says("within an island"), says("the same bits")}},
    {"several losses of a network's file",
     [](const Combination& job) { return if_given(job.has_losses, "a network's file with several losses"); },
     {yes(), refuses("servers know the sum of them alone"), as(quorum), yes(), yes()}},
    {"`lars`, `lamb`",
     optimizer_of_whole_parameters,
     {yes(), refuses("on one server; on more: ", nullptr, "it looks at whole parameters: give --servers 1"), as(quorum),
      yes(), yes()}},
};

Column mode_of(const AgreeMode& mode) {
  return mode.quorum > 0 ? quorum : mode.asynchronous ? async : mode.local_steps > 0 ? local : all;
}

void require_column(Column column, const Combination& job) {
  for (const Row& row : kRows) {
    const Cell& own = row.cells[column];
    const Cell& cell = own.same == kColumns ? own : row.cells[own.same];
    if (cell.reason.empty()) continue;
    const std::string part = (cell.part != nullptr ? cell.part : row.part)(job);
    if (part.empty()) continue;
    throw UsageError(cell.reason == kNeedsServers
                         ? fmt::format("{} {}", part, cell.reason)
                         : fmt::format("{} does not go with {}: {}", kOptions[column], part, cell.reason));
  }
}

}  // namespace

void require_combination(const Combination& job) {
  if (job.reproducible) require_column(reproducible, job);
  require_column(mode_of(job.agree), job);
}

std::string format_combinations() {
  std::string text = "| |", line = "| --- |";
  for (const std::string_view heading : kHeadings) {
    text += fmt::format(" `{}` |", heading);
    line += " --- |";
  }
  text += "\n" + line + "\n";
  for (const Row& row : kRows) {
    text += fmt::format("| {} |", row.option);
    for (const Cell& cell : row.cells) {
      text += cell.same != kColumns ? fmt::format(" as `{}` |", kOptions[cell.same].substr(8))
              : cell.reason.empty() ? fmt::format(" {} |", cell.text)
                                    : fmt::format(" {}\"{}\" |", cell.text, cell.reason);
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::app
