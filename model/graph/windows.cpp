#include "model/graph/windows.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

/// Exclusive limit of each number of a window, so that products of them do not overflow.
constexpr std::int64_t kBelow = 65536;

/// Parses "2" or "1,0,1"; nullopt for any other text.
std::optional<Numbers> parse_numbers(std::string_view text) {
  Numbers numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t number = 0;
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || number >= kBelow) return std::nullopt;
    numbers.push_back(number);
    if (behind == end) return numbers;
    if (*behind != ',') return std::nullopt;
    at = behind + 1;
    while (at != end && *at == ' ') ++at;
  }
}

NetworkOption numbers_argument(std::string_view name, Numbers value, std::string_view help) {
  return {.name = std::string(name),
          .value = std::move(value),
          .value_name = "N,N",
          .help = std::string(help),
          .at_least = 1,
          .below = static_cast<double>(kBelow)};
}

}  // namespace

std::size_t directions_of(const Shape& shape, std::string_view reader) {
  const std::size_t directions = shape.count() - 1;
  if (directions < 1 || directions > 3) {
    throw std::invalid_argument(
        fmt::format("reads {}, and {} reads length x channels, height x width x channels or depth x height x width x "
                    "channels",
                    to_string(shape), reader));
  }
  return directions;
}

ImageShape image_of_places(const Shape& shape, std::string_view reader) {
  const std::size_t directions = directions_of(shape, reader);
  const auto extents = shape.extents();
  const auto from_last = [&](std::size_t i) { return i < directions ? extents[directions - 1 - i] : 1; };
  return {.height = from_last(1), .width = from_last(0), .channels = shape.last(), .depth = from_last(2)};
}

Shape shape_of_places(const ImageShape& image, std::size_t directions) {
  const auto all = image.extents();
  std::vector<std::int64_t> extents(all.end() - static_cast<std::ptrdiff_t>(directions), all.end());
  extents.push_back(image.channels);
  return Shape(extents);
}

NetworkOption size_argument(std::string_view size) {
  return numbers_argument(size, {0}, "extents of the window: one number, or one for each direction");
}

NetworkOption stride_argument() { return numbers_argument("stride", {1}, "steps between windows, likewise"); }

NetworkOption pool_stride_argument() {
  NetworkOption option =
      numbers_argument("stride", {0}, "steps between windows, likewise; by default the window's extents");
  option.automatic = true;
  return option;
}

NetworkOption padding_argument() {
  return {.name = "padding",
          .value = "same",
          .value_name = "same|valid|N,N",
          .help =
              "places outside the value: same (the output is 1 / stride as large), valid (none), or so many on both "
              "sides, likewise"};
}

NetworkOption dilation_argument() {
  return numbers_argument("dilation", {1}, "steps between places of a window, likewise");
}

Numbers for_directions(const Numbers& numbers, std::string_view name, std::size_t directions) {
  if (numbers.size() == 1) return Numbers(directions, numbers.front());
  if (numbers.size() == directions) return numbers;
  throw std::invalid_argument(fmt::format("has {} numbers in {} ({}) for a value of {} direction{}: give one, or {}",
                                          numbers.size(), name, fmt::join(numbers, ","), directions,
                                          directions == 1 ? "" : "s", directions));
}

Numbers padding_numbers(const std::string& padding) {
  if (padding == "same" || padding == "valid") return {0};
  if (const auto numbers = parse_numbers(padding)) return *numbers;
  throw std::invalid_argument(
      fmt::format("has padding {}: give same, valid, one number, or one for each direction (1,0)", padding));
}

Sliding window_of(const Call& call, std::string_view size, const ImageShape& in, std::size_t directions) {
  const Numbers sizes = for_directions(call.get<Numbers>(size), size, directions);
  const Numbers strides = for_directions(call.find<Numbers>("stride").value_or(sizes), "stride", directions);
  const Numbers dilations = for_directions(call.find<Numbers>("dilation").value_or(Numbers{1}), "dilation", directions);
  std::array<Sweep, 3> sweeps;
  const std::size_t first = sweeps.size() - directions;
  for (std::size_t i = 0; i < directions; ++i) {
    sweeps[first + i] = {.size = sizes[i], .stride = strides[i], .dilation = dilations[i]};
  }
  const auto padding = call.get<std::string>("padding");
  if (padding == "same") return same_padding(in, {sweeps[0], sweeps[1], sweeps[2]});
  const Numbers each = for_directions(padding_numbers(padding), "padding", directions);
  const auto extents = in.extents();
  for (std::size_t i = 0; i < directions; ++i) {
    Sweep& sweep = sweeps[first + i];
    sweep.before = sweep.after = each[i];
    if (const std::int64_t room = extents[first + i] + 2 * each[i]; sweep.reach() > room) {
      throw std::invalid_argument(fmt::format(
          "has a window of {} places along an extent of {}{}: make {} smaller, or give padding same", sweep.reach(),
          extents[first + i], each[i] > 0 ? fmt::format(" with {} before and behind", each[i]) : "", size));
    }
  }
  return {sweeps[0], sweeps[1], sweeps[2]};
}

Pool pool_of(const Call& call, const Shape& in) {
  const ImageShape image = image_of_places(in, "a pool");
  const Sliding window = window_of(call, "window", image, directions_of(in, "a pool"));
  const Pool pool{.in = image, .out = slide(image, window, image.channels), .window = window};
  if (!all_see_pixels(pool)) {
    throw std::invalid_argument(fmt::format("has padding {}, and some of its windows see nothing else of {}: give less",
                                            call.get<std::string>("padding"), to_string(in)));
  }
  return pool;
}

std::string window_text(const Sliding& window, std::size_t directions) {
  const auto all = window.sweeps();
  const auto sweeps = std::span(all).last(directions);
  const auto numbers = [&](std::int64_t Sweep::*number) {
    Numbers of_all;
    for (const Sweep& sweep : sweeps) of_all.push_back(sweep.*number);
    return of_all;
  };
  const auto text = [&](std::string_view before, std::int64_t Sweep::*number) {
    const Numbers of_all = numbers(number);
    if (std::ranges::all_of(of_all, [](std::int64_t one) { return one == 1; })) return std::string();
    const bool equal = std::ranges::adjacent_find(of_all, std::not_equal_to()) == of_all.end();
    return fmt::format("{}{}", before, fmt::join(equal ? Numbers{of_all.front()} : of_all, "x"));
  };
  return fmt::format("{}{}{}", fmt::join(numbers(&Sweep::size), "x"), text("/", &Sweep::stride),
                     text(" dilated ", &Sweep::dilation));
}

}  // namespace lockstep::model
