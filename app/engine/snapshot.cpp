#include "app/engine/snapshot.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fnmatch.h>

#include "app/engine/chosen_checkpoint.hpp"
#include "app/engine/gpt2_record.hpp"
#include "app/engine/weight_file.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/common_result.hpp"
#include "comm/consensus.hpp"
#include "comm/messages.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

namespace {

constexpr const char* kParameters = "parameters";
constexpr const char* kAverage = "average";
constexpr const char* kRecurrentGroup = "carried";
constexpr const char* kRecurrentName = "lanes";
constexpr std::size_t kImageExtents = 4;  // height, width, channels, depth

/// Longest expected seconds to read `path`: a checkpoint, or a folder whose checkpoints are tried one after the other.
double seconds_to_read(io::IoDeadline* deadline, const fs::path& path) {
  const io::IoDeadline::Operation looking(deadline, io::IoDeadline::Kind::reading, path);
  std::error_code unknown;  // the code that reads the file reports the error
  if (!fs::is_directory(path, unknown)) {
    const auto bytes = fs::file_size(path, unknown);
    return unknown ? 0 : io::IoDeadline::seconds_for(bytes);
  }
  const fs::path inside = path / "checkpoints";
  double seconds = 0;
  for (const io::FoundCheckpoint& found : io::list_checkpoints(fs::is_directory(inside, unknown) ? inside : path)) {
    seconds += seconds_to_read(deadline, found.file);
  }
  return seconds;
}

std::span<float> part_of(StatefulSequences& state, const SequenceShare& sequences) {
  return std::span(state.values)
      .subspan(static_cast<std::size_t>(sequences.first * state.elements),
               static_cast<std::size_t>(sequences.count * state.elements));
}

/// Collective: returns the sequences of all ranks in one array, on every rank. A rank's sequences begin at the index of
/// its first one. Sequences of dead ranks are zero.
StatefulSequences gather_recurrent_state(comm::Communicator& communicator, const model::RecurrentState& recurrent,
                                         const SequenceShare& own) {
  StatefulSequences state{.sequences = own.all, .elements = recurrent.elements(), .values = {}};
  if (state.elements == 0) return {};
  state.values.resize(static_cast<std::size_t>(own.all * state.elements));
  const std::span<float> mine = part_of(state, own);
  recurrent.download(own.count, mine);
  std::string text(reinterpret_cast<const char*>(&own.first), sizeof own.first);
  text.append(reinterpret_cast<const char*>(mine.data()), mine.size_bytes());
  for (const std::string& theirs : comm::all_gather_text(communicator, text)) {
    std::int64_t first = 0;
    std::memcpy(&first, theirs.data(), sizeof first);
    if (theirs.size() == sizeof first) continue;
    std::memcpy(state.values.data() + first * state.elements, theirs.data() + sizeof first,
                theirs.size() - sizeof first);
  }
  return state;
}

/// The part of `range` inside an arena of `elements` elements.
comm::Slice within(const comm::Slice& range, std::size_t elements) {
  const std::size_t end = std::min(range.offset + range.count, elements);
  return {.offset = range.offset, .count = end > range.offset ? end - range.offset : 0};
}

/// Offsets in memory of the kept ranges of each group, then the end. The training's own groups come first, then the
/// carried ones.
std::vector<std::size_t> beginnings(const model::ParameterState& parameters, const Snapshot::Options& options) {
  std::vector<std::size_t> begins{0};
  const auto add = [&](std::size_t elements) {
    std::size_t end = begins.back();
    for (const comm::Slice& range : options.share.ranges) end += within(range, elements).count;
    begins.push_back(end);
  };
  for (const std::string& group : parameters.state_groups()) add(parameters.group_elements(group));
  for (std::size_t i = 0; i < options.carried.size(); ++i) add(parameters.updated_elements());
  return begins;
}

/// Elements of the largest bucket that this rank helps to gather without keeping it.
std::size_t room_for_others(std::span<const comm::Slice> buckets, const SnapshotShare& share) {
  if (!share.gathers) return 0;
  std::size_t most = 0;
  for (const comm::Slice& bucket : buckets) most = std::max(most, bucket.count);
  return most;
}

/// Writer `writer`'s equal part of `elements` elements, for state that every rank has in full.
comm::Slice equal_part(std::size_t elements, int writer, int writers) {
  constexpr std::size_t kUnit = 1024;
  const auto begin = [&](int index) {
    return index == writers
               ? elements
               : elements * static_cast<std::size_t>(index) / static_cast<std::size_t>(writers) / kUnit * kUnit;
  };
  return {.offset = begin(writer), .count = begin(writer + 1) - begin(writer)};
}

}  // namespace

