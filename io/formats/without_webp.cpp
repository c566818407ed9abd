#include "io/formats/image_file.hpp"

namespace lockstep::io {

ImageDecoder webp_decoder() noexcept { return nullptr; }

}  // namespace lockstep::io
