#include "app/engine/gpt2_record.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "app/options/stored_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/report/program_build.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/json_text.hpp"
#include "io/text/token_info.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUsualHeadSize = 64;  ///< head size in all variants of GPT-2
constexpr double kEpsilon = 1e-5;            ///< epsilon of the layer norms in networks/gpt.yaml

/// The settings of Hugging Face's config.json that the tensors do not tell. A missing one has GPT-2's value.
class Config {
 public:
  /// Reads config.json beside the weights. Without such a file all settings are missing.
  explicit Config(const fs::path& weights) : file_(weights.parent_path() / "config.json") {
    std::error_code unknown;
    if (!fs::exists(file_, unknown)) return;
    try {
      if (const std::optional<std::string> text = io::read_whole(file_)) settings_ = io::parse_json(*text);
    } catch (const io::FileError& error) {
      refuse(error.what());
    }
    if (!settings_.is_object()) refuse("it is no table of settings");
  }

  const fs::path& file() const noexcept { return file_; }

  std::optional<std::int64_t> heads() const {
    const auto heads = settings_.find("n_head");
    if (heads == settings_.end() || heads->is_null()) return std::nullopt;
    if (!heads->is_number_integer() || *heads < 1) refuse("n_head is no number of attention heads");
    return heads->get<std::int64_t>();
  }

  /// Throws io::FileError for settings with which the same tensors compute something else.
  void require_gpt2() const {
    require("model_type", settings_.value("model_type", nlohmann::json("gpt2")) == "gpt2", "gpt2");
    const nlohmann::json activation = settings_.value("activation_function", nlohmann::json("gelu_new"));
    const bool is_tanh_gelu =
        activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast";
    require("activation_function", is_tanh_gelu, "gelu_new");
    const nlohmann::json epsilon = settings_.value("layer_norm_epsilon", nlohmann::json(kEpsilon));
    require("layer_norm_epsilon", epsilon.is_number() && std::abs(epsilon.get<double>() - kEpsilon) <= 1e-3 * kEpsilon,
            "1e-05");
    require("scale_attn_weights", settings_.value("scale_attn_weights", nlohmann::json(true)) == true, "true");
    for (const char* const name : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
      require(name, settings_.value(name, nlohmann::json(false)) == false, "false");
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw io::FileError({.file = file_, .what = what}); }

  void require(const char* name, bool holds, const char* ours) const {
    if (holds) return;
    refuse(fmt::format("{} is {}, and --model gpt computes with {}: these weights would give other results", name,
                       io::visible_line(io::to_text(settings_.at(name))), ours));
  }

  fs::path file_;
  nlohmann::json settings_ = nlohmann::json::object();
};

[[noreturn]] void fail(const io::SafetensorsFile& file, const std::string& what) {
  throw io::FileError({.file = file.file(), .what = what});
}

const io::StoredTensor& matrix(const io::SafetensorsFile& file, const io::Checkpoint& read, const char* name) {
  const io::StoredTensor* const found = read.find("parameters", name);
  if (found == nullptr || found->shape.size() != 2) {
    fail(file, fmt::format("it has no matrix for {}: it is no GPT-2 under Hugging Face's names", name));
  }
  return *found;
}

}  // namespace

io::TrainingRecord record_of_gpt2(const io::SafetensorsFile& file, const io::Checkpoint& read, std::int64_t heads) {
  const Config config(file.file());
  config.require_gpt2();
  const std::vector<std::int64_t>& table = matrix(file, read, "embedding/tokens").shape;
  const std::vector<std::int64_t>& positions = matrix(file, read, "embedding/positions").shape;
  const std::int64_t width = table[1];
  const auto layers = static_cast<std::int64_t>(std::ranges::count_if(
      read.tensors, [](const io::StoredTensor& tensor) { return tensor.name.ends_with("/attention/joint/weight"); }));
  if (const std::optional<std::int64_t> known = config.heads()) {
    if (heads != 0 && heads != *known) {
      throw UsageError(
          fmt::format("--heads {}: {} says n_head {}: leave --heads out", heads, config.file().string(), *known));
    }
    heads = *known;
    if (width % heads != 0) {
      throw io::FileError({.file = config.file(),
                           .what = fmt::format("n_head {} does not divide the width of the tensors, {}: it belongs to "
                                               "another file",
                                               heads, width)});
    }
  }
  if (heads == 0 && width % kUsualHeadSize == 0) heads = width / kUsualHeadSize;
  if (heads == 0 || width == 0 || width % heads != 0) {
    throw UsageError(fmt::format("{}: give --heads, which the tensors do not tell: they must divide the width, {}",
                                 file.file().string(), width));
  }
  if (layers == 0) fail(file, "it has no h.0.attn.c_attn.weight: it is no GPT-2 under Hugging Face's names");
  LearningProblem trained;
  trained.network = model::with_defaults({.name = "gpt",
                                          .values = {{"layers", layers},
                                                     {"width", width},
                                                     {"heads", heads},
                                                     {"context", positions[0]},
                                                     {"tied", read.find("parameters", "head/weight") == nullptr}}});
  trained.loss.kind = model::LossKind::softmax_cross_entropy;
  io::TrainingRecord record;
  record.world_size = 0;
  record.network = {.kind = "gpt", .signature = {}, .features = positions[0], .outputs = table[0], .tokens = true};
  record.optimizer = "sgd";
  record.configuration = network_configuration(trained);
  record.program_version = program_version();
  record.best_metric = std::numeric_limits<double>::quiet_NaN();
  record.vocabulary = io::to_json(io::TokenInfo{.kind = "ids", .vocabulary = table[0]});
  return record;
}

}  // namespace lockstep::app
