#include "app/place/placement.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "comm/messages.hpp"
#include "comm/session/network_interfaces.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {
namespace {

// Text form of a view: a header line, the visible devices, the obstacle, the choice for bf16, then one line per device.
// Only the last field of a line may contain spaces.
constexpr std::string_view kViewHeader = "lockstep view 2";

/// Replaces newlines, which would end a field.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\0'; }, ' ');
  return text;
}

/// Removes the part before `separator`, and the separator, from `text`. Returns that part; all of `text` if there is no
/// separator.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

template <class T>
T number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  }
  return value;
}

model::Bf16Unit unit_from(int value) {
  const auto unit = static_cast<model::Bf16Unit>(value);
  if (value < 0 || unit > model::Bf16Unit::emulated_amx) {
    throw std::invalid_argument(fmt::format("'{}' is no unit", value));
  }
  return unit;
}

/// Chooses the bf16 unit of this process's CPU: the fastest one measured, unless the options name one.
model::Bf16Choice bf16_choice(const ExecutionOptions& options) {
  if (options.precision != model::Precision::bf16) return {};
  if (!options.bf16_unit) return model::fastest_bf16_unit(model::measure_bf16());
  std::string obstacle = model::obstacle_to(*options.bf16_unit, model::bf16_instructions());
  if (!obstacle.empty()) return {.unit = model::Bf16Unit::none, .obstacle = std::move(obstacle), .gain = 0};
  return {.unit = *options.bf16_unit, .obstacle = "", .gain = 0};
}

/// Writes an empty field as "-", because spaces separate the fields.
std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }
std::string un_dashed(std::string_view text) { return text == "-" ? std::string() : std::string(text); }

/// Returns the first part of a UUID, as "GPU-8f3c1a2b". It identifies a GPU; nvidia-smi and CUDA_VISIBLE_DEVICES accept
/// it.
std::string short_uuid(const std::string& uuid) {
  const std::size_t first = uuid.find('-');
  return first == std::string::npos ? uuid : uuid.substr(0, uuid.find('-', first + 1));
}

}  // namespace

std::string to_text(const RankView& view) {
  std::string text =
      fmt::format("{}\n{}\n{}\n{} {} {}\n", kViewHeader, one_line(view.visible_devices), one_line(view.survey.obstacle),
                  static_cast<int>(view.bf16.unit), view.bf16.gain, one_line(view.bf16.obstacle));
  for (const model::Device& device : view.survey.devices) {
    text += fmt::format("{} {} {} {} {} {} {} {}\n", device.index, device.major, device.minor, device.processors,
                        device.bytes, or_dash(device.pci), or_dash(device.uuid), one_line(device.name));
  }
  return text;
}

RankView view_from(std::string_view text) {
  const bool whole = text.ends_with('\n');
  if (take(text, '\n') != kViewHeader || !whole) throw std::invalid_argument("not a rank's view of its devices");
  RankView view;
  view.visible_devices = take(text, '\n');
  view.survey.obstacle = take(text, '\n');
  std::string_view bf16 = take(text, '\n');
  view.bf16.unit = unit_from(number<int>(take(bf16, ' ')));
  view.bf16.gain = number<double>(take(bf16, ' '));
  view.bf16.obstacle = bf16;
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    model::Device& device = view.survey.devices.emplace_back();
    device.index = number<int>(take(line, ' '));
    device.major = number<int>(take(line, ' '));
    device.minor = number<int>(take(line, ' '));
    device.processors = number<int>(take(line, ' '));
    device.bytes = number<std::size_t>(take(line, ' '));
    device.pci = un_dashed(take(line, ' '));
    device.uuid = un_dashed(take(line, ' '));
    device.name = line;
  }
  return view;
}

Place find_place(comm::Communicator& communicator, const ExecutionOptions& options) {
  const auto own = static_cast<std::size_t>(communicator.rank());
  const bool on_cpus = options.device == DeviceChoice::cpu;
  if (on_cpus && options.precision != model::Precision::bf16) {
    return decide_places(std::vector<RankView>(static_cast<std::size_t>(communicator.size())), options)[own];
  }
  RankView mine;
  if (!on_cpus) {
    const comm::LongOperation looking(communicator, "looking for GPUs");  // drivers may take long to initialise
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    mine = {.local_rank = 0, .host = "", .visible_devices = visible ? visible : "", .survey = model::survey_devices()};
  }
  if (mine.survey.devices.empty() && options.device != DeviceChoice::gpu) mine.bf16 = bf16_choice(options);
  const std::vector<comm::RankPlace> known = comm::gather_topology(communicator, "");
  const std::vector<std::string> texts = comm::all_gather_text(communicator, to_text(mine));
  std::vector<RankView> views;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    try {
      views.push_back(view_from(texts[rank]));
    } catch (const std::invalid_argument&) {
      throw comm::ConsensusError(
          fmt::format("rank {} on {} tells of its devices in words that this lockstep does not know: "
                      "do all hosts run the same program?",
                      rank, known[rank].host));
    }
    views.back().host = known[rank].host;
    views.back().local_rank = known[rank].local_rank;
  }
  Place place = decide_places(views, options)[own];
  if (place.gpu && communicator.size() > 1) {
    const std::vector<comm::RankText> errors = comm::gather_distinct(communicator, comm::nccl_environment_error());
    if (!errors.empty()) throw comm::ConsensusError(errors);
  }
  return place;
}

