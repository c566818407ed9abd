/// \file
/// The backend under test, and the way from its results to the comparison. The same tests run on the CPU backend
/// (--backend cpu), so that they are known to be right before they meet a GPU. With --break, everything that they read
/// from the device is falsified on the way, and each test must notice.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/backend.hpp"

namespace lockstep::model::test {

struct Subject {
  std::string backend = "cuda";  ///< or "cpu"
  int device = 0;
  bool broken = false;     ///< --break
  bool quick = false;      ///< --quick: fewer and smaller samples of the sweeps
  std::uint64_t seed = 0;  ///< seed of all random inputs; printed at the start
};
/// Set by main before the tests run.
Subject& subject();

struct SubjectOptions {
  bool graphs = true, attention_library = true;  ///< BackendOptions
};
/// The backend under test. The CPU has one precision and stands for all of them.
std::unique_ptr<Backend> make_subject(Precision precision, const SubjectOptions& options = {});
/// True if the device computes at this precision.
bool offers(Precision precision);
/// The greatest relative error, in the norm, of a result at this precision.
double limit_of(Precision precision);

/// Random inputs: different ones each time the program runs, the same for the same --seed and test.
class Random {
 public:
  Random();
  std::mt19937_64& generator() { return generator_; }
  /// Uniform in (-scale, scale), rounded as inputs of products at this precision.
  std::vector<float> numbers(std::int64_t count, Precision rounded_to = Precision::fp32, double scale = 1);
  std::vector<std::int32_t> labels(std::int64_t count, std::int64_t classes);
  /// Returns one of `choices`.
  template <class T>
  T pick(const std::vector<T>& choices) {
    return choices[generator_() % choices.size()];
  }
  bool coin() { return generator_() % 2 == 0; }

 private:
  std::mt19937_64 generator_;
};
/// Rounds to the nearest number with the mantissa of tf32 (10 bits) or bfloat16 (7 bits), ties to even.
float round_to(Precision precision, float value);

/// A matrix in the backend's memory.
class Array {
 public:
  /// Poisoned: every element is a NaN until an operation writes it.
  Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns);
  Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns, std::span<const float> values);
  /// An array of any type from its bytes; without bytes: all bits set, which is NaN in numbers.
  Array(Backend& backend, ElementType type, std::int64_t rows, std::int64_t columns, std::span<const std::byte> bytes);
  ~Array();
  Array(Array&& other) noexcept;
  Array& operator=(Array&&) = delete;

  const Tensor& tensor() const { return tensor_; }
  std::vector<float> fetch() const;
  /// Numbers and indices of any type, as a test reads them.
  std::vector<double> fetch_values() const;

 private:
  Backend* backend_;
  Tensor tensor_;
};

/// Float64 scalars in the backend's memory.
class Scalars {
 public:
  Scalars(Backend& backend, const std::vector<double>& values);
  ~Scalars();
  Scalars(const Scalars&) = delete;
  Scalars& operator=(const Scalars&) = delete;

  const Tensor& tensor() const { return tensor_; }
  void set(std::span<const double> values);
  std::vector<double> fetch() const;

 private:
  Backend& backend_;
  Tensor tensor_;
};

/// Host memory from the backend, for stage() and read().
template <class T>
std::pmr::vector<T> host_array(Backend& backend, std::span<const T> values) {
  return {values.begin(), values.end(), backend.host_memory()};
}

/// Every value that a test reads from the device passes through here. With --break each value comes out wrong, and
/// differently each time.
std::vector<float> seen(std::vector<float> values);
std::vector<double> seen(std::vector<double> values);

/// The elements of a tensor with these bytes; not for bfloat16.
std::vector<double> as_doubles(ElementType type, std::span<const std::byte> bytes);

/// The relative error |got - exact| / max(|exact|, floor) in the Euclidean norm; NaN if any element is NaN. `floor`:
/// the expected norm, if the exact result may be small by cancellation.
double relative_error(const std::vector<float>& got, const std::vector<double>& exact, double floor = 0);
double relative_error(const std::vector<double>& got, const std::vector<double>& exact, double floor = 0);
double norm(const std::vector<float>& values);
/// error <= limit, or |got - exact| <= limit. The largest error and its limit are kept until the test's end, whether it
/// passes or not, so that near misses show.
testing::AssertionResult is_within(double error, double limit);
testing::AssertionResult is_near(double got, double exact, double limit);
/// The largest error since the last call, as a share of its limit; negative if nothing was compared.
double take_largest_error();
std::vector<double> widened(const std::vector<float>& values);

}  // namespace lockstep::model::test
