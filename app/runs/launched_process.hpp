/// \file
/// Starts a program and watches it: a training of a sweep, with or without a launcher.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::app {

/// Starts `words` and appends its output to the file `output`. The program has its own process group, so a Ctrl-C
/// reaches only this process, which must stop the program. If the calling thread ends, the program receives SIGUSR1.
/// Throws io::FileError.
pid_t start_process(const std::vector<std::string>& words, const std::filesystem::path& output);

/// True if the process has started others, all of them have ended, and it has not waited for them. Open MPI's mpirun
/// may stay so forever if a rank dies while it starts.
bool waits_for_the_dead(pid_t process);

}  // namespace lockstep::app
