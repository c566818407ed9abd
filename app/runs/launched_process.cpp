#include "app/runs/launched_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Runs in the child, which may only make system calls.
[[noreturn]] void become(char* const* words, int input, int output, int problem, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(words[0], words);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(problem, &error, sizeof(error));
  _exit(127);
}

/// Returns the state of a process: 'Z' is a zombie; 0: the process is gone.
char state_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // a name may contain blanks and parentheses
  return name_end == std::string::npos ? '\0' : line[name_end + 2];
}

}  // namespace

pid_t start_process(const std::vector<std::string>& words, const fs::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const io::Descriptor log = io::open_own_file(output, O_WRONLY | O_CREAT | O_APPEND, "write");
  const io::Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw io::FileError(fmt::format("{} cannot be started: {}", words[0], std::strerror(errno)));
  }
  const io::Descriptor problem_here(ends[0]);
  io::Descriptor problem_there(ends[1]);
  const pid_t parent = getpid(), process = fork();
  if (process == 0) become(arguments.data(), nothing.get(), log.get(), problem_there.get(), parent);
  int error = process < 0 ? errno : 0;
  problem_there = io::Descriptor();
  if (process > 0 && read(problem_here.get(), &error, sizeof(error)) > 0) waitpid(process, nullptr, 0);
  if (error != 0) throw io::FileError(fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
  return process;
}

bool waits_for_the_dead(pid_t process) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process));
  bool any = false;
  for (pid_t child = 0; file >> child; any = true) {
    if (state_of(child) != 'Z') return false;
  }
  return any;
}

}  // namespace lockstep::app
