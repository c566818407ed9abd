#include "app/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "app/options.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

constexpr const char* kCarriedGroup = "carried";
constexpr const char* kCarriedName = "lanes";

struct Lanes {
  std::int64_t first = 0, count = 0;
};
Lanes lanes_of(const comm::Communicator& communicator, std::int64_t lanes) {
  const std::int64_t first = lanes * communicator.rank() / communicator.size();
  return {first, lanes * (communicator.rank() + 1) / communicator.size() - first};
}

std::span<float> part_of(CarriedState& state, const Lanes& lanes) {
  return std::span(state.values)
      .subspan(static_cast<std::size_t>(lanes.first * state.elements),
               static_cast<std::size_t>(lanes.count * state.elements));
}

}  // namespace

CarriedState gather_carried(comm::Communicator& communicator, model::Model& model, std::int64_t lanes) {
  CarriedState state{.lanes = lanes, .elements = model.carried_elements(), .values = {}};
  if (state.elements == 0) return {};
  state.values.resize(static_cast<std::size_t>(lanes * state.elements));
  const Lanes own = lanes_of(communicator, lanes);
  model.download_carried(own.count, part_of(state, own));
  communicator.all_reduce_sum(std::span(state.values));  // all but the own part are zero: nothing is rounded
  return state;
}

std::filesystem::path save_checkpoint(io::CheckpointWriter& writer, const model::Model& model,
                                      const io::TrainingRecord& record, const StateGroups& state,
                                      const CarriedState& carried) {
  const std::vector<std::string> groups = model.state_groups();
  std::vector<io::TensorView> tensors;
  for (const model::StateTensor& tensor : model.state_tensors()) {
    const auto group = static_cast<std::size_t>(std::find(groups.begin(), groups.end(), tensor.group) - groups.begin());
    tensors.push_back({.group = tensor.group,
                       .name = tensor.name,
                       .shape = tensor.shape,
                       .values = std::span<const float>(state.at(group)).subspan(tensor.offset, tensor.count)});
  }
  if (carried.lanes > 0) {
    tensors.push_back({.group = kCarriedGroup,
                       .name = kCarriedName,
                       .shape = {carried.lanes, carried.elements},
                       .values = carried.values});
  }
  return writer.write(record, tensors);
}

std::string broadcast_text(comm::Communicator& communicator, const std::string& text) {
  std::uint64_t length = text.size();
  communicator.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  std::string result = text;
  result.resize(length);
  communicator.broadcast(std::as_writable_bytes(std::span(result.data(), result.size())), 0);
  return result;
}

CheckpointOnRank0::CheckpointOnRank0(comm::Communicator& communicator, const fs::path& path)
    : communicator_(communicator) {
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    if (!fs::exists(path))
      throw io::FileError(fmt::format("{}: no such checkpoint, run folder or checkpoints folder", path.string()));
    if (!fs::is_directory(path)) {
      checkpoint_ = io::read_checkpoint(path);
      file_ = path;
      return;
    }
    const fs::path folder = fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
    auto newest = io::newest_checkpoint(folder, warnings_);
    if (!newest) {
      throw io::FileError(warnings_.empty() ? fmt::format("{} holds no checkpoint", folder.string())
                                            : fmt::format("{}: no checkpoint verifies ({})", folder.string(),
                                                          fmt::join(warnings_, "; ")));
    }
    checkpoint_ = std::move(*newest);
    for (const io::FoundCheckpoint& found : io::list_checkpoints(folder)) {
      if (found.step == checkpoint_.record.step) file_ = found.file;
    }
  });
  record_ = checkpoint_.record;
  std::array<std::int64_t, 4> numbers{record_.step, record_.epoch, record_.position,
                                      static_cast<std::int64_t>(record_.seed)};
  communicator.broadcast(std::as_writable_bytes(std::span(numbers)), 0);
  communicator.broadcast(std::as_writable_bytes(std::span(&record_.best_metric, 1)), 0);
  record_.step = numbers[0];
  record_.epoch = numbers[1];
  record_.position = numbers[2];
  record_.seed = static_cast<std::uint64_t>(numbers[3]);
  for (std::string* text : {&record_.network, &record_.optimizer, &record_.dataset, &record_.configuration,
                            &record_.program_version, &record_.vocabulary}) {
    *text = broadcast_text(communicator, *text);
  }
  file_ = broadcast_text(communicator, file_.string());
}

void CheckpointOnRank0::restore_carried(model::Model& model, std::int64_t lanes) {
  CarriedState state{.lanes = lanes, .elements = model.carried_elements(), .values = {}};
  if (state.elements == 0 || record_.position == 0) return;  // an epoch begins with nothing
  state.values.resize(static_cast<std::size_t>(lanes * state.elements));
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    const io::StoredTensor* stored = checkpoint_.find(kCarriedGroup, kCarriedName);
    if (stored == nullptr || stored->shape != std::vector<std::int64_t>{lanes, state.elements}) {
      throw io::FileError(
          fmt::format("{} carries the state of {} lanes in the middle of an epoch, and this job has {}: give the "
                      "--global-batch that "
                      "it was trained with",
                      file_.string(), stored == nullptr || stored->shape.empty() ? 0 : stored->shape[0], lanes));
    }
    state.values = stored->values;
  });
  communicator_.broadcast(std::as_writable_bytes(std::span(state.values)), 0);
  const Lanes own = lanes_of(communicator_, lanes);
  model.upload_carried(own.count, part_of(state, own));
}

void CheckpointOnRank0::restore(model::Model& model) {
  const std::vector<std::string> groups = model.state_groups();
  const std::vector<model::StateTensor> wanted = model.state_tensors();
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    for (const model::StateTensor& tensor : wanted) {
      const io::StoredTensor* stored = checkpoint_.find(tensor.group, tensor.name);
      if (stored == nullptr) {
        throw io::FileError(fmt::format(
            "{} has no {}/{}: it belongs to another network, optimiser or set of options (its network is {})",
            file_.string(), tensor.group, tensor.name, record_.network));
      }
      if (stored->shape != tensor.shape) {
        throw io::FileError(fmt::format(
            "{}: {}/{} has shape [{}], this network wants [{}] (the checkpoint's network is {})", file_.string(),
            tensor.group, tensor.name, fmt::join(stored->shape, ", "), fmt::join(tensor.shape, ", "), record_.network));
      }
    }
  });
  std::vector<float> arena(model.arena_elements());
  for (const std::string& group : groups) {
    if (communicator_.rank() == 0) {
      std::fill(arena.begin(), arena.end(), 0.0f);
      for (const model::StateTensor& tensor : wanted) {
        if (tensor.group != group) continue;
        const io::StoredTensor* stored = checkpoint_.find(tensor.group, tensor.name);
        std::copy(stored->values.begin(), stored->values.end(),
                  arena.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
      }
    }
    communicator_.broadcast(std::as_writable_bytes(std::span(arena)), 0);
    model.upload_group(group, arena);
  }
  checkpoint_.tensors = {};
}

comm::Transport parse_transport(const std::string& name) {
  if (name == "auto") return comm::Transport::automatic;
  if (name == "shared-memory") return comm::Transport::shared_memory;
  if (name == "two-level") return comm::Transport::two_level;
  if (name == "ring") return comm::Transport::ring;
  throw UsageError(fmt::format("--transport {}: valid are auto, shared-memory, two-level, ring", name));
}

std::string join_lines(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

}  // namespace lockstep::app
