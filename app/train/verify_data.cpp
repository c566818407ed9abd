#include "app/train/verify_data.hpp"

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

bool is_verified(VerifyData wanted, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kAlwaysVerifiedBytes = std::uint64_t{4} << 30;
  return wanted == VerifyData::all || (wanted == VerifyData::automatic && bytes <= kAlwaysVerifiedBytes);
}

void verify_data(comm::Communicator& communicator, Console& console, VerifyData wanted, const Workload& workload) {
  std::uint64_t bytes = 0;
  for (const auto* dataset : {workload.training.get(), workload.validation.get()}) {
    if (dataset == nullptr) continue;
    for (const io::ShardInfo& shard : dataset->shards()) {
      if (!shard.checksum_x.empty() || !shard.checksum_y.empty()) bytes += shard.bytes;
    }
  }
  if (wanted == VerifyData::none) return;
  if (!is_verified(wanted, bytes)) {
    console.info(
        fmt::format("checksums of {} are not verified at the start of a job this large (--verify all does; so does "
                    "`lockstep info`)",
                    format_bytes(bytes)));
    return;
  }
  communicator.note_activity("verifying the data", 0);
  StopWatch watch;
  comm::all_succeed(communicator, [&] {
    workload.training->verify(communicator.rank(), communicator.size());
    if (workload.validation) workload.validation->verify(communicator.rank(), communicator.size());
  });
  if (bytes == 0) return;  // files made by others have none
  console.info(fmt::format("checksums of {} verified in {:.2f} s", format_bytes(bytes), watch.seconds()));
}

}  // namespace lockstep::app
