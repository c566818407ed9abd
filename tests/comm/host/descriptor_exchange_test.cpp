#include "comm/host/descriptor_exchange.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

constexpr std::uint64_t kFirstNonce = 11, kSecondNonce = 22;
constexpr uid_t kStranger = 65534;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

/// Sends `count` copies of a descriptor in one message, formatted like an exchange's own messages.
void send_descriptors(std::uint64_t address, std::uint64_t nonce, std::size_t count, int flags = 0) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::string text = fmt::format("lockstep-{:016x}", address);
  std::memcpy(to.sun_path + 1, text.data(), text.size());
  std::uint64_t letter[] = {nonce, 1};
  iovec contents{.iov_base = letter, .iov_len = sizeof(letter)};
  std::vector<std::byte> control(CMSG_SPACE(count * sizeof(int)));
  msghdr header{};
  header.msg_name = &to;
  header.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  header.msg_iov = &contents;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(count * sizeof(int));
  const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(descriptor));
  }
  if (sendmsg(socket, &header, flags) < 0) _exit(1);
  close(descriptor);
  close(socket);
}

/// Runs `work` as another user; returns false if this user may not change to one.
template <class Work>
bool as_stranger(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(kStranger) != 0) _exit(77);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_file(int descriptor, const char* path) {
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor)) == path;
}

/// Two ranks exchange /dev/zero and /dev/full. Closes the received descriptors.
void expect_exchange(DescriptorExchange& first, DescriptorExchange& second) {
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), full = open("/dev/full", O_RDONLY | O_CLOEXEC);
  auto there = std::async(std::launch::async, [&] {
    const std::vector<DescriptorExchange::Peer> peers{
        {.address = first.address(), .nonce = kFirstNonce, .name = "rank 0"}};
    return second.exchange(full, kSecondNonce, peers, 10);
  });
  const std::vector<DescriptorExchange::Peer> peers{
      {.address = second.address(), .nonce = kSecondNonce, .name = "rank 1"}};
  const std::vector<int> here = first.exchange(zero, kFirstNonce, peers, 10);
  const std::vector<int> back = there.get();
  EXPECT_TRUE(is_file(here.at(0), "/dev/full"));
  EXPECT_TRUE(is_file(back.at(0), "/dev/zero"));
  for (const int descriptor : {zero, full, here.at(0), back.at(0)}) close(descriptor);
}

TEST(DescriptorExchange, EveryDescriptorThatArrivesIsClosedOrUsed) {
  DescriptorExchange first, second;
  const std::ptrdiff_t before = open_descriptors();
  for (const std::size_t count : {1u, 2u, 7u}) {
    send_descriptors(first.address(), 999, count);  // an unknown nonce
  }
  expect_exchange(first, second);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DescriptorExchange, ClosesWhatComesBesideAPeersDescriptor) {
  DescriptorExchange first, second;
  const std::ptrdiff_t before = open_descriptors();
  send_descriptors(first.address(), kSecondNonce, 2);
  // This user's own message with the peer's nonce counts: the exchange uses its first descriptor.
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const std::vector<DescriptorExchange::Peer> peers{
      {.address = second.address(), .nonce = kSecondNonce, .name = "rank 1"}};
  const std::vector<int> here = first.exchange(zero, kFirstNonce, peers, 10);
  EXPECT_TRUE(is_file(here.at(0), "/dev/null"));
  for (const int descriptor : {zero, here.at(0)}) close(descriptor);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DescriptorExchange, AnotherUsersMessagesCountForNothing) {
  DescriptorExchange first, second;
  const std::ptrdiff_t before = open_descriptors();
  if (!as_stranger([&] { send_descriptors(first.address(), kSecondNonce, 2); })) {
    GTEST_SKIP() << "this user may not become another one";
  }
  expect_exchange(first, second);
  EXPECT_EQ(open_descriptors(), before);
}

/// The queue of a datagram socket is short. A stranger that keeps it full may keep peers out, but not for ever.
TEST(DescriptorExchange, AStrangerWhoSendsWithoutEndHangsNobody) {
  DescriptorExchange first, second;
  const pid_t flood = fork();
  if (flood == 0) {
    if (setuid(kStranger) != 0) _exit(77);
    for (;;) send_descriptors(first.address(), kSecondNonce, 2);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const std::vector<DescriptorExchange::Peer> peers{
      {.address = second.address(), .nonce = kSecondNonce, .name = "rank 1"}};
  EXPECT_THROW(first.exchange(zero, kFirstNonce, peers, 0.5), std::runtime_error);
  kill(flood, SIGKILL);
  waitpid(flood, nullptr, 0);
  close(zero);
}

}  // namespace
}  // namespace lockstep::comm
