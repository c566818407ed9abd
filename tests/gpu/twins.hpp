/// \file
/// Tensors in two memories at once, of the device under test and of the float64 reference, so that a test of an
/// operation is one call for both and a comparison. The reference gets the inputs as rounded for the device's products,
/// so that the tests measure the arithmetic and not the rounding of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/activation_table.hpp"
#include "model/reference/reference_backend.hpp"

namespace lockstep::model::test {

/// A tensor of the device and its exact twin. The empty one stands for an absent operand.
class Twin {
 public:
  Twin() = default;
  /// activations or statistics, as numbers that both hold exactly …
  Twin(Backend& device, Holds holds, std::int64_t rows, std::int64_t columns, const std::vector<float>& values);
  /// … or anything else, as bytes; without bytes: poisoned.
  Twin(Backend& device, ElementType type, std::int64_t rows, std::int64_t columns,
       const std::vector<std::byte>& bytes = {});

  Tensor on_device() const { return device_ == nullptr ? Tensor{} : device_->tensor(); }
  Tensor exact() const;
  std::vector<double> fetch() const { return device_->fetch_values(); }
  std::vector<double> exact_values() const { return as_doubles(exact_type_, *exact_); }

 private:
  std::shared_ptr<Array> device_;
  std::shared_ptr<std::vector<std::byte>> exact_;
  ElementType exact_type_ = ElementType::float64;
};

class Twins : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override;

  /// Random numbers to `scale`; activations are rounded as inputs of products.
  Twin numbers(Holds holds, std::int64_t rows, std::int64_t columns, double scale = 1);
  Twin activations(std::int64_t rows, std::int64_t columns, double scale = 1) {
    return numbers(Holds::activations, rows, columns, scale);
  }
  /// An operation's output: every element is a NaN, or the greatest of its type, until it is written.
  Twin poison(Holds holds, std::int64_t rows, std::int64_t columns);
  /// An operation's output, written or added to.
  Twin gradient(Accumulate accumulate, std::int64_t rows, std::int64_t columns);
  Twin given(Holds holds, std::int64_t rows, std::int64_t columns, const std::vector<float>& values);
  Twin indices(std::int64_t rows, std::int64_t columns, const std::vector<std::int32_t>& values);
  Twin tokens(std::int64_t rows, std::int64_t columns, std::int64_t vocabulary) {
    return indices(rows, columns, random_.labels(rows * columns, vocabulary));
  }
  Twin keys(std::int64_t samples);
  /// The exact result, rounded to the device's type, for both. So errors of one operation do not count for the next,
  /// and both are on the same side of a relu's corner.
  Twin settled(const Twin& result);

  /// work(backend, of): of(twin) is the tensor of that backend.
  template <class Work>
  void both(const Work& work) {
    work(*device_, [](const Twin& twin) { return twin.on_device(); });
    work(*reference_, [](const Twin& twin) { return twin.exact(); });
  }
  /// Requires a difference within `slack` times the precision's limit, in the norm; `size`: typical size of an element,
  /// if the exact result may be small by cancellation.
  void expect_close(const Twin& result, const std::string& what, double size = 0.05, double slack = 1);
  /// Compares each element; both may be NaN.
  void expect_equal(const Twin& result, const std::string& what);

  const Precision precision_ = GetParam();
  Random random_;
  std::unique_ptr<Backend> device_;
  const std::unique_ptr<Backend> reference_ = std::make_unique<ReferenceBackend>();
};

}  // namespace lockstep::model::test