Place plan_place(comm::Communicator& communicator, const ExecutionOptions& options) {
  if (options.device != DeviceChoice::gpu) return find_place(communicator, options);
  model::Device imagined;
  imagined.name = "gpu";
  return {.gpu = imagined,
          .precision = options.precision.value_or(model::Precision::bf16),
          .host = "",
          .note = "device: gpu (a plan: no GPU was looked at)",
          .sharers = 1,
          .gpus_are_shared = false,
          .communication_processors = communicator.size() > 1 ? kMaxCommunicationProcessors : 0};
}

std::string name_with_pci(const model::Device& device) {
  return device.pci.empty() ? device.name : fmt::format("{} ({})", device.name, device.pci);
}

std::string device_kind(const Place& place, const ExecutionOptions& options) {
  return place.gpu ? place.gpu->name : fmt::format("cpu ({})", counted(options.threads, "thread"));
}

std::string device_identity(const Place& place) {
  if (!place.gpu) return "";
  const std::string uuid = short_uuid(place.gpu->uuid);
  return place.gpu->pci + (place.gpu->pci.empty() || uuid.empty() ? "" : " ") + uuid;
}

std::unique_ptr<comm::Communicator> communicator_of(comm::MpiSession& session, const ExecutionOptions& execution) {
  return comm::make_communicator(session, {.transport = execution.transport,
                                           .deadline_seconds = execution.deadline,
                                           .excuse_seconds = execution.io_deadline + execution.deadline});
}

comm::CommunicatorOptions communicator_options(const ExecutionOptions& options) {
  return {.transport = options.transport,
          .wire = options.wire,
          .all_reduce = options.all_reduce,
          .overlap = true,
          .deadline_seconds = options.deadline,
          .excuse_seconds = options.io_deadline + options.deadline,
          .threads = options.threads};
}

std::unique_ptr<model::Backend> make_backend(const Place& place, const ExecutionOptions& options) {
  if (!place.gpu) return model::make_backend("cpu", {.threads = options.threads, .bf16_unit = place.bf16_unit});
  return model::make_backend("cuda", {.device = place.gpu->index,
                                      .precision = place.precision,
                                      .graphs = options.graphs,
                                      .tune = options.tune,
                                      .attention_library = options.cudnn_attention,
                                      .reserved_processors = place.communication_processors});
}

comm::DeviceCommunicatorOptions device_communicator_options(const Place& place, const ExecutionOptions& options,
                                                            void* stream, const comm::SummationTree* tree) {
  return {.stream = stream,
          .device = place.gpu->index,
          .device_name = name_with_pci(*place.gpu),
          .wire = options.wire,
          .deadline_seconds = options.deadline,
          .excuse_seconds = options.io_deadline + options.deadline,
          .ring = options.ring,
          .nvls = options.nvls,
          .shared_device = place.gpus_are_shared,
          .processors = std::max(place.communication_processors, 1),
          .tree = tree};
}

std::unique_ptr<comm::Communicator> make_device_communicator(comm::MpiSession& session,
                                                             comm::Communicator& communicator, const Place& place,
                                                             model::Backend& backend, const ExecutionOptions& options,
                                                             const comm::SummationTree* tree) {
  return comm::make_device_communicator(session, communicator,
                                        device_communicator_options(place, options, backend.stream(), tree));
}

comm::Transport transport_of(const Place& place, const comm::Communicator& communicator) {
  if (communicator.size() == 1) return comm::Transport::serial;
  return place.gpu ? comm::Transport::nccl : communicator.transport();
}

comm::BucketRule bucket_rule(std::int64_t elements, const Place& place, const comm::Communicator& communicator) {
  return {transport_of(place, communicator), communicator.size(), communicator.ring_length(),
          static_cast<std::size_t>(elements)};
}

model::MemoryTypes memory_types(const Place& place) {
  if (place.gpu) return model::memory_types_on_gpu(place.precision);
  const bool multiplies_bf16 = place.bf16_unit != model::Bf16Unit::none;
  return {.narrow = multiplies_bf16 ? model::ElementType::bfloat16 : model::ElementType::float32};
}

}  // namespace lockstep::app
