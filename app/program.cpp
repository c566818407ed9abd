#include "app/program.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/figures.hpp"
#include "app/report/machine.hpp"
#include "app/report/program_build.hpp"
#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/device_communicator.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/rendezvous.hpp"
#include "comm/session/this_process.hpp"
#include "io/files/hdf5_file.hpp"
#include "io/files/unknown_name.hpp"
#include "io/text/visible_text.hpp"
#include "model/cpu_code.hpp"
#include "model/device.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

constexpr Traits kOnlyPrints{.on_closed_pipe = OnClosedPipe::end};

/// One rank's parsed command line.
struct Request {
  std::string command;  ///< "train", for messages
  Traits traits = kOnlyPrints;
  Job job;
  std::string usage_error;
  std::string help;
  double start_limit = 60;  ///< seconds
};

/// Returns version and commit, compiler and libraries, processor and GPUs. Does not start MPI.
std::string version_text() {
  const std::string nccl = comm::nccl_build(), commit = program_commit();
  std::string text =
      fmt::format("lockstep {}\n{}{}{}\n", program_version(), model::cuda_build(), nccl.empty() ? "" : ", ", nccl);
  const Processor processor = own_processor();
  text +=
      fmt::format("commit: {}\ncompiler: {}\nMPI: {}\nHDF5: {}\nBLAS: {}\nCPU: {}, {}, with {}; used: {}\n",
                  commit.empty() ? "not known (built outside of a clone)" : commit, program_compiler(),
                  comm::mpi_library_version(), io::hdf5_version(), model::cpu_libraries(),
                  processor.model.empty() ? "of a model that the system does not tell" : processor.model,
                  counted(processors(), "processor"),
                  processor.instruction_sets.empty() ? "no instruction set that matters here"
                                                     : fmt::format("{}", fmt::join(processor.instruction_sets, " ")),
                  model::cpu_code());
  const model::DeviceSurvey survey = model::survey_devices();
  for (const model::Device& device : survey.devices) {
    text += fmt::format("GPU {}: {}, {}, {}, {}, compute capability {}.{}\n", device.index, device.name, device.pci,
                        device.uuid, format_bytes(device.bytes), device.major, device.minor);
  }
  if (survey.devices.empty()) text += fmt::format("no GPU: {}\n", survey.obstacle);
  return text;
}

std::string program_help(const std::vector<Command>& commands) {
  std::size_t width = 0;
  for (const Command& command : commands) width = std::max(width, command.name.size());
  std::string text = fmt::format(
      "lockstep {} trains neural networks on many processes as if they were one.\n"
      "Start it with mpirun for many ranks, or without for one rank: the numbers are the same.\n\n",
      program_version());
  for (const Command& command : commands) {
    text += fmt::format("  lockstep {:<{}}  {}\n", command.name, width, command.summary);
  }
  return text +
         "\n"
         "  lockstep COMMAND --help   show all options of a command, with examples\n"
         "  lockstep --version        show version, compiler, libraries, processor and GPUs\n"
         "\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped early with a checkpoint\n"
         "(--resume continues).\n";
}

bool is_version(const std::string& word) { return word == "--version" || word == "-V" || word == "version"; }
bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

/// Parses the command line. Before it reads the options, which may take long, it sets the command's reaction to
/// signals.
Request understand(Arguments arguments, const std::vector<Command>& commands, StopSignals& signals) {
  Request request;
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  try {
    if (arguments.empty()) throw UsageError(fmt::format("a command is missing: {}", model::list_names(names)));
    if (is_version(arguments[0])) return request.help = version_text(), request;
    if (is_help(arguments[0])) arguments[0] = "help";
    if (arguments == Arguments{"help"}) return request.help = program_help(commands), request;
    std::string name = arguments[0];
    arguments.erase(arguments.begin());
    if (name == "bench" || name == "tokenizer") {  // the first word of a name of two words
      if (arguments.empty() || is_help(arguments[0])) return request.help = program_help(commands), request;
      name += " " + arguments[0];
      arguments.erase(arguments.begin());
    }
    for (const Command& command : commands) {
      if (command.name != name) continue;
      request.command = name;
      request.traits = command.traits;
      if (command.traits.on_signal == OnSignal::end) signals.release();
      request.job = command.prepare(arguments);
      return request;
    }
    if (name.starts_with("-"))
      throw UsageError(fmt::format("the command comes first, before {}: {}", name, model::list_names(names)));
    const std::string hint = model::did_you_mean(name, names);
    throw UsageError(fmt::format("unknown command {}{}", name,
                                 hint.empty() ? "; the commands are " + model::list_names(names, "and") : hint));
  } catch (const HelpRequested& help) {
    request.help = help.what();
    request.traits = kOnlyPrints;
  } catch (const UsageError& error) {
    request.usage_error = io::visible_line(error.what());
  }
  return request;
}

