#include "model/device.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::array<std::pair<Precision, std::string_view>, 3> kNames{
    {{Precision::fp32, "fp32"}, {Precision::tf32, "tf32"}, {Precision::bf16, "bf16"}}};

/// Dense peaks from the vendor's data sheets, in TFLOP/s (half the figure if a sheet counts the zeros of structured
/// sparsity); 0 if the sheets disagree. All `parts` must be in the device's name. Custom editions and slices of a
/// device have another number of processors and are not in any sheet.
struct Sheet {
  std::string_view name;
  std::array<std::string_view, 2> parts;
  int processors;
  double fp32, tf32, bf16;
};
constexpr std::array kSheets{
    Sheet{"NVIDIA A100", {"A100", ""}, 108, 19.5, 156, 312},
    Sheet{"NVIDIA A30", {"A30", ""}, 56, 10.3, 82, 165},
    Sheet{"NVIDIA A40", {"A40", ""}, 84, 37.4, 74.8, 149.7},
    Sheet{"NVIDIA L4", {"L4", ""}, 58, 30.3, 60, 121},
    Sheet{"NVIDIA L40S", {"L40S", ""}, 142, 91.6, 183, 362.05},
    Sheet{"NVIDIA H100 PCIe", {"H100", "PCIe"}, 114, 51, 378, 756.5},
    Sheet{"NVIDIA H100 NVL", {"H100", "NVL"}, 132, 60, 417.5, 835.5},
    Sheet{"NVIDIA H100 SXM", {"H100", "HBM3"}, 132, 67, 494.5, 989.5},
    Sheet{"NVIDIA H200 NVL", {"H200", "NVL"}, 132, 60, 417.5, 835.5},
    Sheet{"NVIDIA H200", {"H200", ""}, 132, 67, 494.5, 989.5},
    Sheet{"NVIDIA GH200", {"GH200", ""}, 132, 67, 494.5, 989.5},
    Sheet{"NVIDIA B200", {"B200", ""}, 148, 0, 0, 2250},
};

/// True if `part` is a whole word of `name`: "L4" is not in "NVIDIA L40S", nor "H200" in "NVIDIA GH200 480GB".
bool has_word(std::string_view name, std::string_view part) {
  const auto is_edge = [](char c) { return c == ' ' || c == '-'; };
  for (auto at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const auto end = at + part.size();
    if ((at == 0 || is_edge(name[at - 1])) && (end == name.size() || is_edge(name[end]))) return true;
  }
  return part.empty();
}

}  // namespace

Precision parse_precision(std::string_view name) {
  for (const auto& [precision, text] : kNames) {
    if (text == name) return precision;
  }
  std::string valid;
  for (const auto& [precision, text] : kNames) valid += fmt::format("{}{}", valid.empty() ? "" : ", ", text);
  throw std::invalid_argument(fmt::format("unknown precision '{}'; valid: {}", name, valid));
}

std::string_view name_of(Precision precision) noexcept {
  for (const auto& [known, text] : kNames) {
    if (known == precision) return text;
  }
  return "unknown";
}

Precision best_precision(const Device& device) noexcept {
  return device.major >= 8 ? Precision::bf16 : Precision::fp32;
}

DevicePeak peak_of(const Device& device, Precision precision) {
  for (const Sheet& sheet : kSheets) {
    if (sheet.processors != device.processors) continue;
    if (!has_word(device.name, sheet.parts[0]) || !has_word(device.name, sheet.parts[1])) continue;
    const double teraflops = precision == Precision::fp32   ? sheet.fp32
                             : precision == Precision::tf32 ? sheet.tf32
                                                            : sheet.bf16;
    if (teraflops == 0) return {};
    return {teraflops * 1e12, fmt::format("{} data sheet, dense {}", sheet.name, name_of(precision))};
  }
  return {};
}

}  // namespace lockstep::model
