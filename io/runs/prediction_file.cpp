#include "io/runs/prediction_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/files/checksum.hpp"
#include "io/files/hdf5_file.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsBetweenNotes = 1;
constexpr const char* kScores = "/scores";
constexpr const char* kClass = "/class";
constexpr const char* kTarget = "/target";
constexpr const char* kIndex = "/index";
constexpr const char* kClassNames = "class_names";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string describe(const PredictionContent& content) {
  std::string text = fmt::format("{} {} {} {} {}", content.samples, content.outputs, content.classes, content.targets,
                                 fmt::join(content.class_names, ","));
  for (const auto& [name, value] : content.about) text += fmt::format("\n{}={}", name, value);
  return to_hex(checksum(std::as_bytes(std::span(text))));
}

/// The first of the greatest.
std::int32_t likeliest(std::span<const float> scores) {
  return static_cast<std::int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted(1, '"');
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted.append(1, '"');
}

}  // namespace

PredictionWriter::PredictionWriter(fs::path file, PredictionContent content, Existing existing)
    : file_(std::move(file)),
      partial_(file_.string() + ".partial"),
      progress_(partial_.string() + ".progress"),
      content_(std::move(content)),
      identity_(describe(content_)),
      target_bytes_(!content_.targets  ? 0
                    : content_.classes ? sizeof(std::int32_t)
                                       : static_cast<std::size_t>(content_.outputs) * sizeof(float)),
      noted_at_(now()) {
  std::error_code unknown;
  if (existing == Existing::refuse && fs::exists(file_, unknown)) {
    throw FileError(fmt::format("{} exists already: --force replaces it, --out FILE names another", file_.string()));
  }
  lock_ = open_file(progress_, O_RDWR | O_CREAT, "write");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw FileError(
        fmt::format("another process is writing {}: wait for it, or name another file with --out", file_.string()));
  }
  if (!take_over()) create();
  locate();
}

/// Whether an earlier process has left a part of the same content.
bool PredictionWriter::take_over() {
  const std::string noted = read_whole(progress_).value_or("");
  const std::size_t line = noted.find('\n');
  if (line == std::string::npos || noted.substr(0, line) != identity_) return false;
  std::int64_t done = 0;
  const char* const first = noted.data() + line + 1;
  const auto [end, error] = std::from_chars(first, noted.data() + noted.size(), done);
  if (error != std::errc() || done < 0 || done > content_.samples) return false;
  std::error_code missing;
  if (!fs::exists(partial_, missing)) return false;
  done_ = done;
  return true;
}

void PredictionWriter::create() {
  const std::int64_t samples = content_.samples, outputs = content_.outputs;
  const std::array<std::int64_t, 2> table{samples, outputs};
  const std::array<std::int64_t, 1> column{samples};
  const std::uint64_t bytes =
      64 * 1024 + static_cast<std::uint64_t>(samples) * (static_cast<std::uint64_t>(outputs) * sizeof(float) +
                                                         sizeof(std::int32_t) + target_bytes_ + sizeof(std::int64_t));
  try {
    Hdf5File out(partial_, Hdf5File::Access::create);
    if (const int refusal = reserve_space(open_file(partial_, O_WRONLY, "open"), bytes); refusal != 0) {
      out.give_up();
      throw FileError(fmt::format("cannot write {}: {}", file_.string(), no_space_text(refusal, partial_, bytes)));
    }
    out.create_dataset(kScores, FileType::float32, table);
    if (content_.classes) out.create_dataset(kClass, FileType::int32, column);
    if (content_.targets && content_.classes) out.create_dataset(kTarget, FileType::int32, column);
    if (content_.targets && !content_.classes) out.create_dataset(kTarget, FileType::float32, table);
    out.create_dataset(kIndex, FileType::int64, column);
    constexpr std::int64_t kAtOnce = 1 << 16;
    std::vector<std::int64_t> indices;
    for (std::int64_t begin = 0; begin < samples; begin += kAtOnce) {
      indices.resize(static_cast<std::size_t>(std::min(kAtOnce, samples - begin)));
      std::iota(indices.begin(), indices.end(), begin);
      out.write_rows(kIndex, FileType::int64, begin, static_cast<std::int64_t>(indices.size()),
                     std::as_bytes(std::span(indices)));
    }
    for (const auto& [name, value] : content_.about) out.set_text("/", name, value);
    if (!content_.class_names.empty()) out.set_texts("/", kClassNames, content_.class_names);
    out.close();
  } catch (...) {
    ::unlink(partial_.c_str());
    ::unlink(progress_.c_str());
    throw;
  }
  done_ = 0;
}

/// Where the values lie.
void PredictionWriter::locate() {
  const Hdf5File out(partial_, Hdf5File::Access::read);
  const auto offset = [&](const char* dataset) -> std::uint64_t {
    const std::optional<std::uint64_t> at = out.layout(dataset).offset;
    if (!at && content_.samples > 0) throw FileError(fmt::format("{}: {} has no place", partial_.string(), dataset));
    return at.value_or(0);
  };
  scores_ = offset(kScores);
  if (content_.classes) classes_ = offset(kClass);
  if (content_.targets) targets_ = offset(kTarget);
  values_ = open_file(partial_, O_WRONLY, "write");
}

