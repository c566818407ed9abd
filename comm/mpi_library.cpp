#include "comm/mpi_library.hpp"

#include <mpi.h>

#include <algorithm>

namespace lockstep::comm {

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "an unknown MPI library";
  const std::string words(text, static_cast<std::size_t>(std::max(length, 0)));
  return words.substr(0, words.find_first_of(std::string_view(",\n\0", 3)));
}

}  // namespace lockstep::comm
