#include "app/plan/fingerprint.hpp"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include "app/report/program_build.hpp"
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

/// Returns the build id in the notes of a segment (ELF, System V ABI), a hash that the linker computes over its output;
/// empty if there is none.
std::span<const std::byte> build_id_in(std::span<const std::byte> notes) {
  constexpr std::string_view kOwner{"GNU", 4};
  constexpr std::size_t kAlignment = 4;
  const auto padded = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes.data(), sizeof head);
    notes = notes.subspan(sizeof head);
    const std::size_t value_at = padded(head.n_namesz), end = value_at + padded(head.n_descsz);
    if (end > notes.size()) break;
    const std::string_view owner(reinterpret_cast<const char*>(notes.data()), head.n_namesz);
    if (head.n_type == NT_GNU_BUILD_ID && owner == kOwner) return notes.subspan(value_at, head.n_descsz);
    notes = notes.subspan(end);
  }
  return {};
}

/// Finds the build id of the program, which is the first loaded object.
int find_build_id(dl_phdr_info* object, std::size_t, void* found) {
  for (const auto& segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const std::byte*>(object->dlpi_addr + segment.p_vaddr);
    const std::span<const std::byte> id = build_id_in({notes, segment.p_memsz});
    if (!id.empty()) *static_cast<std::span<const std::byte>*>(found) = id;
  }
  return 1;  // stops the iteration
}

}  // namespace

std::string program_fingerprint() {
  std::span<const std::byte> id;
  dl_iterate_phdr(find_build_id, &id);
  std::string text = program_version() + ' ';
  for (const std::byte byte : id) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  std::error_code unknown;
  return fmt::format("{} of {} bytes", text, std::filesystem::file_size("/proc/self/exe", unknown));
}

std::vector<comm::FingerprintItem> fingerprint_of(const Plan& plan) {
  const Workload& workload = plan.workload;
  return {{"program", program_fingerprint()},
          {"configuration", plan.settings.to_ini()},
          {"text of the network", plan.record.network_text},
          {"network", io::to_text(plan.record.network) + workload.network->parameters().signature()},
          {"bucket schedule", describe_buckets(plan.buckets)},
          {"training data", plan.record.dataset},
          {"scales of the data", describe_scale(workload.features) + describe_scale(workload.targets)},
          {"weights of the losses", io::to_hex(io::checksum(std::as_bytes(workload.weights.of_classes()))) + " " +
                                        io::to_hex(io::checksum(std::as_bytes(workload.weights.of_samples())))},
          {"validation data", workload.validation ? workload.validation->fingerprint() : ""}};
}

}  // namespace lockstep::app
