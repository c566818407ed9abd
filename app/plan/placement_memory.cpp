/// Whether a plan fits where it will run, before anything is allocated.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/plan/placement.hpp"
#include "app/report/figures.hpp"
#include "comm/agreement.hpp"
#include "comm/messages.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {
namespace {

std::string arenas(const model::MemoryPlan& plan) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, std::size_t bytes) {
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
  };
  add("parameters", plan.parameters);
  add("gradients", plan.gradients);
  add("optimiser", plan.optimizer);
  add("average", plan.average);
  add("activations", plan.activations);
  add("input", plan.input);
  return fmt::format("{}", fmt::join(parts, " + "));
}

}  // namespace

std::size_t bytes_on_gpu(const model::MemoryPlan& plan) {
  constexpr std::size_t kFixed = std::size_t{512} << 20;
  return plan.total() + plan.total() / 20 + kFixed;
}

std::string memory_complaint(std::span<const GpuMemory> ranks, const model::MemoryPlan& plan, std::int64_t batch,
                             const std::function<model::MemoryPlan(std::int64_t)>& plan_for) {
  const auto share = [](const GpuMemory& memory) {
    return memory.free_bytes / static_cast<std::size_t>(std::max(memory.sharers, 1));
  };
  std::vector<int> short_of_memory;
  std::size_t least = 0;  // the rank with the least
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (share(ranks[rank]) < bytes_on_gpu(plan)) short_of_memory.push_back(static_cast<int>(rank));
    if (share(ranks[rank]) < share(ranks[least])) least = rank;
  }
  if (short_of_memory.empty()) return "";

  // [fits, too_large): memory grows with the batch.
  std::int64_t fits = 0, too_large = batch;
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (bytes_on_gpu(plan_for(middle)) <= share(ranks[least]) ? fits : too_large) = middle;
  }
  const auto bytes = [](std::size_t count) { return format_bytes(count); };
  const GpuMemory& worst = ranks[least];
  const std::string where =
      ranks.size() == 1 ? worst.gpu : fmt::format("{} of rank {} on {}", worst.gpu, least, worst.host);
  const std::string others =
      short_of_memory.size() > 1 ? fmt::format(" (too little on {})", comm::name_ranks(short_of_memory)) : "";
  const std::string among = worst.sharers > 1 ? fmt::format(" for {} ranks that share it", worst.sharers) : "";
  const std::string advice =
      fits > 0 ? fmt::format("--batch {} would fit", fits)
               : "Not even --batch 1 would fit: take a smaller network, a smaller --evaluation-batch or a larger GPU";
  return fmt::format(
      "out of GPU memory before the start: a rank with {} samples at once needs {} = {} + 512 MiB and 5 % for CUDA's "
      "libraries and NCCL; {} has {} of {} free{}{}. {}",
      with_commas(batch), bytes(bytes_on_gpu(plan)), arenas(plan), where, bytes(worst.free_bytes), bytes(worst.bytes),
      among, others, advice);
}

void require_gpu_memory(comm::Communicator& communicator, const Place& place, const model::MemoryPlan& plan,
                        std::int64_t batch, const std::function<model::MemoryPlan(std::int64_t)>& plan_for) {
  if (!place.gpu) return;
  std::size_t free_bytes = 0;
  comm::all_succeed(communicator, [&] { free_bytes = model::free_memory(*place.gpu); });
  const std::vector<std::string> texts =
      comm::all_gather_text(communicator, fmt::format("{} {} {} {} {}", free_bytes, place.gpu->bytes, place.sharers,
                                                      place.host, name_with_pci(*place.gpu)));
  std::vector<GpuMemory> ranks;
  for (const std::string& text : texts) {
    std::istringstream words(text);
    GpuMemory& memory = ranks.emplace_back();
    words >> memory.free_bytes >> memory.bytes >> memory.sharers >> memory.host >> std::ws;
    std::getline(words, memory.gpu);
  }
  const std::string complaint = memory_complaint(ranks, plan, batch, plan_for);
  if (!complaint.empty()) throw comm::AgreedError(complaint);
}

}  // namespace lockstep::app
