/// A communicator that goes on with another one.
#include "comm/host/forwarding_communicator.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "comm/host/serial_communicator.hpp"

namespace lockstep::comm {
namespace {

class Listening final : public SerialCommunicator {
 public:
  std::atomic<int> notes{0};

 private:
  void do_note_wait(std::string_view) override { ++notes; }
};

/// As the watch over the files does, whose thread knows nothing of deaths. ThreadSanitizer watches the switch.
TEST(ForwardingCommunicator, AnotherThreadNotesAWaitWhileItGoesOn) {
  Listening all, survivors;
  ForwardingCommunicator communicator(all);
  std::atomic<bool> ends{false};
  std::thread files([&] {
    while (!ends) communicator.note_wait("waiting for a file");
  });
  const auto hears = [](const Listening& one) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (one.notes == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return one.notes > 0;
  };
  EXPECT_TRUE(hears(all));
  communicator.go_on_with(survivors);
  EXPECT_TRUE(hears(survivors));
  ends = true;
  files.join();
}

}  // namespace
}  // namespace lockstep::comm
