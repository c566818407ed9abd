#include "io/formats/image_file.hpp"

namespace lockstep::io {

ImageDecoder jpeg_decoder() noexcept { return nullptr; }
ImageDecoder png_decoder() noexcept { return nullptr; }

}  // namespace lockstep::io
