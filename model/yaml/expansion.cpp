#include "model/yaml/expansion.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/nearest_name.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

namespace {

constexpr std::string_view kStructures[] = {"sequence", "residual", "parallel", "repeat"};
constexpr std::string_view kElementwise = "elementwise";
constexpr std::string_view kRow = "all inputs";  ///< no name that a file can give
constexpr std::size_t kMaxVisits = 10 * kMaxNetworkCalls, kMaxDepth = 64, kMaxPartName = 100, kMaxFullName = 1000;

/// A layer of the file, split into what it is and what it says.
struct Layer {
  std::string kind;
  const YamlNode* value = nullptr;  ///< nullptr: a word alone
  int line = 1;

  const YamlNode* find(std::string_view key) const {
    return value != nullptr && value->is_mapping() ? value->find(key) : nullptr;
  }
};

class Expander {
 public:
  Expander(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape, OperationKinds operations)
      : kind_(kind), options_(options), shape_(shape), operations_(operations), file_(file_of(kind)) {
    for (const OperationKind* operation : operations_) {
      if (operation->name == kElementwise) functions_ = operation->arguments.at(0).words;
    }
  }

  Description expand() {
    const YamlNode& document = *kind_.document;
    const std::vector<DeclaredInput> declared = declared_inputs(kind_);
    Description description = has_several_inputs(declared)
                                  ? with_inputs(declared)
                                  : with_input(declared.empty() ? DeclaredInput{} : declared[0]);
    collect_blocks();
    fill_globals();
    layers(*document.find("network"), globals_);
    if (calls_.empty()) refuse(document.find("network")->line, "network: no layer is left");
    if (calls_.back().name != current_) {
      refuse(calls_line_, fmt::format("the network ends with {}, which is not its last operation ({}): the last layer "
                                      "is the output",
                                      current_, calls_.back().name));
    }
    drop_numbers_of_tokens();
    if (shape_.tokens) separate_documents(description.input);
    description.calls = std::move(calls_);
    description.groups = std::move(groups_);
    return description;
  }

 private:
  Description with_input(const DeclaredInput& input) {
    Description description{.input = input.name,
                            .input_shape = input_shape(input),
                            .input_holds = shape_.tokens ? Holds::tokens : Holds::activations,
                            .calls = {}};
    names_[input.name] = input.name;
    if (!shape_.tokens) numbers_of_[input.name] = {.row = input.name, .first = 0, .count = shape_.features};
    current_ = input.name;
    directions_ = description.input_shape.count() - 1;
    return description;
  }