SnapshotShare snapshot_share(const model::ParameterState& parameters, std::span<const comm::Slice> buckets,
                             const comm::Communicator& communicator, const comm::Communicator& sharing, int writers) {
  SnapshotShare share;
  for (int writer = 0; writer < writers; ++writer) {
    if (communicator.rank() == writer * communicator.size() / writers) share.writer = writer;
  }
  const bool shared = !parameters.owned().whole();
  share.gathers = shared && writers < communicator.size() && sharing.first_rank() == communicator.first_rank();
  if (share.writer < 0) return share;
  if (writers == 1) {
    share.ranges = {{.offset = 0, .count = parameters.elements()}};
  } else if (!shared) {
    share.ranges = {equal_part(parameters.elements(), share.writer, writers)};
  } else if (share.gathers) {
    for (auto bucket = static_cast<std::size_t>(share.writer); bucket < buckets.size();
         bucket += static_cast<std::size_t>(writers)) {
      share.ranges.push_back(buckets[bucket]);
    }
  } else {
    for (const model::OwnedParts::Part& part : parameters.owned().parts()) {
      share.ranges.push_back({.offset = part.range.offset, .count = part.range.count});
    }
  }
  if (writers > 1 && shared) {  // frozen parts are not updated, and every rank has them
    const std::size_t updated = parameters.updated_elements();
    comm::Slice frozen = equal_part(parameters.elements() - updated, share.writer, writers);
    frozen.offset += updated;
    share.ranges.push_back(frozen);
  }
  return share;
}

void gather_bucket(comm::Communicator& sharing, const model::ParameterState& parameters, const std::string& group,
                   const comm::Slice& bucket, std::span<float> all) {
  const comm::Slice own = sharing.own_slice(bucket.count, sharing.rank());
  parameters.download_range(group, {.offset = bucket.offset + own.offset, .count = own.count},
                            all.subspan(own.offset, own.count));
  sharing.all_gather(all);
  sharing.wait();
}

Snapshot::Snapshot(model::Training& training, std::span<const comm::Slice> buckets, const Options& options,
                   std::pmr::memory_resource* memory)
    : options_(options),
      buckets_(buckets.begin(), buckets.end()),
      groups_(training.parameters.state_groups()),
      tensors_(training.parameters.state_tensors()),
      updated_elements_(training.parameters.updated_elements()),
      begins_(beginnings(training.parameters, options)),
      memory_(memory, model::ElementType::float32, begins_.back() + room_for_others(buckets, options.share)) {
  if (memory_.empty()) return;
  const std::span<float> all = memory_.tensor().elements<float>();
  std::fill(all.begin(), all.end(), 0.0f);
}

std::size_t Snapshot::bytes(model::Training& training, std::span<const comm::Slice> buckets, const Options& options) {
  const auto recurrent = static_cast<std::size_t>(options.sequences.all * training.model.recurrent_state().elements());
  return (beginnings(training.parameters, options).back() + room_for_others(buckets, options.share) + recurrent) *
         sizeof(float);
}

