/// Checks that a plan fits on its device, before anything is allocated.
#include <algorithm>
#include <initializer_list>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/place/placement.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "comm/messages.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {
namespace {

struct Part {
  const char* name;
  std::size_t bytes;
};
std::string sum_of(std::initializer_list<Part> parts) {
  std::vector<std::string> texts;
  for (const Part& part : parts) {
    if (part.bytes > 0) texts.push_back(fmt::format("{} {}", part.name, format_bytes(part.bytes)));
  }
  return fmt::format("{}", fmt::join(texts, " + "));
}

std::string arenas(const model::MemoryPlan& plan) {
  return sum_of({{"parameters", plan.parameters},
                 {"gradients", plan.gradients},
                 {"optimiser", plan.optimizer},
                 {"average", plan.average},
                 {"activations", plan.activations},
                 {"input", plan.input}});
}

}  // namespace

std::string beside_arenas(const model::MemoryPlan& plan) {
  const std::string sum = sum_of({{"products", plan.products},
                                  {"patches", plan.patches},
                                  {"cuDNN", plan.cudnn},
                                  {"kernels", plan.kernels},
                                  {"NCCL", plan.communication}});
  return sum.empty() ? "" : " + " + sum;
}

std::size_t bytes_on_gpu(const model::MemoryPlan& plan) { return plan.total() + plan.total() / 20; }

std::string memory_complaint(std::span<const GpuMemory> ranks, const model::MemoryPlan& plan, std::int64_t batch,
                             const std::function<model::MemoryPlan(std::int64_t)>& plan_for) {
  const auto share = [](const GpuMemory& memory) {
    return memory.free_bytes / static_cast<std::size_t>(std::max(memory.sharers, 1));
  };
  std::vector<int> short_of_memory;
  std::size_t least = 0;  // rank with the least free memory
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (share(ranks[rank]) < bytes_on_gpu(plan)) short_of_memory.push_back(static_cast<int>(rank));
    if (share(ranks[rank]) < share(ranks[least])) least = rank;
  }
  if (short_of_memory.empty()) return "";

  // Bisection: `fits` fits and `too_large` does not, because memory grows with the batch.
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
      "out of GPU memory before the start: a rank with {} samples at once needs {} = {}{} and 5 % more; "
      "{} has {} of {} free{}{}. {}",
      with_commas(batch), bytes(bytes_on_gpu(plan)), arenas(plan), beside_arenas(plan), where, bytes(worst.free_bytes),
      bytes(worst.bytes), among, others, advice);
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
  if (!complaint.empty()) throw comm::ConsensusError(complaint);
}

}  // namespace lockstep::app