  bool has_several_inputs(const std::vector<DeclaredInput>& declared) const {
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

  template <class Inputs>
  static std::string texts_of(const Inputs& inputs) {
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

  /// Each input is a range of the sample's row, in the shape that the file declares.
  Description with_inputs(const std::vector<DeclaredInput>& declared) {
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
      Call& part = add_call("slice", is_row ? name : name + "/part", {description.input}, declared[i].line);
      part.arguments["begin"] = first;
      part.arguments["end"] = first + shape->elements();
      numbers_of_[name] = {.row = description.input, .first = first, .count = shape->elements()};
      first += shape->elements();
      if (!is_row) series_steps_.insert(shape->extents()[0]);
      if (!is_row) {
        Call& shaped = add_call("reshape", name, {name + "/part"}, declared[i].line);
        shaped.arguments["shape"] = Numbers(shape->extents().begin(), shape->extents().end());
      }
      names_[name] = name;
      directions_ = std::max(directions_, shape->count() - 1);
    }
    current_.clear();  // no layer reads several inputs unless it names them
    return description;
  }

  /// An embedding of an input reads its numbers as tokens.
  void read_as_tokens(std::vector<std::string>& from, const std::string& name, const Call& embedding, int line) {
    const auto input = from.size() == 1 ? numbers_of_.find(from[0]) : numbers_of_.end();
    if (input == numbers_of_.end()) return;
    Call& tokens = add_call("tokens", name + "/tokens", {input->second.row}, line);
    tokens.arguments["first"] = input->second.first;
    tokens.arguments["count"] = input->second.count;
    tokens.arguments["vocabulary"] = embedding.get<std::int64_t>("vocabulary");
    input->second.are_tokens = true;
    from = {tokens.name};
  }

  /// --document-token: what mixes positions stays within documents.
  void separate_documents(const std::string& tokens) {
    const auto separator = options_.find<std::int64_t>(kDocumentToken);
    if (!separator) return;
    if (*separator >= shape_.outputs) {
      throw std::invalid_argument(
          fmt::format("--{} {}: the tokens are 0 to {}", kDocumentToken, *separator, shape_.outputs - 1));
    }
    const std::string places = tokens + "/documents";
    bool is_read = false;
    for (Call& call : calls_) {
      const bool has_positions = call.kind == "embedding" && call.find<bool>("positions").value_or(false);
      if (call.kind != "attention" && call.kind != "lstm" && call.kind != "gru" && !has_positions) continue;
      call.from.push_back(places);
      is_read = true;
    }
    if (!is_read) return;
    Call documents{.kind = "documents", .name = places, .from = {tokens}};
    documents.arguments["separator"] = *separator;
    calls_.insert(calls_.begin(), std::move(documents));
  }

  /// The lengths that an input holds, for layers that leave out padding.
  std::string lengths_of(const YamlNode& node, const Scope& scope) {
    const std::vector<std::string> names = names_in(node, scope, "lengths");
    const auto input = names.size() == 1 ? numbers_of_.find(names[0]) : numbers_of_.end();
    if (input == numbers_of_.end() || input->second.count != 1) {
      refuse(node.line,
             "lengths: the name of an input belongs here that holds one number of each sample, the steps "
             "that are no padding");
    }
    const std::string name = names[0] + "/lengths";
    if (input->second.are_tokens) return name;
    if (series_steps_.size() != 1) {
      refuse(node.line, fmt::format("lengths: of which steps? The inputs have {} different numbers of them: there must "
                                    "be one input of steps x numbers, or several with as many steps",
                                    series_steps_.size()));
    }
    const std::string before = current_;
    Call& lengths = add_call("tokens", name, {input->second.row}, node.line);
    current_ = before;
    lengths.arguments["first"] = input->second.first;
    lengths.arguments["count"] = std::int64_t{1};
    lengths.arguments["vocabulary"] = *series_steps_.begin() + 1;
    lengths.arguments["are-lengths"] = true;
    input->second.are_tokens = true;
    return name;
  }

  /// Inputs that are read as tokens alone need no numbers.
  void drop_numbers_of_tokens() {
    for (const auto& [name, numbers] : numbers_of_) {
      if (!numbers.are_tokens) continue;
      for (const std::string& value : {name, name + "/part"}) {
        const bool is_read =
            std::ranges::any_of(calls_, [&](const Call& call) { return std::ranges::count(call.from, value) > 0; });
        if (!is_read) std::erase_if(calls_, [&](const Call& call) { return call.name == value; });
      }
    }
  }

  /// Inputs are matched by their names, or by their order if no name is the same.
  bool names_match(const std::vector<DeclaredInput>& declared) const {
    const auto there = [&](const DeclaredInput& input) {
      return std::ranges::find(shape_.inputs, input.name, &SampleInput::name) != shape_.inputs.end();
    };
    if (std::ranges::none_of(declared, there)) return true;
    return std::ranges::equal(declared, shape_.inputs, {}, &DeclaredInput::name, &SampleInput::name);
  }

  /// The data's input with as many extents as the file declares: a single channel may be missing there, or here.
  /// nullopt: they do not meet.
  static std::optional<Shape> shape_of_input(const DeclaredInput& declared, const SampleInput& input) {
    std::vector<std::int64_t> extents = input.extents;
    const std::size_t count = declared.extents.size();
    if (extents.empty()) extents = {1};
    if (extents.size() + 1 == count) extents.push_back(1);
    if (extents.size() == count + 1 && extents.back() == 1) extents.pop_back();
    if (extents.size() != count) return std::nullopt;
    for (std::size_t i = 0; i < count; ++i) {
      if (declared.extents[i] != 0 && declared.extents[i] != extents[i]) return std::nullopt;
    }
    return Shape(extents);
  }

  [[noreturn]] void refuse(int line, std::string_view what) const {
    throw std::invalid_argument(fmt::format("{}: {}", place_of(file_, line), what));
  }

  /// Runs work(); its exceptions get the line, and `subject` before them.
  template <class Work>
  auto in_line(int line, std::string_view subject, const Work& work) const {
    try {
      return work();
    } catch (const std::invalid_argument& error) {
      refuse(line, fmt::format("{}{}{}", subject, subject.empty() ? "" : " ", error.what()));
    }
  }

  NetworkValue value_of(const YamlNode& node, const Scope& scope) const {
    return in_line(node.line, "", [&] { return evaluate(node, scope); });
  }

  /// The sample with so many extents, if it can have them: without a channel where it has one too many, or with a
  /// channel of its own where it has one too few; 0: as it is stored. Samples of height x width are images of one
  /// channel.
  Shape stored_shape(std::size_t count) const {
    const bool any = kind_.reads == Reads::any;
    if (!shape_.image || count == 1 || (!any && kind_.reads != Reads::images)) {
      return count == 2 && any ? Shape({shape_.features, 1}) : Shape({shape_.features});
    }
    const ImageShape& image = *shape_.image;
    if (image.depth > 1) return {image.depth, image.height, image.width, image.channels};
    if (count == 2 && image.channels == 1) return {image.height, image.width};
    if (count == 4) return {image.height, image.width, image.channels, 1};
    return Shape(image);
  }

  Shape input_shape(const DeclaredInput& declared) const {
    const Shape shape = stored_shape(declared.extents.size());
    if (declared.extents.empty()) return shape;
    const auto extents = shape.extents();
    bool fits = extents.size() == declared.extents.size();
    for (std::size_t i = 0; fits && i < extents.size(); ++i) {
      fits = declared.extents[i] == 0 || declared.extents[i] == extents[i];
    }
    if (!fits) {
      std::vector<std::string> wanted;
      for (const std::int64_t extent : declared.extents) wanted.push_back(extent == 0 ? "any" : std::to_string(extent));
      refuse(declared.line, fmt::format("inputs: {}: the data have samples of {}, and the file asks for {}",
                                        declared.name, to_string(shape), fmt::join(wanted, "x")));
    }
    return shape;
  }

  void fill_globals() {
    const YamlNode* const options = kind_.document->find("options");
    for (const NetworkOption& option : kind_.options) {
      const auto set = options_.values.find(option.name);
      if (set == options_.values.end()) continue;
      globals_.set(option.name, network_value(set->second));
      const YamlNode* const declared = options == nullptr ? nullptr : options->find(option.name);
      const YamlNode* const one_of = declared == nullptr ? nullptr : declared->find("one-of");
      const YamlNode* const brought = one_of == nullptr ? nullptr : one_of->find(to_text(set->second));
      if (brought == nullptr) continue;
      for (const YamlEntry& entry : brought->entries) globals_.set(entry.key, value_of(entry.value, Scope()));
    }
    globals_.set("outputs", {shape_.outputs});
    globals_.set("classes", {shape_.outputs});
    if (shape_.tokens) {
      globals_.set("vocabulary", {shape_.outputs});
      globals_.set("context", {shape_.features});
    }
  }

  void collect_blocks() {
    const YamlNode* const blocks = kind_.document->find("blocks");
    if (blocks == nullptr) return;
    for (const YamlEntry& entry : blocks->entries) {
      if (is_built_in(entry.key)) {
        refuse(entry.line, fmt::format("blocks: {} is a layer already: choose another name", entry.key));
      }
      blocks_[entry.key] = &entry.value;
    }
  }

  bool is_built_in(std::string_view word) const {
    return std::ranges::find(kStructures, word) != std::end(kStructures) ||
           std::ranges::find(functions_, word) != functions_.end() || operation_named(word) != nullptr;
  }

  /// Functions are words of their own, and an embedding brings its tokens.
  static bool is_hidden(std::string_view operation) {
    return operation == kElementwise || operation == "tokens" || operation == "documents";
  }

  const OperationKind* operation_named(std::string_view word) const {
    if (is_hidden(word)) return nullptr;
    for (const OperationKind* operation : operations_) {
      if (operation->name == word) return operation;
    }
    return nullptr;
  }

  std::vector<std::string> known_layers() const {
    std::vector<std::string> names(functions_);
    for (const std::string_view structure : kStructures) names.emplace_back(structure);
    for (const OperationKind* operation : operations_) {
      if (!is_hidden(operation->name)) names.emplace_back(operation->name);
    }
    for (const auto& [name, block] : blocks_) names.push_back(name);
    return names;
  }

  // ---- Layers ----

  void layers(const YamlNode& list, const Scope& scope) {
    if (!list.is_list()) refuse(list.line, "a list of layers belongs here");
    if (++depth_ > kMaxDepth) {
      refuse(list.line,
             fmt::format("more than {} structures inside each other: a block may not contain itself", kMaxDepth));
    }
    for (const YamlNode& item : list.items) layer(item, scope);
    --depth_;
  }

  Layer split(const YamlNode& node, const Scope& scope) const {
    Layer layer{.kind = {}, .value = nullptr, .line = node.line};
    if (node.is_word()) {
      layer.kind = in_line(node.line, "", [&] { return to_text(evaluate(node.text, true, scope)); });
    } else if (node.is_mapping() && node.entries.size() == 1) {
      layer.line = node.entries[0].line;
      layer.kind = in_line(layer.line, "", [&] { return to_text(evaluate(node.entries[0].key, true, scope)); });
      if (node.entries[0].value.kind != YamlNode::Kind::nothing) layer.value = &node.entries[0].value;
    } else if (node.is_mapping() && !node.entries.empty()) {
      refuse(node.line,
             fmt::format("a layer is KIND: VALUE, and here stand {} and {} beside each other: write {}: "
                         "{{ARGUMENT: VALUE, {}: ...}}",
                         node.entries[0].key, node.entries[1].key, node.entries[0].key, node.entries[1].key));
    } else {
      refuse(node.line, "a layer is a word, or KIND: VALUE");
    }
    return layer;
  }

  void layer(const YamlNode& node, const Scope& scope) {
    if (++visits_ > kMaxVisits) refuse(node.line, "the network has too many layers");
    const Layer layer = split(node, scope);
    calls_line_ = layer.line;
    if (const YamlNode* const when = layer.find("when")) {
      const NetworkValue value = value_of(*when, scope);
      const auto* const wanted = std::get_if<bool>(&value.data);
      if (wanted == nullptr) {
        refuse(when->line, fmt::format("when: {} is {}, and must be yes or no", to_text(value), type_name(value)));
      }
      if (!*wanted) return;
    }
    if (layer.kind == "none" && layer.value == nullptr) return;  // `- $activation`
    if (layer.kind == "sequence") return sequence(layer, scope);
    if (layer.kind == "residual") return residual(layer, scope);
    if (layer.kind == "parallel") return parallel(layer, scope);
    if (layer.kind == "repeat") return repeat(layer, scope);
    if (const auto block = blocks_.find(layer.kind); block != blocks_.end()) {
      return call_block(layer, *block->second, scope);
    }
    if (std::ranges::find(functions_, layer.kind) != functions_.end()) return function(layer, scope);
    if (const OperationKind* const operation = operation_named(layer.kind)) return call(layer, *operation, scope);
    refuse(layer.line, fmt::format("{} is no layer{}", layer.kind, known_names(layer.kind, known_layers(), "Layers")));
  }

  void require_keys(const Layer& layer, std::vector<std::string> keys) const {
    for (const YamlEntry& entry : layer.value->entries) {
      if (std::ranges::find(keys, entry.key) == keys.end()) {
        refuse(entry.line, fmt::format("{} does not take {}{}", layer.kind, entry.key,
                                       known_names(entry.key, std::move(keys), "It takes")));
      }
    }
  }

  std::string text_of(const YamlNode& node, const Scope& scope, std::string_view key) const {
    if (!node.is_word()) refuse(node.line, fmt::format("{}: a word belongs here", key));
    return to_text(value_of(node, scope));
  }

  /// The name that the layer has, inside its group; "" if it has none.
  std::string own_name(const Layer& layer, const Scope& scope) const {
    const YamlNode* const node = layer.find("name");
    if (node == nullptr) return "";
    const std::string name = text_of(*node, scope, "name");
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.';
    };
    if (name.empty() || name.size() > kMaxPartName || !std::ranges::all_of(name, allowed)) {
      refuse(node->line, fmt::format("name: {}: a name has letters, digits, _, - and .", name));
    }
    return name;
  }

