#include "model/yaml/expression.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/nearest_name.hpp"

namespace lockstep::model {

namespace {

[[noreturn]] void refuse(std::string what) { throw std::invalid_argument(std::move(what)); }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::int64_t checked(std::int64_t number, std::string_view text) {
  if (number > kMaxNetworkInteger || number < -kMaxNetworkInteger) {
    refuse(fmt::format("{} is too large: whole numbers go up to 2^40", text));
  }
  return number;
}

/// Returns the number if the whole text is one.
std::optional<NetworkValue> number_in(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || !(is_digit(digits.back()) || digits.back() == '.') || digits.starts_with("+")) {
    return std::nullopt;
  }
  const char* const end = digits.data() + digits.size();
  std::int64_t whole = 0;
  const auto read = std::from_chars(digits.data(), end, whole);
  if (read.ptr == end) {
    if (read.ec == std::errc::result_out_of_range) whole = std::numeric_limits<std::int64_t>::max();
    return NetworkValue{checked(whole, text)};
  }
  double number = 0;
  const auto parsed = std::from_chars(digits.data(), end, number);
  if (parsed.ptr != end) return std::nullopt;
  if (parsed.ec != std::errc() || !std::isfinite(number)) refuse(fmt::format("{} cannot be represented", text));
  return NetworkValue{number};
}

double real(const NetworkValue& value) {
  if (const auto* const whole = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*whole);
  if (const auto* const number = std::get_if<double>(&value.data)) return *number;
  refuse(fmt::format("{} is {}, and no number", to_text(value), type_name(value)));
}

const NetworkValue& find_in(const Scope& scope, std::string_view name) {
  if (const NetworkValue* const found = scope.find(name)) return *found;
  const std::vector<std::string> names = scope.names();
  refuse(fmt::format("${}: nothing has that name{}{}", name, did_you_mean(name, names),
                     names.empty() ? " here" : "; there are " + list_names(names, "and")));
}

/// Recursive-descent parser of the text between $( and ).
class Expression {
 public:
  Expression(std::string_view text, const Scope& scope) : text_(text), scope_(scope) {}

  NetworkValue value() {
    NetworkValue value = comparison();
    if (skip(); at_ < text_.size()) no_expression();
    return value;
  }

 private:
  static constexpr int kMaxDepth = 64;

  [[noreturn]] void no_expression() const {
    refuse(fmt::format("$({}) is no expression{}", text_,
                       text_.find('$') == std::string_view::npos ? "" : ": names in it have no $ of their own"));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  NetworkValue comparison() {
    if (++depth_ > kMaxDepth) no_expression();
    NetworkValue left = sum();
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!take(sign)) continue;
      const NetworkValue right = sum();
      left = {compare(left, sign, right)};
      break;
    }
    --depth_;
    return left;
  }

  bool compare(const NetworkValue& left, std::string_view sign, const NetworkValue& right) const {
    const auto is_number = [](const NetworkValue& value) { return value.data.index() == 1 || value.data.index() == 2; };
    if (!is_number(left) || !is_number(right)) {
      if (sign != "==" && sign != "!=") no_expression();
      return (to_text(left) == to_text(right)) == (sign == "==");
    }
    const double a = real(left), b = real(right);
    if (sign == "==") return a == b;
    if (sign == "!=") return a != b;
    if (sign == "<=") return a <= b;
    if (sign == ">=") return a >= b;
    return sign == "<" ? a < b : a > b;
  }

  NetworkValue sum() {
    NetworkValue left = product();
    while (true) {
      if (take("+")) {
        left = combine(left, '+', product());
      } else if (take("-")) {
        left = combine(left, '-', product());
      } else {
        return left;
      }
    }
  }

  NetworkValue product() {
    NetworkValue left = factor();
    while (true) {
      if (take("*")) {
        left = combine(left, '*', factor());
      } else if (take("/")) {
        left = combine(left, '/', factor());
      } else {
        return left;
      }
    }
  }

