#include "app/report/network_chart.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/report/chart_canvas.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {
namespace {

constexpr double kBoxWidth = 230, kBoxHeight = 42, kColumn = 270, kRow = 70, kLeft = 40, kTop = 96;
constexpr std::string_view kLine = "#7b8794";

/// A box of the picture: one operation, or the operations of a group.
struct Box {
  std::string name, text;
  std::set<std::size_t> reads = {};  ///< indices of the boxes that it reads
  std::size_t row = 0, column = 0;
};

/// Returns the boxes in the order of computation; the first one is the input.
std::vector<Box> boxes_of(const model::Graph& graph, const model::Description& description) {
  const bool folds = graph.nodes().size() > kMaxDrawnOperations;
  const auto group_of = [&](const std::string& name) -> const model::CallGroup* {
    if (!folds) return nullptr;
    const auto found = std::ranges::find_if(description.groups, [&](const model::CallGroup& group) {
      return name == group.name || name.starts_with(group.name + "/");
    });
    return found == description.groups.end() ? nullptr : &*found;
  };
  const auto shape = [&](std::size_t value) { return to_string(graph.values()[value].type.shape); };
  std::vector<Box> boxes{{.name = description.input, .text = shape(0)}};
  std::vector<std::size_t> box_of(graph.values().size());  // box of each value
  std::map<const model::CallGroup*, std::size_t> box_of_group;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const model::Node& node = graph.nodes()[i];
    const model::CallGroup* const group = group_of(node.name);
    std::size_t box = boxes.size();
    if (group != nullptr) box = box_of_group.try_emplace(group, box).first->second;
    if (box == boxes.size()) boxes.push_back({.name = group != nullptr ? group->name : node.name, .text = {}});
    const auto function = node.call.find<std::string>("function");
    boxes[box].text =
        fmt::format("{}, {}", group != nullptr ? group->description : function.value_or(node.call.kind), shape(i + 1));
    for (const std::size_t value : node.inputs) {
      if (box_of[value] != box) boxes[box].reads.insert(box_of[value]);
    }
    box_of[i + 1] = box;
  }
  return boxes;
}

/// Places the boxes. A box's row is the length of its longest path from the input. Its column is that of the first box
/// that it reads, or the next one with a free place in that row.
void place(std::vector<Box>& boxes) {
  std::set<std::pair<std::size_t, std::size_t>> taken{{0, 0}};  // row and column
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    Box& box = boxes[i];
    std::size_t first = 0;
    for (const std::size_t read : box.reads) box.row = std::max(box.row, boxes[read].row + 1);
    if (!box.reads.empty()) first = *box.reads.begin();
    box.column = boxes[first].column;
    while (taken.contains({box.row, box.column})) ++box.column;
    taken.insert({box.row, box.column});
  }
}

double middle_of(const Box& box) { return kLeft + static_cast<double>(box.column) * kColumn + kBoxWidth / 2; }
double top_of(const Box& box) { return kTop + static_cast<double>(box.row) * kRow; }

/// Draws a line from a box to a box that reads it; it goes around the boxes between them.
std::string arrow(const Box& from, const Box& to, bool is_free) {
  const double x1 = middle_of(from), y1 = top_of(from) + kBoxHeight, x2 = middle_of(to), y2 = top_of(to);
  if (is_free) {
    const double half = (y2 - y1) / 2;
    return fmt::format("M{:.0f} {:.0f}C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}", x1, y1, x1, y1 + half, x2, y2 - half,
                       x2, y2 - 1);
  }
  // Long lines are outside of short ones.
  const double outside = std::min(8 + 0.6 * static_cast<double>(to.row - from.row), kColumn - kBoxWidth - 6);
  const double side = std::max(x1, x2) + kBoxWidth / 2 + outside;
  return fmt::format(
      "M{0:.0f} {1:.0f}C{0:.0f} {2:.0f} {3:.0f} {1:.0f} {3:.0f} {4:.0f}L{3:.0f} {5:.0f}C{3:.0f} {6:.0f} "
      "{7:.0f} {5:.0f} {7:.0f} {8:.0f}",
      x1, y1, y1 + 20, side, y1 + 28, y2 - 28, y2 - 1, x2, y2 - 1);
}

}  // namespace

std::string draw_network(const model::Network& network, const std::string& title) {
  model::ParameterTable table;
  model::ActivationTable state;
  const model::Graph graph = network.plain_graph(table, state);
  std::vector<Box> boxes = boxes_of(graph, network.description());
  place(boxes);
  std::size_t rows = 0, columns = 0;
  std::set<std::pair<std::size_t, std::size_t>> taken;
  for (const Box& box : boxes) {
    rows = std::max(rows, box.row + 1);
    columns = std::max(columns, box.column + 1);
    taken.insert({box.row, box.column});
  }
  const ChartFrame frame{.width = std::max(520.0, 2 * kLeft + static_cast<double>(columns) * kColumn),
                         .height = kTop + static_cast<double>(rows) * kRow + 20};
  std::int64_t parameters = 0;
  for (const model::Parameter& parameter : network.parameters().all()) {
    parameters += static_cast<std::int64_t>(parameter.count);
  }
  const std::string subtitle =
      fmt::format("{} operations, {} parameters", graph.nodes().size(), with_commas(parameters));
  ChartCanvas canvas(title, subtitle, "operations from top to bottom, a line from each to those that read it", frame);
  for (const Box& box : boxes) {
    for (const std::size_t read : box.reads) {
      bool is_free = boxes[read].column != box.column;
      if (!is_free) {
        is_free = true;
        for (std::size_t row = boxes[read].row + 1; row < box.row; ++row) {
          is_free = is_free && !taken.contains({row, box.column});
        }
      }
      canvas.shape("path", fmt::format("d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"",
                                       arrow(boxes[read], box, is_free), kLine));
    }
  }
  for (const Box& box : boxes) {
    const double left = middle_of(box) - kBoxWidth / 2, top = top_of(box);
    canvas.shape("rect",
                 fmt::format("x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"5\" fill=\"#ffffff\" "
                             "stroke=\"#0072b2\"",
                             left, top, kBoxWidth, kBoxHeight),
                 fmt::format("{}: {}", box.name, box.text));
    canvas.text(left + 10, top + 17, fit_text(box.name, 13, kBoxWidth - 20), {.bold = true});
    canvas.text(left + 10, top + 34, fit_text(box.text, 12, kBoxWidth - 20), {.size = 12, .fill = "#52606d"});
  }
  return canvas.finish();
}

}  // namespace lockstep::app
