/// \file
/// Writes ONNX files (https://github.com/onnx/onnx, onnx.proto: IR version 8, opset 17): a graph of operators and its
/// tensors. The few protobuf messages are written field by field, without a library.
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
  std::vector<std::string> inputs;  ///< "": an omitted optional input
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes = {};
};

/// A tensor in the file. Its bytes are `own`, or borrowed.
struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> own = {};
  std::span<const std::byte> borrowed = {};
  std::span<const std::byte> bytes() const noexcept { return own.empty() ? borrowed : own; }
};

/// An extent: a number, or a name if the model's user chooses the number.
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
  std::vector<OnnxNode> nodes = {};  ///< in topological order
  std::vector<OnnxTensor> tensors = {};
  std::vector<OnnxPort> inputs = {}, outputs = {};
};

/// Limit of a file: a protobuf message may have 2 GiB. If all tensors together are larger, they go to FILE.data.
inline constexpr std::uint64_t kMaxOnnxBytes = (std::uint64_t{1} << 31) - (std::uint64_t{1} << 24);

/// Writes the model and returns the files written, `file` first. Equal content gives equal bytes. Throws FileError.
std::vector<std::filesystem::path> write_onnx(const std::filesystem::path& file, const OnnxModel& model,
                                              IfThere if_there, std::uint64_t most_bytes = kMaxOnnxBytes);

}  // namespace lockstep::io
