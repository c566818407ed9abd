// delay_line MICROSECONDS DEVICE PROCESS [DEVICE PROCESS]...: cables with a delay, for hosts.
//
// A cable joins two TAP devices: DEVICE in the network namespace of this process and data0 in that of PROCESS. A frame
// from data0 leaves DEVICE after the delay; a frame from DEVICE leaves data0 at once. So a path from one host over a
// bridge to another has the delay once. Frames pass with their virtio header, so that checksums stay open and segments
// of TCP large from end to end, as between veth devices. Each host may have 4 MiB in flight; further frames are
// dropped, as in a switch.
//
// Prints "ready" when the devices exist. They go when this process ends.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC
using Bytes = std::span<const std::byte>;

constexpr std::size_t kLargestFrame = 66'000;  // 64 KiB of TCP, Ethernet's header, virtio's header
constexpr std::size_t kQueueBytes = 4 << 20;
constexpr int kFramesInARow = 32;  // then others have their turn

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

int open_or_fail(const std::string& file, int flags) {
  const int descriptor = open(file.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) fail(file);
  return descriptor;
}

/** Makes the network namespace of a process ("self", "123") that of the calling thread. */
class InNetworkOf {
 public:
  explicit InNetworkOf(const std::string& process) : before_(open_or_fail("/proc/self/ns/net", O_RDONLY)) {
    const int there = open_or_fail("/proc/" + process + "/ns/net", O_RDONLY);
    if (setns(there, CLONE_NEWNET) != 0) fail("network namespace of process " + process);
    close(there);
  }
  ~InNetworkOf() {
    if (setns(before_, CLONE_NEWNET) != 0) std::abort();
    close(before_);
  }
  InNetworkOf(const InNetworkOf&) = delete;
  InNetworkOf& operator=(const InNetworkOf&) = delete;

 private:
  int before_;
};

/** A TAP device in the calling thread's network namespace; a frame here has its virtio header before it. */
class Tap {
 public:
  explicit Tap(const std::string& name) : descriptor_(open_or_fail("/dev/net/tun", O_RDWR | O_NONBLOCK)) {
    ifreq request = {};
    if (name.size() >= sizeof request.ifr_name) throw std::invalid_argument("device name too long: " + name);
    std::copy(name.begin(), name.end(), request.ifr_name);
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (ioctl(descriptor_, TUNSETIFF, &request) != 0) fail("TAP device " + name);
    if (ioctl(descriptor_, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN) != 0) fail("offloads of " + name);
  }
  ~Tap() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Tap(Tap&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Tap& operator=(Tap&&) = delete;

  int descriptor() const { return descriptor_; }
  /** The length of the next frame that the device sends, stored in `room`; nullopt if there is none. */
  std::optional<std::size_t> read(std::span<std::byte> room) {
    const ssize_t length = ::read(descriptor_, room.data(), room.size());
    if (length >= 0) return static_cast<std::size_t>(length);
    if (errno != EAGAIN && errno != EINTR) fail("reading a frame");
    return std::nullopt;
  }
  /** Lets the device receive a frame; it is lost if the device is down (a cut cable) or memory is short. */
  void write(Bytes frame) {
    if (::write(descriptor_, frame.data(), frame.size()) >= 0) return;
    if (errno != EIO && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM)
      fail("writing a frame");
  }

 private:
  int descriptor_;
};

/** Frames in the order of their time, in a ring of bytes. */
class Queue {
 public:
  Queue() : ring_(kQueueBytes) {}

