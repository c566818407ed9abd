#include "gpu/subject.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "model/random.hpp"

namespace lockstep::model::test {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr double kNoError = -1;

double largest_error = kNoError;

std::size_t bytes_of(const Tensor& tensor) { return std::max<std::size_t>(tensor.bytes(), 1); }

template <class T>
std::vector<T> falsified_if_broken(std::vector<T> values) {
  static unsigned times = 0;
  if (subject().broken) {
    const auto factor = static_cast<T>(1.25 + 0.03125 * (times++ % 13));
    for (T& value : values) value = value * factor + factor;
  }
  return values;
}

template <class T>
std::vector<double> as_doubles_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  std::vector<double> wide(values.size());
  std::ranges::transform(values, wide.begin(), [](T value) { return static_cast<double>(value); });
  return wide;
}

}  // namespace

std::vector<double> as_doubles(ElementType type, std::span<const std::byte> bytes) {
  switch (type) {
    case ElementType::float32:
      return as_doubles_of<float>(bytes);
    case ElementType::float64:
      return as_doubles_of<double>(bytes);
    case ElementType::uint8:
      return as_doubles_of<std::uint8_t>(bytes);
    case ElementType::int32:
      return as_doubles_of<std::int32_t>(bytes);
    case ElementType::uint64:
      return as_doubles_of<std::uint64_t>(bytes);
    case ElementType::bfloat16:
      break;
  }
  throw std::invalid_argument(std::string("numbers of ") + name_of(type));
}

Subject& subject() {
  static Subject the_one;
  return the_one;
}

std::unique_ptr<Backend> make_subject(Precision precision, const SubjectOptions& options) {
  if (subject().backend == "cpu") return make_backend("cpu");
  return make_backend(subject().backend, {.device = subject().device,
                                          .precision = precision,
                                          .graphs = options.graphs,
                                          .attention_library = options.attention_library});
}

bool offers(Precision precision) {
  if (subject().backend == "cpu" || precision == Precision::fp32) return true;
  return survey_devices().devices.at(static_cast<std::size_t>(subject().device)).major >= 8;
}

double limit_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 1e-5;
    case Precision::tf32:
      return 1e-3;
    case Precision::bf16:
      return 1e-2;
  }
  return 0;
}

Random::Random() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = test == nullptr ? "" : std::string(test->test_suite_name()) + "." + test->name();
  generator_.seed(subject().seed ^ stream_of(name));
}

std::vector<float> Random::numbers(std::int64_t count, Precision rounded_to, double scale) {
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = round_to(rounded_to, static_cast<float>(uniform(generator_)));
  return values;
}

std::vector<std::int32_t> Random::labels(std::int64_t count, std::int64_t classes) {
  std::uniform_int_distribution<std::int32_t> label(0, static_cast<std::int32_t>(classes) - 1);
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::int32_t& value : values) value = label(generator_);
  return values;
}

float round_to(Precision precision, float value) {
  if (precision == Precision::fp32 || !std::isfinite(value)) return value;
  const int dropped = precision == Precision::tf32 ? 13 : 16;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t half = (1U << (dropped - 1)) - 1, odd = bits >> dropped & 1U;
  bits = (bits + half + odd) >> dropped << dropped;
  return std::bit_cast<float>(bits);
}

Array::Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns)
    : Array(backend, type, rows, columns,
            std::vector<float>(static_cast<std::size_t>(rows * columns), std::numeric_limits<float>::quiet_NaN())) {}

Array::Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns, std::span<const float> values)
    : backend_(&backend), tensor_{.data = nullptr, .type = type, .rows = rows, .columns = columns} {
  tensor_.data = backend.memory()->allocate(bytes_of(tensor_), kAlignment);
  if (!values.empty()) backend.upload(values, tensor_);
}

