#include "io/shards/split_source.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/shards/validation_draw.hpp"

namespace lockstep::io {
namespace {

/// Base of both kinds of parts: the whole source, except its number of samples.
class Part : public SampleSource {
 public:
  Part(std::unique_ptr<SampleSource> whole, std::int64_t count, const char* name)
      : whole_(std::move(whole)), count_(count), name_(name) {}
  std::vector<Field> fields() const override { return whole_->fields(); }
  std::vector<FieldRole> roles() const override { return whole_->roles(); }
  std::int64_t count() const override { return count_; }
  std::string description() const override { return fmt::format("{} ({})", whole_->description(), name_); }
  bool labels_are_classes() const override { return whole_->labels_are_classes(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::optional<std::int64_t> ignored_label() const override { return whole_->ignored_label(); }
  std::optional<TokenInfo> token_info() const override { return whole_->token_info(); }
  std::optional<TableSchema> table() const override { return whole_->table(); }
  std::optional<SampleId> sample_id() const override { return whole_->sample_id(); }

 protected:
  SampleSource& whole() const noexcept { return *whole_; }

 private:
  std::unique_ptr<SampleSource> whole_;
  std::int64_t count_;
  const char* name_;
};

/// Tokens [first, first + count) of a corpus.
class CorpusPart final : public Part {
 public:
  CorpusPart(std::unique_ptr<SampleSource> whole, std::int64_t first, std::int64_t count, const char* name)
      : Part(std::move(whole), count, name), first_(first) {}
  std::uint64_t source_bytes() const override { return whole().source_bytes() - bytes_before_; }
  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    if (first_ > 0) {
      whole().skip(std::exchange(first_, 0));
      bytes_before_ = whole().source_bytes();
    }
    whole().read(samples, buffers);
  }

 private:
  std::int64_t first_;
  std::uint64_t bytes_before_ = 0;
};

/// The samples that a ValidationDraw chooses, or the others.
class RandomPart final : public Part {
 public:
  RandomPart(std::unique_ptr<SampleSource> whole, SplitPart part, const ValidationDraw& draw, std::int64_t count,
             const char* name)
      : Part(std::move(whole), count, name), part_(part), draw_(draw), fields_(Part::stored_fields()) {}

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    std::vector<std::span<std::byte>> out(buffers.begin(), buffers.end());
    while (samples > 0) {
      std::int64_t run = 0;  // length of a run of samples: first of the other part, then of this one
      while (!next_is_ours()) ++run;
      if (run > 0) whole().skip(run);
      for (run = 1; run < samples && next_is_ours(); ++run) {
      }
      const bool overran = run < samples;  // the sample that ended the run belonged to the other part
      std::vector<std::span<std::byte>> piece;
      for (std::size_t f = 0; f < out.size(); ++f) {
        const std::size_t bytes = fields_[f].bytes() * static_cast<std::size_t>(run);
        piece.push_back(out[f].first(bytes));
        out[f] = out[f].subspan(bytes);
      }
      whole().read(run, piece);
      if (overran) whole().skip(1);
      samples -= run;
    }
  }

  void skip(std::int64_t samples) override {
    std::int64_t passed = 0;
    for (; samples > 0; ++passed) samples -= next_is_ours() ? 1 : 0;
    if (passed > 0) whole().skip(passed);
  }

 private:
  bool next_is_ours() { return draw_.next() == (part_ == SplitPart::validation); }

  SplitPart part_;
  ValidationDraw draw_;
  std::vector<Field> fields_;
};

}  // namespace

std::unique_ptr<SampleSource> make_part(std::unique_ptr<SampleSource> whole, SplitPart part,
                                        const SplitOptions& split) {
  const std::int64_t all = whole->count();
  if (split.validation < 1 || split.validation >= all) {
    throw FileError(fmt::format("{}: {} of {} cannot validate: at least one must, and one must train",
                                whole->description(), split.validation, all));
  }
  const bool trains = part == SplitPart::train;
  const std::int64_t train = all - split.validation;
  const char* name = trains ? kTrainName : kValidationName;
  if (whole->token_info()) {
    return std::make_unique<CorpusPart>(std::move(whole), trains ? 0 : train, trains ? train : split.validation, name);
  }
  const ValidationDraw draw(all, split.validation, split.seed);
  whole->fill_from_training(draw);
  return std::make_unique<RandomPart>(std::move(whole), part, draw, trains ? train : split.validation, name);
}

}  // namespace lockstep::io
