/// \file
/// A program that this one starts and waits for: a training of a sweep, by a launcher or without.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::app {

/// Starts `words` with its output added to the file `output`, in a process group of its own: a Ctrl-C is for this
/// process, which tells it to stop. Where the calling thread ends without a word, SIGUSR1 tells it. Throws
/// io::FileError.
pid_t start_process(const std::vector<std::string>& words, const std::filesystem::path& output);

/// A process that has started others, all of which have ended and which it has not asked about. Open MPI's mpirun may
/// stay so for ever where a rank dies while it starts.
bool waits_for_the_dead(pid_t process);

}  // namespace lockstep::app
