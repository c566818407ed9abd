#include "app/agree/servers/served_part.hpp"

#include <algorithm>
#include <string>

#include "app/place/placement.hpp"

namespace lockstep::app {

namespace {

model::ParameterStateOptions state_of_part(const Plan& plan, const Servers& servers, const comm::Slice& slice,
                                           std::pmr::memory_resource* weights) {
  model::ParameterStateOptions options{.optimizer = plan.workload.optimizer, .parameter_memory = weights};
  if (servers.count > 1) options.owned = {{.offset = slice.offset, .count = slice.count}};
  return options;
}

}  // namespace

ServedPart::ServedPart(const Plan& plan, const Servers& servers, int index, comm::HostWindow& window,
                       std::pmr::memory_resource* weights, std::int64_t updates_per_step)
    : plan_(plan),
      window_(window),
      updates_per_step_(updates_per_step),
      slice_(served_part(servers, plan.workload.network->parameters().updated_elements(), index)),
      backend_(make_backend(plan.place, plan.settings.execution)),
      state_(*backend_, plan.workload.network->parameters(), state_of_part(plan, servers, slice_, weights)),
      status_(*backend_, {}),
      optimizer_(*backend_, state_, status_, plan.workload.optimizer),
      schedule_(plan.schedule) {}

void ServedPart::load(const model::ParameterState& from, const Standing& course) {
  const comm::HostWindow::Change change(window_, course.step * updates_per_step_);
  std::vector<float> arena(from.elements());
  for (const std::string& group : from.state_groups()) {
    const std::span<float> values = std::span(arena).first(from.group_elements(group));
    from.download_group(group, values);
    state_.upload_group(group, values);
  }
  version_ = course.step * updates_per_step_;
  updates_ahead_ = course.updates.after(course.step) - version_;
  schedule_ = plan_.schedule.scaled(course.rate_factor);
  changed_ = {};
}

double ServedPart::gradient_squares() {
  status_.write({});
  optimizer_.finish_gradients();
  status_.post();
  return status_.posted().gradient_squares;
}

double ServedPart::learning_rate() const { return schedule_.at(std::min(step(), plan_.workload.work.total_steps - 1)); }

void ServedPart::update(double rate, double squares) {
  const comm::HostWindow::Change change(window_, version_ + 1);
  status_.write({.gradient_squares = squares});
  optimizer_.prepare(rate, version_ + updates_ahead_);
  optimizer_.update();
  ++version_;
  if (changed_.has_begun()) changed_.update(weights(), version_);
}

void ServedPart::pass() {
  ++version_;
  const comm::HostWindow::Change change(window_, version_);
}

void ServedPart::watch_changes() {
  if (!changed_.has_begun()) changed_.begin(weights(), version_);
}

}  // namespace lockstep::app