  /** The memory for the next frame; empty if there is no room. */
  std::span<std::byte> room() {
    if (frames_.empty()) end_ = 0;
    const std::size_t begin = frames_.empty() ? 0 : frames_.front().begin;
    std::size_t limit = frames_.empty() || end_ > begin ? ring_.size() : begin;
    if (limit - end_ < kLargestFrame && limit == ring_.size()) {
      end_ = 0;
      limit = begin;
    }
    return limit - end_ < kLargestFrame ? std::span<std::byte>() : std::span(ring_).subspan(end_, kLargestFrame);
  }
  /** Appends the frame that was written to room(). */
  void push(std::size_t length, Clock::time_point due) {
    frames_.push_back({due, end_, length});
    end_ += length;
  }
  bool empty() const { return frames_.empty(); }
  Clock::time_point due() const { return frames_.front().due; }
  Bytes front() const { return Bytes(ring_).subspan(frames_.front().begin, frames_.front().length); }
  void pop() { frames_.pop_front(); }

 private:
  struct Frame {
    Clock::time_point due;
    std::size_t begin, length;
  };
  std::vector<std::byte> ring_;
  std::deque<Frame> frames_;
  std::size_t end_ = 0;  // end of the youngest frame
};

class Cable {
 public:
  Cable(const std::string& device, const std::string& process)
      : port_(device), node_((InNetworkOf(process), Tap("data0"))), scratch_(kLargestFrame) {}

  int port() const { return port_.descriptor(); }
  int node() const { return node_.descriptor(); }

  void from_node(Clock::duration delay) {
    for (int i = 0; i < kFramesInARow; ++i) {
      const std::span<std::byte> room = queue_.room();
      const std::optional<std::size_t> length = node_.read(room.empty() ? std::span(scratch_) : room);
      if (!length) return;
      if (!room.empty()) queue_.push(*length, Clock::now() + delay);
    }
  }
  void to_node() {
    for (int i = 0; i < kFramesInARow; ++i) {
      const std::optional<std::size_t> length = port_.read(scratch_);
      if (!length) return;
      node_.write(Bytes(scratch_).first(*length));
    }
  }
  /** Delivers due frames; returns the time of the next one. */
  Clock::time_point deliver() {
    for (; !queue_.empty(); queue_.pop()) {
      if (queue_.due() > Clock::now()) return queue_.due();
      port_.write(queue_.front());
    }
    return Clock::time_point::max();
  }

 private:
  Tap port_, node_;
  Queue queue_;
  std::vector<std::byte> scratch_;
};

[[noreturn]] void carry(std::vector<Cable>& cables, Clock::duration delay) {
  std::vector<pollfd> polled;
  for (const Cable& cable : cables) {
    polled.push_back({cable.node(), POLLIN, 0});
    polled.push_back({cable.port(), POLLIN, 0});
  }
  for (;;) {
    Clock::time_point next = Clock::time_point::max();
    for (Cable& cable : cables) next = std::min(next, cable.deliver());
    timespec pause = {};
    if (next != Clock::time_point::max()) {
      const auto left = std::chrono::nanoseconds(std::max(Clock::duration::zero(), next - Clock::now())).count();
      pause = {left / 1'000'000'000, left % 1'000'000'000};
    }
    if (ppoll(polled.data(), polled.size(), next == Clock::time_point::max() ? nullptr : &pause, nullptr) < 0) {
      if (errno == EINTR) continue;
      fail("poll");
    }
    for (std::size_t i = 0; i < cables.size(); ++i) {
      if (polled[2 * i].revents != 0) cables[i].from_node(delay);
      if (polled[2 * i + 1].revents != 0) cables[i].to_node();
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4 || count % 2 != 0 || std::atoi(arguments[1]) <= 0) {
    std::fprintf(stderr, "usage: delay_line MICROSECONDS DEVICE PROCESS [DEVICE PROCESS]...\n");
    return 2;
  }
  try {
    std::vector<Cable> cables;
    for (int i = 2; i < count; i += 2) cables.emplace_back(arguments[i], arguments[i + 1]);
    const sched_param priority = {.sched_priority = 1};  // before ranks that compute, if this process may
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) prctl(PR_SET_TIMERSLACK, 1UL);
    std::puts("ready");
    std::fflush(stdout);
    carry(cables, std::chrono::microseconds(std::atoi(arguments[1])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "delay_line: %s\n", error.what());
    return 1;
  }
}
