#include "model/graph/rewrites.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::model {

namespace {

/// Rewrites the calls of one description.
class Rewriting {
 public:
  explicit Rewriting(Description& description) : description_(description), calls_(description.calls) { name_inputs(); }

  void run() {
    for (std::size_t i = 0; i + 1 < calls_.size();) {
      if (!takes_activation(i) && !takes_sum(i) && !makes_feed_forward(i) && !makes_stack(i)) ++i;
    }
  }

 private:
  /// Says what each call reads, so that calls can go.
  void name_inputs() {
    const std::string* before = &description_.input;
    for (Call& call : calls_) {
      if (call.from.empty()) call.from = {*before};
      before = &call.name;
    }
  }

  bool is(std::size_t i, std::string_view kind) const { return i < calls_.size() && calls_[i].kind == kind; }
  template <class T>
  bool has(std::size_t i, std::string_view argument, const T& value, const T& otherwise) const {
    const auto found = calls_[i].arguments.find(argument);
    if (found == calls_[i].arguments.end()) return value == otherwise;
    const T* const given = std::get_if<T>(&found->second);
    return given != nullptr && *given == value;
  }
  std::string word(std::size_t i, std::string_view argument) const {
    const auto found = calls_[i].arguments.find(argument);
    const std::string* const text =
        found == calls_[i].arguments.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? "" : *text;
  }

  /// True if call i + 1 reads the result of call i, and no other does.
  bool is_read_by_next_alone(std::size_t i) const {
    const std::string& name = calls_[i].name;
    const auto reads = [&](const Call& call) {
      return static_cast<std::size_t>(std::ranges::count(call.from, name)) + (call.declared_before == name ? 1 : 0);
    };
    std::size_t others = 0;
    for (const Call& call : calls_) others += reads(call);
    return i + 1 < calls_.size() && others == 1 && std::ranges::count(calls_[i + 1].from, name) == 1;
  }

  /// Call i computes call i + 1, too, under its own name.
  void absorb_next(std::size_t i) {
    const std::string gone = calls_[i + 1].name;
    for (Call& call : calls_) std::ranges::replace(call.from, gone, calls_[i].name);
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i + 1));
  }

  bool takes_activation(std::size_t i) {
    if ((!is(i, "dense") && !is(i, "conv")) || !is(i + 1, "elementwise") || !is_read_by_next_alone(i)) return false;
    const std::string function = word(i + 1, "function");
    const bool is_known = function == "relu" || function == "tanh" || function == "sigmoid" || function == "gelu";
    if (!is_known || calls_[i + 1].arguments.size() != 1 || !has<std::string>(i, "activation", "none", "none")) {
      return false;
    }
    calls_[i].arguments["activation"] = function;
    absorb_next(i);
    return true;
  }

  bool takes_sum(std::size_t i) {
    if (!is(i, "batch-norm") || !has(i, "relu", false, false) || !is_read_by_next_alone(i)) return false;
    if (is(i + 1, "add") && calls_[i].from.size() == 1 && calls_[i + 1].from.size() == 2) {
      const auto& sum = calls_[i + 1].from;
      calls_[i].from.push_back(sum[0] == calls_[i].name ? sum[1] : sum[0]);
      absorb_next(i);
      return true;
    }
    if (!is(i + 1, "elementwise") || word(i + 1, "function") != "relu" || calls_[i + 1].arguments.size() != 1)
      return false;
    calls_[i].arguments["relu"] = true;
    absorb_next(i);
    return true;
  }

  /// The last call's result may have padded columns, and stays by itself.
  bool makes_feed_forward(std::size_t i) {
    if (!is(i, "dense") || !is(i + 1, "dense") || i + 2 >= calls_.size() || !is_read_by_next_alone(i)) return false;
    const auto is_declared_in_order = [&](const Call& call) { return call.declared_before.empty(); };
    if (!has<std::string>(i, "activation", "gelu", "none") || !has<std::string>(i + 1, "activation", "none", "none") ||
        !std::ranges::all_of(calls_, is_declared_in_order)) {
      return false;
    }
    Call fused{.kind = "dense, gelu, dense",
               .name = calls_[i + 1].name,
               .from = calls_[i].from,
               .place = calls_[i].place,
               .parts = {calls_[i], calls_[i + 1]}};
    calls_[i] = std::move(fused);
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i + 1));
    return true;
  }

  /// Widths are equal, and layers have one name each.
  bool makes_stack(std::size_t i) {
    const std::size_t next = is(i + 1, "dropout") ? i + 2 : i + 1;
    if (!is(i, "lstm") || !is(next, "lstm") || calls_[i].arguments["units"] != calls_[next].arguments["units"]) {
      return false;
    }
    for (std::size_t each = i; each < next; ++each) {
      if (!is_read_by_next_alone(each)) return false;
    }
    Call stack = calls_[next];
    stack.from = calls_[i].from;
    stack.place = calls_[i].place;
    stack.parts = calls_[i].parts.empty() ? std::vector{calls_[i]} : calls_[i].parts;
    for (std::size_t each = i + 1; each <= next; ++each) stack.parts.push_back(calls_[each]);
    calls_[i] = std::move(stack);
    calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i + 1),
                 calls_.begin() + static_cast<std::ptrdiff_t>(next + 1));
    return true;
  }

  Description& description_;
  std::vector<Call>& calls_;
};

/// Recurrent operations read time-major rows: tokens are brought into that order where they come in.
void bring_into_time_major_order(Description& description, OperationKinds kinds) {
  const bool is_recurrent = std::ranges::any_of(description.calls, [&](const Call& call) {
    const auto kind = std::ranges::find(kinds, call.kind, &OperationKind::name);
    return kind != kinds.end() && (*kind)->rows == ReadsRows::time_major;
  });
  if (!is_recurrent || description.input_holds != Holds::tokens) return;
  Call order{.kind = "time-major", .name = description.input + "/time_major", .from = {description.input}};
  for (Call& call : description.calls) std::ranges::replace(call.from, description.input, order.name);
  description.calls.insert(description.calls.begin(), std::move(order));
}

}  // namespace

Description rewritten(Description description, OperationKinds kinds) {
  Rewriting(description).run();
  bring_into_time_major_order(description, kinds);
  return description;
}

}  // namespace lockstep::model
