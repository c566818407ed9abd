/// \file
/// Lets MPI yield the core only inside blocking calls.
///
/// If ranks outnumber cores, Open MPI yields in every poll that finds nothing. On a machine with other busy processes
/// such a yield lasts a whole round of turns (backoff.hpp), so a rank that wakes, polls and sleeps would lose its turn
/// at each poll. Between polls, Backoff decides how to wait. Inside a blocking call only MPI can wait, and it must
/// yield: without it 64 ranks on two cores need 12 s to start.
#pragma once

namespace lockstep::comm {

class MpiYield {
 public:
  /// Construct it between MPI_Init and MPI_Finalize. From then on polls do not yield. Has no effect on other MPIs than
  /// Open MPI.
  MpiYield();
  ~MpiYield();
  MpiYield(const MpiYield&) = delete;
  MpiYield& operator=(const MpiYield&) = delete;

  /// Scope of a blocking call. `yield`: nullptr without MPI.
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
  using Set = bool(bool);  ///< returns the previous setting

  Set* set_;
  bool usual_;  ///< MPI's own setting
};

}  // namespace lockstep::comm
