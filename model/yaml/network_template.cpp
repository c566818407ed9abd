#include "model/yaml/network_template.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/operation_kinds.hpp"
#include "model/nearest_name.hpp"
#include "model/step_status.hpp"
#include "model/yaml/line_errors.hpp"

namespace lockstep::model {

bool has_name_letters(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && std::ranges::all_of(text, allowed);
}

namespace {

constexpr std::size_t kMaxNameLength = 64;

bool is_name(std::string_view name) { return name.size() <= kMaxNameLength && has_name_letters(name); }

std::string value_name_of(const OptionValue& value) {
  constexpr std::string_view kNames[] = {"", "N", "X", "LIST", "SCHEME", "NAME"};
  return std::string(kNames[value.index()]);
}

/// Reads the parts of a file that need no data.
class NetworkReader : private LineErrors {
 public:
  NetworkReader(std::string text, const std::string& file) : LineErrors(file.empty() ? "a shipped network" : file) {
    kind_.file = file;
    kind_.text = std::move(text);
    kind_.document = std::make_shared<const YamlNode>(read_yaml(kind_.text, this->file()));
  }

  NetworkKind read() {
    const YamlNode& document = *kind_.document;
    if (!document.is_mapping()) {
      refuse(document.line, "a network file begins with `name: NAME`, and has its layers under `network:`");
    }
    require_keys(document, {"name", "summary", "reads", "window", "options", "training", "small-data", "inputs",
                            "blocks", "network", "losses"});
    kind_.name = word(required(document, "name"), "name");
    if (!is_name(kind_.name)) {
      refuse(document.find("name")->line, fmt::format("name: {}: a name has letters, digits, _, - and .", kind_.name));
    }
    if (const YamlNode* const summary = document.find("summary")) kind_.summary = word(*summary, "summary");
    if (const YamlNode* const reads = document.find("reads")) read_reads(*reads);
    if (document.find("reads") == nullptr) kind_.reads = Reads::any;
    if (const YamlNode* const inputs = document.find("inputs")) read_inputs(*inputs);
    if (const YamlNode* const options = document.find("options")) read_options(*options);
    kind_.options.push_back(weight_init_option());
    kind_.options.push_back(bias_init_option());
    if (kind_.reads == Reads::tokens) kind_.options.push_back(document_token_option());
    if (const YamlNode* const window = document.find("window")) read_window(*window);
    if (kind_.reads == Reads::tokens && kind_.window.empty()) {
      refuse(document.line, "a network that reads tokens needs `window: NAME`, the option for the tokens of a sample");
    }
    if (const YamlNode* const training = document.find("training")) read_training(*training);
    if (const YamlNode* const small = document.find("small-data")) read_small_data(*small);
    if (const YamlNode* const blocks = document.find("blocks")) check_blocks(*blocks);
    const YamlNode& network = required(document, "network");
    if (!network.is_list() || network.items.empty()) refuse(network.line, "network: a list of layers belongs here");
    if (const YamlNode* const losses = document.find("losses")) read_losses(*losses);
    kind_.recurrent = kind_.reads == Reads::tokens && has_recurrent_layer(document);
    return std::move(kind_);
  }

 private:
  /// True if the file has a recurrent layer. Known before the network is made, because data are then opened in another
  /// order.
  static bool has_recurrent_layer(const YamlNode& node) {
    const auto is_recurrent = [](std::string_view word) {
      return std::ranges::any_of(operation_kinds(), [&](const OperationKind* kind) {
        return kind->name == word && reads_time_major(kind->rows);
      });
    };
    return (node.is_word() && is_recurrent(node.text)) || std::ranges::any_of(node.items, has_recurrent_layer) ||
           std::ranges::any_of(node.entries, [&](const YamlEntry& entry) {
             return is_recurrent(entry.key) || has_recurrent_layer(entry.value);
           });
  }

