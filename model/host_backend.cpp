#include "model/host_backend.hpp"

#include <cmath>
#include <cstring>

#include "model/formulas/gate.hpp"

namespace lockstep::model {

namespace {

std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.count()) * size_of(tensor.type); }

void copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

std::optional<HostBackend::OpenUpdate> HostBackend::open(const Tensor& rule, const UpdateGate& gate) {
  const double squares = gate.gradient_squares.elements<double>()[0];
  if (!formulas::may_update(gate.obstacles.elements<double>()[0], squares)) return std::nullopt;
  OpenUpdate update;
  copy(rule.data, &update.rule, sizeof update.rule);
  update.gradient_factor = formulas::clip_factor(squares, update.rule.clip_norm);
  return update;
}

void HostBackend::add(const LossSums& part, const Tensor& sums) {
  sums.elements<double>()[0] += part.loss;
  sums.elements<double>()[1] += part.metric;
  sums.elements<double>()[2] += part.top5;
}

void HostBackend::do_tally(const Tensor& sums, const Tensor& ballot) {
  const auto from = sums.elements<double>();
  const auto to = ballot.elements<double>();
  to[0] = from[0];
  to[1] = from[1];
  if (!std::isfinite(from[0])) to[2] += 1;
}

void HostBackend::do_cast(const Tensor& in, const Tensor& out) { copy(in.data, out.data, bytes_of(out)); }

void HostBackend::do_fill_zero(const Tensor& x) {
  if (x.count() > 0) std::memset(x.data, 0, bytes_of(x));
}

void HostBackend::do_write(std::span<const std::byte> host, const Tensor& to) {
  copy(host.data(), to.data, host.size());
}

void HostBackend::do_read(const Tensor& from, std::span<std::byte> host) { copy(from.data, host.data(), host.size()); }

}  // namespace lockstep::model