std::string speaker(const Request& request) {
  return request.command.empty() ? "lockstep" : "lockstep " + request.command;
}

/// Prints to stderr. If that fails (a full disk, a closed pipe), the exit code stays the same.
template <class... Values>
void complain(fmt::format_string<Values...> format, Values&&... values) {
  comm::write_stderr(io::visible_text(fmt::format(format, std::forward<Values>(values)...)));
}

void say_usage_errors(const Request& request, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) complain("{}: {}\n", speaker(request), text);
  complain("`{} --help` explains the options.\n", speaker(request));
}

/// Minimum in seconds. A start is slower than a step: all ranks load the program, often from one file system, on busy
/// hosts.
constexpr double kMinStartLimit = 20;

/// Returns the seconds within which the ranks must find each other at the start: the default, or --deadline of the
/// command line, because a user with slow ranks has raised it. A --deadline in a configuration file is ignored: its
/// file system may be slow.
double start_limit(const std::vector<std::string>& arguments) {
  double limit = comm::CommunicatorOptions{}.deadline_seconds;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view value = arguments[i];
    if (value == "--deadline") {
      value = i + 1 < arguments.size() ? std::string_view(arguments[i + 1]) : "";
    } else if (value.starts_with("--deadline=")) {
      value.remove_prefix(std::string_view("--deadline=").size());
    } else {
      continue;
    }
    const double seconds = std::atof(std::string(value).c_str());
    // Other values are usage errors, which the ranks report after the start.
    if (seconds > 0) limit = std::max(seconds, kMinStartLimit);
  }
  return limit;
}

std::vector<std::string> differences(comm::Communicator& communicator, const Request& request) {
  try {
    comm::require_equal(communicator, std::vector<comm::FingerprintItem>{{"command", request.command}});
    comm::require_equal(communicator, std::vector<comm::FingerprintItem>{{"command line", request.job.options}});
  } catch (const comm::ConsensusError& error) {
    return {error.what()};
  }
  return {};
}

/// Collective. Returns true on every rank, and reports on rank 0, if a rank has a usage error or the command lines
/// differ. Ranks may have different arguments (mpirun -np 1 ... : -np 1 ...) or different results of parsing (a
/// --config file that one host lacks). Call it before all other collectives, because options decide which collective
/// calls follow.
bool somebody_misunderstood(comm::MpiSession& session, const Request& request) {
  std::vector<std::string> errors;
  if (session.size() == 1) {
    if (!request.usage_error.empty()) errors.push_back(request.usage_error);
  } else {
    // A hash from each rank shows if the texts are equal. Only if they differ do the ranks exchange the texts.
    const std::string own = fmt::format("{}\n{}\n{}", request.command, request.job.options, request.usage_error);
    const std::vector<std::size_t> all = comm::exchange(session, std::hash<std::string>{}(own), request.start_limit);
    const bool all_equal = std::ranges::all_of(all, [&](std::size_t one) { return one == all.front(); });
    if (all_equal && request.usage_error.empty()) return false;
    const auto communicator = comm::make_communicator(session, {.deadline_seconds = request.start_limit});
    errors = gather_said(*communicator, request.usage_error);
    if (errors.empty()) errors = differences(*communicator, request);
  }
  if (session.rank() == 0 && !errors.empty()) say_usage_errors(request, errors);
  return !errors.empty();
}

/// Ends a failed job: prints one message and chooses the exit code.
class FailedEnd {
 public:
  /// `session` is nullptr if the command needs none.
  FailedEnd(comm::MpiSession* session, const Request& request) : session_(session), request_(request) {}

  int operator()(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (!code_) code_ = say(error);
    return *code_;
  }