  void require_keys(const YamlNode& mapping, const std::vector<std::string>& keys) const {
    for (const YamlEntry& entry : mapping.entries) {
      if (std::ranges::find(keys, entry.key) != keys.end()) continue;
      if (entry.key == "outputs") {
        refuse(entry.line, "outputs: not in a file: the last layer is the output, and `concatenate` joins several");
      }
      refuse(entry.line, fmt::format("{} is not known here{}", entry.key, known_names(entry.key, keys, "Known")));
    }
  }

  const YamlNode& required(const YamlNode& mapping, std::string_view key) const {
    const YamlNode* const found = mapping.find(key);
    if (found == nullptr) refuse(mapping.line, fmt::format("{}: is missing", key));
    return *found;
  }

  std::string word(const YamlNode& node, std::string_view key) const {
    if (!node.is_word()) refuse(node.line, fmt::format("{}: a word belongs here", key));
    return node.text;
  }

  void read_reads(const YamlNode& node) {
    const std::string text = word(node, "reads");
    const std::vector<std::string> known{"features", "images", "tokens"};
    const auto found = std::ranges::find(known, text);
    if (found == known.end()) {
      refuse(node.line, fmt::format("reads: {} is not known{}", text, known_names(text, known, "Known")));
    }
    kind_.reads = text == "features" ? Reads::features : text == "images" ? Reads::images : Reads::tokens;
  }

  void read_inputs(const YamlNode& node) {
    if (!node.is_mapping()) refuse(node.line, "inputs: NAME: [EXTENTS] belongs here");
    if (node.entries.empty()) refuse(node.line, "inputs: NAME: [EXTENTS] belongs here");
    if (node.entries.size() > 1 && kind_.reads != Reads::any) {
      refuse(node.line, "inputs: several inputs contradict `reads:`: leave that out");
    }
    for (const YamlEntry& input : node.entries) read_input(input, node.entries.size() > 1);
  }

  void read_input(const YamlEntry& input, bool is_one_of_several) {
    if (!is_name(input.key)) refuse(input.line, fmt::format("inputs: {} is no name", input.key));
    const std::size_t count = input.value.is_list() ? input.value.items.size() : 0;
    if (count < 1 || count > 4) {
      refuse(input.line, fmt::format("inputs: {}: [any] (numbers), [any, any] (length and channels of series), [any, "
                                     "any, any] (height, width and channels of images) or [any, any, any, any] "
                                     "(volumes) belongs here, with numbers in the place of any where they are fixed",
                                     input.key));
    }
    for (const YamlNode& extent : input.value.items) {
      const auto number = extent.is_word() && extent.text != "any" ? plain(extent) : NetworkValue{std::int64_t{1}};
      const auto* const whole = std::get_if<std::int64_t>(&number.data);
      if (!extent.is_word() || whole == nullptr || *whole < 1) {
        refuse(extent.line, fmt::format("inputs: {}: an extent is a positive whole number or `any`", input.key));
      }
    }
    if (is_one_of_several) return;
    const Reads reads = count == 1 ? Reads::features : count == 3 ? Reads::images : Reads::any;
    if (kind_.reads != Reads::any && kind_.reads != reads) {
      refuse(input.line,
             fmt::format("inputs: {} has {} extents, which contradicts `reads:`: leave that out", input.key, count));
    }
    kind_.reads = reads;
  }

  NetworkValue plain(const YamlNode& node) const {
    try {
      return evaluate(node, Scope());
    } catch (const std::invalid_argument& error) {
      refuse(node.line, error.what());
    }
  }

  /// Returns an option's default value, which also determines its type.
  OptionValue default_of(const YamlNode& node, const std::string& name) const {
    const NetworkValue value = plain(node);
    if (const auto* const items = std::get_if<std::vector<NetworkValue>>(&value.data)) {
      Numbers numbers;
      for (const NetworkValue& item : *items) {
        const auto* const whole = std::get_if<std::int64_t>(&item.data);
        if (whole == nullptr) refuse(node.line, fmt::format("{}: a list holds whole numbers", name));
        numbers.push_back(*whole);
      }
      return numbers;
    }
    if (const auto* const yes = std::get_if<bool>(&value.data)) return *yes;
    if (const auto* const whole = std::get_if<std::int64_t>(&value.data)) return *whole;
    if (const auto* const number = std::get_if<double>(&value.data)) return *number;
    if (const auto* const text = std::get_if<std::string>(&value.data)) return *text;
    refuse(node.line, fmt::format("{}: a default is a number, yes or no, a word, or a list of whole numbers", name));
  }

