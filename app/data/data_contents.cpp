#include "app/data/data_contents.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/consensus.hpp"
#include "io/datasets/dataset_view.hpp"
#include "io/files/checksum.hpp"

namespace lockstep::app {

namespace {

/// Pieces of a dataset: piece k holds up to `samples` samples and starts at sample first(k).
struct Pieces {
  std::int64_t all, count, samples;
  bool are_all() const { return count * samples >= all; }
  std::int64_t first(std::int64_t piece) const { return are_all() ? piece * samples : all * piece / count; }
};

Pieces pieces_of(const io::Dataset& data) {
  constexpr std::int64_t kWhole = 16 << 20, kPiece = 64 << 10, kRead = 64 << 20;  // bytes
  constexpr std::int64_t kMinPieces = 4, kMaxPieces = 256;
  const std::int64_t all = data.info().samples, multiple = data.block_multiple();
  const auto bytes = static_cast<std::int64_t>(std::max<std::size_t>(1, data.x_bytes() + data.y_bytes()));
  if (all <= kWhole / bytes) {
    const std::int64_t samples = multiple * std::max<std::int64_t>(1, kPiece / (bytes * multiple));
    return {.all = all, .count = (all + samples - 1) / samples, .samples = samples};
  }
  // A piece of chunked data costs a whole chunk.
  const std::int64_t samples = std::max<std::int64_t>(1, kPiece / bytes), read = std::max(samples, multiple) * bytes;
  return {.all = all, .count = std::min(all, std::clamp(kRead / read, kMinPieces, kMaxPieces)), .samples = samples};
}

void add_samples(const io::Dataset& data, std::int64_t first, std::int64_t count, io::Checksum& sum) {
  const auto rows = static_cast<std::size_t>(count);
  std::vector<std::int64_t> numbers(rows);
  std::iota(numbers.begin(), numbers.end(), first);
  std::vector<std::byte> x(rows * data.x_bytes()), y(rows * data.y_bytes());
  std::vector<float> weights(data.has_weights() ? rows : 0);
  data.read(numbers, io::kNoEpoch, x, y);
  if (data.has_weights()) data.read_weights(numbers, weights);
  for (const std::span<const std::byte> part : {std::span<const std::byte>(x), std::span<const std::byte>(y),
                                                std::as_bytes(std::span(std::as_const(weights)))}) {
    sum.add(part);
  }
}

constexpr std::string_view kContents = ", contents ";

class DataWithContents final : public io::DatasetView {
 public:
  DataWithContents(std::shared_ptr<io::Dataset> data, std::uint64_t contents, bool of_all)
      : DatasetView(std::move(data)), contents_(contents), of_all_(of_all) {}
  std::string fingerprint() const override {
    return fmt::format("{}{}{}", data().fingerprint(), kContents, io::to_hex(contents_));
  }
  /// Covers all that the order of the samples depends on, too. Unknown if only pieces of the data were read.
  std::string contents() const override {
    if (!of_all_) return "";
    const std::string order =
        fmt::format("{} {} {}", fmt::join(data().shard_counts(), ","), data().stored_bytes(), data().block_multiple());
    return fmt::format("{} {}", io::to_hex(contents_), io::to_hex(io::checksum(std::as_bytes(std::span(order)))));
  }

 private:
  std::uint64_t contents_;
  bool of_all_;
};

}  // namespace

std::unique_ptr<io::Dataset> with_contents(comm::Communicator& communicator, std::unique_ptr<io::Dataset> data) {
  const auto unchecked = [](const io::ShardInfo& shard) { return shard.checksum_x.empty(); };
  if (std::ranges::none_of(data->shards(), unchecked)) return data;
  const Pieces pieces = pieces_of(*data);
  std::uint64_t contents = 0;
  comm::all_succeed(communicator, [&] {
    if (communicator.rank() != 0) return;
    const comm::LongOperation reading(communicator, "reading the data");
    io::Checksum sum;
    for (std::int64_t piece = 0; piece < pieces.count; ++piece) {
      const std::int64_t first = pieces.first(piece);
      add_samples(*data, first, std::min(pieces.samples, pieces.all - first), sum);
    }
    contents = sum.value();
  });
  communicator.broadcast(std::as_writable_bytes(std::span(&contents, 1)), 0);
  communicator.wait("reading the data");
  return std::make_unique<DataWithContents>(std::move(data), contents, pieces.are_all());
}

std::string checksum_of_contents(const io::Dataset& data) {
  const std::string whole = data.fingerprint();
  const std::size_t at = whole.find(kContents);
  return at == std::string::npos ? "" : whole.substr(at + kContents.size());
}

std::string fingerprint_without_contents(const io::Dataset& data) {
  const std::string whole = data.fingerprint();
  return whole.substr(0, whole.find(kContents));
}

}  // namespace lockstep::app