/// The kept elements of `range`; empty unless it is within one range of the share.
std::span<float> Snapshot::kept(std::size_t group, const comm::Slice& range) const {
  std::size_t before = begins_[group];
  const bool of_weights = group < groups_.size() && (groups_[group] == "parameters" || groups_[group] == "average");
  for (const comm::Slice& all : options_.share.ranges) {
    const comm::Slice own = of_weights ? all : within(all, updated_elements_);
    if (range.offset >= own.offset && range.offset + range.count <= own.offset + own.count) {
      return memory_.tensor().elements<float>().subspan(before + range.offset - own.offset, range.count);
    }
    before += own.count;
  }
  return {};
}

/// All kept elements of a group; indices count the training's own groups first, then carried ones.
std::span<float> Snapshot::kept_group(std::size_t group) const {
  const std::size_t begin = begins_[group], count = begins_[group + 1] - begin;
  return count == 0 ? std::span<float>() : memory_.tensor().elements<float>().subspan(begin, count);
}

std::span<float> Snapshot::room_for_bucket(std::size_t elements) const {
  return memory_.tensor().elements<float>().subspan(begins_.back(), elements);
}

void Snapshot::take(comm::Communicator& communicator, comm::Communicator& sharing, model::Training& training) {
  recurrent_ = gather_recurrent_state(communicator, training.model.recurrent_state(), options_.sequences);
  const model::ParameterState& parameters = training.parameters;
  for (std::size_t i = 0; i < options_.carried.size(); ++i) options_.carried[i].save(kept_group(groups_.size() + i));
  if (options_.share.gathers) return gather(sharing, parameters);
  if (options_.share.ranges.empty()) return;
  const comm::LongOperation copying(communicator, "copying the state for a checkpoint");
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const comm::Slice& range : options_.share.ranges) {
      const comm::Slice own = within(range, parameters.group_elements(groups_[i]));
      parameters.download_range(groups_[i], {.offset = own.offset, .count = own.count}, kept(i, own));
    }
  }
}

void Snapshot::gather(comm::Communicator& sharing, const model::ParameterState& parameters) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] == kParameters) {
      for (const comm::Slice& range : options_.share.ranges) {
        parameters.download_range(groups_[i], {.offset = range.offset, .count = range.count}, kept(i, range));
      }
      continue;
    }
    for (const comm::Slice& range : options_.share.ranges) {  // frozen part of an average
      if (range.offset < updated_elements_ || groups_[i] != "average") continue;
      parameters.download_range(groups_[i], {.offset = range.offset, .count = range.count}, kept(i, range));
    }
    for (const comm::Slice& bucket : buckets_) {
      std::span<float> all = kept(i, bucket);
      if (all.empty()) all = room_for_bucket(bucket.count);
      gather_bucket(sharing, parameters, groups_[i], bucket, all);
    }
  }
}

std::vector<io::TensorPiece> Snapshot::pieces() const {
  std::vector<io::TensorPiece> pieces;
  for (const model::StateTensor& tensor : tensors_) {
    const auto group =
        static_cast<std::size_t>(std::find(groups_.begin(), groups_.end(), tensor.group) - groups_.begin());
    for (const comm::Slice& range : options_.share.ranges) {
      const std::size_t begin = std::max(range.offset, tensor.offset);
      const std::size_t end = std::min(range.offset + range.count, tensor.offset + tensor.count);
      if (begin >= end) continue;
      pieces.push_back({.group = tensor.group,
                        .name = tensor.name,
                        .first = static_cast<std::int64_t>(begin - tensor.offset),
                        .values = kept(group, {.offset = begin, .count = end - begin})});
    }
  }
  return pieces;
}

std::vector<io::SplitTensor> Snapshot::split_tensors() const {
  std::vector<io::SplitTensor> tensors;
  for (const model::StateTensor& tensor : tensors_) {
    tensors.push_back({.group = tensor.group, .name = tensor.name, .shape = tensor.shape});
  }
  return tensors;
}

