/// \file
/// The network interfaces of this host, and the list in NCCL_SOCKET_IFNAME that is to pick from them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Names of the interfaces that run and have an IP address, each once: those that NCCL can use.
std::vector<std::string> host_interfaces();

/// What is wrong with `list`, a value of NCCL_SOCKET_IFNAME, on `host` with these interfaces; empty: nothing. The rules
/// are NCCL's: names separated by commas, each the beginning of an interface's name; a leading `=` asks for whole
/// names; a leading `^` (also before the `=`) for all but those. A port after a colon means nothing here. A list of one
/// character or none counts as not given. Wrong is a list that leaves no interface.
std::string interface_list_error(std::string_view list, std::span<const std::string> interfaces, std::string_view host);

}  // namespace lockstep::comm
