/// \file
/// The process that a file on a shared disk names. Host name and process id alone name many: containers often have
/// equal ones, and a process id is given again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::io {

struct ProcessIdentity {
  std::string host;                 ///< for people
  std::int64_t pid = 0;             ///< in its namespace
  std::string boot;                 ///< random identity of its kernel's boot; "": unknown
  std::uint64_t pid_namespace = 0;  ///< inode of its /proc/self/ns/pid; 0: not known
  std::uint64_t started = 0;        ///< in clock ticks since its kernel's start; 0: not known
  std::string token;                ///< random
};

/// A new token for each call. Throws FileError where the system gives no random numbers.
ProcessIdentity this_process();

/// A line "KEY VALUE" for each that is known.
std::string to_text(const ProcessIdentity& process);
/// The other direction. What is missing or no number stays not known.
ProcessIdentity process_identity_from(std::string_view text);

/// Both run on one kernel, in one container or several.
bool on_one_kernel(const ProcessIdentity& a, const ProcessIdentity& b);

enum class Presence {
  here,    ///< it runs
  gone,    ///< it has ended
  unseen,  ///< it is, or was, where this process cannot look: another host, another container
};
Presence presence_of(const ProcessIdentity& process);

}  // namespace lockstep::io
