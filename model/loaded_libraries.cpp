#include "model/loaded_libraries.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>

namespace lockstep::model {
namespace {

constexpr std::string_view kGpuLibraries[] = {"libcuda.so", "libcublasLt.so", "libcudnn.so", "libnccl.so"};

}  // namespace

std::vector<std::string> gpu_libraries_in(std::istream& maps) {
  std::set<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/'), name = line.rfind('/');
    if (path == std::string::npos) continue;
    const std::string_view file = std::string_view(line).substr(name + 1);
    if (std::ranges::any_of(kGpuLibraries, [&](std::string_view known) { return file.starts_with(known); })) {
      files.insert(line.substr(path));
    }
  }
  return {files.begin(), files.end()};
}

std::vector<std::string> loaded_gpu_libraries() {
  std::ifstream maps("/proc/self/maps");
  return gpu_libraries_in(maps);
}

}  // namespace lockstep::model