std::vector<io::TensorView> Snapshot::tensors() const {
  std::vector<io::TensorView> views;
  for (const model::StateTensor& tensor : tensors_) {
    const auto group =
        static_cast<std::size_t>(std::find(groups_.begin(), groups_.end(), tensor.group) - groups_.begin());
    views.push_back({.group = tensor.group,
                     .name = tensor.name,
                     .shape = tensor.shape,
                     .values = kept(group, {.offset = tensor.offset, .count = tensor.count})});
  }
  for (std::size_t i = 0; i < options_.carried.size(); ++i) {
    const std::span<float> values = kept_group(groups_.size() + i);
    for (const model::StateTensor& tensor : tensors_) {
      // The layout is that of the trainable parameters.
      if (tensor.group != groups_.front() || tensor.offset >= updated_elements_) continue;
      views.push_back({.group = options_.carried[i].name,
                       .name = tensor.name,
                       .shape = tensor.shape,
                       .values = values.subspan(tensor.offset, tensor.count)});
    }
  }
  for (io::TensorView& view : recurrent()) views.push_back(std::move(view));
  return views;
}

std::vector<io::TensorView> Snapshot::recurrent() const {
  if (recurrent_.sequences == 0) return {};
  return {{.group = kRecurrentGroup,
           .name = kRecurrentName,
           .shape = {recurrent_.sequences, recurrent_.elements},
           .values = recurrent_.values}};
}

std::string broadcast_text(comm::Communicator& communicator, const std::string& text) {
  std::uint64_t length = text.size();
  communicator.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  communicator.wait();
  std::string result = text;
  result.resize(length);
  communicator.broadcast(std::as_writable_bytes(std::span(result.data(), result.size())), 0);
  communicator.wait();
  return result;
}

std::string CheckpointOnRank0::metric_key() const { return metric_key_of(record_); }

bool CheckpointOnRank0::validated_average() const {
  const InferenceOptions trained = inference_options_of(record_);
  return trained.validation.average && trained.optimizer.average_decay > 0;
}

std::string CheckpointOnRank0::checksum() const { return file_.empty() ? "" : io::stored_checksum(file_); }

namespace {

/// As record_of_gpt2(), for work that ranks agree on.
io::TrainingRecord network_of_gpt2(const io::SafetensorsFile& file, const io::Checkpoint& read, std::int64_t heads) {
  try {
    return record_of_gpt2(file, read, heads);
  } catch (const UsageError& error) {
    throw io::FileError(error.what());
  }
}

}  // namespace

CheckpointOnRank0::CheckpointOnRank0(comm::Communicator& communicator, const CheckpointChoice& choice,
                                     io::IoDeadline* deadline, Accept accept)
    : communicator_(communicator) {
  const fs::path& path = choice.path;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const io::IoDeadline::Operation reading(deadline, io::IoDeadline::Kind::reading, path,
                                            seconds_to_read(deadline, path));
    if (accept == Accept::weights && io::is_safetensors_name(path) && fs::is_regular_file(path)) {
      const io::SafetensorsFile weights(path);
      checkpoint_ = read_weight_file(weights);
      if (names_gpt2(weights)) checkpoint_.record = network_of_gpt2(weights, checkpoint_, choice.heads);
      file_ = path;
      return;
    }
    ChosenCheckpoint chosen = read_chosen_checkpoint(choice);
    checkpoint_ = std::move(chosen.checkpoint);
    file_ = std::move(chosen.file);
    is_best_ = chosen.is_best;
    warnings_ = std::move(chosen.warnings);
  });
  record_ = checkpoint_.record;
  broadcast_numbers();
  for (std::string* text :
       {&record_.network.kind, &record_.network.signature, &record_.optimizer, &record_.dataset, &record_.configuration,
        &record_.program_version, &record_.vocabulary, &record_.data_description, &record_.network_text}) {
    *text = broadcast_text(communicator, *text);
  }
  file_ = broadcast_text(communicator, file_.string());
}