  /// Results of whole numbers are whole numbers; a quotient only if it is exact.
  NetworkValue combine(const NetworkValue& left, char sign, const NetworkValue& right) const {
    const auto *const a = std::get_if<std::int64_t>(&left.data), *const b = std::get_if<std::int64_t>(&right.data);
    if (a != nullptr && b != nullptr && (sign != '/' || (*b != 0 && *a % *b == 0))) {
      // Factors are at most 2^40, so a product may exceed 64 bits; long double detects it.
      if (sign == '*' && std::fabs(static_cast<long double>(*a) * static_cast<long double>(*b)) >
                             static_cast<long double>(kMaxNetworkInteger)) {
        refuse(fmt::format("$({}) is too large: whole numbers go up to 2^40", text_));
      }
      const std::int64_t result = sign == '+' ? *a + *b : sign == '-' ? *a - *b : sign == '*' ? *a * *b : *a / *b;
      return {checked(result, fmt::format("$({})", text_))};
    }
    const double x = real(left), y = real(right);
    return finite(sign == '+' ? x + y : sign == '-' ? x - y : sign == '*' ? x * y : x / y);
  }

  NetworkValue finite(double number) const {
    if (!std::isfinite(number)) refuse(fmt::format("$({}) is no finite number", text_));
    return {number};
  }

  NetworkValue factor() {
    if (++depth_ > kMaxDepth) no_expression();
    NetworkValue value = [&]() -> NetworkValue {
      if (take("-")) return combine({std::int64_t{0}}, '-', factor());
      if (take("(")) {
        NetworkValue inside = comparison();
        if (!take(")")) no_expression();
        return inside;
      }
      skip();
      if (take("'")) return text();
      if (at_ < text_.size() && is_letter(text_[at_])) return name();
      return number();
    }();
    --depth_;
    return value;
  }

  NetworkValue text() {
    const std::size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) no_expression();
    NetworkValue value{std::string(text_.substr(at_, end - at_))};
    at_ = end + 1;
    return value;
  }

  NetworkValue number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.' || is_letter(text_[at_]))) {
      const bool has_exponent = text_[at_] == 'e' || text_[at_] == 'E';
      ++at_;
      if (has_exponent && at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
    }
    const auto value = begin == at_ ? std::nullopt : number_in(text_.substr(begin, at_ - begin));
    if (!value) no_expression();
    return *value;
  }

  NetworkValue name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!take("(")) {
      if (name == "yes" || name == "true") return {true};
      if (name == "no" || name == "false") return {false};
      return find_in(scope_, name);
    }
    std::vector<NetworkValue> arguments{comparison()};
    while (take(",")) arguments.push_back(comparison());
    if (!take(")")) no_expression();
    if (name == "sqrt" && arguments.size() == 1) return finite(std::sqrt(real(arguments[0])));
    if ((name == "min" || name == "max") && arguments.size() == 2) {
      const bool first = (real(arguments[0]) < real(arguments[1])) == (name == "min");
      return arguments[first ? 0 : 1];
    }
    if (name == "power" && arguments.size() == 2) return power(arguments[0], arguments[1]);
    if (name == "if" && arguments.size() == 3) {
      const auto* const condition = std::get_if<bool>(&arguments[0].data);
      if (condition == nullptr) {
        refuse(fmt::format("$({}): {} is {}, and must be yes or no", text_, to_text(arguments[0]),
                           type_name(arguments[0])));
      }
      return arguments[*condition ? 1 : 2];
    }
    refuse(
        fmt::format("$({}): {} is no function of {}; there are sqrt(a), power(a, b), min(a, b), max(a, b) and "
                    "if(condition, a, b)",
                    text_, name, arguments.size() == 1 ? "one value" : fmt::format("{} values", arguments.size())));
  }

  NetworkValue power(const NetworkValue& base, const NetworkValue& exponent) const {
    const auto *const a = std::get_if<std::int64_t>(&base.data), *const b = std::get_if<std::int64_t>(&exponent.data);
    if (a == nullptr || b == nullptr || *b < 0) return finite(std::pow(real(base), real(exponent)));
    NetworkValue result{std::int64_t{1}};
    constexpr std::int64_t kMaxExponent = 40;
    if (*b > kMaxExponent && *a != 1) return finite(std::pow(real(base), real(exponent)));
    for (std::int64_t i = 0; i < std::min(*b, kMaxExponent); ++i) result = combine(result, '*', base);
    return result;
  }

  std::string_view text_;
  const Scope& scope_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

NetworkValue plain(std::string_view text, bool quoted) {
  if (!quoted) {
    if (text == "true" || text == "yes") return {true};
    if (text == "false" || text == "no") return {false};
    if (const auto number = number_in(text)) return *number;
  }
  return {std::string(text)};
}

