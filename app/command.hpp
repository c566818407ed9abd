/// \file
/// A command of the program: parses its options and runs it. Its traits are known before it runs.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/engine/signals.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

using Arguments = std::vector<std::string>;

/// A command with parsed options, ready to run.
struct Job {
  /// Empty if there is nothing to run. The session is nullptr for a command that runs without MPI.
  std::function<int(comm::MpiSession*, StopSignals&)> run;
  std::string options;  ///< the options as text: equal text means equal options
};

/// The processes that a command accepts: any number of ranks, or one process. `alone` never starts MPI; `as_launched`
/// starts it only under a launcher.
enum class Processes { any_number, as_launched, one, alone };
/// Effect of a stop signal: it ends the process, or it is noted, from the first line of main on. A command that must
/// clean up only sometimes notes signals only then.
enum class OnSignal { end, note };
/// Effect of writing to a pipe without a reader: it ends the process (SIGPIPE), as for Unix tools that only print; or
/// the work continues, because its result or its files are needed.
enum class OnClosedPipe { go_on, end };

/// Properties of a command that are known before it runs.
struct Traits {
  Processes processes = Processes::any_number;
  OnSignal on_signal = OnSignal::end;
  OnClosedPipe on_closed_pipe = OnClosedPipe::go_on;
};

struct Command {
  std::string name;     ///< "bench step"
  std::string summary;  ///< for the list of commands
  Traits traits;
  std::function<Job(const Arguments&)> prepare;  ///< throws UsageError, HelpRequested
};

/// Returns the options as text. Options that a --config file may set have a to_ini(), because such a file may differ
/// between hosts.
template <class Options>
std::string text_of([[maybe_unused]] const Options& options, const Arguments& arguments) {
  if constexpr (requires { options.to_ini(); }) {
    return options.to_ini();
  } else {
    return fmt::format("{}", fmt::join(arguments, "\n"));
  }
}

/// Makes a command. `run` gets the session and the stop signals if it has parameters for them.
template <class Options, class Run>
Command command(const std::string& name, const std::string& summary, Options (*parse)(const Arguments&), Run run,
                const Traits& traits = {}) {
  return {name, summary, traits, [=](const Arguments& arguments) {
            const Options options = parse(arguments);
            const auto start = [=]([[maybe_unused]] comm::MpiSession* session, [[maybe_unused]] StopSignals& signals) {
              if constexpr (std::is_invocable_v<Run, const Options&>) {
                return run(options);
              } else if constexpr (std::is_invocable_v<Run, const Options&, StopSignals&>) {
                return run(options, signals);
              } else if constexpr (std::is_invocable_v<Run, comm::MpiSession*, const Options&, StopSignals&>) {
                return run(session, options, signals);
              } else if constexpr (std::is_invocable_v<Run, comm::MpiSession&, const Options&>) {
                return run(*session, options);
              } else {
                return run(*session, options, signals);
              }
            };
            return Job{start, text_of(options, arguments)};
          }};
}

}  // namespace lockstep::app
