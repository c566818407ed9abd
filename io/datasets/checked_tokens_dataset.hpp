/// \file
/// Checks the tokens in samples when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// A range of numbers in a sample that a network reads as tokens.
struct TokenNumbers {
  std::string input;                  ///< name of the network's input
  std::int64_t first = 0, count = 0;  ///< range within the sample
  std::int64_t vocabulary = 0;        ///< valid tokens are 0 to vocabulary - 1
  bool are_lengths = false;           ///< the numbers are lengths of series of up to vocabulary - 1 steps

  bool takes(double number) const noexcept;
  /// The reason why the number is not valid: the end of a sentence that begins with the file's name.
  std::string objection(double number) const;
};

/// Delivers the data unchanged; read() refuses numbers that are not valid tokens.
class CheckedTokensDataset final : public DatasetView {
 public:
  /// `path` is for messages.
  CheckedTokensDataset(std::shared_ptr<Dataset> data, std::vector<TokenNumbers> tokens, std::filesystem::path path)
      : DatasetView(std::move(data)), tokens_(std::move(tokens)), path_(std::move(path)) {}

  /// Also throws FileError for an invalid token; it names the input, the number and the vocabulary.
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  std::vector<TokenNumbers> tokens_;
  std::filesystem::path path_;
};

}  // namespace lockstep::io
