/// \file
/// The message of an expected exception.
#pragma once

#include <string>

namespace lockstep::test {

/// Returns what() of the Error that `work` throws; "" if it throws none.
template <class Error, class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::test
