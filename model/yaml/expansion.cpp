#include "model/yaml/expansion.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/nearest_name.hpp"
#include "model/yaml/call_list.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/input_calls.hpp"
#include "model/yaml/line_errors.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

namespace {

constexpr std::string_view kStructures[] = {"sequence", "residual", "parallel", "repeat"};
constexpr std::string_view kElementwise = "elementwise";
constexpr std::size_t kMaxVisits = 10 * kMaxNetworkCalls, kMaxDepth = 64, kMaxPartName = 100;

/// A layer of the file: its kind and its arguments.
struct Layer {
  std::string kind;
  const YamlNode* value = nullptr;  ///< nullptr: a word without arguments
  int line = 1;

  const YamlNode* find(std::string_view key) const {
    return value != nullptr && value->is_mapping() ? value->find(key) : nullptr;
  }
};

class Expander : private LineErrors {
 public:
  Expander(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape, OperationKinds operations)
      : LineErrors(file_of(kind)),
        kind_(kind),
        options_(options),
        shape_(shape),
        operations_(operations),
        calls_(kind),
        inputs_(kind, shape, calls_) {
    for (const OperationKind* operation : operations_) {
      if (operation->name == kElementwise) functions_ = operation->arguments.at(0).words;
    }
  }

  Description expand() {
    const YamlNode& document = *kind_.document;
    Description description = inputs_.declare();
    collect_blocks();
    fill_globals();
    layers(*document.find("network"), globals_);
    if (calls_.all().empty()) refuse(document.find("network")->line, "network: no layer is left");
    if (calls_.all().back().name != calls_.present()) {
      refuse(calls_line_, fmt::format("the network ends with {}, which is not its last operation ({}): the last layer "
                                      "is the output",
                                      calls_.present(), calls_.all().back().name));
    }
    inputs_.drop_numbers_of_tokens();
    if (shape_.tokens) inputs_.separate_documents(description.input, options_);
    description.calls = std::move(calls_.all());
    description.groups = std::move(groups_);
    return description;
  }

