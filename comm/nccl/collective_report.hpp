/// \file
/// Reads from NCCL's own log how it communicates, to verify that the requested ring is used. Parses text only; calls no
/// function of NCCL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Algorithm and protocol of one sum.
struct CollectiveChoice {
  std::int64_t bytes = 0;
  std::string algorithm;  ///< as NCCL prints it: "RING", "TREE", "NVLS"
  std::string protocol;   ///< "LL", "LL128", "SIMPLE"
  bool operator==(const CollectiveChoice&) const = default;
};

/// Facts found in the log; missing ones are empty or 0.
struct CollectiveReport {
  std::vector<std::vector<std::string>>
      rings;         ///< the distinct rings, each as rank numbers in its order (rank 0's log)
  int channels = 0;  ///< number of rings and trees that share the work, each on its own multiprocessor
  std::vector<std::string> transports;    ///< sorted, such as "P2P/CUMEM", "SHM", "NET/IB"
  std::vector<CollectiveChoice> choices;  ///< all-reduces, in the order of the log, without repetitions (rank 0)
};

/// Parses the log of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING: lines "… NCCL INFO TEXT". Skips all
/// other lines.
CollectiveReport parse_nccl_log(std::string_view log);

/// "ring 0 -> 1 -> 2 -> 3 -> 0, 16 channels, over P2P/CUMEM, algorithm Ring for 4 MiB (Simple)"; states which facts are
/// missing. `ring_wanted`: mentions if the largest all-reduce used another algorithm.
std::string describe(const CollectiveReport& report, bool ring_wanted);

}  // namespace lockstep::comm
