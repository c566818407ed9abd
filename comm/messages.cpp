#include "comm/messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep::comm {

std::vector<std::string> all_gather_text(Communicator& communicator, std::string_view text) {
  // The longest text determines the number of rounds. A round is 16 KiB per rank, so one long error text does not cost
  // size() times its length at once. Shares are whole lines, so that own_slice gives each rank the same amount.
  constexpr std::size_t kLine = 16, kRound = 16384;
  const auto ranks = static_cast<std::size_t>(communicator.size()), own = static_cast<std::size_t>(communicator.rank());

  std::vector<std::byte> bytes(ranks * kLine);
  const std::uint64_t own_length = text.size();
  std::memcpy(&bytes[own * kLine], &own_length, sizeof(own_length));
  communicator.all_gather(std::span(bytes));
  communicator.wait();
  std::vector<std::string> texts(ranks);
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t length = 0;
    std::memcpy(&length, &bytes[rank * kLine], sizeof(length));
    texts[rank].resize(length);
    longest = std::max<std::size_t>(longest, length);
  }

  for (std::size_t done = 0; done < longest;) {
    const std::size_t share = std::min(kRound, (longest - done + kLine - 1) / kLine * kLine);
    const auto part = [&](std::size_t length) { return length > done ? std::min(length - done, share) : 0; };
    bytes.assign(ranks * share, std::byte{});
    if (part(text.size()) > 0) std::memcpy(&bytes[own * share], text.data() + done, part(text.size()));
    communicator.all_gather(std::span(bytes));
    communicator.wait();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t count = part(texts[rank].size());
      if (count > 0) std::memcpy(texts[rank].data() + done, &bytes[rank * share], count);
    }
    done += share;
  }
  return texts;
}

}  // namespace lockstep::comm
