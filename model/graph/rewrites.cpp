#include "model/graph/rewrites.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::model {

namespace {

/// Fuses activations and sums with the calls before them.
class Joining {
 public:
  explicit Joining(Description description) : description_(std::move(description)) {
    std::string before = description_.input;
    for (Call& call : description_.calls) {
      if (call.from.empty()) call.from = {before};
      before = call.name;
    }
    absorbed_.resize(description_.calls.size());
    for (std::size_t i = 0; i < description_.calls.size(); ++i) producer_[description_.calls[i].name] = i;
    for (const Call& call : description_.calls) {
      for (const std::string& value : call.from) ++readers_[value];
    }
  }

  Description joined() {
    std::vector<Call>& calls = description_.calls;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (std::string& value : calls[i].from) {
        if (const auto found = renamed_.find(value); found != renamed_.end()) value = found->second;
      }
      if (calls[i].kind == "add") {
        join_addition(i);
      } else if (calls[i].kind == "elementwise") {
        join_activation(i);
      }
    }
    drop_absorbed();
    return std::move(description_);
  }

 private:
  Call& call(std::size_t i) { return description_.calls[i]; }

  /// Returns the call that computes a value with a single reader, or the call that absorbed it; nullptr if it has other
  /// readers.
  Call* only_read(const std::string& value) {
    const auto found = producer_.find(value);
    if (found == producer_.end() || readers_[value] != 1) return nullptr;
    return &call(found->second);
  }

  /// True if fusing call `i` into `before` keeps the network's output last: the last call may only be absorbed by the
  /// last call that remains.
  bool stays_in_order(const Call& before, std::size_t i) const {
    if (i + 1 < absorbed_.size()) return true;
    const std::size_t first = producer_.at(before.name) + 1;
    return std::ranges::all_of(absorbed_.begin() + static_cast<std::ptrdiff_t>(first),
                               absorbed_.begin() + static_cast<std::ptrdiff_t>(i), std::identity());
  }

  /// Replaces addition `i` and a batch norm before it by a batch norm with two inputs, at the place of the addition.
  void join_addition(std::size_t i) {
    Call& add = call(i);
    if (add.from.size() != 2 || add.from[0] == add.from[1]) return;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      Call* const norm = only_read(add.from[side]);
      if (norm == nullptr || norm->kind != "batch-norm" || norm->from.size() != 1 || has_relu(*norm)) continue;
      const std::string sum = add.name;
      const std::size_t old = producer_[norm->name];
      Call fused = *norm;
      fused.from.push_back(add.from[1 - side]);
      absorbed_[old] = true;
      add = std::move(fused);
      producer_[add.name] = i;
      rename(sum, add.name);
      return;
    }
  }

  static bool has_relu(const Call& norm) { return norm.find<bool>("relu").value_or(false); }

  void join_activation(std::size_t i) {
    Call& activation = call(i);
    Call* const before = activation.from.size() == 1 ? only_read(activation.from[0]) : nullptr;
    const auto function = activation.find<std::string>("function").value_or("");
    if (before == nullptr || activation.arguments.contains("parameter") || !stays_in_order(*before, i)) return;
    if (before->kind == "batch-norm") {
      if (function != "relu" || has_relu(*before)) return;
      before->arguments["relu"] = true;
    } else {
      constexpr std::array<std::string_view, 4> kJoined{"relu", "tanh", "sigmoid", "gelu"};
      const bool is_product = before->kind == "dense" || before->kind == "conv";
      const bool has_own = before->find<std::string>("activation").value_or("none") != "none";
      if (!is_product || has_own || std::ranges::find(kJoined, function) == kJoined.end()) return;
      before->arguments["activation"] = function;
    }
    absorbed_[i] = true;
    rename(activation.name, before->name);
  }

  /// Makes the readers of `old` read `now`.
  void rename(const std::string& old, const std::string& now) {
    readers_[now] = readers_[old];
    renamed_[old] = now;
  }

  void drop_absorbed() {
    std::map<std::string, std::string> stands_for;  // by absorbed call: the next remaining call
    std::vector<Call> kept;
    for (std::size_t i = absorbed_.size(); i-- > 0;) {
      if (!absorbed_[i]) {
        kept.push_back(std::move(call(i)));
      } else if (!kept.empty() && producer_.at(call(i).name) == i) {
        stands_for[call(i).name] = kept.back().name;
      }
    }
    std::ranges::reverse(kept);
    for (Call& each : kept) {
      const auto found = stands_for.find(each.declared_before);
      if (found != stands_for.end()) each.declared_before = found->second;
    }
    description_.calls = std::move(kept);
  }

  Description description_;
  std::map<std::string, std::size_t> producer_;  ///< index of the call that computes a value
  std::map<std::string, int> readers_;
  std::map<std::string, std::string> renamed_;  ///< values of calls that became part of another
  std::vector<bool> absorbed_;
};

