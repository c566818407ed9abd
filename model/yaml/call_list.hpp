/// \file
/// The calls of a network while its file is expanded, and the names under which a layer finds their results.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/graph/description.hpp"
#include "model/network.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/line_errors.hpp"
#include "model/yaml/yaml_document.hpp"

namespace lockstep::model {

/// A call's result is the present value until the next call. Names inside a group NAME are NAME/... All errors are
/// std::invalid_argument, "FILE:LINE: ...".
class CallList : private LineErrors {
 public:
  explicit CallList(const NetworkKind& kind);

  /// Adds a call, whose result becomes the present value. Throws if there are too many, for a name that is taken, and
  /// if one of `from` is no value.
  Call& add(std::string kind, std::string name, std::vector<std::string> from, int line);
  std::vector<Call>& all() noexcept { return calls_; }

  /// The value before the next layer; "": none.
  const std::string& present() const noexcept { return present_; }
  void go_to(std::string value) { present_ = std::move(value); }

  /// Gives the present value a full name that layers can read. Throws if a layer has it.
  void name_present(const std::string& full) { names_[full] = present_; }
  void require_new_name(const std::string& full, int line) const;
  /// "dense_1", "dense_2": numbered in the present group.
  std::string automatic_name(std::string kind);
  /// The full name. Throws if it becomes too long.
  std::string in_group(const std::string& name, int line) const;
  /// Runs work() in the group with this full name, which then names the last value.
  template <class Work>
  void expand_group(const std::string& full, const Work& work) {
    const std::string outer = prefix_;
    prefix_ = full + "/";
    work();
    prefix_ = outer;
    name_present(full);
  }

  /// The value of a name as seen from the present group: that of the group itself, else of those around it. `key`: the
  /// argument, for messages.
  std::string resolve(const std::string& name, int line, std::string_view key) const;
  /// The values of a name or of a list of names.
  std::vector<std::string> named_in(const YamlNode& node, const Scope& scope, std::string_view key) const;

 private:
  bool is_users_;
  std::vector<Call> calls_;
  std::set<std::string> call_names_;
  std::map<std::string, std::string> names_;  ///< value of each name that the file can read
  std::map<std::string, int> counts_;         ///< automatic names so far, by group and kind
  std::string present_, prefix_;              ///< prefix_: names of the groups, each with a /
};

}  // namespace lockstep::model