  void read_options(const YamlNode& node) {
    if (!node.is_mapping()) refuse(node.line, "options: NAME: {default: VALUE} belongs here");
    for (const YamlEntry& entry : node.entries) kind_.options.push_back(read_option(entry));
  }

  NetworkOption read_option(const YamlEntry& entry) const {
    const std::string& name = entry.key;
    const bool well_named = is_name(name) && name.find('.') == std::string::npos && name[0] >= 'a' && name[0] <= 'z';
    constexpr std::string_view kTaken[] = {"outputs", "classes",     "context-length", "vocabulary", "model",
                                           "help",    "weight-init", "bias-init",      "config",     kDocumentToken};
    if (!well_named) {
      refuse(entry.line,
             fmt::format("options: {}: a name begins with a small letter and has letters, digits, _ and -", name));
    }
    if (std::ranges::find(kTaken, name) != std::end(kTaken)) {
      refuse(entry.line, fmt::format("options: {} has a meaning of its own: choose another name", name));
    }
    NetworkOption option{.name = name, .value = {}, .value_name = {}, .help = {}};
    if (!entry.value.is_mapping()) {
      option.value = default_of(entry.value, name);
      option.value_name = value_name_of(option.value);
      return option;
    }
    const YamlNode& node = entry.value;
    require_keys(node, {"default", "help", "at-least", "below", "one-of", "value-name"});
    option.value = default_of(required(node, "default"), name);
    option.value_name = value_name_of(option.value);
    if (const YamlNode* const help = node.find("help")) option.help = word(*help, "help");
    if (const YamlNode* const shown = node.find("value-name")) option.value_name = word(*shown, "value-name");
    const auto bound = [&](const char* key) -> std::optional<double> {
      const YamlNode* const given = node.find(key);
      if (given == nullptr) return std::nullopt;
      const NetworkValue value = plain(*given);
      const bool takes_bound = std::holds_alternative<std::int64_t>(option.value) ||
                               std::holds_alternative<double>(option.value) ||
                               std::holds_alternative<Numbers>(option.value);
      if (const auto* const whole = std::get_if<std::int64_t>(&value.data); whole != nullptr && takes_bound) {
        return static_cast<double>(*whole);
      }
      if (const auto* const number = std::get_if<double>(&value.data); number != nullptr && takes_bound) return *number;
      refuse(given->line, fmt::format("options: {}: {} is a number, for options that are numbers", name, key));
    };
    option.at_least = bound("at-least");
    option.below = bound("below");
    if (const YamlNode* const values = node.find("one-of")) read_one_of(*values, option);
    if (const std::string wrong = objection(option, option.value); !wrong.empty()) {
      refuse(node.find("default")->line,
             fmt::format("options: {}: its default, {}, {}", name, to_text(option.value), wrong));
    }
    return option;
  }

  /// Reads `one_of`: a list of values, or a mapping from values to the names that they set.
  void read_one_of(const YamlNode& node, NetworkOption& option) const {
    std::vector<NetworkValue> values;
    if (node.is_list()) {
      for (const YamlNode& item : node.items) values.push_back(plain(item));
    } else if (node.is_mapping()) {
      for (const YamlEntry& entry : node.entries) {
        if (!entry.value.is_mapping()) {
          refuse(entry.line, fmt::format("options: {}: {}: {{NAME: VALUE}} belongs here, what this value brings",
                                         option.name, entry.key));
        }
        YamlNode key;
        key.kind = YamlNode::Kind::word;
        key.text = entry.key;
        key.line = entry.line;
        values.push_back(plain(key));
      }
    }
    if (values.empty())
      refuse(node.line, fmt::format("options: {}: one-of: a list of values belongs here", option.name));
    for (const NetworkValue& value : values) {
      if (const auto* const whole = std::get_if<std::int64_t>(&value.data);
          whole != nullptr && std::holds_alternative<std::int64_t>(option.value)) {
        option.one_of.push_back(*whole);
      } else if (const auto* const text = std::get_if<std::string>(&value.data);
                 text != nullptr && std::holds_alternative<std::string>(option.value)) {
        option.words.push_back(*text);
      } else {
        refuse(node.line, fmt::format("options: {}: one-of has {}, {}, and the default is of another type", option.name,
                                      to_text(value), type_name(value)));
      }
    }
  }

