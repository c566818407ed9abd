#include "app/plan/foreign_data.hpp"

#include "app/plan/agreement.hpp"
#include "app/plan/workload.hpp"
#include "io/shards/shard_manifest.hpp"

namespace lockstep::app {

void inspect_foreign(const io::ForeignFiles& files) { io::inspect_in_child("/proc/self/exe", files, {}); }

io::ForeignFiles foreign_files(const TrainOptions& options, const std::filesystem::path& path) {
  const bool tokens = model::tokens_per_sample(options.network) > 0;
  const std::string x = tokens && !options.was_set("x") ? io::kTokensName : options.data.x;
  return {.path = path, .x = x, .y = tokens ? "" : options.data.y};
}

void inspect_foreign_data(comm::Communicator& communicator, const TrainOptions& options) {
  all_succeed_or_usage(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation inspecting(communicator, "inspecting the data");
    const DataPaths paths = resolve_data_paths(options.data);
    inspect_foreign(foreign_files(options, paths.training));
    if (!paths.validation.empty()) inspect_foreign(foreign_files(options, paths.validation));
  });
}

}  // namespace lockstep::app
