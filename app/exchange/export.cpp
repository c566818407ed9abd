#include "app/exchange/export.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/engine/finite_weights.hpp"
#include "app/exchange/onnx_network.hpp"
#include "app/exchange/trained_network.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "io/exchange/safetensors.hpp"

namespace lockstep::app {

int run_export(const ExportOptions& options) {
  Console console(true);
  const io::IfThere if_there = options.force ? io::IfThere::replace : io::IfThere::refuse;
  io::require_writable_name(options.out, if_there);
  const TrainedNetwork trained = read_trained_network(options.checkpoint, options.average);
  for (const std::string& warning : trained.source.warnings) console.warn(warning);
  FiniteWeights finite;
  for (const io::NamedTensor& tensor : trained.weights) finite.add(tensor.name, tensor.values);
  if (!finite.all()) console.warn(fmt::format("{}: {}", trained.source.file.string(), finite.text()));
  std::vector<std::filesystem::path> files{options.out};
  switch (*options.format) {
    case ExportFormat::onnx:
      files = io::write_onnx(options.out, onnx_model_of(trained), if_there);
      break;
    case ExportFormat::safetensors:
      io::write_safetensors(options.out, trained.weights, describe_network(trained), if_there);
      break;
  }
  double bytes = 0;
  std::vector<std::string> names;
  for (const std::filesystem::path& file : files) {
    bytes += static_cast<double>(std::filesystem::file_size(file));
    names.push_back(file.string());
  }
  console.info(fmt::format("{}: {}, written to {} ({}, {})", trained.source.description(trained.average),
                           counted(static_cast<std::int64_t>(trained.weights.size()), "tensor"),
                           fmt::join(names, " and "), trained.network->signature(), format_bytes(bytes)));
  console.mention_lost_output();
  return 0;
}

}  // namespace lockstep::app