Array::Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns,
             std::span<const std::byte> bytes)
    : backend_(&backend), tensor_{.data = nullptr, .type = type, .rows = rows, .columns = columns} {
  constexpr std::size_t kPiece = 256;
  const auto size = static_cast<std::size_t>(tensor_.count()) * size_of(type);
  const std::vector<std::byte> poison(bytes.empty() ? size : 0, std::byte{0xff});
  if (bytes.empty()) bytes = poison;
  tensor_.data = backend.memory()->allocate(bytes_of(tensor_), kAlignment);
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    const auto piece = bytes.subspan(begin, std::min(kPiece, bytes.size() - begin));
    backend.write(piece, {static_cast<std::byte*>(tensor_.data) + begin, ElementType::uint8, 1,
                          static_cast<std::int64_t>(piece.size())});
  }
}

Array::~Array() {
  if (tensor_.present()) backend_->memory()->deallocate(tensor_.data, bytes_of(tensor_), kAlignment);
}

Array::Array(Array&& other) noexcept : backend_(other.backend_), tensor_(std::exchange(other.tensor_, {})) {}

std::vector<float> Array::fetch() const {
  std::vector<float> values(static_cast<std::size_t>(tensor_.count()));
  if (!values.empty()) backend_->download(tensor_, values);
  return seen(std::move(values));
}

std::vector<double> Array::fetch_values() const {
  const auto count = static_cast<std::size_t>(tensor_.count());
  if (tensor_.type == ElementType::float32 || tensor_.type == ElementType::bfloat16) return widened(fetch());
  std::pmr::vector<std::byte> bytes(count * size_of(tensor_.type), backend_->host_memory());
  backend_->read(tensor_, bytes);
  backend_->synchronize();
  return seen(as_doubles(tensor_.type, bytes));
}

Scalars::Scalars(Backend& backend, const std::vector<double>& values)
    : backend_(backend),
      tensor_{.data = nullptr,
              .type = ElementType::float64,
              .rows = 1,
              .columns = static_cast<std::int64_t>(values.size())} {
  tensor_.data = backend.memory()->allocate(bytes_of(tensor_), kAlignment);
  set(values);
}

Scalars::~Scalars() { backend_.memory()->deallocate(tensor_.data, bytes_of(tensor_), kAlignment); }

void Scalars::set(std::span<const double> values) { backend_.write(std::as_bytes(values), tensor_); }

std::vector<double> Scalars::fetch() const {
  std::pmr::vector<double> values(static_cast<std::size_t>(tensor_.count()), backend_.host_memory());
  backend_.read(tensor_, std::as_writable_bytes(std::span(values)));
  backend_.synchronize();
  return seen(std::vector<double>(values.begin(), values.end()));
}

std::vector<float> seen(std::vector<float> values) { return falsified_if_broken(std::move(values)); }
std::vector<double> seen(std::vector<double> values) { return falsified_if_broken(std::move(values)); }

double relative_error(const std::vector<float>& got, const std::vector<double>& exact, double floor) {
  return relative_error(widened(got), exact, floor);
}

double relative_error(const std::vector<double>& got, const std::vector<double>& exact, double floor) {
  if (got.size() != exact.size()) return std::numeric_limits<double>::infinity();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return error == 0 ? 0 : std::sqrt(error) / std::max(std::sqrt(size), floor);
}

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

testing::AssertionResult is_within(double error, double limit) {
  const double share = error == 0 ? 0 : error / limit;
  largest_error = std::max(largest_error, std::isnan(share) ? std::numeric_limits<double>::infinity() : share);
  if (error <= limit) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "error " << error << ", limit " << limit << ": " << share << " of it";
}

testing::AssertionResult is_near(double got, double exact, double limit) {
  const testing::AssertionResult result = is_within(std::abs(got - exact), limit);
  if (result) return result;
  return testing::AssertionFailure() << got << " instead of " << exact << ", " << result.message();
}

double take_largest_error() { return std::exchange(largest_error, kNoError); }

std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace lockstep::model::test