/// Collective: broadcasts the numbers of the record.
void CheckpointOnRank0::broadcast_numbers() {
  io::NetworkIdentity& network = record_.network;
  std::vector<std::int64_t> image = network.image;
  image.resize(kImageExtents);
  std::array<std::int64_t, 10 + kImageExtents> numbers{
      record_.step,       record_.epoch,
      record_.position,   static_cast<std::int64_t>(record_.seed),
      record_.world_size, record_.validated_step,
      network.features,   network.outputs,
      network.tokens,     static_cast<std::int64_t>(network.image.size())};
  std::copy(image.begin(), image.end(), numbers.end() - kImageExtents);
  communicator_.broadcast(std::as_writable_bytes(std::span(numbers)), 0);
  communicator_.wait();
  communicator_.broadcast(std::as_writable_bytes(std::span(&record_.best_metric, 1)), 0);
  communicator_.wait();
  record_.step = numbers[0];
  record_.epoch = numbers[1];
  record_.position = numbers[2];
  record_.seed = static_cast<std::uint64_t>(numbers[3]);
  record_.world_size = static_cast<int>(numbers[4]);
  record_.validated_step = numbers[5];
  network.features = numbers[6];
  network.outputs = numbers[7];
  network.tokens = numbers[8] != 0;
  network.image.assign(numbers.end() - kImageExtents, numbers.end() - kImageExtents + numbers[9]);
}

void CheckpointOnRank0::restore_recurrent_state(model::RecurrentState& recurrent, const SequenceShare& own) {
  const std::int64_t sequences = own.all;
  StatefulSequences state{.sequences = sequences, .elements = recurrent.elements(), .values = {}};
  if (state.elements == 0 || record_.position == 0) return;  // an epoch begins without recurrent state
  state.values.resize(static_cast<std::size_t>(sequences * state.elements));
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    const io::StoredTensor* stored = checkpoint_.find(kRecurrentGroup, kRecurrentName);
    if (stored == nullptr || stored->shape != std::vector<std::int64_t>{sequences, state.elements}) {
      throw io::FileError(fmt::format(
          "{} holds the recurrent state of {} sequences in the middle of an epoch, and this job has {}: give the "
          "--global-batch that "
          "it was trained with",
          file_.string(), stored == nullptr || stored->shape.empty() ? 0 : stored->shape[0], sequences));
    }
    state.values = stored->values;
  });
  communicator_.broadcast(std::as_writable_bytes(std::span(state.values)), 0);
  communicator_.wait();
  recurrent.upload(own.count, part_of(state, own));
}

