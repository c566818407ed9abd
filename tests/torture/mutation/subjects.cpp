#include "torture/mutation/subjects.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <zlib.h>

#include "app/exchange/import.hpp"
#include "app/exchange/network_metadata.hpp"
#include "app/info/info.hpp"
#include "app/info/info_options.hpp"
#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/checkpoints/checkpoint_parts.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/exchange/safetensors.hpp"
#include "io/files/checksum.hpp"
#include "io/files/file_error.hpp"
#include "io/foreign_files.hpp"
#include "io/formats/image_file.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/run_folder.hpp"
#include "io/runs/tensorboard_log.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"
#include "io/text/tokenizer_files.hpp"

namespace lockstep::torture {
namespace {

namespace fs = std::filesystem;

void write_bytes(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFF);
  return text;
}

/// Distinct bytes.
std::string pattern(std::size_t count, int modulus) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(static_cast<int>(7 * i + i / 11) % modulus);
  return bytes;
}

std::string idx_images() {
  return std::string("\0\0\x08\x03", 4) + big_endian(40) + big_endian(4) + big_endian(5) + pattern(800, 200);
}
std::string idx_labels() { return std::string("\0\0\x08\x01", 4) + big_endian(40) + pattern(40, 5); }

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.resize(118, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + data;
}

void gzip(const fs::path& file, const std::string& bytes) {
  gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(out);
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xFF);
  return text;
}

/// A deflate stream without zlib's own header.
std::string deflated(const std::string& bytes) {
  std::string out(compressBound(bytes.size()), '\0');
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A ZIP archive of files, the second one deflated, with sizes of 64 bits in its list.
std::string zip(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive, list;
  for (const auto& [name, bytes] : files) {
    const bool packs = !list.empty();
    const std::string stored = packs ? deflated(bytes) : bytes;
    const std::string checksum =
        little_endian(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())), 4);
    const std::string common =
        little_endian(45, 2) + little_endian(0, 2) + little_endian(packs ? 8 : 0, 2) + little_endian(0, 4) + checksum;
    const std::string wide =
        little_endian(1, 2) + little_endian(16, 2) + little_endian(bytes.size(), 8) + little_endian(stored.size(), 8);
    const std::string lengths = little_endian(name.size(), 2) + little_endian(wide.size(), 2);
    list += "PK\1\2" + little_endian(45, 2) + common + std::string(8, '\xFF') + lengths + std::string(10, '\0') +
            little_endian(archive.size(), 4) + name + wide;
    archive += "PK\3\4" + common + std::string(8, '\xFF') + lengths + name + wide + stored;
  }
  const std::size_t begin = archive.size();
  return archive + list + "PK\5\6" + little_endian(0, 4) + little_endian(files.size(), 2) +
         little_endian(files.size(), 2) + little_endian(list.size(), 4) + little_endian(begin, 4) + little_endian(0, 2);
}

std::string llm_tokens() {
  std::string bytes(1024, '\0');
  const std::int32_t head[] = {20240520, 1, 300};
  std::memcpy(bytes.data(), head, sizeof head);
  for (int i = 0; i < 300; ++i) bytes += std::string{static_cast<char>(i % 50), '\0'};
  return bytes;
}

std::string poem() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("the {} grey goose, naïve — {}\n", i % 3 == 0 ? "old" : "new", i);
  return text;
}

/// The poem and a tokenizer learnt from it.
void write_byte_pairs(const fs::path& folder) {
  write_bytes(folder / "text", poem());
  io::write_tokenizer_files(folder / "bpe", io::learn_byte_pairs({folder / "text"}, 300));
}

void write_tokenizer_json(const fs::path& folder) {
  write_byte_pairs(folder);
  const io::TokenInfo info = io::read_tokenizer_files(folder / "bpe");
  std::string merges;
  for (const std::string& merge : info.merges) merges += fmt::format("{}\"{}\"", merges.empty() ? "" : ",", merge);
  write_bytes(folder / "bpe" / "tokenizer.json",
              fmt::format(R"({{"version":"1.0","added_tokens":[{{"id":{},"content":"<|endoftext|>","lstrip":false}}],)"
                          R"("normalizer":null,"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false}},)"
                          R"("model":{{"type":"BPE","dropout":null,"vocab":{},"merges":[{}]}}}})",
                          info.added[0], bytes_of(folder / "bpe" / "vocab.json"), merges));
}

