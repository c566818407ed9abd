#include "model/yaml/input_calls.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/network_options.hpp"
#include "model/yaml/input_shapes.hpp"

namespace lockstep::model {

namespace {

constexpr std::string_view kRow = "all inputs";  ///< a name that no file can use

template <class Inputs>
std::string texts_of(const Inputs& inputs) {
  std::vector<std::string> texts;
  for (const auto& input : inputs) {
    std::vector<std::string> extents;
    for (const std::int64_t extent : input.extents) {
      extents.push_back(extent == 0 ? "any" : std::to_string(extent));
    }
    texts.push_back(fmt::format("{} [{}]", input.name, fmt::join(extents, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

}  // namespace

InputCalls::InputCalls(const NetworkKind& kind, const SampleShape& shape, CallList& calls)
    : LineErrors(file_of(kind)), kind_(kind), shape_(shape), calls_(calls) {}

Description InputCalls::declare() {
  const std::vector<DeclaredInput> declared = declared_inputs(kind_);
  if (has_several(declared)) return with_several(declared);
  return with_one(declared.empty() ? DeclaredInput{} : declared[0]);
}

Description InputCalls::with_one(const DeclaredInput& input) {
  Description description{.input = input.name,
                          .input_shape = input_shape(input),
                          .input_holds = shape_.tokens ? Holds::tokens : Holds::activations,
                          .calls = {}};
  if (!shape_.tokens) numbers_of_[input.name] = {.row = input.name, .first = 0, .count = shape_.features};
  calls_.go_to(input.name);
  calls_.name_present(input.name);
  directions_ = description.input_shape.count() - 1;
  return description;
}

bool InputCalls::has_several(const std::vector<DeclaredInput>& declared) const {
  if (declared.size() < 2 && shape_.inputs.empty()) return false;
  if (declared.size() == shape_.inputs.size()) return true;
  const int line = declared.empty() ? kind_.document->line : declared[0].line;
  if (shape_.inputs.empty()) {
    refuse(line, fmt::format("inputs: the network reads {}, and the data have one input: --x NAME,NAME names several "
                             "of them",
                             texts_of(declared)));
  }
  refuse(line, fmt::format("inputs: the data have the inputs {}, and the network reads {}: --x names those that it "
                           "is to read, and inputs: in a network's file lists what it reads",
                           texts_of(shape_.inputs), declared.empty() ? "one without a name" : texts_of(declared)));
}

Description InputCalls::with_several(const std::vector<DeclaredInput>& declared) {
  Description description{.input = std::string(kRow), .input_shape = Shape({shape_.features}), .calls = {}};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const std::optional<Shape> shape = shape_of_input(declared[i], shape_.inputs[i]);
    if (!shape || !names_match(declared)) {
      refuse(declared[i].line, fmt::format("inputs: the data have the inputs {}, and the file asks for {}: --x names "
                                           "the data's in the order of the file",
                                           texts_of(shape_.inputs), texts_of(declared)));
    }
    const std::string& name = declared[i].name;
    const bool is_row = shape->count() == 1;
    Call& part = calls_.add("slice", is_row ? name : name + "/part", {description.input}, declared[i].line);
    part.arguments["begin"] = first;
    part.arguments["end"] = first + shape->elements();
    numbers_of_[name] = {.row = description.input, .first = first, .count = shape->elements(), .is_row = is_row};
    first += shape->elements();
    if (!is_row) series_steps_.insert(shape->extents()[0]);
    if (!is_row) {
      Call& shaped = calls_.add("reshape", name, {name + "/part"}, declared[i].line);
      shaped.arguments["shape"] = Numbers(shape->extents().begin(), shape->extents().end());
    }
    calls_.name_present(name);
    directions_ = std::max(directions_, shape->count() - 1);
  }
  calls_.go_to("");  // with several inputs, a layer must name those that it reads
  return description;
}

/// True if inputs are matched by name. They are matched by order if no name is the same.
bool InputCalls::names_match(const std::vector<DeclaredInput>& declared) const {
  const auto there = [&](const DeclaredInput& input) {
    return std::ranges::find(shape_.inputs, input.name, &SampleInput::name) != shape_.inputs.end();
  };
  if (std::ranges::none_of(declared, there)) return true;
  return std::ranges::equal(declared, shape_.inputs, {}, &DeclaredInput::name, &SampleInput::name);
}

Shape InputCalls::input_shape(const DeclaredInput& declared) const {
  const Shape shape = shape_of_only_input(kind_, shape_, declared);
  if (!has_extents(shape, declared)) {
    std::vector<std::string> wanted;
    for (const std::int64_t extent : declared.extents) wanted.push_back(extent == 0 ? "any" : std::to_string(extent));
    std::vector<std::int64_t> stored(shape.extents().begin(), shape.extents().end());
    std::rotate(stored.begin(), stored.end() - 1, stored.end());
    const bool fits = std::ranges::equal(declared.extents, stored, [](std::int64_t asked, std::int64_t extent) {
      return asked == 0 || asked == extent;
    });
    const std::string hint =
        fits ? fmt::format(": --layout channels-last reads data that are stored as {} so", fmt::join(stored, "x")) : "";
    refuse(declared.line, fmt::format("inputs: {}: the data have samples of {}, and the file asks for {}{}",
                                      declared.name, to_string(shape), fmt::join(wanted, "x"), hint));
  }
  return shape;
}

void InputCalls::read_as_tokens(std::vector<std::string>& from, const std::string& name, const Call& embedding,
                                int line) {
  const auto input = from.size() == 1 ? numbers_of_.find(from[0]) : numbers_of_.end();
  if (input == numbers_of_.end()) return;
  Call& tokens = calls_.add("tokens", name + "/tokens", {input->second.row}, line);
  tokens.arguments["first"] = input->second.first;
  tokens.arguments["count"] = input->second.count;
  tokens.arguments["vocabulary"] = embedding.get<std::int64_t>("vocabulary");
  input->second.are_tokens = true;
  if (input->second.is_row) token_steps_.insert(input->second.count);
  from = {tokens.name};
}

std::string InputCalls::lengths_of(const YamlNode& node, const Scope& scope) {
  const std::vector<std::string> names = calls_.named_in(node, scope, "lengths");
  const auto input = names.size() == 1 ? numbers_of_.find(names[0]) : numbers_of_.end();
  if (input == numbers_of_.end() || input->second.count != 1) {
    refuse(node.line,
           "lengths: the name of an input belongs here that holds one number of each sample, the steps "
           "that are no padding");
  }
  const std::string name = names[0] + "/lengths";
  if (input->second.are_tokens) return name;
  const std::set<std::int64_t>& steps = series_steps_.empty() ? token_steps_ : series_steps_;
  if (steps.size() != 1) {
    refuse(node.line, fmt::format("lengths: of which steps? The inputs have {} different numbers of them: there must "
                                  "be one input of steps x numbers or of tokens, or several with as many steps",
                                  steps.size()));
  }
  const std::string before = calls_.present();
  Call& lengths = calls_.add("tokens", name, {input->second.row}, node.line);
  calls_.go_to(before);
  lengths.arguments["first"] = input->second.first;
  lengths.arguments["count"] = std::int64_t{1};
  lengths.arguments["vocabulary"] = *steps.begin() + 1;
  lengths.arguments["are-lengths"] = true;
  input->second.are_tokens = true;
  return name;
}

void InputCalls::drop_numbers_of_tokens() {
  for (const auto& [name, numbers] : numbers_of_) {
    if (!numbers.are_tokens) continue;
    for (const std::string& value : {name, name + "/part"}) {
      const bool is_read =
          std::ranges::any_of(calls_.all(), [&](const Call& call) { return std::ranges::count(call.from, value) > 0; });
      if (!is_read) std::erase_if(calls_.all(), [&](const Call& call) { return call.name == value; });
    }
  }
}

void InputCalls::separate_documents(const std::string& tokens, const NetworkOptions& options) {
  const auto given = options.values.find(kDocumentToken);
  if (given == options.values.end()) return;
  const auto* const separator = std::get_if<std::int64_t>(&given->second);
  if (separator == nullptr) {
    throw std::invalid_argument(
        fmt::format("--{} {}: only data with a vocabulary tell which token has this text: give its number",
                    kDocumentToken, to_text(given->second)));
  }
  if (*separator >= shape_.outputs) {
    throw std::invalid_argument(
        fmt::format("--{} {}: the tokens are 0 to {}", kDocumentToken, *separator, shape_.outputs - 1));
  }
  const std::string places = tokens + "/documents";
  bool is_read = false;
  for (Call& call : calls_.all()) {
    const bool has_positions = call.kind == "embedding" && call.find<bool>("positions").value_or(false);
    if (call.kind != "attention" && call.kind != "lstm" && call.kind != "gru" && !has_positions) continue;
    call.from.push_back(places);
    is_read = true;
  }
  if (!is_read) return;
  Call documents{.kind = "documents", .name = places, .from = {tokens}};
  documents.arguments["separator"] = *separator;
  calls_.all().insert(calls_.all().begin(), std::move(documents));
}

}  // namespace lockstep::model
