#include "torture/mutation/cases.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "torture/mutation/mutations.hpp"

namespace lockstep::torture {
namespace {

namespace fs = std::filesystem;

std::string bytes_of_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<Subject> chosen(const Options& options) {
  if (!options.planted.empty()) return {planted(options.planted)};
  std::vector<Subject> all = subjects(options.fixtures);
  if (!options.only.empty()) std::erase_if(all, [&](const Subject& subject) { return subject.name != options.only; });
  if (all.empty()) throw std::invalid_argument("no subject is called " + options.only);
  return all;
}

}  // namespace

Cases::Cases(const Options& options, fs::path folder)
    : options_(options), subjects_(chosen(options)), folder_(std::move(folder)) {}

fs::path Cases::samples(std::size_t subject) const { return folder_ / "samples" / fmt::format("{}", subject); }

void Cases::make_samples() const {
  for (std::size_t i = 0; i < subjects_.size(); ++i) {
    fs::create_directories(samples(i));
    subjects_[i].make(samples(i));
  }
}

Cases::Damage Cases::damage(std::int64_t number) const {
  const std::size_t own = subject_of(number);
  Random random(options_.seed * 1'000'003 + std::hash<std::string>{}(subjects_[own].name) +
                static_cast<std::uint64_t>(number) * 7919);
  const auto target = [&](std::size_t subject) {
    const auto& targets = subjects_[subject].targets;
    return targets[random() % targets.size()];
  };
  const std::string name = target(own);
  const std::size_t other = random() % subjects_.size();
  const std::string foreign = bytes_of_file(samples(other) / target(other));
  return {name, mutated(bytes_of_file(samples(own) / name), foreign, random)};
}

}  // namespace lockstep::torture
