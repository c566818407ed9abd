#include "model/yaml/network_signature.hpp"

#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::model {

namespace {

/// FNV-1a.
void add_to_hash(std::string_view text, std::uint64_t& hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  hash = (hash ^ 0xFF) * 0x100000001B3;  // ends each text
}

}  // namespace

std::uint64_t hash_of(const Description& description) {
  std::uint64_t hash = 0xCBF29CE484222325;
  std::map<std::string, std::string> behind;  // by name of a dropout: the value that it reads
  add_to_hash(to_string(description.input_shape), hash);
  std::string before = description.input;
  for (const Call& call : description.calls) {
    std::vector<std::string> from = call.from.empty() ? std::vector{before} : call.from;
    for (std::string& value : from) {
      if (const auto found = behind.find(value); found != behind.end()) value = found->second;
    }
    before = call.name;
    if (call.kind == "dropout") {
      behind[call.name] = from[0];
      continue;
    }
    add_to_hash(call.kind, hash);
    add_to_hash(call.name, hash);
    for (const std::string& value : from) add_to_hash(value == description.input ? "" : value, hash);
    for (const auto& [name, value] : call.arguments) {
      if (std::holds_alternative<Initializers>(value) || name == "decay") continue;
      if (name == "dropout" || (name == "scale" && call.kind == "batch-norm")) continue;
      // This argument was added later; its default is left out, so that earlier checkpoints match.
      if (call.kind == "upsample" && name == "mode" && to_text(value) == "nearest") continue;
      if (call.kind == "concatenate" && name == "axis" && to_text(value) == "-1") continue;
      add_to_hash(name, hash);
      add_to_hash(to_text(value), hash);
    }
  }
  return hash;
}

std::string signature_of(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                         const Description& description) {
  const std::string input = to_string(description.input_shape);
  if (kind.file.empty() && kind.name == "linear") return fmt::format("linear {}-{}", input, shape.outputs);
  if (kind.file.empty() && kind.name == "mlp") {
    const auto hidden = options.get<Numbers>("hidden");
    if (hidden.empty()) return fmt::format("mlp {}-{}", input, shape.outputs);
    return fmt::format("mlp {}-{}-{} {}", input, fmt::join(hidden, "-"), shape.outputs,
                       options.get<std::string>("activation"));
  }
  if (kind.file.empty() && kind.name == "cnn") {
    return fmt::format("cnn {}-{} {}", input, shape.outputs, options.get<std::string>("activation"));
  }
  if (kind.file.empty() && kind.name == "resnet") {
    return fmt::format("resnet {} {}-{}", options.get<std::int64_t>("depth"), input, shape.outputs);
  }
  if (kind.file.empty() && kind.name == "gpt") {
    return fmt::format("gpt {}x{} heads {} vocabulary {} context {}{}", options.get<std::int64_t>("layers"),
                       options.get<std::int64_t>("width"), options.get<std::int64_t>("heads"), shape.outputs,
                       shape.features, options.get<bool>("tied") ? "" : " untied");
  }
  if (kind.file.empty() && kind.name == "lstm") {
    return fmt::format("lstm {}x{} vocabulary {} context {}{}", options.get<std::int64_t>("layers"),
                       fmt::join(options.get<Numbers>("hidden"), ","), shape.outputs, shape.features,
                       options.get<bool>("tied") ? " tied" : "");
  }
  return fmt::format("{} {}-{} {:016x}", kind.name, input, shape.outputs, hash_of(description));
}

}  // namespace lockstep::model
