#include "model/yaml/yaml_document.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace lockstep::model {

namespace {

/// Builds the tree from the events of one document.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  YamlNode take_tree() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) refuse(mark, "a second document begins here: a file has one network");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(node(YamlNode::Kind::nothing, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "an alias (*NAME): blocks: give a part a name for several uses");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!") refuse_tag(mark, tag);
    YamlNode word = node(YamlNode::Kind::word, mark);
    word.text = value;
    word.quoted = tag == "!";
    add(std::move(word));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::mapping, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  /// A list or mapping that is not complete yet.
  struct Open {
    YamlNode node;
    bool expects_value = false;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view what) const {
    throw std::invalid_argument(fmt::format("{}: {}", place_of(file_, mark.line + 1), what));
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) refuse(mark, "an anchor (&NAME): blocks: give a part a name for several uses");
  }
  [[noreturn]] void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    refuse(mark, fmt::format("a tag ({}): values have none here", tag));
  }

  static YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (tag != "?" && !tag.empty()) refuse_tag(mark, tag);
    if (open_.size() >= kMaxYamlDepth)
      refuse(mark, fmt::format("more than {} levels inside each other", kMaxYamlDepth));
    open_.push_back({.node = node(kind, mark)});
  }

  void end() {
    YamlNode done = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(done));
  }

  void add(YamlNode part) {
    if (open_.empty()) {
      root_ = std::move(part);
      return;
    }
    Open& into = open_.back();
    if (into.node.is_list()) {
      into.node.items.push_back(std::move(part));
    } else if (into.expects_value) {
      into.node.entries.back().value = std::move(part);
      into.expects_value = false;
    } else {
      add_key(into.node, part);
      into.expects_value = true;
    }
  }

  void add_key(YamlNode& mapping, YamlNode& key) const {
    const auto refuse_here = [&](const std::string& what) {
      throw std::invalid_argument(fmt::format("{}: {}", place_of(file_, key.line), what));
    };
    if (!key.is_word()) refuse_here("a key is a word");
    if (key.text == "<<") refuse_here("a merge key (<<): blocks: give a part a name for several uses");
    const auto earlier = std::ranges::find(mapping.entries, key.text, &YamlEntry::key);
    if (earlier != mapping.entries.end()) {
      refuse_here(fmt::format("{} is there twice, first in line {}", key.text, earlier->line));
    }
    mapping.entries.push_back({.key = std::move(key.text), .line = key.line});
  }

  const std::string& file_;
  YamlNode root_;
  std::vector<Open> open_;
  bool has_document_ = false;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const noexcept {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  return found == entries.end() ? nullptr : &found->value;
}

std::string place_of(const std::string& file, int line) { return fmt::format("{}:{}", file, line); }

YamlNode read_yaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxYamlBytes) {
    throw std::invalid_argument(
        fmt::format("{} has {} bytes: the text of a network has at most {}", file, text.size(), kMaxYamlBytes));
  }
  if (text.find('\0') != std::string::npos) throw std::invalid_argument(fmt::format("{} is no text", file));
  std::istringstream stream(text);
  TreeBuilder builder(file);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) throw std::invalid_argument(fmt::format("{} is no YAML: {}", file, error.msg));
    throw std::invalid_argument(fmt::format("{}: no YAML: {}", place_of(file, error.mark.line + 1), error.msg));
  }
  return builder.take_tree();
}

}  // namespace lockstep::model
