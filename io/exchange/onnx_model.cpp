#include "io/exchange/onnx_model.hpp"

#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "io/files/protobuf_message.hpp"

namespace lockstep::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMinExternalBytes = 1024;  ///< smaller tensors, such as shapes, stay in the graph

ProtobufMessage text_pair(std::string_view key, std::string_view value) {
  ProtobufMessage pair;
  pair.text(1, key);
  pair.text(2, value);
  return pair;
}

/// Writes AttributeProto. Numbers of its types: FLOAT 1, INT 2, STRING 3, INTS 7.
ProtobufMessage message_of(const OnnxAttribute& attribute) {
  ProtobufMessage message;
  message.text(1, attribute.name);
  if (const auto* const real = std::get_if<float>(&attribute.value)) {
    message.real32(2, *real);
    message.integer(20, 1);
  } else if (const auto* const integer = std::get_if<std::int64_t>(&attribute.value)) {
    message.integer(3, *integer);
    message.integer(20, 2);
  } else if (const auto* const text = std::get_if<std::string>(&attribute.value)) {
    message.text(4, *text);
    message.integer(20, 3);
  } else {
    for (const std::int64_t number : std::get<std::vector<std::int64_t>>(attribute.value)) message.integer(8, number);
    message.integer(20, 7);
  }
  return message;
}

/// Writes NodeProto.
ProtobufMessage message_of(const OnnxNode& node) {
  ProtobufMessage message;
  for (const std::string& input : node.inputs) message.text(1, input);
  for (const std::string& output : node.outputs) message.text(2, output);
  message.text(3, node.outputs.front());
  message.text(4, node.op_type);
  for (const OnnxAttribute& attribute : node.attributes) message.message(5, message_of(attribute));
  return message;
}

struct Place {
  std::string file;
  std::uint64_t offset = 0;
};

/// Writes TensorProto; `place`: position of the bytes if they are in the other file.
ProtobufMessage message_of(const OnnxTensor& tensor, const std::optional<Place>& place) {
  ProtobufMessage message;
  for (const std::int64_t extent : tensor.shape) message.integer(1, extent);
  message.integer(2, static_cast<std::int64_t>(tensor.type));
  message.text(8, tensor.name);
  if (!place) {
    message.borrowed(9, tensor.bytes());
    return message;
  }
  message.message(13, text_pair("location", place->file));
  message.message(13, text_pair("offset", fmt::format("{}", place->offset)));
  message.message(13, text_pair("length", fmt::format("{}", tensor.bytes().size())));
  message.integer(14, 1);  // EXTERNAL
  return message;
}

/// Writes ValueInfoProto.
ProtobufMessage message_of(const OnnxPort& port) {
  ProtobufMessage shape;
  for (const OnnxExtent& extent : port.shape) {
    ProtobufMessage dimension;
    if (const auto* const number = std::get_if<std::int64_t>(&extent)) {
      dimension.integer(1, *number);
    } else {
      dimension.text(2, std::get<std::string>(extent));
    }
    shape.message(1, std::move(dimension));
  }
  ProtobufMessage tensor, type, message;
  tensor.integer(1, static_cast<std::int64_t>(port.type));
  tensor.message(2, std::move(shape));
  type.message(1, std::move(tensor));
  message.text(1, port.name);
  message.message(2, std::move(type));
  return message;
}

/// Tensors in the other file start at multiples of a page, so that readers can map them.
constexpr std::uint64_t kAlignment = 4096;
std::uint64_t aligned(std::uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

ProtobufMessage model_message(const OnnxModel& model, const std::vector<std::optional<Place>>& places) {
  ProtobufMessage graph;
  for (const OnnxNode& node : model.nodes) graph.message(1, message_of(node));
  graph.text(2, model.graph_name);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) graph.message(5, message_of(model.tensors[i], places[i]));
  for (const OnnxPort& port : model.inputs) graph.message(11, message_of(port));
  for (const OnnxPort& port : model.outputs) graph.message(12, message_of(port));

  ProtobufMessage opset, message;
  opset.text(1, "");
  opset.integer(2, OnnxModel::kOpset);
  message.integer(1, OnnxModel::kIrVersion);
  message.text(2, "lockstep");
  message.text(3, model.program_version);
  message.text(6, model.description);
  message.message(7, std::move(graph));
  message.message(8, std::move(opset));
  for (const auto& [key, value] : model.metadata) message.message(14, text_pair(key, value));
  return message;
}

}  // namespace

std::vector<fs::path> write_onnx(const fs::path& file, const OnnxModel& model, IfThere if_there,
                                 std::uint64_t most_bytes) {
  std::vector<std::optional<Place>> places(model.tensors.size());
  std::uint64_t all = 0, outside = 0;
  for (const OnnxTensor& tensor : model.tensors) all += tensor.bytes().size();
  fs::path data = file;
  data += ".data";
  if (all > most_bytes) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::size_t bytes = model.tensors[i].bytes().size();
      if (bytes < kMinExternalBytes) continue;
      places[i] = Place{.file = data.filename().string(), .offset = aligned(outside)};
      outside = aligned(outside) + bytes;
    }
  }
  const ProtobufMessage message = model_message(model, places);
  OutputFile out(file, if_there, message.bytes());
  message.write([&](std::span<const std::byte> bytes) { out.write(bytes); });
  if (outside == 0) {
    out.finish();
    return {file};
  }
  OutputFile beside(data, if_there, outside);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    beside.write(std::string(static_cast<std::size_t>(places[i]->offset - beside.written()), '\0'));
    beside.write(model.tensors[i].bytes());
  }
  beside.finish();
  try {
    out.finish();
  } catch (...) {
    ::unlink(data.c_str());
    throw;
  }
  return {file, data};
}

}  // namespace lockstep::io
