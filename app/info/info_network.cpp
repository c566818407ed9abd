#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/data/network_input.hpp"
#include "app/info/info.hpp"
#include "app/options/image_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/plan/network_text.hpp"
#include "app/report/figures.hpp"
#include "app/report/network_chart.hpp"
#include "io/exchange/output_file.hpp"
#include "io/text/visible_text.hpp"
#include "model/activation_table.hpp"

namespace lockstep::app {
namespace {

model::SampleShape shape_of(const InfoOptions& options) {
  if (const std::int64_t context = model::tokens_per_sample(options.network); context > 0) {
    return {.features = context, .outputs = options.outputs, .image = {}, .tokens = true};
  }
  if (const std::optional<model::SampleShape> several = shape_of_inputs(options.network, options.outputs)) {
    return *several;
  }
  return {.features = options.image ? options.image->elements() : options.features,
          .outputs = options.outputs,
          .image = options.image,
          .takes_grid_of_output = true};
}

std::string samples_text(const model::SampleShape& shape) {
  if (shape.tokens) return fmt::format("{} of {} words", counted(shape.features, "token"), with_commas(shape.outputs));
  if (!shape.inputs.empty()) {
    std::vector<std::string> texts;
    for (const model::SampleInput& input : shape.inputs) {
      texts.push_back(fmt::format("{} [{}]", input.name, fmt::join(input.extents, ", ")));
    }
    return fmt::format("{} -> {} (--outputs)", fmt::join(texts, ", "), counted(shape.outputs, "output"));
  }
  const std::string inputs = shape.image ? to_text(*shape.image) : counted(shape.features, "number");
  return fmt::format("{} -> {} (--{}, --outputs)", inputs, counted(shape.outputs, "output"),
                     shape.image ? "image" : "features or --image");
}

}  // namespace

void describe_network_file(Console& console, const InfoOptions& options) {
  const model::NetworkKind& kind = model::network_kind(options.network);
  const model::SampleShape shape = shape_of(options);
  const std::unique_ptr<model::Network> network = [&] {
    try {
      return model::make_network(options.network, shape);
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
  }();
  console.info(fmt::format("{}: network {}{}{}", io::visible_line(kind.file), kind.name,
                           kind.summary.empty() ? "" : ": ", io::visible_line(kind.summary)));
  console.info(fmt::format("  samples        {}", samples_text(shape)));
  std::vector<std::string> values, defaults;
  for (const auto& [name, value] : options.network.values) {
    values.push_back(fmt::format("{} {}", name, model::to_text(value)));
  }
  for (const auto& [name, value] : kind.training_defaults) defaults.push_back(fmt::format("{} {}", name, value));
  if (!values.empty())
    console.info(fmt::format("  options        {}", io::visible_line(fmt::format("{}", fmt::join(values, ", ")))));
  if (!defaults.empty())
    console.info(fmt::format("  training       {}", io::visible_line(fmt::format("{}", fmt::join(defaults, ", ")))));
  console.info(fmt::format("  signature      {}", network->signature()));
  const NetworkText text = describe_network(*network);
  console.info(text.table.substr(0, text.table.find_last_not_of('\n') + 1));
  const model::OperationTypes types{.compute = model::ElementType::float32, .master = model::ElementType::float32};
  const auto bytes = [&](model::Purpose purpose) {
    return format_bytes(model::ActivationLayout(network->activations(purpose), 1, types).bytes());
  };
  console.info(fmt::format(
      "  {} parameters ({}), {} per sample; activations of a sample: {} in training, {} in evaluation",
      with_commas(text.parameters), format_bytes(static_cast<std::uint64_t>(text.parameters) * sizeof(float)),
      format_flops(text.flops), bytes(model::Purpose::training), bytes(model::Purpose::evaluation)));
  if (options.svg.empty()) return;
  const std::string picture = draw_network(*network, kind.name);
  io::OutputFile output(options.svg, io::IfThere::replace, picture.size());
  output.write(picture);
  output.finish();
  console.info(fmt::format("{}: a picture of it", io::visible_line(options.svg.string())));
}

}  // namespace lockstep::app
