/// \file
/// MPI itself yields while a rank waits in calls that block; nobody yields in its polls.
///
/// Open MPI yields in every poll that finds nothing where ranks outnumber cores. That gives the core away in the middle
/// of a look, and beside other busy processes for a whole round of turns (backoff.hpp): a rank that wakes, looks and
/// sleeps again would lose its turn at each look. How ranks wait between polls is Backoff's matter. In a call that
/// blocks MPI waits by itself, and has to yield: on two cores 64 ranks start in 12 s without.
#pragma once

namespace lockstep::comm {

class MpiYield {
 public:
  /// Between MPI_Init and MPI_Finalize: from here on polls do not yield. Another MPI than Open MPI stays as it is.
  MpiYield();
  ~MpiYield();
  MpiYield(const MpiYield&) = delete;
  MpiYield& operator=(const MpiYield&) = delete;

  /// Scope of a call that blocks. `yield`: nullptr without MPI.
  class WhileBlocking {
   public:
    explicit WhileBlocking(const MpiYield* yield) noexcept;
    ~WhileBlocking();
    WhileBlocking(const WhileBlocking&) = delete;
    WhileBlocking& operator=(const WhileBlocking&) = delete;

   private:
    const MpiYield* yield_;
  };

 private:
  using Set = bool(bool);  ///< answers what was set before

  Set* set_;
  bool usual_;  ///< as MPI has decided
};

}  // namespace lockstep::comm
