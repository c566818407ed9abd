#include "model/host_backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/formulas/gate.hpp"
#include "model/formulas/losses.hpp"

namespace lockstep::model {

namespace {

void copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

std::optional<HostBackend::OpenUpdate> HostBackend::open(const Tensor& rule, const UpdateGate& gate) {
  const double squares = gate.gradient_squares.elements<double>()[0];
  if (!formulas::may_update(gate.non_finite.elements<double>()[0], squares)) return std::nullopt;
  OpenUpdate update;
  copy(rule.data, &update.rule, sizeof update.rule);
  update.gradient_factor = formulas::clip_factor(squares, update.rule.clip_norm);
  return update;
}

void HostBackend::add(const LossSums& part, const Tensor& sums) {
  sums.elements<double>()[0] += part.loss;
  sums.elements<double>()[1] += part.metric;
  sums.elements<double>()[2] += part.found;
}

void HostBackend::do_combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) {
  formulas::combine_losses(static_cast<const double*>(parts.data), shares.data(), shares.size(),
                           static_cast<double*>(sums.data));
}

void HostBackend::do_report_loss(const Tensor& sums, const Tensor& status) {
  const auto from = sums.elements<double>();
  StepStatus& to = step_status_in(status);
  to.loss = from[0];
  to.metric = from[1];
  std::ranges::copy(from.subspan(kLossSums), to.losses);
  if (!std::isfinite(to.loss)) to.non_finite += 1;
}

void HostBackend::do_cast(const Tensor& in, const Tensor& out) { copy(in.data, out.data, out.bytes()); }

void HostBackend::do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to,
                                  std::int64_t to_column, std::int64_t columns) {
  const auto size = static_cast<std::int64_t>(size_of(from.type));
  const auto* source = static_cast<const std::byte*>(from.data) + from_column * size;
  auto* target = static_cast<std::byte*>(to.data) + to_column * size;
  // Rows may be short, and a call of memcpy costs more than copying a few bytes.
  constexpr std::int64_t kPiece = 32;
  const std::int64_t bytes = columns * size;
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const std::byte* const read = source + row * from.columns * size;
    std::byte* const written = target + row * to.columns * size;
    std::int64_t at = 0;
    for (; at + kPiece <= bytes; at += kPiece) std::memcpy(written + at, read + at, kPiece);
    if (at < bytes) std::memcpy(written + at, read + at, static_cast<std::size_t>(bytes - at));
  }
}

void HostBackend::do_fill_zero(const Tensor& x) {
  if (x.count() > 0) std::memset(x.data, 0, x.bytes());
}

void HostBackend::do_write(std::span<const std::byte> host, const Tensor& to) {
  copy(host.data(), to.data, host.size());
}

void HostBackend::do_read(const Tensor& from, std::span<std::byte> host) { copy(from.data, host.data(), host.size()); }

}  // namespace lockstep::model
