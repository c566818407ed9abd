/// \file
/// Samples with tokens among their numbers, which are checked as they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/datasets/dataset_view.hpp"

namespace lockstep::io {

/// Numbers of a sample that a network reads as tokens.
struct TokenNumbers {
  std::string input;                  ///< name of the input that they are
  std::int64_t first = 0, count = 0;  ///< numbers of the sample
  std::int64_t vocabulary = 0;        ///< tokens are 0 to vocabulary - 1
  bool are_lengths = false;           ///< they are lengths of series of up to vocabulary - 1 steps

  bool takes(double number) const noexcept;
  /// Why a number is no token, as the end of a sentence that begins with the file.
  std::string objection(double number) const;
};

/// The data as they are; read() refuses numbers that are no tokens.
class CheckedTokensDataset final : public DatasetView {
 public:
  /// path: for messages.
  CheckedTokensDataset(std::shared_ptr<Dataset> data, std::vector<TokenNumbers> tokens, std::filesystem::path path)
      : DatasetView(std::move(data)), tokens_(std::move(tokens)), path_(std::move(path)) {}

  /// Throws FileError naming the input, the number and the vocabulary, too.
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override;

 private:
  std::vector<TokenNumbers> tokens_;
  std::filesystem::path path_;
};

}  // namespace lockstep::io
