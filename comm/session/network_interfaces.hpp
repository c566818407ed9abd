/// \file
/// The network interfaces of this host, and the check of NCCL_SOCKET_IFNAME, which selects from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Names of the interfaces that are up and have an IP address, each once: the ones that NCCL can use.
std::vector<std::string> host_interfaces();

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;      ///< "10.0.0.7" or "fd00::7", without a scope
  int prefix = 0;           ///< number of bits that the subnet's addresses share
  bool loopback = false;    ///< loopback, or an address that is valid only on its link (fe80::)
  bool is_virtual = false;  ///< a bridge, tunnel, or interface of a container or virtual machine: no hardware behind it
  std::int64_t megabits = 0;  ///< speed of the hardware, Mbit/s; 0: unknown, or no hardware
  int mtu = 0;                ///< size of the largest packet, bytes; 0: unknown
  /// "10.0.0.0/24"; empty for an invalid address.
  std::string subnet() const;
};
/// All addresses of this host's interfaces that are up, IPv4 before IPv6.
std::vector<InterfaceAddress> interface_addresses();
/// True if a list in the format of Open MPI's btl_tcp_if_include (names and subnets like 10.0.0.0/16, with commas) has
/// the address's interface.
bool is_in_list(const InterfaceAddress& address, std::string_view list);

/// Advice for ranks that cannot reach each other: a sentence about interfaces of containers and virtual machines that
/// Open MPI may use by mistake, and the setting that excludes them. Empty if there are none, or if `include` or
/// `exclude` (btl_tcp_if_...) already exclude them.
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

/// The fault in `list`, a value of NCCL_SOCKET_IFNAME, on `host` with these interfaces; empty: no fault. The rules are
/// NCCL's: names separated by commas, each a prefix of an interface's name. A leading `=` demands whole names; a
/// leading `^` (also before the `=`) selects all others. A port after a colon is ignored. A list of at most one
/// character counts as not given. A list that leaves no interface is a fault.
std::string interface_list_error(std::string_view list, std::span<const std::string> interfaces, std::string_view host);

/// The fault in the user's NCCL_* variables, as far as it shows before NCCL starts: NCCL_SOCKET_IFNAME names an
/// interface (prefixes, ^, =, commas as NCCL reads them) that this host does not have. Empty: no fault.
std::string nccl_environment_error();

/// True if NCCL may sum in the switches between GPUs (NVLS), where the order of the additions is not fixed.
/// NCCL_NVLS_ENABLE decides; if it is not set, `asked` does.
bool nccl_may_use_nvls(bool asked);

}  // namespace lockstep::comm
