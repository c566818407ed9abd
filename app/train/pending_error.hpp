/// \file
/// A rank's failures between steps.
#pragma once

#include <stdexcept>
#include <string>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

/// Keeps the first failure of this rank between steps (a full disk …). The next step's vote tells all ranks of it, so
/// that all end alike.
class PendingError {
 public:
  /// `communicator` outlives this.
  explicit PendingError(comm::Communicator& communicator) : communicator_(communicator) {}

  const std::string& text() const noexcept { return text_; }  ///< "": no failure so far
  /// Runs the work, and keeps its error. The peers wait for longer, because the file system may be slow.
  template <class Work>
  void keep(Work work) {
    try {
      const comm::LongOperation writing(communicator_);
      work();
    } catch (const std::exception& e) {
      if (text_.empty()) text_ = e.what();
    }
  }
  /// The same on rank 0 alone, unless it has failed before.
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
