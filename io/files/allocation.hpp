/// \file
/// Turns failed allocations into errors that tell users what to make smaller; "std::bad_alloc" does not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Runs `work`, which allocates about `bytes` for `what` ("a block of field x") of `file`. Throws FileError with these
/// names if the allocation fails.
template <class Work>
auto allocating(const std::filesystem::path& file, std::string_view what, std::uint64_t bytes, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    throw FileError(
        fmt::format("out of memory: {} of {} takes {}, and this process gets no more (fewer ranks per host, "
                    "or a larger limit, leave more)",
                    what, file.string(), size_text(bytes)));
  }
}

}  // namespace lockstep::io
