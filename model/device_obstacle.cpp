#include "model/device_obstacle.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

std::string version(int cuda) { return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10); }

struct Architecture {
  int major = 0, minor = 0;
  std::string suffix;  ///< "a" or "f": for this architecture (family) alone
  bool real = true, ptx = true;
};

std::vector<Architecture> parse(std::string_view list) {
  std::vector<Architecture> parsed;
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);

    Architecture architecture;
    const auto dash = item.find('-');
    if (dash != std::string_view::npos) {
      architecture.real = item.substr(dash) == "-real";
      architecture.ptx = !architecture.real;
    }
    const std::string_view name = item.substr(0, dash);
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc()) continue;  // "native" and the like: the actual architecture is unknown
    architecture.suffix.assign(end, name.data() + name.size());
    architecture.major = number / 10;
    architecture.minor = number % 10;
    parsed.push_back(architecture);
  }
  return parsed;
}

std::string describe(std::string_view architectures) {
  std::string text;
  for (const Architecture& each : parse(architectures)) {
    if (each.real) {
      text += fmt::format("{}sm_{}{}{}", text.empty() ? "" : ", ", each.major, each.minor, each.suffix);
    }
    if (each.ptx) text += fmt::format("{}PTX {}.{}{}", text.empty() ? "" : ", ", each.major, each.minor, each.suffix);
  }
  return text;
}

}  // namespace

std::string obstacle_of(const DriverReport& report) {
  switch (report.answer) {
    case DriverAnswer::no_device:
      if (report.visible_devices) {
        return fmt::format(
            "CUDA_VISIBLE_DEVICES is '{}' and hides every GPU: unset it, or name GPUs that nvidia-smi -L lists",
            *report.visible_devices);
      }
      return "the NVIDIA driver finds no GPU here: does nvidia-smi -L list one, and does the job ask for one?";
    case DriverAnswer::insufficient_driver:
      if (report.driver_version == 0) return "no NVIDIA driver is installed here";
      return fmt::format(
          "the driver supports CUDA {}, this program needs {}: update the NVIDIA driver, or build lockstep with CUDA "
          "{} "
          "or older",
          version(report.driver_version), version(report.runtime_version), version(report.driver_version));
    case DriverAnswer::stub_library:
      return "the CUDA driver that was loaded is a stub for linking: take the toolkit's folder lib64/stubs out of "
             "LD_LIBRARY_PATH";
    case DriverAnswer::versions_differ:
      return "the NVIDIA driver's kernel module and its library are of different versions: reboot the machine after "
             "the "
             "driver's update, or let the container use the host's driver";
    case DriverAnswer::compatibility_refused:
      return "CUDA's forward compatibility library does not support the GPUs here: take its folder (…/compat) out of "
             "LD_LIBRARY_PATH, or update the NVIDIA driver";
    case DriverAnswer::not_ready:
      return "the GPUs are not ready: where they are joined by NVSwitch, nvidia-fabricmanager must be running "
             "(systemctl "
             "status nvidia-fabricmanager)";
    case DriverAnswer::devices_unavailable:
      return "the GPUs are busy or closed to this process: nvidia-smi -q -d COMPUTE shows their mode, nvidia-smi who "
             "uses "
             "them";
    case DriverAnswer::mps_unreachable:
      return "CUDA's Multi-Process Service cannot be reached: start nvidia-cuda-mps-control, or unset "
             "CUDA_MPS_PIPE_DIRECTORY";
    case DriverAnswer::other:
      break;
  }
  return fmt::format("CUDA cannot start: {}; does nvidia-smi work here?", report.text);
}

bool runs_on(std::string_view architectures, int major, int minor) {
  const auto usable = [&](const Architecture& each) {
    const bool same_major = each.major == major;
    if (each.suffix == "a") return same_major && each.minor == minor;
    if (each.suffix == "f") return same_major && each.minor <= minor;
    return (each.real && same_major && each.minor <= minor) ||
           (each.ptx && (each.major < major || (same_major && each.minor <= minor)));
  };
  const auto list = parse(architectures);
  return std::any_of(list.begin(), list.end(), usable);
}

std::string obstacle_of(std::span<const Device> devices, std::string_view architectures) {
  std::string text;
  for (const Device& device : devices) {
    text += fmt::format("{}{} has compute capability {}.{}", text.empty() ? "" : ", ", device.name, device.major,
                        device.minor);
  }
  return fmt::format(
      "{}, and this program was compiled for {}: build it with -DLOCKSTEP_CUDA_ARCHITECTURES for this GPU", text,
      describe(architectures));
}

std::string describe_build(int runtime_version, std::string_view architectures) {
  return fmt::format("CUDA {} ({})", version(runtime_version), describe(architectures));
}

}  // namespace lockstep::model
