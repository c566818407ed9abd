#include "app/options/option_table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>

#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

/// Parses the whole of `text` as a finite number. Returns "", or the error.
template <class T>
std::string parse_number(std::string_view text, T& value) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc::result_out_of_range) return "is too large or too small to represent";
  if (error != std::errc() || end != last) {
    if constexpr (std::is_floating_point_v<T>) return "is not a number";
    const bool negative = text.starts_with('-') && text.size() > 1 && std::is_unsigned_v<T>;
    return negative ? "must not be negative" : "is not a whole number";
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return "is not a finite number";
  }
  return "";
}

std::string parse_yes_or_no(std::string_view text, bool& value) {
  std::string word(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "yes" || word == "true" || word == "on" || word == "1") {
    value = true;
  } else if (word == "no" || word == "false" || word == "off" || word == "0") {
    value = false;
  } else {
    return "is neither yes nor no";
  }
  return "";
}

std::string join(const std::vector<std::int64_t>& values) {
  return values.empty() ? "none" : fmt::format("{}", fmt::join(values, ","));
}

/// True if the option's value switches it off. It may then be given together with options under which it has no effect.
bool says_off(const Option& option) {
  const std::string text = option.text();
  return option.is_default() && (text == "no" || text == "0" || text.empty() || text == "none" || text == "auto");
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

Option& Option::at_least(double bound) { return lower_ = Bound{bound, true}, *this; }
Option& Option::above(double bound) { return lower_ = Bound{bound, false}, *this; }
Option& Option::at_most(double bound) { return upper_ = Bound{bound, true}, *this; }
Option& Option::below(double bound) { return upper_ = Bound{bound, false}, *this; }
Option& Option::one_of(std::vector<std::string> names) { return names_ = std::move(names), *this; }
Option& Option::or_if(bool (*accepted)(std::string_view)) { return accepted_ = accepted, *this; }
Option& Option::check(std::function<std::string(const std::string&)> check) { return check_ = std::move(check), *this; }
Option& Option::positional() { return positional_ = true, *this; }
Option& Option::several() { return several_ = true, *this; }

Option& Option::left_open_by(std::function<bool(const std::string&)> open) { return open_ = std::move(open), *this; }
Option& Option::left_open_by(std::string value) {
  return left_open_by([value = std::move(value)](const std::string& text) { return text == value; });
}

Option& Option::explain(std::string help) { return help_ = std::move(help), *this; }
Option& Option::hide() { return hidden_ = true, *this; }

Option& Option::alone_means(std::string value) {
  shape_ = Shape::optional_value;
  alone_ = std::move(value);
  return *this;
}

Option& Option::only_with(std::string other, std::vector<std::string> values) {
  relations_.push_back({Kind::with, std::move(other), std::move(values)});
  return *this;
}

Option& Option::needs(std::string other) {
  relations_.push_back({Kind::needed, std::move(other), {}});
  return *this;
}

Option& Option::contradicts(std::string other) {
  relations_.push_back({Kind::contradicted, std::move(other), {}});
  return *this;
}

std::string Option::bounds_broken_by(double number) const {
  if (lower_ && (lower_->inclusive ? number < lower_->value : number <= lower_->value)) {
    if (lower_->value == 0) return lower_->inclusive ? "must not be negative" : "must be greater than 0";
    return fmt::format("must be {} {}", lower_->inclusive ? "at least" : "greater than", lower_->value);
  }
  if (upper_ && (upper_->inclusive ? number > upper_->value : number >= upper_->value)) {
    return fmt::format("must be {} {}", upper_->inclusive ? "at most" : "less than", upper_->value);
  }
  return "";
}

std::string Option::read(const std::string& text, bool& value) const { return parse_yes_or_no(text, value); }

template <class Number>
std::string Option::read(const std::string& text, Number& value) const {
  Number number{};
  std::string reason = parse_number(std::string_view(text), number);
  if (reason.empty()) reason = bounds_broken_by(static_cast<double>(number));
  if (reason.empty()) value = number;
  return reason;
}
template std::string Option::read(const std::string&, std::int64_t&) const;
template std::string Option::read(const std::string&, double&) const;

std::string Option::read(const std::string& text, std::vector<std::int64_t>& value) const {
  std::vector<std::int64_t> numbers;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item(trimmed(std::string_view(text).substr(begin, end - begin)));
    if (item.empty()) return "is not a list of whole numbers such as 512,128";
    const std::string reason = read(item, numbers.emplace_back());
    if (!reason.empty()) return fmt::format("is not a valid list: {} {}", item, reason);
    begin = end + 1;
  }
  value = std::move(numbers);
  return "";
}

