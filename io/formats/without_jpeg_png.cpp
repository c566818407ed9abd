#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/formats/image_file.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

Image read_image(const std::filesystem::path& file) {
  throw FileError(
      fmt::format("{}: this program was built without libjpeg and libpng; install their development packages (Debian, "
                  "Ubuntu: libjpeg-dev libpng-dev) and build it again",
                  file.string()));
}

bool can_decode_images() noexcept { return false; }

}  // namespace lockstep::io
