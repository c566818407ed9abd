#include "gpu/twins.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <fmt/format.h>

namespace lockstep::model::test {

namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

ElementType type_of(Holds holds, const Backend& device) {
  switch (holds) {
    case Holds::activations:
    case Holds::narrow:
      return device.compute_type();
    case Holds::statistics:
      return device.master_type();
    case Holds::sums:
      return ElementType::float64;
    case Holds::choices:
      return ElementType::uint8;
    case Holds::tokens:
      return ElementType::int32;
  }
  return ElementType::float64;
}

}  // namespace

Twin::Twin(Backend& device, Holds holds, std::int64_t rows, std::int64_t columns, const std::vector<float>& values)
    : device_(std::make_shared<Array>(device, type_of(holds, device), rows, columns, std::span<const float>(values))),
      exact_(std::make_shared<std::vector<std::byte>>(bytes_of(widened(values)))) {}

Twin::Twin(Backend& device, ElementType type, std::int64_t rows, std::int64_t columns,
           const std::vector<std::byte>& bytes)
    : device_(std::make_shared<Array>(device, type, rows, columns, std::span<const std::byte>(bytes))),
      exact_(std::make_shared<std::vector<std::byte>>(bytes)),
      exact_type_(type) {
  if (bytes.empty()) exact_->resize(static_cast<std::size_t>(rows * columns) * size_of(type), std::byte{0xff});
}

Tensor Twin::exact() const {
  if (device_ == nullptr) return {};
  return {exact_->data(), exact_type_, device_->tensor().rows, device_->tensor().columns};
}

void Twins::SetUp() {
  if (!offers(precision_)) GTEST_SKIP() << "this device has no " << name_of(precision_);
  device_ = make_subject(precision_);
}

Twin Twins::numbers(Holds holds, std::int64_t rows, std::int64_t columns, double scale) {
  const Precision rounded = holds == Holds::activations ? precision_ : Precision::fp32;
  return given(holds, rows, columns, random_.numbers(rows * columns, rounded, scale));
}

Twin Twins::poison(Holds holds, std::int64_t rows, std::int64_t columns) {
  if (holds != Holds::activations && holds != Holds::statistics) {
    return {*device_, type_of(holds, *device_), rows, columns};
  }
  return given(holds, rows, columns,
               std::vector<float>(static_cast<std::size_t>(rows * columns), std::numeric_limits<float>::quiet_NaN()));
}

Twin Twins::gradient(Accumulate accumulate, std::int64_t rows, std::int64_t columns) {
  if (accumulate == Accumulate::yes) return numbers(Holds::statistics, rows, columns);
  return poison(Holds::statistics, rows, columns);
}

Twin Twins::given(Holds holds, std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
  return {*device_, holds, rows, columns, values};
}

Twin Twins::indices(std::int64_t rows, std::int64_t columns, const std::vector<std::int32_t>& values) {
  return {*device_, ElementType::int32, rows, columns, bytes_of(values)};
}

Twin Twins::keys(std::int64_t samples) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(samples));
  for (std::uint64_t& value : values) value = random_.generator()();
  return {*device_, ElementType::uint64, samples, 1, bytes_of(values)};
}

Twin Twins::settled(const Twin& result) {
  const Tensor on_device = result.on_device();
  std::vector<float> values;
  const bool rounds = on_device.type == device_->compute_type() && on_device.type != device_->master_type();
  for (const double value : result.exact_values()) {
    values.push_back(round_to(rounds ? Precision::bf16 : Precision::fp32, static_cast<float>(value)));
  }
  const bool master = on_device.type == device_->master_type() && !rounds;
  return given(master ? Holds::statistics : Holds::activations, on_device.rows, on_device.columns, values);
}

void Twins::expect_close(const Twin& result, const std::string& what, double size, double slack) {
  const std::vector<double> exact = result.exact_values(), got = result.fetch();
  for (const double value : exact) ASSERT_TRUE(std::isfinite(value)) << what << ": the reference";
  const double error = relative_error(got, exact, size * std::sqrt(static_cast<double>(exact.size())));
  ASSERT_TRUE(is_within(error, slack * limit_of(precision_))) << what;
}

void Twins::expect_equal(const Twin& result, const std::string& what) {
  const std::vector<double> exact = result.exact_values(), got = result.fetch();
  ASSERT_EQ(got.size(), exact.size()) << what;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_TRUE(got[i] == exact[i] || (std::isnan(got[i]) && std::isnan(exact[i])))
        << what << ", element " << i << ": " << got[i] << ", not " << exact[i];
  }
}

}  // namespace lockstep::model::test