/// Packs as `pack` does.
std::string pack(const fs::path& folder, const std::unique_ptr<io::SampleSource>& source) {
  io::write_shards(*source, {.folder = folder / "packed"}, {});  // one shard: a single sample is a set, too
  return "";
}

void append(std::string& text, std::span<const std::byte> bytes) { text += io::to_hex(io::checksum(bytes)) + ' '; }

/// Every sample of a dataset, with its checksums verified.
std::string contents(const io::Dataset& data) {
  const io::DatasetInfo& info = data.info();
  data.verify(0, 1);
  std::vector<std::byte> x(data.x_bytes()), y(data.y_bytes());
  std::string text = fmt::format("{} {} {} ", info.samples, info.classes, fmt::join(info.class_names, ","));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(info.samples, 1000); ++i) {
    data.read({&i, 1}, io::kNoEpoch, x, y);
    append(text, x);
    append(text, y);
  }
  return text;
}

std::string samples_of(const fs::path& path, const std::string& x = "x", const std::string& y = "y") {
  io::inspect_in_child("/proc/self/exe", {.path = path, .x = x, .y = y}, {});
  return contents(io::ShardedDataset({.path = path, .x = x, .y = y}));
}

/// `lockstep info`: a fault that it reports is a refusal, as an exception is.
std::string info_on(const fs::path& path) {
  if (app::run_info({.path = path}) != 0) throw io::FileError(fmt::format("{}: info found damage", path.string()));
  return "";
}

io::TrainingRecord record_of(std::int64_t step) {
  return {.step = step,
          .network = {.kind = "mlp", .signature = "mlp 20-10", .features = 20, .outputs = 10},
          .optimizer = "adam",
          .dataset = "40 samples",
          .configuration = app::TrainOptions{}.to_ini(),
          .program_version = "0.1.0",
          .best_metric = 0.5,
          .metrics = "{\"kind\":\"train\",\"step\":1}\n"};
}

void write_checkpoint(const fs::path& folder, std::int64_t step) {
  const std::vector<float> values(200, 0.25F);
  const std::vector<std::int64_t> shape{20, 10};
  const std::vector<io::TensorView> tensors{{"parameters", "dense_1/weight", shape, values},
                                            {"first_moment", "dense_1/weight", shape, values}};
  fs::create_directories(folder);
  io::CheckpointWriter({.folder = folder}).write(record_of(step), tensors);
}

/// The same state, written by two writers.
void write_checkpoint_in_parts(const fs::path& folder, std::int64_t step) {
  io::CheckpointWriter whole({.folder = folder});  // removes existing parts
  const std::vector<float> values(100, 0.25F);
  io::SplitState split{
      .tensors = {{"parameters", "dense_1/weight", {20, 10}}, {"first_moment", "dense_1/weight", {20, 10}}},
      .parts = {}};
  for (int writer = 0; writer < 2; ++writer) {
    const std::vector<io::TensorPiece> pieces{{"parameters", "dense_1/weight", 100 * writer, values},
                                              {"first_moment", "dense_1/weight", 100 * writer, values}};
    split.parts.push_back(io::write_checkpoint_part(
        {.folder = folder, .step = step, .attempt = "0a", .index = writer, .count = 2}, pieces));
  }
  whole.write(record_of(step), {}, split);
}

std::string checkpoint_contents(const fs::path& file) {
  const io::Checkpoint checkpoint = io::read_checkpoint(file);
  const io::TrainingRecord& record = checkpoint.record;
  std::string text = fmt::format("{} {} {} {} {} ", record.step, to_text(record.network), record.optimizer,
                                 record.configuration, record.metrics);
  for (const io::StoredTensor& tensor : checkpoint.tensors) {
    text += tensor.group + tensor.name;
    append(text, std::as_bytes(std::span(tensor.values)));
  }
  return text;
}

