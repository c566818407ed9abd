#include "io/checkpoints/checkpoint_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lockstep::io {
namespace {

template <std::size_t index>
constexpr IntegerField image_extent(const char* name, std::int64_t since = 3) {
  return {name, since,
          [](const TrainingRecord& r) { return index < r.network.image.size() ? r.network.image[index] : 0; },
          [](TrainingRecord& r, std::int64_t v) {
            std::vector<std::int64_t>& image = r.network.image;
            if (v > 0) image.resize(std::max<std::size_t>({image.size(), 3, index + 1})), image[index] = v;
          }};
}
constexpr std::array<IntegerField, 13> kIntegers = {{
    {"step", 1, [](const TrainingRecord& r) { return r.step; }, [](TrainingRecord& r, std::int64_t v) { r.step = v; }},
    {"epoch", 1, [](const TrainingRecord& r) { return r.epoch; },
     [](TrainingRecord& r, std::int64_t v) { r.epoch = v; }},
    {"position", 1, [](const TrainingRecord& r) { return r.position; },
     [](TrainingRecord& r, std::int64_t v) { r.position = v; }},
    {"seed", 1, [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.seed); },
     [](TrainingRecord& r, std::int64_t v) { r.seed = static_cast<std::uint64_t>(v); }},
    {"world_size", 1, [](const TrainingRecord& r) { return static_cast<std::int64_t>(r.world_size); },
     [](TrainingRecord& r, std::int64_t v) { r.world_size = static_cast<int>(v); }},
    {"validated_step", 3, [](const TrainingRecord& r) { return r.validated_step; },
     [](TrainingRecord& r, std::int64_t v) { r.validated_step = v; }},
    {"features", 3, [](const TrainingRecord& r) { return r.network.features; },
     [](TrainingRecord& r, std::int64_t v) { r.network.features = v; }},
    {"outputs", 3, [](const TrainingRecord& r) { return r.network.outputs; },
     [](TrainingRecord& r, std::int64_t v) { r.network.outputs = v; }},
    image_extent<0>("image_height"),
    image_extent<1>("image_width"),
    image_extent<2>("image_channels"),
    image_extent<3>("volume_depth", 7),
    {"tokens", 3, [](const TrainingRecord& r) { return r.network.tokens ? std::int64_t{1} : std::int64_t{0}; },
     [](TrainingRecord& r, std::int64_t v) { r.network.tokens = v != 0; }},
}};

template <std::string TrainingRecord::*member>
constexpr TextField of_record(const char* name, std::int64_t since = 1) {
  return {name, since, [](const TrainingRecord& r) -> const std::string& { return r.*member; },
          [](TrainingRecord& r, std::string text) { r.*member = std::move(text); }};
}
template <std::string NetworkIdentity::*member>
constexpr TextField of_network(const char* name, std::int64_t since = 1) {
  return {name, since, [](const TrainingRecord& r) -> const std::string& { return r.network.*member; },
          [](TrainingRecord& r, std::string text) { r.network.*member = std::move(text); }};
}
constexpr std::array<TextField, 5> kTexts = {{
    of_network<&NetworkIdentity::signature>("network"),
    of_record<&TrainingRecord::optimizer>("optimizer"),
    of_record<&TrainingRecord::dataset>("dataset"),
    of_record<&TrainingRecord::program_version>("program_version"),
    of_network<&NetworkIdentity::kind>("network_kind", 3),
}};
constexpr std::array<TextField, 5> kLongTexts = {{
    of_record<&TrainingRecord::configuration>("configuration"),
    of_record<&TrainingRecord::metrics>("metrics"),
    of_record<&TrainingRecord::vocabulary>("vocabulary", 2),
    of_record<&TrainingRecord::data_description>("data_description", 5),
    of_record<&TrainingRecord::network_text>("network_text", kFormatWithNetworkText),
}};

}  // namespace

std::span<const IntegerField> integer_fields() noexcept { return kIntegers; }
std::span<const TextField> text_fields() noexcept { return kTexts; }
std::span<const TextField> long_text_fields() noexcept { return kLongTexts; }

std::string path_of(std::string_view group, std::string_view name) { return fmt::format("{}/{}", group, name); }

std::optional<std::int64_t> whole_number(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.starts_with('-')) return std::nullopt;
  return value;
}

std::optional<std::size_t> elements_of(std::span<const std::int64_t> shape) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(float));
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && elements > kMax / extent)) return std::nullopt;
    elements *= extent;
  }
  return static_cast<std::size_t>(elements);
}

void understand_text_of_older_format(TrainingRecord& record) {
  NetworkIdentity& network = record.network;
  const std::string text = network.signature;
  const char* const end = text.data() + text.size();
  constexpr std::string_view kArrow = " -> ", kColon = ": ";
  const auto features = std::from_chars(text.data(), end, network.features);
  const bool has_arrow = features.ec == std::errc() && std::string_view(features.ptr, end).starts_with(kArrow);
  if (has_arrow) {
    const auto outputs = std::from_chars(features.ptr + kArrow.size(), end, network.outputs);
    if (outputs.ec == std::errc() && std::string_view(outputs.ptr, end).starts_with(kColon)) {
      network.signature.assign(outputs.ptr + kColon.size(), end);
    }
  }
  network.kind = network.signature.substr(0, network.signature.find(' '));
  network.tokens = !record.vocabulary.empty();
  const bool validated = record.metrics.find(fmt::format("\"step\":{},", record.step)) != std::string::npos;
  record.validated_step = validated ? record.step : -1;
}

}  // namespace lockstep::io
