/// \file
/// The calls of a network while its file is expanded, and the names by which layers find their results.
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

/// The result of the last call is the present value. Names inside a group NAME are NAME/... All errors are
/// std::invalid_argument, "FILE:LINE: ...".
class CallList : private LineErrors {
 public:
  explicit CallList(const NetworkKind& kind);

  /// Adds a call; its result becomes the present value. Throws for too many calls, for a name in use, and for "" in
  /// `from` (several inputs, and the layer does not say which it reads).
  Call& add(std::string kind, std::string name, std::vector<std::string> from, int line);
  std::vector<Call>& all() noexcept { return calls_; }

  /// The value that the next layer reads by default; "": none.
  const std::string& present() const noexcept { return present_; }
  void go_to(std::string value) { present_ = std::move(value); }

  /// Gives the present value a full name that layers can read.
  void name_present(const std::string& full) { names_[full] = present_; }
  void require_new_name(const std::string& full, int line) const;
  /// Returns "dense_1", "dense_2", ..., numbered within the present group.
  std::string automatic_name(std::string kind);
  /// Returns the full name: with the names of the groups. Throws if it is too long.
  std::string in_group(const std::string& name, int line) const;
  /// Runs work() in the group with this full name, which becomes a name of the last value.
  template <class Work>
  void expand_group(const std::string& full, const Work& work) {
    const std::string outer = prefix_;
    prefix_ = full + "/";
    work();
    prefix_ = outer;
    name_present(full);
  }

  /// Returns the value of a name, looked up in the present group, then in the groups around it. `key`: name of the
  /// argument, for messages.
  std::string resolve(const std::string& name, int line, std::string_view key) const;
  /// Returns the values of a name or of a list of names.
  std::vector<std::string> named_in(const YamlNode& node, const Scope& scope, std::string_view key) const;

 private:
  [[noreturn]] void refuse_taken(const std::string& name, int line) const;

  bool is_users_;
  std::vector<Call> calls_;
  std::set<std::string> call_names_;
  std::map<std::string, std::string> names_;  ///< by name in the file: the value
  std::map<std::string, int> counts_;         ///< number of automatic names so far, by group and kind
  std::string present_, prefix_;              ///< prefix_: names of the groups, each with a /
};

}  // namespace lockstep::model