/// A tensor of the new network.
struct CheckpointOnRank0::Wanted {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Initial weights of such tensors.
struct CheckpointOnRank0::Beginning {
  std::vector<const io::StoredTensor*> stored;  ///< one per tensor; nullptr: new values
  std::string table;
};

/// Call on rank 0.
CheckpointOnRank0::Beginning CheckpointOnRank0::beginning_of(std::span<const Wanted> tensors,
                                                             std::span<const std::string> reinitialize) const {
  const bool average = validated_average();
  const char* const source = average ? kAverage : kParameters;
  const char* const holder = io::is_safetensors_name(file_) ? "file" : "checkpoint";
  Beginning beginning{
      .stored = {},
      .table = fmt::format("{}weights of {}{}\n  {:<28} {:>18}  {}", average ? "averaged " : "", file_.string(),
                           io::is_safetensors_name(file_) ? "" : fmt::format(" (step {})", record_.step), "tensor",
                           "shape", "begins with")};
  std::vector<bool> used(reinitialize.size());
  std::set<std::string> wanted;
  std::vector<std::string> misfits;
  std::vector<std::string> remedy(reinitialize.begin(), reinitialize.end());
  std::size_t taken = 0;
  for (const Wanted& tensor : tensors) {
    wanted.insert(tensor.name);
    bool drawn = false;
    for (std::size_t i = 0; i < reinitialize.size(); ++i) {
      if (::fnmatch(reinitialize[i].c_str(), tensor.name.c_str(), 0) == 0) drawn = used[i] = true;
    }
    const io::StoredTensor* stored = drawn ? nullptr : checkpoint_.find(source, tensor.name);
    beginning.table +=
        fmt::format("\n  {:<28} {:>18}  {}", tensor.name, fmt::format("{}", fmt::join(tensor.shape, " x ")),
                    stored != nullptr ? fmt::format("the {}'s {}values", holder, average ? "averaged " : "")
                    : drawn           ? std::string("new values, as asked for")
                                      : fmt::format("new values: the {} has none", holder));
    beginning.stored.push_back(stored);
    if (stored == nullptr) continue;
    if (stored->shape == tensor.shape) {
      ++taken;
      continue;
    }
    misfits.push_back(fmt::format("{} has shape [{}], this network wants [{}]", tensor.name,
                                  fmt::join(stored->shape, ", "), fmt::join(tensor.shape, ", ")));
    // A layer's bias goes with its weight. The tables of an embedding are independent of each other.
    const bool is_table = tensor.name.ends_with("/tokens") || tensor.name.ends_with("/positions");
    const std::string layer = is_table ? tensor.name : tensor.name.substr(0, tensor.name.rfind('/')) + "/*";
    if (std::ranges::find(remedy, layer) == remedy.end()) remedy.push_back(layer);
  }
  for (std::size_t i = 0; i < reinitialize.size(); ++i) {
    if (used[i]) continue;
    throw UsageError(
        fmt::format("--reinitialize: no tensor is called {}; there are {}", reinitialize[i], fmt::join(wanted, ", ")));
  }
  const std::string its_network =
      record_.network.signature.empty() ? "" : fmt::format(" (its network is {})", io::to_text(record_.network));
  if (taken == 0) {
    throw io::FileError(fmt::format("{} has no tensor that this network wants{}{}", file_.string(), its_network,
                                    misfits.empty() ? "" : fmt::format(": {}", misfits.front())));
  }
  if (!misfits.empty()) {
    throw io::FileError(fmt::format("{}{}: {}: --reinitialize '{}' leaves {} new", file_.string(), its_network,
                                    fmt::join(misfits, "; "), fmt::join(remedy, ","),
                                    remedy.size() == 1 ? "that layer" : "those"));
  }
  for (const io::StoredTensor& stored : checkpoint_.tensors) {
    if (stored.group != source || wanted.contains(stored.name)) continue;
    beginning.table +=
        fmt::format("\n  {:<28} {:>18}  {}", stored.name, fmt::format("{}", fmt::join(stored.shape, " x ")),
                    "unused: this network has no such tensor");
  }
  return beginning;
}

std::string CheckpointOnRank0::beginnings(const model::ParameterTable& network,
                                          std::span<const std::string> reinitialize) {
  std::string table;
  all_succeed_or_usage(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    std::vector<Wanted> tensors;
    for (const model::Parameter& parameter : network.all()) tensors.push_back({parameter.name, parameter.shape});
    table = beginning_of(tensors, reinitialize).table;
  });
  return table;
}

void CheckpointOnRank0::initialize(model::ParameterState& parameters, std::span<const std::string> reinitialize) {
  std::vector<float> arena(parameters.elements());
  parameters.download_group(kParameters, arena);
  all_succeed_or_usage(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    std::vector<Wanted> wanted;
    std::vector<std::size_t> offsets;
    for (const model::StateTensor& tensor : parameters.state_tensors()) {
      if (tensor.group != kParameters) continue;
      wanted.push_back({tensor.name, tensor.shape});
      offsets.push_back(tensor.offset);
    }
    const Beginning beginning = beginning_of(wanted, reinitialize);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (beginning.stored[i] == nullptr) continue;
      std::ranges::copy(beginning.stored[i]->values, arena.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
    }
  });
  communicator_.broadcast(std::as_writable_bytes(std::span(arena)), 0);
  communicator_.wait();
  for (const std::string& group : parameters.state_groups()) {  // an average begins with the parameters, too
    if (group == kParameters || group == kAverage) parameters.upload_group(group, arena);
  }
  checkpoint_.tensors = {};
}

bool CheckpointOnRank0::has_group(const std::string& group) const {
  return std::ranges::any_of(checkpoint_.tensors, [&](const io::StoredTensor& t) { return t.group == group; });
}