void PredictionWriter::write(std::span<const float> scores, std::span<const std::byte> targets) {
  const auto outputs = static_cast<std::size_t>(content_.outputs);
  const std::size_t count = scores.size() / outputs;
  const auto first = static_cast<std::uint64_t>(done_);
  if (scores.size() != count * outputs || targets.size() != count * target_bytes_ ||
      done_ + static_cast<std::int64_t>(count) > content_.samples) {
    throw std::invalid_argument(fmt::format("{} scores and {} bytes of targets from sample {} of {} on", scores.size(),
                                            targets.size(), done_, content_.samples));
  }
  write_at(values_, std::as_bytes(scores), scores_ + first * outputs * sizeof(float), partial_);
  if (content_.classes) {
    std::vector<std::int32_t> classes(count);
    for (std::size_t i = 0; i < count; ++i) classes[i] = likeliest(scores.subspan(i * outputs, outputs));
    write_at(values_, std::as_bytes(std::span(classes)), classes_ + first * sizeof(std::int32_t), partial_);
  }
  if (content_.targets) write_at(values_, targets, targets_ + first * target_bytes_, partial_);
  done_ += static_cast<std::int64_t>(count);
  if (now() - noted_at_ > kSecondsBetweenNotes) note_progress();
}

/// What is done is safe before it is said to be.
void PredictionWriter::note_progress() {
  sync_file(partial_);
  const std::string text = fmt::format("{}\n{:020}\n", identity_, done_);
  write_at(lock_, std::as_bytes(std::span(text)), 0, progress_);
  noted_at_ = now();
}

void PredictionWriter::finish() {
  if (done_ != content_.samples) {
    throw std::logic_error(fmt::format("predictions of {} of {} samples", done_, content_.samples));
  }
  sync_file(partial_);
  if (::rename(partial_.c_str(), file_.c_str()) != 0) {
    throw FileError(fmt::format("cannot rename {} to {}: {}", partial_.string(), file_.string(),
                                std::generic_category().message(errno)));
  }
  sync_folder(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
  ::unlink(progress_.c_str());
}

void write_predictions_as_csv(const fs::path& file, const fs::path& csv) {
  const Hdf5File in(file, Hdf5File::Access::read);
  const std::vector<std::int64_t> shape = in.layout(kScores).shape;
  const std::int64_t samples = shape.at(0), outputs = shape.at(1);
  const bool classes = in.has(kClass), targets = in.has(kTarget);
  const std::int64_t target_columns = !targets ? 0 : classes ? 1 : outputs;
  const std::vector<std::string> names = in.texts("/", kClassNames).value_or(std::vector<std::string>());
  const auto name_of_column = [&](const char* kind, std::int64_t i) {
    const auto known = static_cast<std::size_t>(i) < names.size();
    return known ? quoted(fmt::format("{}_{}", kind, names[static_cast<std::size_t>(i)]))
                 : fmt::format("{}_{}", kind, i);
  };
  std::vector<std::string> head{"index"};
  for (std::int64_t i = 0; i < target_columns; ++i) head.push_back(classes ? "target" : name_of_column("target", i));
  if (classes) head.emplace_back("class");
  for (std::int64_t i = 0; i < outputs; ++i) head.push_back(name_of_column(classes ? "score" : "predicted", i));

  const fs::path temporary = temporary_beside(csv);
  try {
    const Descriptor out = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, "write");
    write_all(out, fmt::format("{}\n", fmt::join(head, ",")), csv);
    constexpr std::int64_t kAtOnce = 1024;
    for (std::int64_t first = 0; first < samples; first += kAtOnce) {
      const std::int64_t count = std::min(kAtOnce, samples - first);
      std::vector<float> scores(static_cast<std::size_t>(count * outputs));
      std::vector<float> numbers(static_cast<std::size_t>(classes ? 0 : count * target_columns));
      std::vector<std::int32_t> its_class(static_cast<std::size_t>(classes ? count : 0)),
          label(targets ? its_class.size() : 0);
      in.read_rows(kScores, FileType::float32, first, count, std::as_writable_bytes(std::span(scores)));
      if (classes) in.read_rows(kClass, FileType::int32, first, count, std::as_writable_bytes(std::span(its_class)));
      if (!label.empty())
        in.read_rows(kTarget, FileType::int32, first, count, std::as_writable_bytes(std::span(label)));
      if (!numbers.empty())
        in.read_rows(kTarget, FileType::float32, first, count, std::as_writable_bytes(std::span(numbers)));
      std::string text;
      for (std::int64_t row = 0; row < count; ++row) {
        text += fmt::format("{}", first + row);
        if (!label.empty()) text += fmt::format(",{}", label[static_cast<std::size_t>(row)]);
        for (std::int64_t i = 0; !numbers.empty() && i < outputs; ++i)
          text += fmt::format(",{}", numbers[static_cast<std::size_t>(row * outputs + i)]);
        if (classes) text += fmt::format(",{}", its_class[static_cast<std::size_t>(row)]);
        for (std::int64_t i = 0; i < outputs; ++i)
          text += fmt::format(",{}", scores[static_cast<std::size_t>(row * outputs + i)]);
        text += '\n';
      }
      write_all(out, text, csv);
    }
    sync_file(temporary);
    if (::rename(temporary.c_str(), csv.c_str()) != 0) {
      throw FileError(fmt::format("cannot write {}: {}", csv.string(), std::generic_category().message(errno)));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace lockstep::io
