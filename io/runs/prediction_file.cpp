#include "io/runs/prediction_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
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
constexpr const char* kRow = "/row";
constexpr const char* kId = "/id";
constexpr const char* kClassNames = "class_names";
constexpr const char* kTargetNames = "target_names";
constexpr const char* kIdColumn = "id_column";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string describe(const PredictionContent& content) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {}", content.samples, content.outputs, content.classes,
                                 content.targets, fmt::join(content.class_names, ","),
                                 fmt::join(content.target_names, ","), content.id_name, content.id_bytes);
  if (!content.mask.empty()) text += fmt::format(" mask {}", fmt::join(content.mask, "x"));
  if (!content.field.empty()) text += fmt::format(" field {}", fmt::join(content.field, "x"));
  for (const auto& [name, value] : content.about) text += fmt::format("\n{}={}", name, value);
  return to_hex(checksum(std::as_bytes(std::span(text))));
}

/// The index of the greatest score; the first one if several are equal.
std::int32_t likeliest(std::span<const float> scores) {
  return static_cast<std::int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

bool is_number(const std::string& text) {
  double number = 0;
  const std::size_t begin = text.starts_with('+') ? 1 : 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// True if a spreadsheet would read it as a formula, as OWASP lists them (CSV injection).
bool looks_like_formula(const std::string& text) {
  if (text.empty() || is_number(text)) return false;
  constexpr std::array<std::string_view, 4> kWide = {"\xEF\xBC\x9D", "\xEF\xBC\x8B", "\xEF\xBC\x8D", "\xEF\xBC\xA0"};
  return std::string_view("=+-@\t\r\n").find(text[0]) != std::string_view::npos ||
         std::any_of(kWide.begin(), kWide.end(), [&](std::string_view sign) { return text.starts_with(sign); });
}

std::string quoted(const std::string& text) {
  const bool formula = looks_like_formula(text);
  if (!formula && text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted(formula ? "\"'" : "\"");
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted.append(1, '"');
}

/// Writes CSV for spreadsheets: a line of names, then `index,row,id,target,class,SCORES` for each sample of `file`,
/// with the names of samples, classes and targets if known. Returns the temporary file, on the device.
fs::path write_as_text(const fs::path& file, const fs::path& csv, IoDeadline* deadline) {
  const Hdf5File in(file, Hdf5File::Access::read);
  const std::vector<std::int64_t> shape = in.layout(kScores).shape;
  const std::int64_t samples = shape.at(0), outputs = shape.at(1);
  const bool classes = in.has(kClass), targets = in.has(kTarget);
  const std::int64_t target_columns = !targets ? 0 : classes ? 1 : outputs;
  const std::vector<std::string> names =
      in.texts("/", classes ? kClassNames : kTargetNames).value_or(std::vector<std::string>());
  const std::size_t id_bytes = in.has(kId) ? static_cast<std::size_t>(in.layout(kId).shape.at(1)) : 0;
  const auto name_of_column = [&](const char* kind, std::int64_t i) {
    const auto known = static_cast<std::size_t>(i) < names.size();
    return known ? quoted(fmt::format("{}_{}", kind, names[static_cast<std::size_t>(i)]))
                 : fmt::format("{}_{}", kind, i);
  };
  const auto name_of_class = [&](std::int32_t label) {
    const auto i = static_cast<std::size_t>(label);  // a negative label exceeds all names
    return i < names.size() ? quoted(names[i]) : fmt::format("{}", label);
  };
  const bool rows = in.has(kRow);
  std::vector<std::string> head{"index"};
  if (rows) head.emplace_back("row");
  if (id_bytes > 0) {
    const std::string name = in.text("/", kIdColumn).value_or("id");
    head.push_back(std::ranges::find(head, name) != head.end() ? "id" : quoted(name));
  }
  for (std::int64_t i = 0; i < target_columns; ++i) head.push_back(classes ? "target" : name_of_column("target", i));
  if (classes) head.emplace_back("class");
  for (std::int64_t i = 0; i < outputs; ++i) head.push_back(name_of_column(classes ? "score" : "predicted", i));

  const fs::path temporary = temporary_beside(csv);
  std::uint64_t written = 0;
  try {
    const Descriptor out = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, "write");
    write_all(out, fmt::format("{}\n", fmt::join(head, ",")), csv);
    constexpr std::int64_t kAtOnce = 1024;
    for (std::int64_t first = 0; first < samples; first += kAtOnce) {
      const IoDeadline::Operation operation(deadline, IoDeadline::Kind::writing, csv);
      const std::int64_t count = std::min(kAtOnce, samples - first);
      std::vector<float> scores(static_cast<std::size_t>(count * outputs));
      std::vector<float> numbers(static_cast<std::size_t>(classes ? 0 : count * target_columns));
      std::vector<std::int32_t> its_class(static_cast<std::size_t>(classes ? count : 0)),
          label(targets ? its_class.size() : 0);
      std::string ids(static_cast<std::size_t>(count) * id_bytes, '\0');
      if (id_bytes > 0) {
        in.read_rows(kId, FileType::uint8, first, count, std::as_writable_bytes(std::span(ids.data(), ids.size())));
      }
      in.read_rows(kScores, FileType::float32, first, count, std::as_writable_bytes(std::span(scores)));
      if (classes) in.read_rows(kClass, FileType::int32, first, count, std::as_writable_bytes(std::span(its_class)));
      if (!label.empty())
        in.read_rows(kTarget, FileType::int32, first, count, std::as_writable_bytes(std::span(label)));
      if (!numbers.empty())
        in.read_rows(kTarget, FileType::float32, first, count, std::as_writable_bytes(std::span(numbers)));
      std::vector<std::int64_t> row_in_whole(static_cast<std::size_t>(rows ? count : 0));
      if (rows) in.read_rows(kRow, FileType::int64, first, count, std::as_writable_bytes(std::span(row_in_whole)));
      std::string text;
      for (std::int64_t row = 0; row < count; ++row) {
        text += fmt::format("{}", first + row);
        if (rows) text += fmt::format(",{}", row_in_whole[static_cast<std::size_t>(row)]);
        if (id_bytes > 0) {
          const std::string id = ids.substr(static_cast<std::size_t>(row) * id_bytes, id_bytes);
          text += ',' + quoted(id.substr(0, id.find('\0')));
        }
        if (!label.empty()) text += fmt::format(",{}", name_of_class(label[static_cast<std::size_t>(row)]));
        for (std::int64_t i = 0; !numbers.empty() && i < outputs; ++i)
          text += fmt::format(",{}", numbers[static_cast<std::size_t>(row * outputs + i)]);
        if (classes) text += fmt::format(",{}", name_of_class(its_class[static_cast<std::size_t>(row)]));
        for (std::int64_t i = 0; i < outputs; ++i)
          text += fmt::format(",{}", scores[static_cast<std::size_t>(row * outputs + i)]);
        text += '\n';
      }
      write_all(out, text, csv);
      written += text.size();
    }
    const IoDeadline::Operation operation(deadline, IoDeadline::Kind::writing, csv, IoDeadline::seconds_for(written));
    sync_file(temporary);
  } catch (const FileError& error) {
    ::unlink(temporary.c_str());
    if (!means_no_space(error.parts().error_number)) throw;
    // Estimates the space: each remaining sample takes about as much as those already written.
    throw FileError(fmt::format("cannot write {}: {}", csv.string(),
                                no_space_text(error.parts().error_number, csv.parent_path(), written)));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  return temporary;
}

void rename_to(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw FileError(
        fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), std::generic_category().message(errno)));
  }
  sync_folder(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

/// False if a process renamed or removed the file before we locked it.
bool is_still(const Descriptor& descriptor, const fs::path& file) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor.get(), &open) == 0 && ::stat(file.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

PredictionWriter::PredictionWriter(PredictionOutput output, PredictionContent content)
    : output_(std::move(output)),
      partial_(output_.file.string() + ".partial"),
      progress_(partial_.string() + ".progress"),
      content_(std::move(content)),
      identity_(describe(content_)),
      positions_(static_cast<std::size_t>(
          std::accumulate(content_.mask.begin(), content_.mask.end(), std::int64_t{1}, std::multiplies{}))),
      target_bytes_(!content_.targets  ? 0
                    : content_.classes ? positions_ * sizeof(std::int32_t)
                                       : static_cast<std::size_t>(content_.outputs) * sizeof(float)),
      noted_at_(now()) {
  lock();
  const IoDeadline::Operation beginning(output_.deadline, IoDeadline::Kind::writing, output_.file,
                                        IoDeadline::seconds_for(bytes()));
  if (take_over()) return;
  create();
  locate();
}

/// Continues an earlier process's file if its content is the same; false: there is none.
bool PredictionWriter::take_over() {
  const std::int64_t done = noted();
  if (done < 0) return false;
  try {
    locate();
  } catch (const FileError& error) {
    refused_ = fmt::format("{}, which an earlier job has left, is damaged: starting over ({})", partial_.string(),
                           error.what());
    return false;
  }
  done_ = done;
  return true;
}

std::uint64_t PredictionWriter::bytes() const noexcept {
  return 64 * 1024 +
         static_cast<std::uint64_t>(content_.samples) *
             ((content_.mask.empty() ? static_cast<std::uint64_t>(content_.outputs) : 0) * sizeof(float) +
              positions_ * sizeof(std::int32_t) + target_bytes_ + (content_.row_of ? 2 : 1) * sizeof(std::int64_t) +
              static_cast<std::uint64_t>(content_.id_bytes));
}

/// Locks the file for this process. The previous owner may have finished or given up in the meantime.
void PredictionWriter::lock() {
  const IoDeadline::Operation locking(output_.deadline, IoDeadline::Kind::writing, output_.file);
  do {
    lock_ = open_file(progress_, O_RDWR | O_CREAT, "write");
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw FileError(fmt::format("another process is writing {}: wait for it, or name another file with --out",
                                  output_.file.string()));
    }
  } while (!is_still(lock_, progress_));
  if (output_.existing == PredictionOutput::Existing::replace) return;
  std::error_code unknown;
  for (const auto& [file, option] : {std::pair(output_.file, "--out"), std::pair(output_.csv, "--csv")}) {
    if (file.empty() || !fs::exists(file, unknown)) continue;
    if (!fs::exists(partial_, unknown)) ::unlink(progress_.c_str());
    throw FileError(
        fmt::format("{} exists already: --force replaces it, {} FILE names another", file.string(), option));
  }
}

/// Number of samples of the same content that an earlier process completed; -1: none.
std::int64_t PredictionWriter::noted() const {
  const std::string noted = read_whole(progress_).value_or("");
  const std::size_t line = noted.find('\n');
  if (line == std::string::npos || noted.substr(0, line) != identity_) return -1;
  std::int64_t done = 0;
  const char* const first = noted.data() + line + 1;
  const auto [end, error] = std::from_chars(first, noted.data() + noted.size(), done);
  return error != std::errc() || done < 0 || done > content_.samples ? -1 : done;
}

/// First removes the recorded progress of other content durably, so that no process applies it to the new file.
void PredictionWriter::create() {
  const std::int64_t samples = content_.samples;
  std::vector<std::int64_t> table{samples};
  table.insert(table.end(), content_.field.begin(), content_.field.end());
  if (content_.field.empty()) table.push_back(content_.outputs);
  std::vector<std::int64_t> of_classes{samples};
  of_classes.insert(of_classes.end(), content_.mask.begin(), content_.mask.end());
  try {
    if (::ftruncate(lock_.get(), 0) != 0 || ::fsync(lock_.get()) != 0) {
      throw FileError(fmt::format("cannot write {}: {}", progress_.string(), std::generic_category().message(errno)));
    }
    Hdf5File out(partial_, Hdf5File::Access::create);
    if (const int refusal = reserve_space(open_file(partial_, O_WRONLY, "open"), bytes()); refusal != 0) {
      out.give_up();
      throw FileError(
          fmt::format("cannot write {}: {}", output_.file.string(), no_space_text(refusal, partial_, bytes())));
    }
    if (content_.mask.empty()) out.create_dataset(kScores, FileType::float32, table);
    if (content_.classes) out.create_dataset(kClass, FileType::int32, of_classes);
    if (content_.targets && content_.classes) out.create_dataset(kTarget, FileType::int32, of_classes);
    if (content_.targets && !content_.classes) out.create_dataset(kTarget, FileType::float32, table);
    constexpr std::int64_t kAtOnce = 1 << 16;
    const auto write_indices = [&](const char* dataset, const std::function<std::int64_t(std::int64_t)>& index_of) {
      out.create_dataset(dataset, FileType::int64, std::array{samples});
      std::vector<std::int64_t> indices;
      for (std::int64_t begin = 0; begin < samples; begin += kAtOnce) {
        indices.resize(static_cast<std::size_t>(std::min(kAtOnce, samples - begin)));
        std::iota(indices.begin(), indices.end(), begin);
        if (index_of) std::ranges::transform(indices, indices.begin(), index_of);
        out.write_rows(dataset, FileType::int64, begin, static_cast<std::int64_t>(indices.size()),
                       std::as_bytes(std::span(indices)));
      }
    };
    write_indices(kIndex, {});
    if (content_.row_of) write_indices(kRow, content_.row_of);
    if (content_.id_bytes > 0) {
      out.create_dataset(kId, FileType::uint8, std::array<std::int64_t, 2>{samples, content_.id_bytes});
      std::vector<std::byte> ids;
      for (std::int64_t begin = 0; begin < samples; begin += kAtOnce) {
        const std::int64_t count = std::min(kAtOnce, samples - begin);
        ids.resize(static_cast<std::size_t>(count * content_.id_bytes));
        content_.read_ids(begin, ids);
        out.write_rows(kId, FileType::uint8, begin, count, ids);
      }
      out.set_text("/", kIdColumn, content_.id_name);
    }
    for (const auto& [name, value] : content_.about) out.set_text("/", name, value);
    if (!content_.class_names.empty()) out.set_texts("/", kClassNames, content_.class_names);
    if (!content_.target_names.empty()) out.set_texts("/", kTargetNames, content_.target_names);
    out.close();
  } catch (...) {
    ::unlink(partial_.c_str());
    ::unlink(progress_.c_str());
    throw;
  }
  done_ = 0;
}

/// Finds the offsets of the values. Throws FileError if the file does not have them.
void PredictionWriter::locate() {
  const Hdf5File out(partial_, Hdf5File::Access::read);
  const std::uint64_t size = fs::file_size(partial_);
  const auto offset = [&](const char* dataset, FileType type, std::size_t row_bytes) -> std::uint64_t {
    const DatasetLayout layout = out.layout(dataset);
    const std::uint64_t at = layout.offset.value_or(0),
                        end = at + static_cast<std::uint64_t>(content_.samples) * row_bytes;
    if (layout.type != type || layout.shape.empty() || layout.shape[0] != content_.samples || end > size ||
        (at == 0 && content_.samples > 0)) {
      throw FileError(
          fmt::format("{}: {} does not have the place of {} samples", partial_.string(), dataset, content_.samples));
    }
    return at;
  };
  const std::size_t score_bytes = static_cast<std::size_t>(content_.outputs) * sizeof(float);
  if (content_.mask.empty()) scores_ = offset(kScores, FileType::float32, score_bytes);
  if (content_.classes) classes_ = offset(kClass, FileType::int32, positions_ * sizeof(std::int32_t));
  if (content_.targets)
    targets_ = offset(kTarget, content_.classes ? FileType::int32 : FileType::float32, target_bytes_);
  values_ = open_file(partial_, O_WRONLY, "write");
}

void PredictionWriter::write(std::span<const float> scores, std::span<const std::byte> targets) {
  const auto outputs = static_cast<std::size_t>(content_.outputs);
  const std::size_t count = scores.size() / outputs;
  const auto first = static_cast<std::uint64_t>(done_);
  if (scores.size() != count * outputs || targets.size() != count * target_bytes_ || !content_.mask.empty() ||
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
  add(count);
}

void PredictionWriter::write_masks(std::span<const std::int32_t> classes, std::span<const std::byte> targets) {
  const std::size_t count = classes.size() / positions_;
  const auto first = static_cast<std::uint64_t>(done_);
  if (classes.size() != count * positions_ || targets.size() != count * target_bytes_ || content_.mask.empty() ||
      done_ + static_cast<std::int64_t>(count) > content_.samples) {
    throw std::invalid_argument(fmt::format("{} classes and {} bytes of targets from mask {} of {} on", classes.size(),
                                            targets.size(), done_, content_.samples));
  }
  write_at(values_, std::as_bytes(classes), classes_ + first * positions_ * sizeof(std::int32_t), partial_);
  if (content_.targets) write_at(values_, targets, targets_ + first * target_bytes_, partial_);
  add(count);
}

void PredictionWriter::add(std::size_t samples) {
  done_ += static_cast<std::int64_t>(samples);
  if (now() - noted_at_ > kSecondsBetweenNotes) note_progress();
}

/// Flushes the samples before it records them as safe.
void PredictionWriter::note_progress() {
  const IoDeadline::Operation noting(output_.deadline, IoDeadline::Kind::writing, output_.file,
                                     IoDeadline::seconds_for(bytes()));
  sync_file(partial_);
  const std::string text = fmt::format("{}\n{:020}\n", identity_, done_);
  write_at(lock_, std::as_bytes(std::span(text)), 0, progress_);
  noted_at_ = now();
}

void PredictionWriter::finish() {
  if (done_ != content_.samples) {
    throw std::logic_error(fmt::format("predictions of {} of {} samples", done_, content_.samples));
  }
  IoDeadline* const deadline = output_.deadline;
  note_progress();  // the file may stay unchanged for long: the text comes first
  const fs::path text = output_.csv.empty() ? fs::path() : write_as_text(partial_, output_.csv, deadline);
  const IoDeadline::Operation renaming(deadline, IoDeadline::Kind::writing, output_.file);
  rename_to(partial_, output_.file);
  ::unlink(progress_.c_str());
  if (!text.empty()) rename_to(text, output_.csv);
}

}  // namespace lockstep::io