void Option::assign(const std::string& value, OptionSource source, const std::string& spelled) {
  const auto refuse = [&](const std::string& reason) {
    throw UsageError(fmt::format("{}: {} {}", spelled, value.empty() ? "an empty value" : value, reason));
  };
  const bool is_accepted = accepted_ != nullptr && accepted_(value);
  if (!names_.empty() && !is_accepted && std::find(names_.begin(), names_.end(), value) == names_.end()) {
    refuse(fmt::format("is not one of {}{}", model::list_names(names_, "and"), model::did_you_mean(value, names_)));
  }
  const bool leaves_open = open_ && open_(value);
  if (source_ == OptionSource::checkpoint && source > source_ && leaves_open) return;
  const std::string before = text_();
  std::string reason = parse_(value);
  if (reason.empty() && check_) reason = check_(text_());
  if (!reason.empty()) {
    parse_(before);
    refuse(reason);
  }
  source_ = source;
  left_open_ = leaves_open;
  spelled_ = spelled;
}

void Option::reset() {
  parse_(default_);
  source_ = OptionSource::default_value;
  left_open_ = false;
  spelled_.clear();
}

Option& OptionTable::append(std::string name, std::string value_name, std::string help) {
  Option& option = options_.emplace_back();
  option.name_ = std::move(name);
  option.group_ = group_;
  option.value_name_ = std::move(value_name);
  option.help_ = std::move(help);
  return option;
}

Option& OptionTable::bind(Option& option, std::function<std::string(const std::string&)> parse,
                          std::function<std::string()> text) {
  option.parse_ = std::move(parse);
  option.text_ = std::move(text);
  option.default_ = option.text();
  return option;
}

// The rows are in a deque and never move, so the functions of a row may keep a reference to it.

Option& OptionTable::add(std::string name, bool& field, std::string help) {
  Option& option = append(std::move(name), "", std::move(help));
  option.shape_ = Option::Shape::yes_or_no;
  option.alone_ = "yes";
  return bind(
      option, [&field, &option](const std::string& text) { return option.read(text, field); },
      [&field] { return std::string(field ? "yes" : "no"); });
}

template <class Number>
requires std::is_arithmetic_v<Number> Option& OptionTable::add(std::string name, Number& field, std::string value_name,
                                                               std::string help) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  return bind(
      option, [&field, &option](const std::string& text) { return option.read(text, field); },
      [&field] { return fmt::format("{}", field); });
}
template Option& OptionTable::add(std::string, int&, std::string, std::string);
template Option& OptionTable::add(std::string, std::int64_t&, std::string, std::string);
template Option& OptionTable::add(std::string, std::uint64_t&, std::string, std::string);
template Option& OptionTable::add(std::string, double&, std::string, std::string);

Option& OptionTable::add(std::string name, std::optional<double>& field, std::string value_name, std::string help) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  return bind(
      option,
      [&field, &option](const std::string& text) -> std::string {
        if (text == "none") return field.reset(), "";
        double value = 0;
        std::string reason = option.read(text, value);
        if (reason.empty()) field = value;
        return reason;
      },
      [&field] { return field ? fmt::format("{}", *field) : std::string("none"); });
}

