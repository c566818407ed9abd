/// \file
/// An ONNX file (https://github.com/onnx/onnx, onnx.proto: IR version 8, opset 17): a graph of operators and the
/// tensors that it holds. The few messages that are needed are written here, field by field, without a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "io/exchange/output_file.hpp"
#include "io/exchange/safetensors.hpp"

namespace lockstep::io {

/// TensorProto.DataType
enum class OnnxType { float32 = 1, int64 = 7 };

struct OnnxAttribute {
  std::string name;
  std::variant<float, std::int64_t, std::string, std::vector<std::int64_t>> value;
};

struct OnnxNode {
  std::string op_type;
  std::vector<std::string> inputs;  ///< "": an optional one that is left out
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes = {};
};

/// A tensor that the file holds. Its bytes are `own`, or somebody else's.
struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> own = {};
  std::span<const std::byte> borrowed = {};
  std::span<const std::byte> bytes() const noexcept { return own.empty() ? borrowed : own; }
};

/// An extent: a number, or a name where callers decide.
using OnnxExtent = std::variant<std::int64_t, std::string>;

/// An input or an output of the graph.
struct OnnxPort {
  std::string name;
  OnnxType type = OnnxType::float32;
  std::vector<OnnxExtent> shape;
};

struct OnnxModel {
  static constexpr std::int64_t kIrVersion = 8, kOpset = 17;

  std::string graph_name;
  std::string program_version;
  std::string description;
  Metadata metadata = {};
  std::vector<OnnxNode> nodes = {};  ///< each after those whose outputs it reads
  std::vector<OnnxTensor> tensors = {};
  std::vector<OnnxPort> inputs = {}, outputs = {};
};

/// Protobuf's messages end at 2 GiB: tensors of more bytes in all go to a file of their own, FILE.data.
inline constexpr std::uint64_t kMostOnnxBytes = (std::uint64_t{1} << 31) - (std::uint64_t{1} << 24);

/// Returns the files that it has written, `file` first. Equal content, equal bytes. Throws FileError.
std::vector<std::filesystem::path> write_onnx(const std::filesystem::path& file, const OnnxModel& model,
                                              IfThere if_there, std::uint64_t most_bytes = kMostOnnxBytes);

}  // namespace lockstep::io