  /// "dense_1", "dense_2": numbered in the group.
  std::string automatic_name(std::string kind) {
    std::ranges::replace(kind, '-', '_');
    return fmt::format("{}_{}", kind, ++counts_[prefix_ + kind]);
  }

  std::string in_group(const std::string& name, int line) const {
    if (prefix_.size() + name.size() > kMaxFullName) refuse(line, "the names of groups inside groups become too long");
    return prefix_ + name;
  }

  /// The value of a name that is seen from the present group: of the group itself, else of those around it.
  std::string resolve(const std::string& name, int line, std::string_view key) const {
    for (std::string group = prefix_;; group.resize(group.size() - 1), group.resize(group.rfind('/') + 1)) {
      if (const auto found = names_.find(group + name); found != names_.end()) return found->second;
      if (group.empty() || group.rfind('/') == std::string::npos) break;
    }
    std::vector<std::string> names;
    for (const auto& [known, value] : names_) names.push_back(known);
    constexpr std::size_t kShown = 20;
    std::string hint = did_you_mean(name, names);
    if (hint.empty()) {
      if (names.size() > kShown) names.erase(names.begin(), names.end() - kShown);
      hint = fmt::format("; there are {}", list_names(names, "and"));
    }
    refuse(line, fmt::format("{}: {}: no layer before this one has that name{}", key, name, hint));
  }

