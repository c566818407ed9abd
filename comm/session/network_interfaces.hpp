/// \file
/// The network interfaces of this host, and the list in NCCL_SOCKET_IFNAME that is to pick from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Names of the interfaces that run and have an IP address, each once: those that NCCL can use.
std::vector<std::string> host_interfaces();

/// An address of an interface that runs.
struct InterfaceAddress {
  std::string interface;
  std::string address;        ///< "10.0.0.7" or "fd00::7", without a scope
  int prefix = 0;             ///< bits that the subnet's addresses share
  bool loopback = false;      ///< or an address that means nothing outside of its link (fe80::)
  bool is_virtual = false;    ///< a bridge, tunnel, container's or machine's own: no hardware behind it
  std::int64_t megabits = 0;  ///< speed of the hardware, Mbit/s; 0: not known, or none
  int mtu = 0;                ///< bytes of the largest packet; 0: not known
  /// "10.0.0.0/24"; empty where the address is none.
  std::string subnet() const;
};
/// All addresses of the interfaces that run on this host, IPv4 before IPv6.
std::vector<InterfaceAddress> interface_addresses();
/// Whether a list as in Open MPI's btl_tcp_if_include (names and subnets like 10.0.0.0/16, with commas) has this one.
bool is_in_list(const InterfaceAddress& address, std::string_view list);

/// For ranks that hear nothing of each other: a sentence about interfaces of containers and virtual machines that Open
/// MPI may use by mistake, and what to tell it; empty where there are none, or where `include` or `exclude`
/// (btl_tcp_if_...) keep it from them.
std::string suspect_interfaces(std::span<const InterfaceAddress> addresses, std::string_view include,
                               std::string_view exclude);

/// An InfiniBand or RoCE port.
struct FabricPort {
  std::string name;   ///< "mlx5_0/1"
  std::string state;  ///< "ACTIVE", "DOWN", …
  std::string rate;   ///< "200 Gb/sec (4X HDR)"
};
/// Ports under /sys/class/infiniband, by name.
std::vector<FabricPort> fabric_ports();

/// What is wrong with `list`, a value of NCCL_SOCKET_IFNAME, on `host` with these interfaces; empty: nothing. The rules
/// are NCCL's: names separated by commas, each the beginning of an interface's name; a leading `=` asks for whole
/// names; a leading `^` (also before the `=`) for all but those. A port after a colon means nothing here. A list of one
/// character or none counts as not given. Wrong is a list that leaves no interface.
std::string interface_list_error(std::string_view list, std::span<const std::string> interfaces, std::string_view host);

/// What is wrong with the NCCL_* variables that the user has set, as far as we can tell before NCCL does: an interface
/// in NCCL_SOCKET_IFNAME (prefixes, ^, =, commas as NCCL reads them) that this host does not have. Empty: nothing.
std::string nccl_environment_error();

/// Whether NCCL may sum in the switches between GPUs (NVLS), where the order of the additions is not fixed: as
/// NCCL_NVLS_ENABLE says, and as `asked` where it is not set.
bool nccl_may_use_nvls(bool asked);

}  // namespace lockstep::comm
