#include "app/pack.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "app/console.hpp"
#include "app/figures.hpp"
#include "app/signals.hpp"
#include "io/sample_source.hpp"
#include "io/shard_writer.hpp"
#include "io/sharded_dataset.hpp"

namespace lockstep::app {
namespace {

/// Thrown through the writer, which then removes what it has begun.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<io::SampleSource> open_source(const PackOptions& options) {
  if (options.format == "idx") return io::open_idx(options.x, options.y);
  if (options.format == "npy") return io::open_npy(options.x, options.y);
  if (options.format == "csv") {
    return io::open_csv(options.x, {.header = options.header,
                                    .separator = options.separator.at(0),
                                    .label_column = options.label_column,
                                    .label_is_class = !options.regression});
  }
  if (options.format == "synthetic") {
    using Task = io::SyntheticOptions::Task;
    return io::make_synthetic({.task = options.task == "regression" ? Task::regression : Task::classification,
                               .samples = options.samples,
                               .features = options.features,
                               .classes = options.classes,
                               .noise = options.noise,
                               .seed = options.seed,
                               .first = options.first});
  }
  throw std::invalid_argument(fmt::format("unknown format {}", options.format));
}

std::string describe(const io::Field& field) {
  return field.sample_shape.empty()
             ? fmt::format("{} {}", field.name, name_of(field.type))
             : fmt::format("{} {} [{}]", field.name, name_of(field.type), fmt::join(field.sample_shape, ", "));
}

std::string describe(const io::SampleSource& source) {
  std::string text = fmt::format("{} samples", with_commas(source.count()));
  for (const io::Field& field : source.fields()) text += "; " + describe(field);
  if (source.fields().size() > 1) text += source.labels_are_classes() ? " (class labels)" : " (numbers to predict)";
  return text;
}

std::string rate(double amount, double seconds) { return format_bytes(amount / std::max(seconds, 1e-9)) + "/s"; }

}  // namespace

int run_pack(comm::MpiSession& session, const PackOptions& options) {
  if (session.size() > 1) {
    throw UsageError(
        fmt::format("pack runs as one process, and mpirun started {}: start it without mpirun", session.size()));
  }
  Console console(true);
  console.set_progress_mode(parse_progress_mode(options.progress));

  const auto source = open_source(options);
  console.info(fmt::format("reading  {}\n         {}", source->description(), describe(*source)));
  console.info(fmt::format("writing  {} ({})", options.out.string(), counted(options.shards, "shard")));

  std::size_t sample_bytes = 0;
  for (const io::Field& field : source->fields()) sample_bytes += field.bytes();
  const auto start = std::chrono::steady_clock::now();
  const StopSignals signals;
  io::PackSummary summary;
  try {
    const io::ShardWriterOptions writing{.folder = options.out, .shards = options.shards, .overwrite = options.force};
    summary = io::write_shards(*source, writing, [&](std::int64_t done, std::int64_t all) {
      if (signals.stop_requested()) throw Cancelled(signals.name());
      const double bytes = static_cast<double>(done) * static_cast<double>(sample_bytes);
      console.progress(all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1,
                       fmt::format("{} samples  {}", with_commas(done), rate(bytes, seconds_since(start))));
    });
  } catch (const Cancelled& signal) {
    console.clear_progress();
    console.warn(fmt::format("stopped by {}; {} is as it was before", signal.what(), options.out.string()));
    return 1;
  }
  console.clear_progress();
  const double seconds = seconds_since(start);
  const double bytes = static_cast<double>(summary.bytes);
  console.info(fmt::format("packed   {} samples, {} in {} shard{}, {:.1f} s ({})", with_commas(summary.samples),
                           format_bytes(bytes), summary.shards, summary.shards == 1 ? "" : "s", seconds,
                           rate(bytes, seconds)));

  const io::ShardedDataset written({.path = options.out});
  const io::DatasetInfo& info = written.info();
  if (info.labels_are_classes && info.classes > 0) console.info(fmt::format("classes  {}", info.classes));
  console.info(fmt::format("values   {:.6g} to {:.6g}, mean {:.6g}, deviation {:.6g}", info.value_min, info.value_max,
                           info.mean, info.standard_deviation));
  return 0;
}

}  // namespace lockstep::app