void make_run(const fs::path& folder) {
  write_checkpoint(folder / "checkpoints", 12);
  write_bytes(folder / "config.ini", app::TrainOptions{}.to_ini());
  write_bytes(folder / "owner", "host a\npid 1\nsince 2026-01-01T00:00:00Z\ntoken 77\n");
  io::MetricsLog log(folder / "metrics.jsonl", false, -1);
  for (std::int64_t step = 1; step < 20; ++step) {
    log.write({{"kind", std::string("train")}, {"step", step}, {"loss", 1.0 / static_cast<double>(step)}});
  }
  io::TensorboardLog events(folder, -1);
  events.scalar("loss", 1, 0.5);
}

/// Reads a run folder as resuming does, besides its checkpoints.
std::string resume(const fs::path& folder) {
  io::RunFolder run(folder, io::RunFolder::Open::resume, false);
  const io::MetricsLog log(folder / "metrics.jsonl", true, 12);
  io::TensorboardLog(folder, 12).flush();
  return "";
}

void pack_samples(const fs::path& folder) {
  const auto source = io::make_synthetic({.samples = 60, .features = 6, .classes = 3, .seed = 5});
  io::write_shards(*source, {.folder = folder / "set", .shards = 2}, {});
}

void pack_text(const fs::path& folder) {
  write_bytes(folder / "text", poem());
  const auto source = io::open_text({folder / "text"}, {.tokenizer = "word"});
  io::write_shards(*source, {.folder = folder / "set", .shards = 2}, {});
}