  std::vector<std::string> names_in(const YamlNode& node, const Scope& scope, std::string_view key) const {
    std::vector<std::string> values;
    const auto add = [&](const NetworkValue& value) {
      const auto* const name = std::get_if<std::string>(&value.data);
      if (name == nullptr) {
        refuse(node.line,
               fmt::format("{}: {} is {}, and must be the name of a layer", key, to_text(value), type_name(value)));
      }
      values.push_back(resolve(*name, node.line, key));
    };
    const NetworkValue given = value_of(node, scope);
    if (const auto* const items = std::get_if<std::vector<NetworkValue>>(&given.data)) {
      for (const NetworkValue& item : *items) add(item);
    } else {
      add(given);
    }
    return values;
  }

  // ---- Structures ----

  /// Sets the value that a structure reads; returns it.
  std::string enter(const Layer& layer, const Scope& scope) {
    if (const YamlNode* const from = layer.find("from")) {
      const std::vector<std::string> values = names_in(*from, scope, "from");
      if (values.size() != 1) refuse(from->line, fmt::format("from: {} reads one value", layer.kind));
      current_ = values[0];
    }
    return current_;
  }

  const YamlNode& list_in(const Layer& layer, std::string_view key) const {
    const YamlNode* const list = layer.value->is_list() ? layer.value : layer.find(key);
    if (list == nullptr || !list->is_list()) {
      refuse(layer.line, fmt::format("{}: a list of layers belongs here{}", layer.kind,
                                     layer.value->is_mapping() ? fmt::format(", under {}:", key) : ""));
    }
    return *list;
  }

  /// Expands in the group `name` (no group if it is empty); afterwards the name is that of the last value.
  template <class Work>
  void in_named_group(const std::string& name, const Layer& layer, const Scope& scope, const YamlNode* summary,
                      const Work& work) {
    if (name.empty()) return work();
    const std::string full = in_group(name, layer.line), outer = prefix_;
    if (names_.contains(full)) refuse(layer.line, fmt::format("{} is the name of an earlier layer", full));
    if (summary != nullptr && !in_summarized_group_) {
      groups_.push_back({full, text_of(*summary, scope, "summary")});
      in_summarized_group_ = true;
      expand_group(full, outer, work);
      in_summarized_group_ = false;
    } else {
      expand_group(full, outer, work);
    }
  }

