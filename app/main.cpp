/// \file
/// The program: its list of commands, and main().

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "app/bench/bench_all_reduce.hpp"
#include "app/bench/bench_checkpoint.hpp"
#include "app/bench/bench_input.hpp"
#include "app/bench/bench_options.hpp"
#include "app/bench/bench_scale.hpp"
#include "app/bench/bench_step.hpp"
#include "app/check/check.hpp"
#include "app/check/check_options.hpp"
#include "app/command.hpp"
#include "app/engine/signals.hpp"
#include "app/engine/stack_limit.hpp"
#include "app/evaluate/evaluate.hpp"
#include "app/evaluate/generate.hpp"
#include "app/evaluate/generate_options.hpp"
#include "app/evaluate/predict.hpp"
#include "app/evaluate/trained_model_options.hpp"
#include "app/exchange/export.hpp"
#include "app/exchange/export_options.hpp"
#include "app/exchange/import.hpp"
#include "app/exchange/import_options.hpp"
#include "app/help/help_options.hpp"
#include "app/info/info.hpp"
#include "app/info/info_options.hpp"
#include "app/manuals.hpp"
#include "app/pack/pack.hpp"
#include "app/pack/pack_options.hpp"
#include "app/pack/train_tokenizer.hpp"
#include "app/pack/train_tokenizer_options.hpp"
#include "app/program.hpp"
#include "app/report/exit_code.hpp"
#include "app/runs/report_runs.hpp"
#include "app/runs/report_runs_options.hpp"
#include "app/runs/sweep.hpp"
#include "app/runs/sweep_options.hpp"
#include "app/train/train.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"
#include "io/foreign_files.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

const std::vector<Command>& commands() {
  static const std::vector<Command> all{
      command("pack", "convert raw data (images, text, tables) to HDF5 shards", parse_pack, run_pack,
              {.processes = Processes::as_launched}),
      command("tokenizer train", "learn a byte pair vocabulary from texts", parse_tokenizer_train, run_tokenizer_train,
              {.processes = Processes::alone}),
      command("train", "train a network, with checkpoints", read_train_command, run_train,
              {.on_signal = OnSignal::note}),
      command("eval", "evaluate a checkpoint on a dataset", parse_eval, run_eval),
      command("predict", "write a checkpoint's prediction for every sample", parse_predict, run_predict),
      command("generate", "write text with a trained language model", parse_generate, run_generate,
              {.processes = Processes::one, .on_closed_pipe = OnClosedPipe::end}),
      command("export", "export a checkpoint for other programs: ONNX, safetensors", parse_export, run_export,
              {.processes = Processes::alone}),
      command("import", "convert weights from other programs to a checkpoint: GPT-2, safetensors", parse_import,
              run_import, {.processes = Processes::alone}),
      command("bench step", "time training steps and show where the time goes", parse_bench_step, run_bench_step),
      command("bench scale", "time training steps on 1, 2, 4 ... ranks of the job to show how it scales",
              parse_bench_scale, run_bench_scale),
      command("bench checkpoint", "time checkpoints and plain writes of the same bytes", parse_bench_checkpoint,
              run_bench_checkpoint),
      command("bench input", "time the reading of shards and raw reads of the same bytes", parse_bench_input,
              run_bench_input),
      command("bench all-reduce", "time all-reduces over all ranks and check the sums", parse_bench_all_reduce,
              run_bench_all_reduce),
      command("check", "check hosts, network, data, memory and disk before a job, in seconds", parse_check, run_check),
      command("sweep", "train once per line of a file of options and rank the results", parse_sweep, run_sweep,
              {.processes = Processes::alone, .on_signal = OnSignal::note}),
      command("report", "write an HTML page about runs: curves, time, ranking, options", parse_report, run_report,
              {.processes = Processes::alone}),
      command("plot", "draw the charts of `report` in one SVG file", parse_plot, run_plot,
              {.processes = Processes::alone}),
      command("info", "describe a shard folder, checkpoint, run or network; verify checksums", parse_info, run_info,
              {.processes = Processes::alone, .on_closed_pipe = OnClosedPipe::end}),
      command("help", "explain a command: text, manual page, shell completion", parse_help,
              [](const HelpOptions& options) { return run_help(options, commands()); },
              {.processes = Processes::alone, .on_closed_pipe = OnClosedPipe::end})};
  return all;
}

/// Opens /dev/null in place of standard streams that are closed, so that no other file gets these descriptors and the
/// output. Reads and writes fail as on a closed stream.
void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor) std::_Exit(kExitFailed);
  }
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  lockstep::app::hold_standard_streams();
  if (argc > 1 && argv[1] == lockstep::io::kInspectionArgument) {  // this program has started itself to inspect a file
    return lockstep::io::answer_inspection({argv + 2, argv + argc});
  }
  lockstep::app::require_stack(argv);
  lockstep::app::StopSignals signals;
  // Exceeding a file size limit (ulimit -f) then is a write error with a message, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = lockstep::app::run_program(argc, argv, lockstep::app::commands(), signals);
    // When a rank exits with an error, the launcher ends the job and drops output of rank 0 that it has not read yet.
    constexpr std::chrono::milliseconds kUntilMessagesAreRead{100};
    if (code != 0 && lockstep::comm::launched_rank()) std::this_thread::sleep_for(kUntilMessagesAreRead);
    return code;
  } catch (const std::exception& error) {  // MPI could not start, or help could not be printed
    lockstep::comm::write_stderr(lockstep::io::visible_text(fmt::format("lockstep: error: {}\n", error.what())));
    return lockstep::app::kExitFailed;
  }
}