void add_arrays(std::vector<Subject>& all) {
  all.push_back({"idx",
                 [](const fs::path& folder) {
                   write_bytes(folder / "x", idx_images());
                   write_bytes(folder / "y", idx_labels());
                 },
                 {"x", "y"},
                 [](const fs::path& folder) { return pack(folder, io::open_idx(folder / "x", folder / "y")); }});
  all.push_back({"idx.gz",
                 [](const fs::path& folder) { gzip(folder / "x.gz", idx_images()); },
                 {"x.gz"},
                 [](const fs::path& folder) { return pack(folder, io::open_idx(folder / "x.gz", {})); }});
  all.push_back(
      {"npy",
       [](const fs::path& folder) {
         write_bytes(folder / "x.npy", npy("<f4", "(40, 6)", std::string(960, '\x3d')));
         write_bytes(folder / "y.npy", npy("<i8", "(40,)", std::string(320, '\0')));
       },
       {"x.npy", "y.npy"},
       [](const fs::path& folder) { return pack(folder, io::open_npy(folder / "x.npy", folder / "y.npy")); }});
  all.push_back({"npz",
                 [](const fs::path& folder) {
                   write_bytes(folder / "a.npz", zip({{"x.npy", npy("<f4", "(40, 6)", std::string(960, '\x3d'))},
                                                      {"y.npy", npy("<i8", "(40,)", std::string(320, '\0'))}}));
                 },
                 {"a.npz"},
                 [](const fs::path& folder) { return pack(folder, io::open_npz(folder / "a.npz", "x", "y")); }});
  all.push_back(
      {"csv",
       [](const fs::path& folder) {
         std::string text = "a,b,town\n";
         for (int i = 0; i < 30; ++i) text += fmt::format("{},{}.5,\"{}\"\n", i, i, i % 2 ? "Köln" : "Bonn");
         write_bytes(folder / "x.csv", text);
       },
       {"x.csv"},
       [](const fs::path& folder) { return pack(folder, io::open_csv(folder / "x.csv", {.label_column = "town"})); }});
  all.push_back(
      {"cifar10",
       [](const fs::path& folder) {
         write_bytes(folder / "data_batch_1.bin", pattern(3 * 3073, 10));
         write_bytes(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
       },
       {"data_batch_1.bin", "batches.meta.txt"},
       [](const fs::path& folder) { return pack(folder, io::open_cifar({folder}, io::CifarKind::cifar10)); }});
}

void add_texts(std::vector<Subject>& all) {
  for (const char* tokenizer : {"char", "word", "byte"}) {
    all.push_back({fmt::format("text by {}", tokenizer),
                   [](const fs::path& folder) { write_bytes(folder / "text", poem()); },
                   {"text"},
                   [tokenizer](const fs::path& folder) {
                     return pack(folder, io::open_text({folder / "text"}, {.tokenizer = tokenizer}));
                   }});
  }
  const auto bpe = [](const fs::path& folder) {
    return pack(folder, io::open_text({folder / "text"},
                                      {.tokenizer = "bpe", .from = io::read_tokenizer_files(folder / "bpe")}));
  };
  all.push_back({"text by bpe", write_byte_pairs, {"text", "bpe/vocab.json", "bpe/merges.txt"}, bpe});
  all.push_back({"tokenizer.json", write_tokenizer_json, {"bpe/tokenizer.json"}, bpe});
  all.push_back({"tokens",
                 [](const fs::path& folder) { write_bytes(folder / "tokens.bin", llm_tokens()); },
                 {"tokens.bin"},
                 [](const fs::path& folder) { return pack(folder, io::open_tokens({folder / "tokens.bin"}, 60)); }});
}

void add_images(std::vector<Subject>& all, const fs::path& fixtures) {
  if (!io::can_decode_images()) return;
  // All images of a folder have one depth.
  const auto add = [&](const char* name, const std::vector<std::string>& files) {
    all.push_back({name,
                   [=](const fs::path& folder) {
                     for (const std::string& file : files) {
                       fs::create_directories((folder / file).parent_path());
                       fs::copy_file(fixtures / "images" / fs::path(file).filename(), folder / file);
                     }
                   },
                   files,
                   [](const fs::path& folder) {
                     return pack(folder,
                                 io::open_image_folder(folder / "set", {.height = 8, .width = 8, .threads = 1}));
                   }});
  };
  std::vector<std::string> files{"set/a/rgb.jpg",           "set/a/progressive.jpg", "set/a/cmyk.jpg",
                                 "set/a/orientation_6.jpg", "set/b/rgb.png",         "set/b/palette.png",
                                 "set/b/orientation_7.png"};
  if (io::can_decode("WebP")) files.emplace_back("set/b/orientation_8.webp");
  add("images", files);
  add("deep images", {"set/a/grey16.png", "set/b/grey12.png"});
}

void add_shards(std::vector<Subject>& all) {
  const auto samples = [](const fs::path& folder) { return samples_of(folder / "set"); };
  all.push_back({"shards", pack_samples, {"set/shard-00000.h5", "set/shard-00001.h5"}, samples, true});
  all.push_back({"manifest", pack_samples, {"set/manifest.json"}, samples, true});
  all.push_back({"shards, info", pack_samples, {"set/shard-00000.h5", "set/manifest.json"}, [](const fs::path& folder) {
                   return info_on(folder / "set");
                 }});
  all.push_back({"shards, no manifest",
                 [](const fs::path& folder) {
                   pack_samples(folder);
                   fs::remove(folder / "set" / "manifest.json");
                 },
                 {"set/shard-00000.h5"},
                 samples});
  all.push_back(
      {"corpus",
       pack_text,
       {"set/manifest.json", "set/shard-00000.h5"},
       [](const fs::path& folder) { return contents(io::TokenDataset({.path = folder / "set", .context = 8})); },
       true});
  all.push_back({"corpus, info", pack_text, {"set/manifest.json"}, [](const fs::path& folder) {
                   return info_on(folder / "set");
                 }});
}

constexpr std::string_view kNetwork = R"yaml(name: net
summary: every part of the grammar
inputs: {picture: [any, any, 3]}
options:
  width: {default: 4, at-least: 1, below: 100, help: channels}
  depth: {default: 2, one-of: {1: {kernels: [3]}, 2: {kernels: [3, 1]}}}
  activation: {default: relu, one-of: [relu, tanh]}
  dropout: 0.1
training: {optimizer: adam, learning-rate: 0.001}
small-data: {width: 3}
blocks:
  pair: {parameters: [c, with], layers: [conv: {channels: $c, kernel: 1}, concatenate: [$with]], summary: a pair}
network:
  - repeat:
      over: $kernels
      as: k
      index: i
      name: stage_$i
      layers: [conv: {channels: $(2*width), kernel: $k, norm: {batch: {scale: 0.5}}, activation: $activation}]
  - pair: {c: "$(if(depth == 2, width, 2))", with: stage_1, name: level}
  - parallel: {join: add, branches: [[conv: {channels: 3, kernel: 3, padding: same}], [conv: {channels: 3, kernel: 1}]]}
  - residual: {shortcut: [leaky-relu: 0.1], layers: [silu, response-norm], activation: relu}
  - max-pool: {window: 2, when: $(width > 2)}
  - sequence: {name: end, layers: [flatten, dropout: $dropout, dense: {units: 5, init: normal($(1/sqrt(width)))}]}
  - dense: {units: $outputs, from: end, decay: no, name: head}
)yaml";