  void read_window(const YamlNode& node) {
    kind_.window = word(node, "window");
    const NetworkOption* const option = kind_.find(kind_.window);
    if (option == nullptr || !std::holds_alternative<std::int64_t>(option->value)) {
      refuse(node.line, fmt::format("window: {} is no option that is a whole number", kind_.window));
    }
  }

  void read_training(const YamlNode& node) {
    if (!node.is_mapping()) refuse(node.line, "training: OPTION: VALUE belongs here, as in `optimizer: adam`");
    for (const YamlEntry& entry : node.entries) {
      kind_.training_defaults.emplace_back(entry.key, word(entry.value, entry.key));
    }
  }

  void read_small_data(const YamlNode& node) {
    if (!node.is_mapping()) refuse(node.line, "small-data: OPTION: VALUE belongs here");
    for (const YamlEntry& entry : node.entries) {
      const NetworkOption* const option = kind_.find(entry.key);
      if (option == nullptr) {
        std::vector<std::string> names;
        for (const NetworkOption& each : kind_.options) names.push_back(each.name);
        refuse(entry.line, fmt::format("small-data: {} is no option{}", entry.key,
                                       known_names(entry.key, std::move(names), "Options")));
      }
      try {
        OptionValue value = option_value(plain(entry.value), *option);
        if (std::string wrong = objection(*option, value); !wrong.empty()) throw std::invalid_argument(wrong);
        kind_.small_data.emplace_back(entry.key, std::move(value));
      } catch (const std::invalid_argument& error) {
        refuse(entry.line, fmt::format("small-data: {} {}", entry.key, error.what()));
      }
    }
  }

  void read_losses(const YamlNode& node) {
    if (!node.is_list() || node.items.empty() || node.items.size() > kMaxLosses) {
      refuse(node.line,
             fmt::format("losses: a list of 1 to {} losses belongs here, as in `- {{loss: dice, weight: 0.5}}`",
                         kMaxLosses));
    }
    if (kind_.reads == Reads::tokens)
      refuse(node.line, "losses: a network that reads tokens has one loss: leave them out");
    for (const YamlNode& item : node.items) kind_.losses.push_back(read_loss(item));
    for (DeclaredLoss& loss : kind_.losses) {
      if (loss.classes > 0) set_class_target(loss, node.line);
      for (const DeclaredLoss& other : kind_.losses) {
        if (other.target != loss.target || other.classes <= loss.classes || loss.classes == 0) continue;
        refuse(node.line, fmt::format("losses: {} has {} classes in one loss and {} in another: give both the same",
                                      loss.target, loss.classes, other.classes));
      }
    }
  }

  /// Makes a target of classes, among several targets, a row of probabilities.
  void set_class_target(DeclaredLoss& loss, int line) const {
    const bool is_beside = std::ranges::any_of(kind_.losses, [](const DeclaredLoss& other) {
      return is_of_numbers(other.kind) || other.kind == LossKind::binary_cross_entropy;
    });
    if (loss.target.empty() || !is_beside || loss.ignored) {
      refuse(line, fmt::format("losses: {}: classes: is for a target that stands beside numbers: {}", loss.word,
                               loss.target.empty() ? "`with:` names it" : "leave it out"));
    }
    loss.kind = LossKind::soft_cross_entropy;
  }

