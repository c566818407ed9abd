/// \file
/// Memory that is not there, in words: "std::bad_alloc" tells nobody what to make smaller.
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

/// Runs `work`, which takes about `bytes` of memory for `what` ("a block of field x") of `file`. Throws FileError
/// naming them where there is not so much.
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
