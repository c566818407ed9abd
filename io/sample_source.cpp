#include "io/sample_source.hpp"

#include <functional>
#include <numeric>

namespace lockstep::io {

std::int64_t Field::elements() const noexcept {
  return std::accumulate(sample_shape.begin(), sample_shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t Field::bytes() const noexcept { return static_cast<std::size_t>(elements()) * size_of(type); }

}  // namespace lockstep::io