  template <class Work>
  void expand_group(const std::string& full, const std::string& outer, const Work& work) {
    prefix_ = full + "/";
    work();
    prefix_ = outer;
    names_[full] = current_;
  }

  void require_value(const Layer& layer, std::string_view what) const {
    if (layer.value == nullptr || layer.value->is_word()) {
      refuse(layer.line, fmt::format("{}: {} belongs here", layer.kind, what));
    }
  }

  void sequence(const Layer& layer, const Scope& scope) {
    require_value(layer, "a list of layers");
    if (layer.value->is_mapping()) require_keys(layer, {"layers", "name", "from", "when", "summary"});
    const YamlNode& list = list_in(layer, "layers");
    enter(layer, scope);
    in_named_group(own_name(layer, scope), layer, scope, layer.find("summary"), [&] { layers(list, scope); });
  }

  /// The order of the text is the order of computing. Parameters of the shortcut come before those of the layers.
  void residual(const Layer& layer, const Scope& scope) {
    require_value(layer, "a list of layers");
    if (layer.value->is_mapping()) {
      require_keys(layer, {"layers", "shortcut", "activation", "name", "from", "when", "summary"});
    }
    const YamlNode& list = list_in(layer, "layers");
    const YamlNode* const shortcut = layer.find("shortcut");
    const std::string x = enter(layer, scope);
    in_named_group(own_name(layer, scope), layer, scope, layer.find("summary"), [&] {
      std::string beside = x;
      const auto add_shortcut = [&](std::optional<std::size_t> before) {
        current_ = x;
        const std::size_t first = calls_.size();
        layers(*shortcut, scope);
        for (std::size_t i = first; before && i < calls_.size(); ++i) {
          if (calls_[i].declared_before.empty()) calls_[i].declared_before = calls_[*before].name;
        }
        beside = current_;
      };
      const bool comes_first = shortcut != nullptr && position_of(layer, "shortcut") < position_of(layer, "layers");
      if (comes_first) add_shortcut({});
      current_ = x;
      const std::size_t first = calls_.size();
      layers(list, scope);
      const std::string inner = current_;
      if (shortcut != nullptr && !comes_first) {
        add_shortcut(first < calls_.size() ? std::optional(first) : std::nullopt);
      }
      if (inner == beside) refuse(layer.line, "residual: no layer is left: it would add a value to itself");
      join("add", {inner, beside}, layer.line);
      activate(layer, scope);
    });
  }

  static std::ptrdiff_t position_of(const Layer& layer, std::string_view key) {
    return std::ranges::find(layer.value->entries, key, &YamlEntry::key) - layer.value->entries.begin();
  }

  void parallel(const Layer& layer, const Scope& scope) {
    require_value(layer, "{branches: [[..], [..]], join: concatenate}");
    if (layer.value->is_mapping()) require_keys(layer, {"branches", "join", "name", "from", "when", "summary"});
    const YamlNode& branches = list_in(layer, "branches");
    if (branches.items.empty()) refuse(branches.line, "parallel: branches: a list of lists of layers belongs here");
    const YamlNode* const join_node = layer.find("join");
    const std::string how = join_node == nullptr ? "concatenate" : text_of(*join_node, scope, "join");
    const std::vector<std::string> known{"concatenate", "add", "none"};
    if (std::ranges::find(known, how) == known.end()) {
      refuse(join_node->line, fmt::format("join: {} is not known{}", how, known_names(how, known, "Known")));
    }
    const std::string x = enter(layer, scope);
    in_named_group(own_name(layer, scope), layer, scope, layer.find("summary"), [&] {
      std::vector<std::string> ends;
      for (const YamlNode& branch : branches.items) {
        current_ = x;
        layers(branch, scope);
        ends.push_back(current_);
      }
      if (how != "none" && ends.size() > 1) join(how, ends, layer.line);
    });
  }

