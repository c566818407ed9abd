/// \file
/// The rows of the network options, made from the declarations of each kind of network.
#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "app/options/network_files.hpp"
#include "app/options/train_rows.hpp"
#include "model/network.hpp"
#include "model/network_kinds.hpp"

namespace lockstep::app {
namespace {

/// Returns the kinds of network that take an option of this name. If the user's file declares the option, returns only
/// the user's kind, because its option may have another type than that of shipped networks.
std::vector<const model::NetworkKind*> kinds_with(std::string_view option, const model::NetworkOptions& options) {
  if (options.source != nullptr && options.source->find(option) != nullptr) return {options.source.get()};
  std::vector<const model::NetworkKind*> kinds;
  for (const model::NetworkKind& kind : model::network_kinds()) {
    if (kind.find(option) != nullptr) kinds.push_back(&kind);
  }
  return kinds;
}

/// Returns the value of --model for a kind.
const std::string& model_name(const model::NetworkKind& kind) { return kind.file.empty() ? kind.name : kind.file; }

/// Returns the declaration of the option in the user's file, in the chosen kind, or in the first kind that takes it.
const model::NetworkOption& declared(std::string_view option, const model::NetworkOptions& options) {
  if (options.source != nullptr && options.source->find(option) != nullptr) return *options.source->find(option);
  const model::NetworkOption* const own = model::network_kind(options).find(option);
  return own != nullptr ? *own : *kinds_with(option, options).front()->find(option);
}

std::string read(const Option& /*row*/, const std::string& text, model::Initializers& value) {
  try {
    value = model::parse_initializers(text);
    return "";
  } catch (const std::invalid_argument& error) {
    return fmt::format("is not an initialisation: {}", error.what());
  }
}

std::string read(const Option& /*row*/, const std::string& text, std::string& value) {
  value = text;
  return "";  // one_of() rejects invalid names
}

template <class Value>
std::string read(const Option& row, const std::string& text, Value& value) {
  return row.read(text, value);
}

/// True if the network chooses the value: for "auto", and for its forms in older configurations of shipped networks,
/// which are an empty list, and 0 if 0 is not a valid value.
bool leaves_it_to_the_network(const std::string& text, std::string_view name, const model::NetworkOptions& options) {
  const model::NetworkOption& option = declared(name, options);
  if (options.source != nullptr && &option == options.source->find(name)) return text == "auto" && option.automatic;
  const bool whole = std::holds_alternative<std::int64_t>(option.value);
  return text == "auto" || (text == "0" && whole && !model::objection(option, std::int64_t{0}).empty()) ||
         (text == "none" && std::holds_alternative<model::Numbers>(option.value));
}

/// Returns the least strict bound of all kinds. settle_network_options() checks the bound of the chosen kind.
std::optional<double> loosest(const std::vector<const model::NetworkKind*>& kinds, std::string_view option,
                              std::optional<double> model::NetworkOption::*bound,
                              const double& (*looser)(const double&, const double&)) {
  std::optional<double> result = kinds.front()->find(option)->*bound;
  for (const model::NetworkKind* kind : kinds) {
    const std::optional<double> other = kind->find(option)->*bound;
    result = result && other ? std::optional(looser(*result, *other)) : std::nullopt;
  }
  return result;
}

/// Returns all names that any kind allows. settle_network_options() checks those of the chosen kind.
std::vector<std::string> allowed_words(const std::vector<const model::NetworkKind*>& kinds, std::string_view option) {
  std::vector<std::string> words;
  for (const model::NetworkKind* kind : kinds) {
    if (kind->find(option)->words.empty()) return {};
    for (const std::string& word : kind->find(option)->words) {
      if (std::ranges::find(words, word) == words.end()) words.push_back(word);
    }
  }
  return words;
}

void add_row(OptionTable& table, model::NetworkOptions& options, const std::string& name) {
  const auto parse = [&options, name](const Option& row, const std::string& text) -> std::string {
    if (leaves_it_to_the_network(text, name, options)) return options.values.erase(name), "";
    const model::NetworkOption& option = declared(name, options);
    model::OptionValue value = option.value;
    if (name == model::kDocumentToken && !text.empty() && text.find_first_not_of("-0123456789") != std::string::npos) {
      value = std::string();
    }
    std::string wrong = std::visit([&](auto& typed) { return read(row, text, typed); }, value);
    if (wrong.empty()) options.values.insert_or_assign(name, std::move(value));
    return wrong;
  };
  const auto text = [&options, name] {
    if (const auto set = options.values.find(name); set != options.values.end()) return model::to_text(set->second);
    const model::NetworkOption& option = declared(name, options);
    return option.automatic ? "auto" : model::to_text(option.value);
  };
  const model::NetworkOption& option = *kinds_with(name, options).front()->find(name);
  const bool yes_or_no = std::holds_alternative<bool>(option.value);
  Option& row = table.add_free(name, yes_or_no ? Option::Shape::yes_or_no : Option::Shape::value, option.value_name,
                               option.help, parse, text);
  const std::vector<const model::NetworkKind*> kinds = kinds_with(name, options);
  row.left_open_by(
      [&options, name](const std::string& words) { return leaves_it_to_the_network(words, name, options); });
  if (std::holds_alternative<std::string>(option.value)) row.one_of(allowed_words(kinds, name));
  if (const auto bound = loosest(kinds, name, &model::NetworkOption::at_least, std::min)) row.at_least(*bound);
  if (const auto bound = loosest(kinds, name, &model::NetworkOption::below, std::max)) row.below(*bound);
  if (kinds.size() == model::network_kinds().size()) return;
  std::vector<std::string> names;
  for (const model::NetworkKind* kind : kinds) names.push_back(model_name(*kind));
  row.only_with("model", std::move(names));
}

}  // namespace

namespace {

/// Sets the network, and reads a user's file unless the options have its network already.
std::string choose(const std::string& model, model::NetworkOptions& options) {
  const bool is_known = options.source != nullptr && options.source->file == model;
  if (model::is_network_file(model) && !is_known) options.source = read_network_file(model);
  options.name = model;
  return "";
}

}  // namespace

void add_network_options(OptionTable& table, model::NetworkOptions& options) {
  table.group("Network");
  table
      .add_free(
          "model", Option::Shape::value, "NAME", "network, or a file FILE.yaml that describes one",
          [&options](const Option&, const std::string& text) { return choose(text, options); },
          [&options] { return options.name; })
      .one_of(model::network_names())
      .or_if(model::is_network_file);
  const auto add_rows_of = [&](const model::NetworkKind& kind) {
    for (const model::NetworkOption& option : kind.options) {
      if (table.find(option.name) == nullptr) add_row(table, options, option.name);
    }
  };
  if (options.source != nullptr) add_rows_of(*options.source);
  add_rows_of(model::network_kind(model::NetworkOptions{}));
  for (const model::NetworkKind& kind : model::network_kinds()) add_rows_of(kind);
}

void add_options_of_file(OptionTable& table, model::NetworkOptions& options) {
  table.group("Network");
  for (const model::NetworkOption& option : options.source->options) add_row(table, options, option.name);
}

namespace {

/// True if the size of an update does not depend on the size of the gradient. Such optimisers need much smaller rates.
bool is_adaptive(std::string_view optimizer) {
  return optimizer == "adam" || optimizer == "adamw" || optimizer == "lamb";
}

/// Returns the default optimiser of the network.
std::string_view usual_optimizer(const model::NetworkOptions& network) {
  for (const auto& [name, value] : model::network_kind(network).training_defaults) {
    if (name == "optimizer") return value;
  }
  return model::name_of(kDefaultOptimizer);
}

}  // namespace

std::vector<std::string> apply_network_defaults(OptionTable& table, const model::NetworkOptions& network) {
  std::vector<std::string> applied;
  const Option* const optimizer = table.find("optimizer");  // nullptr if the command does not train
  const bool chosen_by_user = optimizer != nullptr && optimizer->source() != OptionSource::default_value;
  bool has_rate = false;
  for (const auto& [name, value] : model::network_kind(network).training_defaults) {
    Option* option = table.find(name);
    if (option == nullptr || option->source() != OptionSource::default_value) continue;
    if (name == "learning-rate" && chosen_by_user &&
        is_adaptive(optimizer->text()) != is_adaptive(usual_optimizer(network))) {
      continue;  // the network's rate is for its own optimiser
    }
    has_rate = has_rate || name == "learning-rate";
    option->assign(value, OptionSource::default_value,
                   fmt::format("{} of {}", name, model::network_kind(network).name));
    applied.emplace_back(name);
  }
  Option* const rate = table.find("learning-rate");
  const bool is_open = rate != nullptr && !has_rate && rate->source() == OptionSource::default_value;
  if (is_open && optimizer != nullptr && !is_adaptive(optimizer->text())) {
    rate->assign("0.1", OptionSource::default_value, "learning-rate of the optimiser");
  }
  return applied;
}

void settle_network_options(const OptionTable& table, model::NetworkOptions& options) {
  const model::NetworkKind& kind = model::network_kind(options);
  std::erase_if(options.values, [&](const auto& set) { return kind.find(set.first) == nullptr; });
  for (const auto& [name, value] : options.values) {
    const std::string wrong = model::objection(*kind.find(name), value);
    if (wrong.empty()) continue;
    throw UsageError(fmt::format("{}: {} {}", table.find(name)->spelled(), model::to_text(value), wrong));
  }
  options = model::with_defaults(options);
}

HelpPage network_help(OptionTable& table, const model::NetworkOptions& network, const CommandLine& line,
                      std::string_view usage, std::string_view examples, bool takes_config) {
  const auto model =
      std::find_if(line.options.begin(), line.options.end(), [](const auto& given) { return given.name == "model"; });
  const bool is_chosen = model != line.options.end();
  if (is_chosen) table.find("model")->assign(model->value, OptionSource::command_line, model->spelled);
  apply_network_defaults(table, network);
  const model::NetworkKind& chosen = model::network_kind(network);
  for (Option& row : table.options()) {
    if (kinds_with(row.name(), network).empty()) continue;
    const model::NetworkOption* const own = chosen.find(row.name());
    own != nullptr ? row.explain(own->help) : row.hide();
  }
  HelpPage page = make_help(table, usage, examples, takes_config);
  if (is_chosen) {
    page.chosen.push_back({chosen.name, chosen.summary});
  } else if (table.find("model") != nullptr) {
    for (const model::NetworkKind& kind : model::network_kinds()) page.networks.push_back({kind.name, kind.summary});
  }
  return page;
}

}  // namespace lockstep::app
