/// \file
/// What NCCL's own log says of how it communicates: the proof that the ring that was asked for is the one that runs.
/// Reads text and knows nothing of NCCL otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// How one sum was done.
struct CollectiveChoice {
  std::int64_t bytes = 0;
  std::string algorithm;  ///< as NCCL prints it: "RING", "TREE", "NVLS"
  std::string protocol;   ///< "LL", "LL128", "SIMPLE"
  bool operator==(const CollectiveChoice&) const = default;
};

/// What was found; what was not is empty or 0.
struct CollectiveReport {
  std::vector<std::vector<std::string>>
      rings;                              ///< the different rings, each as rank numbers in its order (rank 0's log)
  int channels = 0;                       ///< rings and trees that share the work, each on its own processor
  std::vector<std::string> transports;    ///< "P2P/CUMEM", "SHM", "NET/IB": sorted
  std::vector<CollectiveChoice> choices;  ///< all-reduces, in the order of the log, repetitions left out (rank 0)
};

/// Reads the log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING: lines "… NCCL INFO TEXT". Lines that mean
/// nothing to it are skipped.
CollectiveReport parse_nccl_log(std::string_view log);

/// "ring 0 -> 1 -> 2 -> 3 -> 0, 16 channels, over P2P/CUMEM, algorithm Ring for 4 MiB (Simple)"; says so where the log
/// gave nothing. `ring_wanted`: a largest all-reduce that went another way is pointed out.
std::string describe(const CollectiveReport& report, bool ring_wanted);

}  // namespace lockstep::comm
