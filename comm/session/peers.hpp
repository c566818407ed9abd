/// \file
/// Identity of the ranks: host, process and cores of each, gathered at the rendezvous. With it waiting ranks can name a
/// silent one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::comm {

/// A rank's description of itself, sent as bytes.
struct PeerInfo {
  static constexpr std::size_t kCoreWords = 32;
  std::array<char, 64> host{};  ///< zero-terminated, cut if longer
  std::uint64_t machine = 0;    ///< hash of kernel boot and PID namespace: equal if ranks can signal and map each other
  std::uint64_t kernel = 0;     ///< hash of kernel boot: equal if ranks share cores, in any namespaces; 0: unknown
  std::uint64_t segment_nonce = 0;    ///< number at the start of its shared control segment
  std::uint64_t segment_address = 0;  ///< place where it sends and gets descriptors of shared segments; 0: none
  std::array<std::uint64_t, kCoreWords> cores{};  ///< bit set: cores this process may run on, modulo 2,048
  std::uint64_t cpu_group = 0;                    ///< the control group that limits its CPUs; 0: none does
  double group_cpus = 0;                          ///< CPUs that this group's processes together may use
  std::int32_t pid = 0;
  std::int32_t pretended_machine = 0;  ///< ranks with different values treat each other as on different machines
};

/// The description of this process, without a segment.
PeerInfo own_info();

/// Visible state of another rank's process.
enum class ProcessState { running, stopped, blocked, gone, out_of_sight };

class PeerTable {
 public:
  /// `first_rank`: number of rank 0 in messages.
  PeerTable(int own_rank, std::vector<PeerInfo> peers, int first_rank = 0)
      : own_rank_(own_rank), first_rank_(first_rank), peers_(std::move(peers)) {}

  int size() const noexcept { return static_cast<int>(peers_.size()); }
  const PeerInfo& info(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  std::string host(int rank) const { return info(rank).host.data(); }
  /// "rank 1 (host node2, pid 4711)"
  std::string describe(int rank) const;
  /// True for the same kernel, PID namespace and host name.
  bool same_machine(int rank) const { return same_machine(own_rank_, rank); }
  /// The ranks of each machine, ascending; machines in the order of their lowest ranks. The same on every rank.
  std::vector<std::vector<int>> machines() const;
  ProcessState process_state(int rank) const;
  /// True if more ranks run on this kernel, in all its containers, than cores that they and their control groups may
  /// use.
  bool oversubscribed() const { return cores_left(1) < 0; }
  /// The number of those cores minus `threads` for each of these ranks.
  int cores_left(int threads) const;

 private:
  bool same_machine(int one, int other) const;

  int own_rank_, first_rank_;
  std::vector<PeerInfo> peers_;
};

/// Meaning of a state, for an error message: one sentence.
const char* explanation(ProcessState state);

/// "5" or "0.5": seconds for a message, without needless digits.
std::string seconds_text(double seconds);

}  // namespace lockstep::comm