Option& OptionTable::add(std::string name, std::string& field, std::string value_name, std::string help) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  return bind(
      option, [&field](const std::string& text) { return field = text, std::string(); }, [&field] { return field; });
}

Option& OptionTable::add(std::string name, std::filesystem::path& field, std::string value_name, std::string help) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  return bind(
      option, [&field](const std::string& text) { return field = text, std::string(); },
      [&field] { return field.string(); });
}

Option& OptionTable::add(std::string name, std::vector<std::int64_t>& field, std::string value_name, std::string help) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  const bool may_be_empty = field.empty();
  return bind(
      option,
      [&field, &option, may_be_empty](const std::string& text) -> std::string {
        if (may_be_empty && text == "none") return field.clear(), "";
        return option.read(text, field);
      },
      [&field] { return join(field); });
}

Option& OptionTable::add_free(std::string name, Option::Shape shape, std::string value_name, std::string help,
                              std::function<std::string(const Option&, const std::string&)> parse,
                              std::function<std::string()> text) {
  Option& option = append(std::move(name), std::move(value_name), std::move(help));
  option.shape_ = shape;
  if (shape == Option::Shape::yes_or_no) option.alone_ = "yes";
  return bind(
      option, [parse = std::move(parse), &option](const std::string& words) { return parse(option, words); },
      std::move(text));
}

Option* OptionTable::find(std::string_view name) {
  const auto found = std::find_if(options_.begin(), options_.end(), [&](const Option& o) { return o.name_ == name; });
  return found == options_.end() ? nullptr : &*found;
}

const Option* OptionTable::find(std::string_view name) const { return const_cast<OptionTable*>(this)->find(name); }

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name_);
  return names;
}

std::vector<std::string> OptionTable::given() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    if (option.source_ != OptionSource::default_value && !option.left_open_) names.push_back(option.name_);
  }
  return names;
}

std::vector<std::string> OptionTable::from_checkpoint() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    if (option.source_ == OptionSource::checkpoint && !option.left_open_) names.push_back(option.name_);
  }
  return names;
}

bool OptionTable::holds(const Option::Relation& relation) const {
  const Option* const other = find(relation.other);
  if (other == nullptr) return true;  // the command has no such option
  switch (relation.kind) {
    case Option::Kind::with:
      return std::find(relation.values.begin(), relation.values.end(), other->text()) != relation.values.end();
    case Option::Kind::needed:
      return !other->is_default();
    case Option::Kind::contradicted:
      return other->is_default();
  }
  return true;
}

bool OptionTable::in_use(const Option& option) const {
  return std::all_of(option.relations_.begin(), option.relations_.end(), [&](const auto& r) { return holds(r); });
}

void OptionTable::check_relations() {
  for (Option& option : options_) {
    for (const Option::Relation& relation : option.relations_) {
      if (option.source_ == OptionSource::default_value || says_off(option) || holds(relation)) continue;
      settle(option, relation);
    }
  }
}

void OptionTable::settle(Option& option, const Option::Relation& relation) {
  Option& other = *find(relation.other);
  if (other.source_ > option.source_) return option.reset();
  const std::string spelled_other = other.source_ == OptionSource::file ? other.name_ : "--" + other.name_;
  switch (relation.kind) {
    case Option::Kind::contradicted:
      if (other.source_ < option.source_) return other.reset();
      throw UsageError(
          fmt::format("{} and {} contradict each other: give one of them", option.spelled_, spelled_other));
    case Option::Kind::needed:
      throw UsageError(fmt::format("{} has no effect without {}", option.spelled_, spelled_other));
    case Option::Kind::with:
      throw UsageError(fmt::format("{} has an effect only with {} {}, not with {}", option.spelled_, spelled_other,
                                   model::list_names(relation.values), other.text()));
  }
}

void OptionTable::require(std::string_view name, std::string_view what) const {
  if (find(name)->text().empty()) throw UsageError(fmt::format("--{} is missing: {}", name, what));
}

}  // namespace lockstep::app
