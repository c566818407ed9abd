/// \file
/// Reads the files in tests/golden, and computes the same inputs as tests/golden/make_golden.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::model::test {

inline std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352D;
  x = (x ^ (x >> 15)) * 0x846CA68B;
  return x ^ (x >> 16);
}
inline std::uint32_t word(std::uint32_t stream, std::size_t index) {
  return mixed(mixed(stream) ^ static_cast<std::uint32_t>(index));
}

/// Returns offset + numbers in [-scale, scale).
inline std::vector<float> values(std::uint32_t stream, std::int64_t count, double scale, double offset = 0) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double number = static_cast<double>(static_cast<std::int32_t>(word(stream, i) >> 8) - (1 << 23)) * 0x1p-23;
    result[i] = static_cast<float>(offset + number * scale);
  }
  return result;
}

inline std::vector<std::int32_t> integers(std::uint32_t stream, std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::int32_t>(word(stream, i) % static_cast<std::uint32_t>(below));
  }
  return result;
}

/// Lines "key value" of one case, in order if a key comes more than once.
using Case = std::multimap<std::string, std::string>;

inline std::map<std::string, Case> read_cases(const char* file_name) {
  const auto path = std::filesystem::path(__FILE__).parent_path().parent_path() / "golden" / file_name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::map<std::string, Case> cases;
  Case* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    const std::size_t space = line.find(' ');
    const std::string key = line.substr(0, space), value = line.substr(space + 1);
    if (key == "case") {
      current = &cases[value];
    } else {
      current->emplace(key, value);
    }
  }
  return cases;
}

template <class T>
std::vector<T> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<T> result;
  for (T value; stream >> value;) result.push_back(value);
  return result;
}

/// "" if the case has no such key.
inline std::string text(const Case& golden, const std::string& key) {
  const auto found = golden.find(key);
  return found == golden.end() ? "" : found->second;
}

inline double number(const Case& golden, const std::string& key, double otherwise = 0) {
  const auto found = golden.find(key);
  return found == golden.end() ? otherwise : std::stod(found->second);
}

inline void change(Case& golden, const std::string& key, std::string value) {
  golden.erase(key);
  golden.emplace(key, std::move(value));
}

}  // namespace lockstep::model::test