  void repeat(const Layer& layer, const Scope& scope) {
    require_value(layer, "{times: N, layers: [..]} or {over: [..], as: NAME, layers: [..]}");
    if (!layer.value->is_mapping()) refuse(layer.line, "repeat: {times: N, layers: [..]} belongs here");
    require_keys(layer, {"times", "over", "as", "index", "layers", "name", "from", "when", "summary"});
    const YamlNode& list = list_in(layer, "layers");
    const YamlNode *const times = layer.find("times"), *const over = layer.find("over");
    if ((times == nullptr) == (over == nullptr)) refuse(layer.line, "repeat: needs either times: or over:");
    const auto variable = [&](std::string_view key) -> std::string {
      const YamlNode* const node = layer.find(key);
      if (node == nullptr) return "";
      if (!node->is_word() || node->text.empty()) refuse(node->line, fmt::format("{}: a name belongs here", key));
      return node->text;
    };
    const std::string as = variable("as"), index = variable("index");
    enter(layer, scope);
    std::vector<NetworkValue> rounds;
    if (times != nullptr) {
      const NetworkValue value = value_of(*times, scope);
      const auto* const count = std::get_if<std::int64_t>(&value.data);
      if (count == nullptr || *count < 0 || *count > static_cast<std::int64_t>(kMaxNetworkCalls)) {
        refuse(times->line,
               fmt::format("times: {} must be a whole number from 0 to {}", to_text(value), kMaxNetworkCalls));
      }
      for (std::int64_t i = 1; i <= *count; ++i) rounds.push_back({i});
    } else {
      NetworkValue value = value_of(*over, scope);
      auto* const items = std::get_if<std::vector<NetworkValue>>(&value.data);
      if (items == nullptr)
        refuse(over->line, fmt::format("over: {} is {}, and must be a list", to_text(value), type_name(value)));
      rounds = std::move(*items);
    }
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      Scope inner(&scope);
      if (const auto* const fields = std::get_if<NetworkFields>(&rounds[i].data)) {
        for (std::size_t k = 0; k < fields->names.size(); ++k) inner.set(fields->names[k], fields->values[k]);
      }
      if (!as.empty()) inner.set(as, rounds[i]);
      if (!index.empty()) inner.set(index, {static_cast<std::int64_t>(i) + 1});
      if (++visits_ > kMaxVisits) refuse(layer.line, "the network has too many layers");
      in_named_group(own_name(layer, inner), layer, inner, layer.find("summary"), [&] { layers(list, inner); });
    }
  }

  void call_block(const Layer& layer, const YamlNode& block, const Scope& scope) {
    std::vector<std::string> parameters;
    if (const YamlNode* const declared = block.find("parameters")) {
      for (const YamlNode& parameter : declared->items) parameters.push_back(parameter.text);
    }
    Scope inner(&globals_);
    if (layer.value != nullptr && !layer.value->is_mapping()) {
      if (parameters.size() != 1) {
        refuse(layer.line, fmt::format("{} has {} parameters: write {}: {{NAME: VALUE, ...}}", layer.kind,
                                       parameters.size(), layer.kind));
      }
      inner.set(parameters[0], value_of(*layer.value, scope));
    } else {
      std::vector<std::string> keys(parameters);
      keys.insert(keys.end(), {"name", "from", "when", "summary"});
      if (layer.value != nullptr) require_keys(layer, keys);
      for (const std::string& parameter : parameters) {
        const YamlNode* const given = layer.find(parameter);
        if (given == nullptr) refuse(layer.line, fmt::format("{} needs a value of {}", layer.kind, parameter));
        inner.set(parameter, value_of(*given, scope));
      }
    }
    enter(layer, scope);
    std::string name = own_name(layer, scope);
    if (name.empty()) name = automatic_name(layer.kind);
    const YamlNode* const own = layer.find("summary");
    const YamlNode* const summary = own != nullptr ? own : block.find("summary");
    in_named_group(name, layer, own != nullptr ? scope : inner, summary, [&] { layers(*block.find("layers"), inner); });
  }

  // ---- Operations ----

  /// Adds a call and makes its result the present value.
  Call& add_call(std::string kind, std::string name, std::vector<std::string> from, int line) {
    if (calls_.size() >= kMaxNetworkCalls) {
      refuse(line, fmt::format("the network has more than {} operations", kMaxNetworkCalls));
    }
    if (!flat_names_.insert(name).second || names_.contains(name)) {
      refuse(line, fmt::format("{} is the name of an earlier layer", name));
    }
    if (std::ranges::find(from, "") != from.end()) {
      refuse(line, fmt::format("{}: says by from: which of the inputs it reads", name));
    }
    current_ = name;
    Call& call = calls_.emplace_back();
    call.kind = std::move(kind);
    call.name = std::move(name);
    call.from = std::move(from);
    if (!kind_.file.empty()) call.place = place_of(file_, line);
    return call;
  }

  void join(const std::string& kind, std::vector<std::string> from, int line) {
    if (operation_named(kind) == nullptr) refuse(line, fmt::format("join: {} is no layer", kind));
    const std::string name = in_group(automatic_name(kind), line);
    add_call(kind, name, std::move(from), line);
    names_[name] = current_;
  }

  /// Behind a structure or an operation: `activation: relu`.
  void activate(const Layer& layer, const Scope& scope) {
    const YamlNode* const node = layer.find("activation");
    if (node == nullptr) return;
    if (node->is_mapping() && node->entries.size() == 1) {
      const YamlEntry& entry = node->entries[0];
      add_function(entry.key, &entry.value, "", entry.line, scope);
      return;
    }
    const std::string word = text_of(*node, scope, "activation");
    if (word != "none") add_function(word, nullptr, "", node->line, scope);
  }

