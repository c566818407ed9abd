/// \file
/// Identifies the process that a file on a shared disk belongs to. Host name and process id are not enough: containers
/// often have equal ones, and process ids are reused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::io {

struct ProcessIdentity {
  std::string host;                 ///< for messages
  std::int64_t pid = 0;             ///< in its PID namespace
  std::string boot;                 ///< random identity of its kernel's boot; "": unknown
  std::uint64_t pid_namespace = 0;  ///< inode of its /proc/self/ns/pid; 0: unknown
  std::uint64_t started = 0;        ///< clock ticks since the start of its kernel; 0: unknown
  std::string token;                ///< random, different for each call of this_process()
};

/// The identity of this process, with a new token for each call. Throws FileError if the system gives no random
/// numbers.
ProcessIdentity this_process();

/// Writes a line "KEY VALUE" for each known field.
std::string to_text(const ProcessIdentity& process);
/// Parses to_text(). A missing or invalid number stays unknown.
ProcessIdentity process_identity_from(std::string_view text);

/// True if both run on one kernel, in one container or in several.
bool on_one_kernel(const ProcessIdentity& a, const ProcessIdentity& b);

enum class Presence {
  here,    ///< it runs
  gone,    ///< it has ended
  unseen,  ///< unknown, because it is on another host or in another container
};
Presence presence_of(const ProcessIdentity& process);

}  // namespace lockstep::io