  static constexpr std::int64_t kMaxClasses = 65'536;  ///< each is a column of the targets

  DeclaredLoss read_loss(const YamlNode& node) const {
    if (!node.is_mapping()) refuse(node.line, "losses: {loss: NAME, of: OUTPUT, with: TARGET, weight: X} belongs here");
    require_keys(node, {"loss", "of", "with", "classes", "weight", "ignore"});
    DeclaredLoss loss{.word = word(required(node, "loss"), "loss"), .place = place_of(file(), node.line)};
    const auto known = loss_words();
    const auto found = std::ranges::find(known, loss.word, &std::pair<std::string_view, LossKind>::first);
    if (found == known.end()) {
      std::vector<std::string> words;
      for (const auto& [each, kind] : known) words.emplace_back(each);
      refuse(node.line,
             fmt::format("losses: {} is no loss{}", loss.word, known_names(loss.word, std::move(words), "Known")));
    }
    loss.kind = found->second;
    if (const YamlNode* const of = node.find("of")) loss.of = word(*of, "of");
    if (const YamlNode* const with = node.find("with")) loss.target = word(*with, "with");
    if (const YamlNode* const classes = node.find("classes")) {
      const NetworkValue value = plain(*classes);
      const auto* const count = std::get_if<std::int64_t>(&value.data);
      if (count == nullptr || *count < 2 || *count > kMaxClasses || loss.kind != LossKind::softmax_cross_entropy) {
        refuse(classes->line, fmt::format("losses: classes: a whole number from 2 to {} belongs here, and only to "
                                          "softmax-cross-entropy",
                                          kMaxClasses));
      }
      loss.classes = *count;
    }
    if (const YamlNode* const weight = node.find("weight")) {
      const NetworkValue value = plain(*weight);
      const auto* const whole = std::get_if<std::int64_t>(&value.data);
      const auto* const number = std::get_if<double>(&value.data);
      loss.weight = whole != nullptr ? static_cast<double>(*whole) : number != nullptr ? *number : 0;
      constexpr double kMinWeight = 1e-6, kMaxWeight = 1e6;  // other gradients, and their squares, are float32
      if (!(loss.weight >= kMinWeight && loss.weight <= kMaxWeight)) {
        refuse(weight->line,
               fmt::format("losses: weight: {} is no number from {:g} to {:g}", weight->text, kMinWeight, kMaxWeight));
      }
    }
    if (const YamlNode* const ignored = node.find("ignore")) {
      const NetworkValue value = plain(*ignored);
      const auto* const label = std::get_if<std::int64_t>(&value.data);
      if (label == nullptr || !takes_classes(loss.kind)) {
        refuse(ignored->line, "losses: ignore: a label, a whole number, belongs here, and only to losses of classes");
      }
      loss.ignored = *label;
    }
    return loss;
  }

  void check_blocks(const YamlNode& node) const {
    if (!node.is_mapping()) refuse(node.line, "blocks: NAME: {parameters: [..], layers: [..]} belongs here");
    for (const YamlEntry& entry : node.entries) {
      const std::string& name = entry.key;
      if (!is_name(name)) refuse(entry.line, fmt::format("blocks: {} is no name", name));
      if (!entry.value.is_mapping()) {
        refuse(entry.line, fmt::format("blocks: {}: {{parameters: [..], layers: [..]}} belongs here", name));
      }
      require_keys(entry.value, {"parameters", "layers", "summary"});
      const YamlNode& layers = required(entry.value, "layers");
      if (!layers.is_list()) refuse(layers.line, fmt::format("blocks: {}: layers: a list belongs here", name));
      const YamlNode* const parameters = entry.value.find("parameters");
      if (parameters == nullptr) continue;
      if (!parameters->is_list())
        refuse(parameters->line, fmt::format("blocks: {}: parameters: a list of names", name));
      for (const YamlNode& parameter : parameters->items) {
        constexpr std::string_view kEverywhere[] = {"name", "from", "when"};
        if (!parameter.is_word() || !is_name(parameter.text) ||
            std::ranges::find(kEverywhere, parameter.text) != std::end(kEverywhere)) {
          refuse(parameter.line,
                 fmt::format("blocks: {}: parameters: a list of names, without name, from, when", name));
        }
      }
    }
  }