/// Evaluates the $NAME or $(EXPRESSION) at `begin`. Sets `end` to the position after it.
NetworkValue substitute(std::string_view text, std::size_t begin, std::size_t& end, const Scope& scope) {
  if (begin + 1 < text.size() && text[begin + 1] == '(') {
    int depth = 0;
    for (end = begin + 1; end < text.size(); ++end) {
      if (text[end] == '(') ++depth;
      if (text[end] == ')' && --depth == 0) break;
    }
    if (end == text.size()) refuse(fmt::format("{} has no ) for its $(", text));
    ++end;
    return Expression(text.substr(begin + 2, end - begin - 3), scope).value();
  }
  end = begin + 1;
  if (end < text.size() && is_letter(text[end])) {
    while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]) || text[end] == '-')) ++end;
  }
  if (end == begin + 1) refuse(fmt::format("{}: $ stands before a name or (", text));
  return find_in(scope, text.substr(begin + 1, end - begin - 1));
}

}  // namespace

std::string to_text(const NetworkValue& value) {
  return std::visit(
      []<class T>(const T& typed) -> std::string {
        if constexpr (std::is_same_v<T, bool>) {
          return typed ? "yes" : "no";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return typed;
        } else if constexpr (std::is_same_v<T, std::vector<NetworkValue>>) {
          std::vector<std::string> items;
          for (const NetworkValue& item : typed) items.push_back(to_text(item));
          return fmt::format("{}", fmt::join(items, ","));
        } else if constexpr (std::is_same_v<T, NetworkFields>) {
          return fmt::format("{{{}}}", list_names(typed.names, "and"));
        } else {
          return fmt::format("{}", typed);
        }
      },
      value.data);
}

std::string_view type_name(const NetworkValue& value) {
  constexpr std::string_view kNames[] = {"yes or no", "a whole number", "a number", "a word", "a list", "a mapping"};
  return kNames[value.data.index()];
}

NetworkValue network_value(const OptionValue& value) {
  return std::visit(
      []<class T>(const T& typed) -> NetworkValue {
        if constexpr (std::is_same_v<T, Numbers>) {
          std::vector<NetworkValue> items;
          for (const std::int64_t number : typed) items.push_back({number});
          return {std::move(items)};
        } else if constexpr (std::is_same_v<T, Initializers>) {
          return {to_string(typed)};
        } else {
          return {typed};
        }
      },
      value);
}

void Scope::set(std::string name, NetworkValue value) {
  const auto found = std::ranges::find(values_, name, [](const auto& named) { return named.first; });
  if (found != values_.end()) {
    found->second = std::move(value);
  } else {
    values_.emplace_back(std::move(name), std::move(value));
  }
}

const NetworkValue* Scope::find(std::string_view name) const noexcept {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
    for (const auto& [known, value] : scope->values_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

std::vector<std::string> Scope::names() const {
  std::vector<std::string> names;
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_) {
    for (const auto& [name, value] : scope->values_) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

NetworkValue evaluate(std::string_view text, bool quoted, const Scope& scope) {
  std::size_t dollar = text.find('$');
  if (dollar == std::string_view::npos) return plain(text, quoted);
  std::string result;
  std::size_t done = 0;
  while (dollar != std::string_view::npos) {
    std::size_t end = 0;
    NetworkValue value = substitute(text, dollar, end, scope);
    if (dollar == 0 && end == text.size()) return value;
    result += text.substr(done, dollar - done);
    result += to_text(value);
    if (result.size() > kMaxYamlBytes) refuse("a text becomes too long");
    done = end;
    dollar = text.find('$', done);
  }
  return {result + std::string(text.substr(done))};
}

NetworkValue evaluate(const YamlNode& node, const Scope& scope) {
  switch (node.kind) {
    case YamlNode::Kind::nothing:
      refuse("a value is missing");
    case YamlNode::Kind::word:
      return evaluate(node.text, node.quoted, scope);
    case YamlNode::Kind::list: {
      std::vector<NetworkValue> items;
      for (const YamlNode& item : node.items) items.push_back(evaluate(item, scope));
      return {std::move(items)};
    }
    case YamlNode::Kind::mapping:
      break;
  }
  NetworkFields fields;
  for (const YamlEntry& entry : node.entries) {
    fields.names.push_back(entry.key);
    fields.values.push_back(evaluate(entry.value, scope));
  }
  return {std::move(fields)};
}

}  // namespace lockstep::model