void add_runs(std::vector<Subject>& all, const fs::path& fixtures) {
  all.push_back({"checkpoint",
                 [](const fs::path& folder) { write_checkpoint(folder, 12); },
                 {"step-0000000012.h5"},
                 [](const fs::path& folder) { return checkpoint_contents(folder / "step-0000000012.h5"); },
                 true});
  all.push_back({"checkpoint, in parts",
                 [](const fs::path& folder) { write_checkpoint_in_parts(folder, 12); },
                 {"step-0000000012.h5", "step-0000000012.parts-0a/part-0001-of-0002.h5",
                  "step-0000000012.parts-0a/part-0002-of-0002.h5"},
                 [](const fs::path& folder) { return checkpoint_contents(folder / "step-0000000012.h5"); },
                 true});
  all.push_back({"checkpoint, old",
                 [=](const fs::path& folder) {
                   for (const char* name : {"checkpoint_format_1.h5", "checkpoint_format_2.h5"}) {
                     fs::copy_file(fixtures / name, folder / name);
                   }
                 },
                 {"checkpoint_format_1.h5", "checkpoint_format_2.h5"},
                 [](const fs::path& folder) {
                   return checkpoint_contents(folder / "checkpoint_format_1.h5") +
                          checkpoint_contents(folder / "checkpoint_format_2.h5");
                 },
                 true});
  all.push_back({"config.ini",
                 [](const fs::path& folder) { write_bytes(folder / "config.ini", app::TrainOptions{}.to_ini()); },
                 {"config.ini"},
                 [](const fs::path& folder) {
                   app::train_options_from_ini(bytes_of(folder / "config.ini")).to_ini();
                   return std::string();
                 }});
  all.push_back({"network, info",
                 [](const fs::path& folder) { write_bytes(folder / "net.yaml", kNetwork); },
                 {"net.yaml"},
                 [](const fs::path& folder) {
                   app::run_info(app::parse_info({(folder / "net.yaml").string(), "--image", "8x8x3"}));
                   return std::string();
                 }});
  all.push_back({"run, resume", make_run, {"metrics.jsonl", "owner"}, resume});
  all.push_back(
      {"run, info", make_run, {"metrics.jsonl", "owner", "config.ini", "checkpoints/step-0000000012.h5"}, info_on});
}

/// The output of `lockstep export` for a small network.
void write_exported(const fs::path& folder) {
  app::TrainOptions trained;
  trained.network = model::with_defaults({.name = "mlp", .values = {{"hidden", model::Numbers{6}}}});
  trained.data.normalize.kind = app::Normalization::Kind::none;
  io::TrainingRecord record = record_of(12);
  record.network.signature = "mlp 20-6-10 relu";
  const std::vector<float> values(120, 0.25F);
  const std::span<const float> all(values);
  const std::vector<io::NamedTensor> tensors{{"dense_1/weight", {20, 6}, all},
                                             {"dense_1/bias", {6}, all.first(6)},
                                             {"dense_2/weight", {6, 10}, all.first(60)},
                                             {"dense_2/bias", {10}, all.first(10)}};
  io::write_safetensors(folder / "x.safetensors", tensors, app::metadata_of(record, trained), io::IfThere::refuse);
}

/// A language model under the names of Hugging Face's GPT-2.
void write_gpt2(const fs::path& folder) {
  const std::vector<float> values(768, 0.25F);
  std::vector<io::NamedTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    const std::int64_t count = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
    tensors.push_back({name, std::move(shape), std::span(values).first(static_cast<std::size_t>(count))});
  };
  add("wte.weight", {20, 8});
  add("wpe.weight", {5, 8});
  for (const char* norm : {"h.0.ln_1", "h.0.ln_2", "ln_f"}) {
    add(fmt::format("{}.weight", norm), {8});
    add(fmt::format("{}.bias", norm), {8});
  }
  const auto linear = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    add(name + ".weight", {inputs, outputs});
    add(name + ".bias", {outputs});
  };
  linear("h.0.attn.c_attn", 8, 24);
  linear("h.0.attn.c_proj", 8, 8);
  linear("h.0.mlp.c_fc", 8, 32);
  linear("h.0.mlp.c_proj", 32, 8);
  io::write_safetensors(folder / "x.safetensors", tensors, {{"format", "pt"}}, io::IfThere::refuse);
}