/// Collective: copies a group of rank 0's tensors, laid out like `tensors`, into `arena` on every rank. Call
/// require_group() before.
void CheckpointOnRank0::share_group(const std::string& group, std::span<const model::StateTensor> tensors,
                                    std::span<float> arena) {
  if (communicator_.rank() == 0) {
    std::fill(arena.begin(), arena.end(), 0.0f);
    for (const model::StateTensor& tensor : tensors) {
      const std::vector<float>& values = checkpoint_.find(group, tensor.name)->values;
      std::copy(values.begin(), values.end(), arena.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
    }
  }
  communicator_.broadcast(std::as_writable_bytes(arena), 0);
  communicator_.wait();
}

/// Collective: fails on every rank if `group` is not stored in the form of `tensors`.
void CheckpointOnRank0::require_group(const std::string& group, std::span<const model::StateTensor> tensors) {
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    for (const model::StateTensor& tensor : tensors) {
      const io::StoredTensor* stored = checkpoint_.find(group, tensor.name);
      if (stored == nullptr) {
        throw io::FileError(fmt::format(
            "{} has no {}/{}: it belongs to another network, optimiser or set of options (its network is {})",
            file_.string(), group, tensor.name, io::to_text(record_.network)));
      }
      if (stored->shape != tensor.shape) {
        throw io::FileError(fmt::format(
            "{}: {}/{} has shape [{}], this network wants [{}] (the checkpoint's network is {})", file_.string(), group,
            tensor.name, fmt::join(stored->shape, ", "), fmt::join(tensor.shape, ", "), io::to_text(record_.network)));
      }
    }
  });
}

void CheckpointOnRank0::restore_without_optimizer(model::ParameterState& parameters) {
  std::vector<model::StateTensor> layout = parameters.state_tensors();
  std::erase_if(layout, [](const model::StateTensor& tensor) { return tensor.group != kParameters; });
  std::vector<float> arena(parameters.elements());
  std::uint8_t averaged = communicator_.rank() == 0 && has_group(kAverage);
  communicator_.broadcast(std::as_writable_bytes(std::span(&averaged, 1)), 0);
  communicator_.wait();
  for (const std::string& group : parameters.state_groups()) {
    if (group != kParameters && (group != kAverage || averaged == 0)) continue;  // an average begins with the weights
    require_group(group, layout);
    share_group(group, layout, arena);
    parameters.upload_group(group, arena);
  }
  checkpoint_.tensors = {};
}

void CheckpointOnRank0::restore(model::ParameterState& parameters, std::span<const CarriedGroup> carried) {
  const std::vector<std::string> groups = parameters.state_groups();
  const std::vector<model::StateTensor> wanted = parameters.state_tensors();
  const auto layout_within = [&](std::size_t elements) {
    std::vector<model::StateTensor> layout = wanted;
    std::erase_if(layout, [&](const model::StateTensor& tensor) {
      return tensor.group != groups.front() || tensor.offset >= elements;
    });
    return layout;
  };
  for (const std::string& group : groups) require_group(group, layout_within(parameters.group_elements(group)));
  std::vector<float> arena(parameters.elements());
  for (const std::string& group : groups) {
    const std::span<float> values = std::span(arena).first(parameters.group_elements(group));
    share_group(group, layout_within(values.size()), values);
    parameters.upload_group(group, values);
  }
  const std::span<float> updated = std::span(arena).first(parameters.updated_elements());
  for (const CarriedGroup& group : carried) {
    std::uint8_t stored = communicator_.rank() == 0 && has_group(group.name);
    communicator_.broadcast(std::as_writable_bytes(std::span(&stored, 1)), 0);
    communicator_.wait();
    if (stored == 0) continue;  // the checkpoint's run agreed in every step so far, so it has no such state
    const std::vector<model::StateTensor> layout = layout_within(updated.size());
    require_group(group.name, layout);
    share_group(group.name, layout, updated);
    group.restore(updated);
  }
  checkpoint_.tensors = {};
}

}  // namespace lockstep::app