 private:
  int say(const std::exception_ptr& thrown) {
    const bool speaks = session_ == nullptr || session_->rank() == 0;
    try {
      std::rethrow_exception(thrown);
    } catch (const UsageError& error) {  // an error that only the running job detects, the same on all ranks
      if (speaks) say_usage_errors(request_, {error.what()});
      return kExitWrongUsage;
    } catch (const comm::ConsensusError& error) {
      if (speaks) complain("{}: error: {}\n", speaker(request_), error.what());
      return kExitFailed;
    } catch (const std::bad_alloc&) {
      return fail_alone(
          "out of memory; a smaller batch or network, or fewer ranks per host, need less "
          "(`lockstep train --dry-run` prints how much)");
    } catch (const io::UnknownName& error) {
      if (session_ != nullptr && session_->size() > 1) return fail_alone(io::visible_line(error.what()));
      say_usage_errors(request_, {io::visible_line(error.what())});
      return kExitWrongUsage;
    } catch (const io::FileError& error) {  // file names may contain line breaks
      return fail_alone(io::visible_line(error.what()));
    } catch (const std::exception& error) {
      return fail_alone(error.what());
    }
  }

  /// For an error that only this rank knows: reports it and aborts all ranks.
  int fail_alone(const std::string& text) {
    if (session_ != nullptr && session_->size() > 1) {
      session_->abort(kExitFailed, io::visible_text(fmt::format("{}: error on rank {} ({}): {}", speaker(request_),
                                                                session_->rank(), session_->host(), text)));
    }
    complain("{}: error: {}\n", speaker(request_), text);
    return kExitFailed;
  }

  comm::MpiSession* session_;
  const Request& request_;
  std::mutex mutex_;
  std::optional<int> code_;
};

/// Runs the command. `session` is nullptr if the command needs none.
int run(comm::MpiSession* session, const Request& request, StopSignals& signals) {
  FailedEnd failed(session, request);
  try {
    if (session == nullptr) return request.job.run(nullptr, signals);
    session->set_failure_handler([&failed](const std::exception_ptr& error) { return failed(error); });
    return session->conclude([&] {
      if (somebody_misunderstood(*session, request)) return kExitWrongUsage;
      return request.job.run(session, signals);
    });
  } catch (...) {
    return failed(std::current_exception());
  }
}

int say_help(const Request& request, bool speaks) {
  Console console(speaks);
  console.info(request.help);
  console.require_output();
  return kExitDone;
}

}  // namespace

int run_program(int argc, char** argv, const std::vector<Command>& commands, StopSignals& signals) {
  Request request = understand({argv + 1, argv + argc}, commands, signals);
  request.start_limit = start_limit({argv + 1, argv + argc});
  const Traits& traits = request.traits;
  if (traits.on_signal == OnSignal::end) signals.release();
  if (traits.on_closed_pipe == OnClosedPipe::go_on) std::signal(SIGPIPE, SIG_IGN);
  const std::optional<int> launched = comm::launched_rank();
  const bool speaks = launched.value_or(0) == 0;
  if (!request.help.empty()) return say_help(request, speaks);
  if (argc == 1 && !launched) return complain("{}", program_help(commands)), kExitWrongUsage;
  const bool takes_ranks = traits.processes == Processes::any_number || traits.processes == Processes::as_launched;
  if (!takes_ranks && comm::launched_size() > 1) {
    request.usage_error = fmt::format("{} runs as one process, and {} were started: start it without mpirun or srun",
                                      request.command, comm::launched_size());
  }
  const bool needs_peers = takes_ranks && launched;
  if (!needs_peers && !request.usage_error.empty()) {
    if (speaks) say_usage_errors(request, {request.usage_error});
    return kExitWrongUsage;
  }
  const bool alone = traits.processes == Processes::alone || (traits.processes == Processes::as_launched && !launched);
  if (alone) return run(nullptr, request, signals);

  const auto say_launch_error = [&](const std::string& error) {
    if (speaks) complain("{}: {}\n", speaker(request), error);
    return kExitWrongUsage;
  };
  if (const std::string error = comm::MpiSession::launch_obstacle(); !error.empty()) return say_launch_error(error);
  // The session outlives the job. Its destructor, MPI_Finalize, waits for all ranks, so rank 0's last output is written
  // before any process exits with a code that makes the launcher kill the others.
  comm::MpiSession session(argc, argv, request.start_limit);
  if (const std::string error = session.launch_error(); !error.empty()) return say_launch_error(error);
  if (const std::string warning = session.launch_warning(); !warning.empty() && speaks) {
    complain("warning: {}\n", warning);
  }
  return run(&session, request, signals);
}

}  // namespace lockstep::app
