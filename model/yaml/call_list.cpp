#include "model/yaml/call_list.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "model/nearest_name.hpp"
#include "model/yaml/expansion.hpp"
#include "model/yaml/network_template.hpp"

namespace lockstep::model {

namespace {

constexpr std::size_t kMaxFullName = 1000;

}  // namespace

CallList::CallList(const NetworkKind& kind) : LineErrors(file_of(kind)), is_users_(!kind.file.empty()) {}

void CallList::require_new_name(const std::string& full, int line) const {
  if (names_.contains(full)) refuse_taken(full, line);
}

void CallList::refuse_taken(const std::string& name, int line) const {
  refuse(line, fmt::format("{} is the name of an earlier layer", name));
}

Call& CallList::add(std::string kind, std::string name, std::vector<std::string> from, int line) {
  if (calls_.size() >= kMaxNetworkCalls) {
    refuse(line, fmt::format("the network has more than {} operations", kMaxNetworkCalls));
  }
  require_new_name(name, line);
  if (!call_names_.insert(name).second) refuse_taken(name, line);
  if (std::ranges::find(from, "") != from.end()) {
    refuse(line, fmt::format("{}: says by from: which of the inputs it reads", name));
  }
  present_ = name;
  Call& call = calls_.emplace_back();
  call.kind = std::move(kind);
  call.name = std::move(name);
  call.from = std::move(from);
  if (is_users_) call.place = place_of(file(), line);
  return call;
}

std::string CallList::automatic_name(std::string kind) {
  std::ranges::replace(kind, '-', '_');
  return fmt::format("{}_{}", kind, ++counts_[prefix_ + kind]);
}

std::string CallList::in_group(const std::string& name, int line) const {
  if (prefix_.size() + name.size() > kMaxFullName) refuse(line, "the names of groups inside groups become too long");
  return prefix_ + name;
}

std::string CallList::resolve(const std::string& name, int line, std::string_view key) const {
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

std::vector<std::string> CallList::named_in(const YamlNode& node, const Scope& scope, std::string_view key) const {
  std::vector<std::string> values;
  const auto add = [&](const NetworkValue& value) {
    const auto* const name = std::get_if<std::string>(&value.data);
    if (name == nullptr) {
      refuse(node.line,
             fmt::format("{}: {} is {}, and must be the name of a layer", key, to_text(value), type_name(value)));
    }
    values.push_back(resolve(*name, node.line, key));
  };
  const NetworkValue given = in_line(node.line, "", [&] { return evaluate(node, scope); });
  if (const auto* const items = std::get_if<std::vector<NetworkValue>>(&given.data)) {
    for (const NetworkValue& item : *items) add(item);
  } else {
    add(given);
  }
  return values;
}

}  // namespace lockstep::model
