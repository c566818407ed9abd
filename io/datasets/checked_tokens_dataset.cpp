#include "io/datasets/checked_tokens_dataset.hpp"

#include <cmath>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"

namespace lockstep::io {

namespace {

/// float32 holds every whole number up to this one.
constexpr double kMaxVocabulary = 16777216;

}  // namespace

bool TokenNumbers::takes(double number) const noexcept {
  return number >= 0 && number < static_cast<double>(vocabulary) && number == std::floor(number);
}

std::string TokenNumbers::objection(double number) const {
  if (are_lengths) {
    return fmt::format("{} holds {:.10g}, and the length of a series of {} steps is a whole number from 0 to {}", input,
                       number, vocabulary - 1, vocabulary - 1);
  }
  const std::string known =
      fmt::format("{} holds {:.10g}, and its embedding has the tokens 0 to {}", input, number, vocabulary - 1);
  if (number != std::floor(number)) return known + ": tokens are whole numbers";
  if (number < 0) return known + ": give padding and unknown words tokens of their own";
  if (number >= kMaxVocabulary) return fmt::format("{}: no vocabulary has more than {:.0f}", known, kMaxVocabulary);
  return fmt::format("{}: give the embedding a vocabulary of {:.0f} or more, or map rare words to one token", known,
                     number + 1);
}

void CheckedTokensDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                                std::span<std::byte> y) const {
  data().read(samples, epoch, x, y);
  if (x.empty()) return;
  const auto row = static_cast<std::size_t>(info().x.elements());
  with_elements(x_type(), x, [&](auto numbers) {
    for (const TokenNumbers& tokens : tokens_) {
      const auto first = static_cast<std::size_t>(tokens.first), count = static_cast<std::size_t>(tokens.count);
      for (std::size_t begin = first; begin + count <= numbers.size(); begin += row) {
        for (const auto number : numbers.subspan(begin, count)) {
          const auto value = static_cast<double>(number);
          if (!tokens.takes(value)) throw FileError({.file = path_, .what = tokens.objection(value)});
        }
      }
    }
  });
}

}  // namespace lockstep::io
