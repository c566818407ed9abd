#include "app/options/all_reduce_option.hpp"

#include <charconv>
#include <cstddef>

#include <fmt/format.h>

namespace lockstep::app {
namespace {

using Schedule = comm::AllReduceSchedule;
constexpr Schedule kSchedules[]{Schedule::doubling, Schedule::halving, Schedule::ring};

std::string parse_all_reduce(const std::string& text, comm::AllReduceChoice& value) {
  if (text == "auto") return value = {}, "";
  if (text == "measured") return value = {.measured = true}, "";
  for (const Schedule schedule : kSchedules) {
    if (text == name_of(schedule)) return value = {.limits = comm::AllReduceLimits::all_by(schedule)}, "";
  }
  comm::AllReduceLimits limits;
  const char* const last = text.data() + text.size();
  const auto first = std::from_chars(text.data(), last, limits.doubling);
  if (first.ec == std::errc() && first.ptr != last && *first.ptr == ',') {
    const auto second = std::from_chars(first.ptr + 1, last, limits.halving);
    if (second.ec == std::errc() && second.ptr == last && limits.doubling <= limits.halving)
      return value = {.limits = limits}, "";
  }
  return "is not one of auto, measured, doubling, halving and ring, nor two sizes in bytes, the lesser first, such as "
         "16384,1048576";
}

}  // namespace

std::string all_reduce_word(const comm::AllReduceChoice& value) {
  if (value.measured) return "measured";
  if (!value.limits) return "auto";
  for (const Schedule schedule : kSchedules) {
    if (*value.limits == comm::AllReduceLimits::all_by(schedule)) return std::string(name_of(schedule));
  }
  return fmt::format("{},{}", value.limits->doubling, value.limits->halving);
}

void add_all_reduce_option(OptionTable& table, ExecutionOptions& options) {
  table
      .add_parsed(
          "all-reduce", options.all_reduce, "NAME",
          "CPUs: algorithm of sums between hosts: doubling (fewest messages), halving, ring (for large sums); or two "
          "sizes in bytes: the largest sums for doubling and for halving; auto: a fixed rule of size and hosts; "
          "measured: the two sizes that are fastest here, measured at the start and kept by a resumed run",
          parse_all_reduce, all_reduce_word)
      .left_open_by("measured");
}

}  // namespace lockstep::app
