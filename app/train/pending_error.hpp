/// \file
/// Failures of one rank between steps, reported to all ranks in the next step.
#pragma once

#include <stdexcept>
#include <string>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

/// Keeps the first failure of this rank between steps, for example a full disk. The vote of the next step sends it to
/// all ranks, so that all end with the same error.
class PendingError {
 public:
  /// `communicator` must outlive this object.
  explicit PendingError(comm::Communicator& communicator) : communicator_(communicator) {}

  const std::string& text() const noexcept { return text_; }  ///< "": no failure so far
  /// Calls `work` and keeps its error. Runs it as a long operation, for which the peers wait longer than their
  /// deadline, because the file system may be slow.
  template <class Work>
  void keep(Work work) {
    try {
      const comm::LongOperation writing(communicator_);
      work();
    } catch (const std::exception& e) {
      if (text_.empty()) text_ = e.what();
    }
  }
  /// Calls keep() on rank 0; does nothing on other ranks, or if rank 0 has failed before.
  template <class Work>
  void keep_on_rank0(Work work) {
    if (communicator_.rank() == 0 && text_.empty()) keep(work);
  }
  /// Collective. Throws comm::ConsensusError if a rank has failed.
  void raise() const {
    comm::all_succeed(communicator_, [&] {
      if (!text_.empty()) throw std::runtime_error(text_);
    });
  }

 private:
  comm::Communicator& communicator_;
  std::string text_;
};

}  // namespace lockstep::app
