#include "model/tensor.hpp"

namespace lockstep::model {

std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return 4;
    case ElementType::float64:
    case ElementType::uint64:
      return 8;
    case ElementType::uint8:
      return 1;
    case ElementType::int32:
      return 4;
    case ElementType::bfloat16:
      return 2;
  }
  return 0;
}

const char* name_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::uint8:
      return "uint8";
    case ElementType::int32:
      return "int32";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::uint64:
      return "uint64";
  }
  return "unknown";
}

}  // namespace lockstep::model