void add_weights(std::vector<Subject>& all) {
  const auto import = [](const fs::path& folder) {
    app::run_import({.file = folder / "x.safetensors", .format = {}, .out = folder / "out.h5", .heads = 2});
    return std::string();
  };
  all.push_back({"safetensors", write_exported, {"x.safetensors"}, import});
  all.push_back({"safetensors, GPT-2", write_gpt2, {"x.safetensors"}, import});
}

void add_foreign(std::vector<Subject>& all, const fs::path& fixtures) {
  struct File {
    const char *name, *x, *y;
  };
  constexpr std::array<File, 6> kFiles = {{{"compressed", "images", "labels"},
                                           {"chunks_split_samples", "images", "labels"},
                                           {"big_endian", "data", "label"},
                                           {"regression", "x", "y"},
                                           {"signed_words", "x", "y"},
                                           {"wide", "x", "y"}}};
  const auto copied = [&](const char* name) {
    const fs::path file = fixtures / fmt::format("{}.h5", name);
    return [file](const fs::path& folder) { fs::copy_file(file, folder / "plain.h5"); };
  };
  for (const File& file : kFiles) {
    all.push_back({fmt::format("HDF5, {}", file.name), copied(file.name), {"plain.h5"}, [file](const fs::path& folder) {
                     return samples_of(folder / "plain.h5", file.x, file.y);
                   }});
  }
  all.push_back({"HDF5, links in circles", copied("circles"), {"plain.h5"}, [](const fs::path& folder) {
                   info_on(folder / "plain.h5");
                   return samples_of(folder / "plain.h5", "x", "y");
                 }});
  all.push_back({"HDF5, info", copied("wide"), {"plain.h5"}, [](const fs::path& folder) {
                   return info_on(folder / "plain.h5");
                 }});
}

}  // namespace

std::vector<Subject> subjects(const fs::path& fixtures) {
  std::vector<Subject> all;
  add_arrays(all);
  add_texts(all);
  add_images(all, fixtures);
  add_shards(all);
  add_runs(all, fixtures);
  add_weights(all);
  add_foreign(all, fixtures);
  add_commands(all);
  return all;
}

Subject planted(std::string_view fault) {
  const auto text_of = [](const fs::path& folder) { return bytes_of(folder / "x"); };
  const auto sound = [](const std::string& text) { return text == idx_labels(); };
  Subject subject{.name = fmt::format("planted {}", fault),
                  .make = [](const fs::path& folder) { write_bytes(folder / "x", idx_labels()); },
                  .targets = {"x"},
                  .read = {},
                  .has_checksums = true};
  if (fault == "crash") {
    subject.read = [=](const fs::path& folder) {
      if (!sound(text_of(folder))) ::raise(SIGSEGV);
      return std::string();
    };
  } else if (fault == "hang") {
    subject.read = [=](const fs::path& folder) {
      while (!sound(text_of(folder))) ::sleep(1);
      return std::string();
    };
  } else if (fault == "words") {
    subject.read = [=](const fs::path& folder) -> std::string {
      if (!sound(text_of(folder))) throw std::runtime_error("[json.exception.type_error.302] type must be number");
      return "";
    };
  } else if (fault == "memory") {
    subject.read = [=](const fs::path& folder) {
      if (sound(text_of(folder))) return std::string();
      const std::vector<char> promised(std::size_t{3} << 29, 'x');
      [[maybe_unused]] const char* const volatile shown = promised.data();  // keeps a compiler from leaving it out
      throw io::FileError(fmt::format("{}: {} bytes are too many", folder.string(), promised.size()));
    };
  } else if (fault == "altered") {
    subject.read = text_of;
  } else {
    throw std::invalid_argument(fmt::format("there is no planted fault '{}'", fault));
  }
  return subject;
}

}  // namespace lockstep::torture