  NetworkKind kind_;
};

}  // namespace

NetworkKind read_network(std::string text, std::string file) { return NetworkReader(std::move(text), file).read(); }

std::vector<DeclaredInput> declared_inputs(const NetworkKind& kind) {
  std::vector<DeclaredInput> all;
  const YamlNode* const inputs = kind.document == nullptr ? nullptr : kind.document->find("inputs");
  if (inputs == nullptr) return all;
  for (const YamlEntry& entry : inputs->entries) {
    DeclaredInput& input = all.emplace_back(DeclaredInput{.name = entry.key, .extents = {}, .line = entry.line});
    for (const YamlNode& extent : entry.value.items) {
      input.extents.push_back(extent.text == "any" ? 0 : std::get<std::int64_t>(evaluate(extent, Scope()).data));
    }
  }
  return all;
}

OptionValue option_value(const NetworkValue& value, const NetworkOption& option) {
  const auto refuse = [&](std::string_view wanted) {
    throw std::invalid_argument(fmt::format("is {}, and must be {}", to_text(value), wanted));
  };
  return std::visit(
      [&]<class T>(const T&) -> OptionValue {
        const auto* const whole = std::get_if<std::int64_t>(&value.data);
        const auto* const number = std::get_if<double>(&value.data);
        if constexpr (std::is_same_v<T, std::int64_t>) {
          if (whole != nullptr) return *whole;
          const auto* const items = std::get_if<std::vector<NetworkValue>>(&value.data);
          if (items != nullptr && items->size() == 1) return option_value(items->front(), option);
          refuse("a whole number");
        } else if constexpr (std::is_same_v<T, double>) {
          if (whole != nullptr) return static_cast<double>(*whole);
          if (number == nullptr) refuse("a number");
          return *number;
        } else if constexpr (std::is_same_v<T, bool>) {
          if (!std::holds_alternative<bool>(value.data)) refuse("yes or no");
          return std::get<bool>(value.data);
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (const auto* const items = std::get_if<std::vector<NetworkValue>>(&value.data)) {
            std::vector<std::string> words;
            for (const NetworkValue& item : *items) {
              if (!std::holds_alternative<std::int64_t>(item.data)) refuse("a word");
              words.push_back(to_text(item));
            }
            return fmt::format("{}", fmt::join(words, ","));
          }
          if (std::holds_alternative<NetworkFields>(value.data)) refuse("a word");
          return to_text(value);
        } else if constexpr (std::is_same_v<T, Numbers>) {
          if (whole != nullptr) return Numbers{*whole};
          const auto* const items = std::get_if<std::vector<NetworkValue>>(&value.data);
          Numbers numbers;
          if (items == nullptr) refuse("a list of whole numbers");
          for (const NetworkValue& item : *items) {
            const auto* const one = std::get_if<std::int64_t>(&item.data);
            if (one == nullptr) refuse("a list of whole numbers");
            numbers.push_back(*one);
          }
          return numbers;
        } else {
          const auto* const text = std::get_if<std::string>(&value.data);
          if (text == nullptr) refuse("an initialisation, such as he_normal or normal(0.02)");
          try {
            return Initializers{.all = parse_initializer(*text), .layers = {}};
          } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(fmt::format("is no initialisation: {}", error.what()));
          }
        }
        return {};  // not reached: refuse() throws
      },
      option.value);
}

std::string known_names(std::string_view wrong, std::vector<std::string> names, std::string_view what) {
  std::ranges::sort(names);
  return fmt::format("{}{} {}: {}", did_you_mean(wrong, names), did_you_mean(wrong, names).empty() ? "." : "", what,
                     list_names(names, "and"));
}

std::string file_of(const NetworkKind& kind) { return kind.file.empty() ? kind.name + ".yaml" : kind.file; }

}  // namespace lockstep::model
