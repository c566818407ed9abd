#include <stdexcept>

#include <fmt/format.h>

#include "model/backend.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "model/make_cuda_backend.hpp"

namespace lockstep::model {

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  if (options.threads < 1) throw std::invalid_argument(fmt::format("{} threads: need at least one", options.threads));
  if (name == "cpu") return std::make_unique<cpu::CpuBackend>(options.threads, options.bf16_unit);
  if (name == "cuda") return make_cuda_backend(options);
  throw std::invalid_argument(fmt::format("unknown backend '{}'; valid: cpu, cuda", name));
}

}  // namespace lockstep::model