 private:
  NetworkValue value_of(const YamlNode& node, const Scope& scope) const {
    return in_line(node.line, "", [&] { return evaluate(node, scope); });
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

  /// True for kinds that users cannot name: functions have their own words, and an embedding adds the call for its
  /// tokens.
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

  /// Returns the name that the file gives the layer, within its group; "" if none.
  std::string own_name(const Layer& layer, const Scope& scope) const {
    const YamlNode* const node = layer.find("name");
    if (node == nullptr) return "";
    const std::string name = text_of(*node, scope, "name");
    if (name.size() > kMaxPartName || !has_name_letters(name)) {
      refuse(node->line, fmt::format("name: {}: a name has letters, digits, _, - and .", name));
    }
    return name;
  }

  // ---- Structures ----

  /// Makes the value that a structure reads the present value, and returns it.
  std::string enter(const Layer& layer, const Scope& scope) {
    if (const YamlNode* const from = layer.find("from")) {
      const std::vector<std::string> values = calls_.named_in(*from, scope, "from");
      if (values.size() != 1) refuse(from->line, fmt::format("from: {} reads one value", layer.kind));
      calls_.go_to(values[0]);
    }
    return calls_.present();
  }

  const YamlNode& list_in(const Layer& layer, std::string_view key) const {
    const YamlNode* const list = layer.value->is_list() ? layer.value : layer.find(key);
    if (list == nullptr || !list->is_list()) {
      refuse(layer.line, fmt::format("{}: a list of layers belongs here{}", layer.kind,
                                     layer.value->is_mapping() ? fmt::format(", under {}:", key) : ""));
    }
    return *list;
  }

  /// Expands in the group `name` (no group if empty), which becomes a name of the last value.
  template <class Work>
  void in_named_group(const std::string& name, const Layer& layer, const Scope& scope, const YamlNode* summary,
                      const Work& work) {
    if (name.empty()) return work();
    const std::string full = calls_.in_group(name, layer.line);
    calls_.require_new_name(full, layer.line);
    const bool has_summary = summary != nullptr && !in_summarized_group_;
    if (has_summary) groups_.push_back({full, text_of(*summary, scope, "summary")});
    in_summarized_group_ = in_summarized_group_ || has_summary;
    calls_.expand_group(full, work);
    if (has_summary) in_summarized_group_ = false;
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

  /// Calls are in the order of the text. Parameters of the shortcut are declared before those of the layers.
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
        calls_.go_to(x);
        const std::size_t first = calls_.all().size();
        layers(*shortcut, scope);
        std::vector<Call>& calls = calls_.all();
        for (std::size_t i = first; before && i < calls.size(); ++i) {
          if (calls[i].declared_before.empty()) calls[i].declared_before = calls[*before].name;
        }
        beside = calls_.present();
      };
      const bool comes_first = shortcut != nullptr && position_of(layer, "shortcut") < position_of(layer, "layers");
      if (comes_first) add_shortcut({});
      calls_.go_to(x);
      const std::size_t first = calls_.all().size();
      layers(list, scope);
      const std::string inner = calls_.present();
      if (shortcut != nullptr && !comes_first) {
        add_shortcut(first < calls_.all().size() ? std::optional(first) : std::nullopt);
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
        calls_.go_to(x);
        layers(branch, scope);
        ends.push_back(calls_.present());
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
    if (name.empty()) name = calls_.automatic_name(layer.kind);
    const YamlNode* const own = layer.find("summary");
    const YamlNode* const summary = own != nullptr ? own : block.find("summary");
    in_named_group(name, layer, own != nullptr ? scope : inner, summary, [&] { layers(*block.find("layers"), inner); });
  }

  // ---- Operations ----

  void join(const std::string& kind, std::vector<std::string> from, int line) {
    if (operation_named(kind) == nullptr) refuse(line, fmt::format("join: {} is no layer", kind));
    const std::string name = calls_.in_group(calls_.automatic_name(kind), line);
    calls_.add(kind, name, std::move(from), line);
    calls_.name_present(name);
  }

  /// Adds the activation after a structure or an operation with `activation: relu`.
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
    const std::string name = calls_.in_group(own.empty() ? calls_.automatic_name(word) : own, line);
    Call& call = calls_.add(std::string(kElementwise), name, {calls_.present()}, line);
    call.arguments["function"] = word;
    if (value) call.arguments["parameter"] = *value;
    calls_.name_present(name);
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
    if (name == "table") {  // name of an embedding
      call.arguments[name] = calls_.resolve(text_of(node, scope, name), node.line, name);
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
    std::vector<std::string> from{calls_.present()};
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
      if (const YamlNode* const given = layer.find("from")) from = calls_.named_in(*given, scope, "from");
      if (const YamlNode* const given = layer.find("lengths"); given != nullptr && takes_lengths(operation)) {
        from.push_back(inputs_.lengths_of(*given, scope));
      }
    } else if (layer.value != nullptr && layer.value->is_list() && takes_several) {
      for (std::string& value : calls_.named_in(*layer.value, scope, layer.kind)) from.push_back(std::move(value));
    } else if (layer.value != nullptr) {
      if (operation.arguments.empty()) {
        refuse(layer.line, fmt::format("{} takes no value: write {} alone", layer.kind, layer.kind));
      }
      set_argument(arguments, operation, operation.arguments[0].name, *layer.value, scope);
    }
    if (layer.kind == "dropout" && arguments.find<double>("rate") == 0.0) {
      if (from.size() == 1) calls_.go_to(from[0]);
      return;
    }
    require_arguments(layer, operation, arguments);
    std::string own = own_name(layer, scope);
    if (own.empty()) own = calls_.automatic_name(layer.kind);
    const std::string name = calls_.in_group(own, layer.line);
    const YamlNode* const norm = layer.find("norm");
    if (norm != nullptr) prepare_for_norm(operation, arguments);
    apply_user_initializers(operation, arguments);
    if (operation.name == "embedding") inputs_.read_as_tokens(from, name, arguments, layer.line);
    calls_.add(layer.kind, name, std::move(from), layer.line).arguments = std::move(arguments.arguments);
    if (norm != nullptr) add_norm(name, *norm, scope);
    const bool applied = !calls_.all().empty() && calls_.all().back().name == name &&
                         calls_.all().back().arguments.contains("activation");
    if (!applied) activate(layer, scope);
    calls_.name_present(name);
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

  /// Removes the bias of a layer that a norm follows.
  static void prepare_for_norm(const OperationKind& operation, Call& call) {
    if (argument_named(operation, "bias") != nullptr) call.arguments["bias"] = false;
  }

  /// Replaces the file's initializers by those of --weight-init and --bias-init for all layers.
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
    if (!in_summarized_group_) groups_.push_back({name, norm_summary(calls_.all().back(), norm.kind)});
    calls_.add(norm.kind, name + "/norm", {name}, node.line).arguments = std::move(arguments.arguments);
  }

  /// "3x3/2, batch norm"
  std::string norm_summary(const Call& call, std::string kind) const {
    std::ranges::replace(kind, '-', ' ');
    const auto text = [&](std::string_view argument) {
      const auto numbers = call.find<Numbers>(argument);
      if (!numbers || numbers->size() != 1) return fmt::format("{}", fmt::join(numbers.value_or(Numbers{}), "x"));
      return fmt::format("{}", fmt::join(Numbers(inputs_.directions(), numbers->front()), "x"));
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
  std::vector<std::string> functions_;
  std::map<std::string, const YamlNode*, std::less<>> blocks_;
  Scope globals_;
  CallList calls_;
  InputCalls inputs_;
  std::vector<CallGroup> groups_;
  std::size_t visits_ = 0, depth_ = 0;
  int calls_line_ = 1;
  bool in_summarized_group_ = false;
};

}  // namespace

Description expand(const NetworkKind& kind, const NetworkOptions& options, const SampleShape& shape,
                   OperationKinds operations) {
  return Expander(kind, options, shape, operations).expand();
}

}  // namespace lockstep::model