  void add_function(const std::string& word, const YamlNode* parameter, const std::string& own, int line,
                    const Scope& scope) {
    if (std::ranges::find(functions_, word) == functions_.end()) {
      refuse(line, fmt::format("{} is no activation{}", word, known_names(word, functions_, "Known")));
    }
    std::optional<double> value;
    if (parameter != nullptr) {
      const NetworkValue given = value_of(*parameter, scope);
      const OptionValue number = in_line(parameter->line, word + ": the value", [&] {
        return option_value(given, {.name = {}, .value = 0.0, .value_name = {}, .help = {}});
      });
      value = std::get<double>(number);
    }
    const std::string name = in_group(own.empty() ? automatic_name(word) : own, line);
    Call& call = add_call(std::string(kElementwise), name, {current_}, line);
    call.arguments["function"] = word;
    if (value) call.arguments["parameter"] = *value;
    names_[name] = name;
  }

  void function(const Layer& layer, const Scope& scope) {
    const YamlNode* parameter = layer.value;
    if (layer.value != nullptr && layer.value->is_mapping()) {
      require_keys(layer, {"value", "name", "from", "when"});
      parameter = layer.find("value");
      enter(layer, scope);
    }
    add_function(layer.kind, parameter, own_name(layer, scope), layer.line, scope);
  }

  static const NetworkOption* argument_named(const OperationKind& operation, std::string_view name) {
    const auto found = std::ranges::find(operation.arguments, name, &NetworkOption::name);
    return found == operation.arguments.end() ? nullptr : &*found;
  }

  void set_argument(Call& call, const OperationKind& operation, const std::string& name, const YamlNode& node,
                    const Scope& scope) const {
    const NetworkOption& argument = *argument_named(operation, name);
    const NetworkValue value = value_of(node, scope);
    if (name == "table") {  // an embedding's name
      call.arguments[name] = resolve(text_of(node, scope, name), node.line, name);
      return;
    }
    in_line(node.line, fmt::format("{}: {}", operation.name, name), [&] {
      OptionValue typed = option_value(value, argument);
      if (const std::string wrong = objection(argument, typed); !wrong.empty()) {
        throw std::invalid_argument(fmt::format("is {}, and {}", model::to_text(typed), wrong));
      }
      call.arguments[name] = std::move(typed);
    });
  }

  void call(const Layer& layer, const OperationKind& operation, const Scope& scope) {
    std::vector<std::string> from{current_};
    Call arguments;
    const bool takes_several = operation.most_inputs > 1 && operation.token_inputs == 0;
    if (layer.value != nullptr && layer.value->is_mapping()) {
      std::vector<std::string> keys{"name", "from", "when", "norm", "activation"};
      if (takes_lengths(operation)) keys.emplace_back("lengths");
      for (const NetworkOption& argument : operation.arguments) keys.push_back(argument.name);
      require_keys(layer, keys);
      for (const YamlEntry& entry : layer.value->entries) {
        const bool is_sugar = entry.key == "activation" && layer.find("norm") != nullptr;
        if (argument_named(operation, entry.key) == nullptr || is_sugar) continue;
        if (entry.key == "activation" && !takes_activation(operation, entry.value, scope)) continue;
        set_argument(arguments, operation, entry.key, entry.value, scope);
      }
      if (const YamlNode* const given = layer.find("from")) from = names_in(*given, scope, "from");
      if (const YamlNode* const given = layer.find("lengths"); given != nullptr && takes_lengths(operation)) {
        from.push_back(lengths_of(*given, scope));
      }
    } else if (layer.value != nullptr && layer.value->is_list() && takes_several) {
      for (std::string& value : names_in(*layer.value, scope, layer.kind)) from.push_back(std::move(value));
    } else if (layer.value != nullptr) {
      if (operation.arguments.empty()) {
        refuse(layer.line, fmt::format("{} takes no value: write {} alone", layer.kind, layer.kind));
      }
      set_argument(arguments, operation, operation.arguments[0].name, *layer.value, scope);
    }
    if (layer.kind == "dropout" && arguments.find<double>("rate") == 0.0) {
      if (from.size() == 1) current_ = from[0];
      return;
    }
    require_arguments(layer, operation, arguments);
    std::string own = own_name(layer, scope);
    if (own.empty()) own = automatic_name(layer.kind);
    const std::string name = in_group(own, layer.line);
    const YamlNode* const norm = layer.find("norm");
    if (norm != nullptr) prepare_for_norm(operation, arguments);
    apply_user_initializers(operation, arguments);
    if (operation.name == "embedding") read_as_tokens(from, name, arguments, layer.line);
    add_call(layer.kind, name, std::move(from), layer.line).arguments = std::move(arguments.arguments);
    if (norm != nullptr) add_norm(name, *norm, scope);
    const bool applied =
        !calls_.empty() && calls_.back().name == name && calls_.back().arguments.contains("activation");
    if (!applied) activate(layer, scope);
    names_[name] = current_;
  }

  static bool takes_lengths(const OperationKind& operation) {
    constexpr std::string_view kKinds[] = {"attention", "global-average", "global-max", "gru", "lstm", "mean"};
    return std::ranges::find(kKinds, operation.name) != std::end(kKinds);
  }

  void require_arguments(const Layer& layer, const OperationKind& operation, const Call& given) const {
    for (const NetworkOption& argument : operation.arguments) {
      if (argument.automatic || given.arguments.contains(argument.name)) continue;
      if (!objection(argument, argument.value).empty()) {
        refuse(layer.line, fmt::format("{} needs a value of {}", layer.kind, argument.name));
      }
    }
  }

