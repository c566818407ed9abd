/// \file
/// The program: its commands, its first line and its exit code.

#include <chrono>
#include <csignal>
#include <exception>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "app/bench/bench_agree.hpp"
#include "app/bench/bench_all_reduce.hpp"
#include "app/bench/bench_checkpoint.hpp"
#include "app/bench/bench_input.hpp"
#include "app/bench/bench_scale.hpp"
#include "app/bench/bench_step.hpp"
#include "app/check/check.hpp"
#include "app/command.hpp"
#include "app/engine/signals.hpp"
#include "app/engine/stack_limit.hpp"
#include "app/evaluate/evaluate.hpp"
#include "app/evaluate/generate.hpp"
#include "app/evaluate/predict.hpp"
#include "app/exchange/export.hpp"
#include "app/exchange/import.hpp"
#include "app/info/info.hpp"
#include "app/options/options.hpp"
#include "app/pack/pack.hpp"
#include "app/pack/train_tokenizer.hpp"
#include "app/program.hpp"
#include "app/report/exit_code.hpp"
#include "app/runs/report_runs.hpp"
#include "app/runs/sweep.hpp"
#include "app/train/train.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"
#include "io/foreign_files.hpp"

namespace lockstep::app {
namespace {

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      command("pack", parse_pack, run_pack, {.processes = Processes::alone}),
      command("tokenizer train", parse_tokenizer_train, run_tokenizer_train, {.processes = Processes::alone}),
      command("train", read_train_command, run_train, {.on_signal = OnSignal::note}),
      command("eval", parse_eval, run_eval),
      command("predict", parse_predict, run_predict),
      command("generate", parse_generate, run_generate,
              {.processes = Processes::one, .on_closed_pipe = OnClosedPipe::end}),
      command("export", parse_export, run_export, {.processes = Processes::alone}),
      command("import", parse_import, run_import, {.processes = Processes::alone}),
      command("bench agree", parse_bench_agree, run_bench_agree, {.on_signal = OnSignal::note}),
      command("bench all-reduce", parse_bench_all_reduce, run_bench_all_reduce),
      command("bench checkpoint", parse_bench_checkpoint, run_bench_checkpoint),
      command("bench input", parse_bench_input, run_bench_input),
      command("bench step", parse_bench_step, run_bench_step),
      command("bench scale", parse_bench_scale, run_bench_scale),
      command("check", parse_check, run_check),
      command("sweep", parse_sweep, run_sweep, {.processes = Processes::alone, .on_signal = OnSignal::note}),
      command("report", parse_report, run_report, {.processes = Processes::alone}),
      command("plot", parse_plot, run_plot, {.processes = Processes::alone}),
      command("info", parse_info, run_info, {.processes = Processes::alone, .on_closed_pipe = OnClosedPipe::end})};
  return all;
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == lockstep::io::kInspectionWord) {  // started by this program itself
    return lockstep::io::answer_inspection({argv + 2, argv + argc});
  }
  lockstep::app::require_stack(argv);
  lockstep::app::StopSignals signals;
  // A file size limit (ulimit -f) is then a write error with a message, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = lockstep::app::run_program(argc, argv, lockstep::app::commands(), signals);
    // A launcher that sees a rank leave with an error ends the job, and drops what it has not read of rank 0's words.
    constexpr std::chrono::milliseconds kUntilWordsAreRead{100};
    if (code != 0 && lockstep::comm::launched_rank()) std::this_thread::sleep_for(kUntilWordsAreRead);
    return code;
  } catch (const std::exception& error) {  // MPI could not start, or help could not be printed
    lockstep::comm::write_stderr(fmt::format("lockstep: error: {}\n", error.what()));
    return lockstep::app::kExitFailed;
  }
}
