#include "comm/session/network_interfaces.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::string_view name = item.substr(0, item.find(':'));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

/// Prefixes of the names of containers' and virtual machines' interfaces.
constexpr std::string_view kBridgesOfContainers[] = {"docker", "br-", "virbr", "cni",
                                                     "podman", "lxc", "lxdbr", "vmnet"};

/// 4 or 16 bytes in network order.
using AddressBytes = std::vector<unsigned char>;

std::optional<AddressBytes> parse_address(const std::string& text) {
  const int family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  AddressBytes bytes(family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr));
  if (inet_pton(family, text.c_str(), bytes.data()) != 1) return std::nullopt;
  return bytes;
}

std::string address_text(const AddressBytes& bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  return text;
}

/// Keeps the first `prefix` bits; the others become zero.
AddressBytes masked(AddressBytes bytes, int prefix) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int kept = std::clamp(prefix - static_cast<int>(8 * i), 0, 8);
    bytes[i] = static_cast<unsigned char>(bytes[i] & (0xff00 >> kept));
  }
  return bytes;
}

AddressBytes address_bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    in_addr v4{};
    std::memcpy(&v4, reinterpret_cast<const char*>(address) + offsetof(sockaddr_in, sin_addr), sizeof(v4));
    const auto raw = std::bit_cast<std::array<unsigned char, sizeof(v4)>>(v4);
    return {raw.begin(), raw.end()};
  }
  AddressBytes bytes(sizeof(in6_addr));
  std::memcpy(bytes.data(), reinterpret_cast<const char*>(address) + offsetof(sockaddr_in6, sin6_addr), bytes.size());
  return bytes;
}

int bits_set(const AddressBytes& bytes) {
  int bits = 0;
  for (const unsigned char byte : bytes) bits += std::popcount(byte);
  return bits;
}

/// The number in a one-line file under /sys; 0 if there is none or it is negative.
std::int64_t number_in(const std::filesystem::path& file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value && value > 0 ? value : 0;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown);
}

/// True for a bond, bridge or VLAN: its speed is that of the devices below. The speed of other virtual devices means
/// nothing.
bool stands_on_others(const std::filesystem::path& device) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(device, none)) {
    if (entry.path().filename().string().starts_with("lower_")) return true;
  }
  return false;
}

std::string line_in(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  return line;
}

}  // namespace

std::string InterfaceAddress::subnet() const {
  const auto bytes = parse_address(address);
  return bytes ? fmt::format("{}/{}", address_text(masked(*bytes, prefix)), prefix) : "";
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || entry->ifa_netmask == nullptr ||
          (entry->ifa_flags & IFF_RUNNING) == 0) {
        continue;
      }
      const std::filesystem::path device = std::filesystem::path("/sys/class/net") / entry->ifa_name;
      const AddressBytes bytes = address_bytes(entry->ifa_addr);
      const bool of_one_link = family == AF_INET6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
      const bool hardware = is_there(device / "device"), on_hardware = hardware || stands_on_others(device);
      addresses.push_back({.interface = entry->ifa_name,
                           .address = address_text(bytes),
                           .prefix = bits_set(address_bytes(entry->ifa_netmask)),
                           .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0 || of_one_link,
                           .is_virtual = !hardware,
                           .megabits = on_hardware ? number_in(device / "speed") : 0,
                           .mtu = static_cast<int>(number_in(device / "mtu"))});
    }
  }
  return addresses;
}

bool is_in_list(const InterfaceAddress& address, std::string_view list) {
  while (!list.empty()) {
    const std::string item(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::size_t slash = item.find('/');
    if (slash == std::string::npos) {
      if (item == address.interface) return true;
      continue;
    }
    int prefix = 0;
    const auto subnet = parse_address(item.substr(0, slash)), own = parse_address(address.address);
    const char* const end = item.data() + item.size();
    if (!subnet || !own || subnet->size() != own->size()) continue;
    if (std::from_chars(item.data() + slash + 1, end, prefix).ptr != end) continue;
    if (masked(*subnet, prefix) == masked(*own, prefix)) return true;
  }
  return false;
}

std::string suspect_interfaces(std::span<const InterfaceAddress> addresses, std::string_view include,
                               std::string_view exclude) {
  if (!include.empty()) return "";
  std::vector<std::string> suspects, others;
  for (const InterfaceAddress& a : addresses) {
    if (a.loopback || a.address.find(':') != std::string::npos) continue;
    const bool is_suspect = std::any_of(std::begin(kBridgesOfContainers), std::end(kBridgesOfContainers),
                                        [&](std::string_view beginning) { return a.interface.starts_with(beginning); });
    if (!is_suspect) {
      others.push_back(a.subnet());
    } else if (!is_in_list(a, exclude)) {
      suspects.push_back(fmt::format("{} {}", a.interface, a.address));
    }
  }
  if (suspects.empty() || others.empty()) return "";
  return fmt::format(
      "{} {} like the same address on every host, and MPI may have taken it for a way between them: name the network "
      "that joins the hosts, as in mpirun --mca btl_tcp_if_include {}",
      fmt::join(suspects, ", "), suspects.size() == 1 ? "looks" : "look", others[0]);
}

std::vector<FabricPort> fabric_ports() {
  std::vector<FabricPort> ports;
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none)) {
      const std::string state = line_in(port.path() / "state");  // "4: ACTIVE"
      ports.push_back({.name = fmt::format("{}/{}", device.path().filename().string(), port.path().filename().string()),
                       .state = state.substr(std::min(state.find(' ') + 1, state.size())),
                       .rate = line_in(port.path() / "rate")});
    }
  }
  std::sort(ports.begin(), ports.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return ports;
}

std::vector<std::string> host_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::find(names.begin(), names.end(), entry->ifa_name) == names.end()) names.emplace_back(entry->ifa_name);
  }
  return names;
}

std::string interface_list_error(std::string_view list, std::span<const std::string> interfaces,
                                 std::string_view host) {
  if (list.size() <= 1) return "";
  std::string_view rest = list;
  const bool excludes = rest.starts_with('^');
  if (excludes) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  const std::vector<std::string_view> names = names_in(rest);
  const bool usable = std::any_of(interfaces.begin(), interfaces.end(), [&](const std::string& interface) {
    // An empty list names everything.
    const bool named = names.empty() || std::any_of(names.begin(), names.end(), [&](std::string_view name) {
                         return exact ? interface == name : interface.starts_with(name);
                       });
    return named != excludes;
  });
  if (usable) return "";
  const std::string there = interfaces.empty()
                                ? fmt::format("{} has no running interface with an IP address at all", host)
                                : fmt::format("the interfaces of {} are {}", host, fmt::join(interfaces, ", "));
  return excludes
             ? fmt::format("NCCL_SOCKET_IFNAME={} excludes every network interface: {}. Exclude fewer, or unset it",
                           list, there)
             : fmt::format(
                   "NCCL_SOCKET_IFNAME={} names no network interface that is there{}: {}. Name one of "
                   "them, or unset it",
                   list, exact ? " (= asks for whole names)" : "", there);
}

std::string nccl_environment_error() {
  const char* const list = std::getenv("NCCL_SOCKET_IFNAME");
  if (list == nullptr) return "";
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return interface_list_error(list, host_interfaces(), host[0] == '\0' ? "this host" : host);
}

bool nccl_may_use_nvls(bool asked) {
  const char* const set = std::getenv("NCCL_NVLS_ENABLE");
  return set == nullptr || *set == '\0' ? asked : std::string_view(set) != "0";
}

}  // namespace lockstep::comm