  /// True if the operation itself applies this activation.
  bool takes_activation(const OperationKind& operation, const YamlNode& node, const Scope& scope) const {
    const NetworkOption* const argument = argument_named(operation, "activation");
    if (!node.is_word()) return false;
    const std::string word = text_of(node, scope, "activation");
    return std::ranges::find(argument->words, word) != argument->words.end();
  }

  /// A norm replaces the bias.
  static void prepare_for_norm(const OperationKind& operation, Call& call) {
    if (argument_named(operation, "bias") != nullptr) call.arguments["bias"] = false;
  }

  /// --weight-init and --bias-init for all layers replace the file's.
  void apply_user_initializers(const OperationKind& operation, Call& call) const {
    for (const auto& [option, argument] : {std::pair{"weight-init", "init"}, std::pair{"bias-init", "bias-init"}}) {
      const auto given = options_.initializer(option);
      if (given && argument_named(operation, argument) != nullptr) call.set_initializer(argument, *given);
    }
  }

  void add_norm(const std::string& name, const YamlNode& node, const Scope& scope) {
    Layer norm{.kind = {}, .value = nullptr, .line = node.line};
    if (node.is_mapping() && node.entries.size() == 1) {
      norm.kind = node.entries[0].key;
      norm.value = node.entries[0].value.kind == YamlNode::Kind::nothing ? nullptr : &node.entries[0].value;
    } else {
      norm.kind = text_of(node, scope, "norm");
    }
    if (!norm.kind.ends_with("-norm")) norm.kind += "-norm";
    const OperationKind* const operation = operation_named(norm.kind);
    if (operation == nullptr) {
      std::vector<std::string> norms;
      for (const OperationKind* each : operations_) {
        if (each->name.ends_with("-norm")) norms.emplace_back(each->name);
      }
      refuse(node.line, fmt::format("norm: {} is no norm{}", norm.kind, known_names(norm.kind, norms, "Known")));
    }
    Call arguments;
    if (norm.value != nullptr) {
      if (!norm.value->is_mapping()) refuse(node.line, fmt::format("{}: ARGUMENT: VALUE belongs here", norm.kind));
      std::vector<std::string> keys;
      for (const NetworkOption& argument : operation->arguments) keys.push_back(argument.name);
      require_keys(norm, keys);
      for (const YamlEntry& entry : norm.value->entries)
        set_argument(arguments, *operation, entry.key, entry.value, scope);
    }
    if (!in_summarized_group_) groups_.push_back({name, norm_summary(calls_.back(), norm.kind)});
    add_call(norm.kind, name + "/norm", {name}, node.line).arguments = std::move(arguments.arguments);
  }

  /// "3x3/2, batch norm"
  std::string norm_summary(const Call& call, std::string kind) const {
    std::ranges::replace(kind, '-', ' ');
    const auto text = [&](std::string_view argument) {
      const auto numbers = call.find<Numbers>(argument);
      if (!numbers || numbers->size() != 1) return fmt::format("{}", fmt::join(numbers.value_or(Numbers{}), "x"));
      return fmt::format("{}", fmt::join(Numbers(directions_, numbers->front()), "x"));
    };
    if (!call.arguments.contains("kernel")) return kind;
    const auto stride = call.find<Numbers>("stride");
    const bool strides = stride && std::ranges::any_of(*stride, [](std::int64_t one) { return one > 1; });
    return fmt::format("{}{}, {}", text("kernel"), strides ? fmt::format("/{}", fmt::join(*stride, "x")) : "", kind);
  }

  const NetworkKind& kind_;
  const NetworkOptions& options_;
  const SampleShape& shape_;
  OperationKinds operations_;
  std::string file_;
  std::vector<std::string> functions_;
  std::map<std::string, const YamlNode*, std::less<>> blocks_;
  Scope globals_;
  std::vector<Call> calls_;
  std::vector<CallGroup> groups_;
  std::map<std::string, std::string> names_;  ///< value of each name that the file can read
  /// Numbers of a sample that are an input.
  struct InputNumbers {
    std::string row;  ///< the value that they are part of
    std::int64_t first = 0, count = 0;
    bool are_tokens = false;
  };
  std::map<std::string, InputNumbers> numbers_of_;  ///< by the value
  std::set<std::int64_t> series_steps_;             ///< first extents of the inputs that are no rows
  std::set<std::string> flat_names_;                ///< names of calls
  std::map<std::string, int> counts_;               ///< automatic names so far, by group and kind
  std::string current_, prefix_;  ///< the value before the next layer; names of the groups, each with a /
  std::size_t visits_ = 0, depth_ = 0;
  std::size_t directions_ = 1;  ///< the input's extents but the last
  int calls_line_ = 1;
  bool in_summarized_group_ = false;
};

}  // namespace

Description expand(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                   OperationKinds operations) {
  return Expander(kind, options, shape, operations).expand();
}

}  // namespace lockstep::model
