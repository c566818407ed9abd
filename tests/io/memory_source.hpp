/// \file
/// Samples whose every value a test can compute: element e of sample i of x is (7 i + 3 e) mod 200.
#pragma once

#include <cstring>
#include <functional>
#include <utility>

#include "io/files/element_cast.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

inline std::int64_t expected_x(std::int64_t sample, std::int64_t element) { return (7 * sample + 3 * element) % 200; }

class MemorySource final : public SampleSource {
 public:
  struct Options {
    std::int64_t samples = 100;
    FileType x_type = FileType::uint8;
    std::vector<std::int64_t> x_shape{4, 3};
    FileType y_type = FileType::uint8;
    std::vector<std::int64_t> y_shape{};
    bool labelled = true;
    bool classes = true;
    std::vector<std::string> class_names{};
    std::function<double(std::int64_t sample)> label = [](std::int64_t sample) {
      return static_cast<double>(sample % 5);
    };
    std::function<double(std::int64_t sample, std::int64_t element)> value =
        [](std::int64_t sample, std::int64_t element) { return static_cast<double>(expected_x(sample, element)); };
  };

  explicit MemorySource(Options options) : options_(std::move(options)) {}
  std::vector<Field> fields() const override {
    std::vector<Field> result{{"x", options_.x_type, options_.x_shape}};
    if (options_.labelled) result.push_back({"y", options_.y_type, options_.y_shape});
    return result;
  }
  std::int64_t count() const override { return options_.samples; }
  std::string description() const override { return "memory"; }
  bool labels_are_classes() const override { return options_.labelled && options_.classes; }
  std::vector<std::string> class_names() const override { return options_.class_names; }
  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const auto all = fields();
    for (std::size_t f = 0; f < all.size(); ++f) {
      with_elements(all[f].type, buffers[f], [&](auto elements) {
        using Element = typename decltype(elements)::value_type;
        for (std::size_t i = 0; i < elements.size(); ++i) {
          const std::int64_t sample = done_ + static_cast<std::int64_t>(i) / all[f].elements();
          const std::int64_t element = static_cast<std::int64_t>(i) % all[f].elements();
          const auto value = static_cast<Element>(f == 0 ? options_.value(sample, element) : options_.label(sample));
          std::memcpy(buffers[f].data() + i * sizeof value, &value, sizeof value);
        }
      });
    }
    done_ += samples;
  }

 private:
  Options options_;
  std::int64_t done_ = 0;
};

}  // namespace lockstep::io