/// Fuses consecutive calls into one call with parts.
class Rewriting {
 public:
  /// Each call must name what it reads.
  explicit Rewriting(Description& description)
      : calls_(description.calls), reads_tokens_(description.input_holds == Holds::tokens) {}

  void run() {
    for (std::size_t i = 0; i + 1 < calls_.size();) {
      if (!makes_feed_forward(i) && !(reads_tokens_ && makes_stack(i))) ++i;
    }
  }

 private:
  bool is(std::size_t i, std::string_view kind) const { return i < calls_.size() && calls_[i].kind == kind; }
  template <class T>
  bool has(std::size_t i, std::string_view argument, const T& value, const T& otherwise) const {
    const auto found = calls_[i].arguments.find(argument);
    if (found == calls_[i].arguments.end()) return value == otherwise;
    const T* const given = std::get_if<T>(&found->second);
    return given != nullptr && *given == value;
  }
  /// True if call i + 1 is the only reader of the result of call i.
  bool is_read_by_next_alone(std::size_t i) const {
    const std::string& name = calls_[i].name;
    const auto reads = [&](const Call& call) {
      return static_cast<std::size_t>(std::ranges::count(call.from, name)) + (call.declared_before == name ? 1 : 0);
    };
    std::size_t others = 0;
    for (const Call& call : calls_) others += reads(call);
    return i + 1 < calls_.size() && others == 1 && std::ranges::count(calls_[i + 1].from, name) == 1;
  }

  /// Fuses dense with gelu and dense at `i`. The last call of the network is not fused, since its result may have
  /// padded columns.
  bool makes_feed_forward(std::size_t i) {
    if (!is(i, "dense") || !is(i + 1, "dense") || i + 2 >= calls_.size()) return false;
    const auto is_declared_in_order = [&](const Call& call) { return call.declared_before.empty(); };
    if (!has<std::string>(i, "activation", "gelu", "none") || !has<std::string>(i + 1, "activation", "none", "none") ||
        !is_read_by_next_alone(i) || !std::ranges::all_of(calls_, is_declared_in_order)) {
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

  /// Fuses two lstms of equal width at `i`, with or without a dropout between them.
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

  std::vector<Call>& calls_;
  const bool reads_tokens_;
};

}  // namespace

Description in_time_major_order(Description description, OperationKinds kinds) {
  const bool is_recurrent = std::ranges::any_of(description.calls, [&](const Call& call) {
    const auto kind = std::ranges::find(kinds, call.kind, &OperationKind::name);
    return kind != kinds.end() && reads_time_major((*kind)->rows);
  });
  if (!is_recurrent || description.input_holds != Holds::tokens) return description;
  Call order{.kind = "time-major", .name = description.input + "/time_major", .from = {description.input}};
  for (Call& call : description.calls) std::ranges::replace(call.from, description.input, order.name);
  description.calls.insert(description.calls.begin(), std::move(order));
  return description;
}

Description rewritten(Description description, OperationKinds kinds) {
  description = Joining(std::move(description)).joined();
  Rewriting(description).run();
  return in_time_major_order(std::move(description), kinds);
}

}  // namespace lockstep::model
