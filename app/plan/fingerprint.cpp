#include "app/plan/fingerprint.hpp"

#include <fstream>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include "app/options/options.hpp"
#include "io/files/checksum.hpp"

namespace lockstep::app {

namespace {

std::string describe_buckets(std::span<const comm::Slice> buckets) {
  std::string text;
  for (const comm::Slice& bucket : buckets) text += fmt::format("{}+{} ", bucket.offset, bucket.count);
  return text;
}

std::string describe_scale(const io::FeatureScale& scale) {
  if (scale.empty()) return "none ";
  return fmt::format("{} {} ", io::to_hex(io::checksum(std::as_bytes(std::span(scale.mean)))),
                     io::to_hex(io::checksum(std::as_bytes(std::span(scale.deviation)))));
}

}  // namespace

std::string program_fingerprint() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return fmt::format("{} {}", program_version(), io::to_hex(io::checksum(std::as_bytes(std::span(bytes)))));
}

std::vector<comm::FingerprintItem> fingerprint_of(const Plan& plan) {
  const Workload& workload = plan.workload;
  return {{"program", program_fingerprint()},
          {"configuration", plan.settings.to_ini()},
          {"network", io::to_text(plan.record.network) + workload.network->parameters().signature()},
          {"bucket schedule", describe_buckets(plan.buckets)},
          {"training data", plan.record.dataset},
          {"scales of the data", describe_scale(workload.features) + describe_scale(workload.targets)},
          {"validation data", workload.validation ? workload.validation->fingerprint() : ""}};
}

}  // namespace lockstep::app
