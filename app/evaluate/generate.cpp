#include "app/evaluate/generate.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "app/data/network_input.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/finite_weights.hpp"
#include "app/engine/snapshot.hpp"
#include "app/options/stored_options.hpp"
#include "app/place/placement.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/text/visible_text.hpp"
#include "model/random.hpp"

namespace lockstep::app {

namespace {

/// Draws uniformly from (0, 1).
double chance(const Sampling& sampling, std::int64_t position) {
  const auto index = static_cast<std::uint64_t>(position);
  const std::uint64_t seed = sampling.seed;
  const model::PhiloxCounter words = model::philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(model::stream_of("generate")), static_cast<std::uint32_t>(sampling.sample)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return model::open_uniform(words[0]);
}

/// Predicts the next token, with any kind of network.
class Writer {
 public:
  /// `context`: tokens that the network sees at once.
  Writer(model::Model& model, model::Weights weights, std::int64_t context)
      : model_(model),
        weights_(weights),
        carries_(is_recurrent(model.network())),
        window_(static_cast<std::size_t>(context), 0),
        logits_(static_cast<std::size_t>(model.network().sample_shape().outputs)) {}

  /// Returns the logits of the token after `text`. `text` must not be empty; it either extends the previous text or
  /// belongs to another sample. If it extends the previous text, only the new tokens are computed until the window is
  /// full. After that the window moves by one with each token, so every token changes its position and all are computed
  /// again.
  std::span<const float> next(std::span<const std::int32_t> text) {
    return carries_ ? next_of_state(text) : next_of_window(text);
  }

 private:
  std::span<const float> next_of_state(std::span<const std::int32_t> text) {
    if (text.size() <= known_) known_ = 0;  // another text
    for (; known_ < text.size(); ++known_) {
      window_[0] = text[known_];
      predict({.first = 0, .count = 1}, known_ == 0);
    }
    return logits_;
  }

  /// Attention looks back only, so positions after the last token have no effect.
  std::span<const float> next_of_window(std::span<const std::int32_t> text) {
    const std::span<const std::int32_t> seen = text.last(std::min(text.size(), window_.size()));
    const auto differ =
        std::mismatch(seen.begin(), seen.end(), window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(known_))
            .first;
    // The output of the last token is always needed.
    const auto same = std::min<std::int64_t>(differ - seen.begin(), std::ssize(seen) - 1);
    std::copy(seen.begin(), seen.end(), window_.begin());
    known_ = seen.size();
    predict({.first = same, .count = std::ssize(seen) - same}, true);
    return logits_;
  }

  void predict(model::Pass::Positions positions, bool begins) {
    const std::int64_t context = model_.network().sample_shape().features;
    model_.predict({.x = model::host_tensor(window_.data(), 1, context), .begins = begins}, weights_, positions,
                   logits_);
  }

  model::Model& model_;
  model::Weights weights_;
  bool carries_;
  std::vector<std::int32_t> window_;
  std::vector<float> logits_;
  std::size_t known_ = 0;  ///< number of tokens of the window, or of the text, that the network has read
};

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position) {
  if (std::any_of(logits.begin(), logits.end(), [](float v) { return std::isnan(v); })) {
    throw std::invalid_argument("the model's output is not a number: its weights are not all finite");
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (sampling.temperature <= 0) return order.front();
  if (sampling.top_k > 0 && static_cast<std::size_t>(sampling.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(sampling.top_k));
  }
  const double greatest = logits[order.front()];
  std::vector<double> sums;
  double total = 0;
  for (const std::int32_t token : order) {
    total += std::exp((static_cast<double>(logits[token]) - greatest) / sampling.temperature);
    sums.push_back(total);
  }
  if (sampling.top_p < 1) {
    const auto enough = std::lower_bound(sums.begin(), sums.end(), sampling.top_p * total);
    sums.resize(std::min(static_cast<std::size_t>(enough - sums.begin()) + 1, sums.size()));
    total = sums.back();
  }
  const auto found = std::upper_bound(sums.begin(), sums.end(), chance(sampling, position) * total);
  return order[std::min(static_cast<std::size_t>(found - sums.begin()), sums.size() - 1)];
}

std::string StoppedText::add(std::string_view part) {
  if (ended_) return "";
  held_ += part;
  if (stop_.empty()) return std::exchange(held_, "");
  std::size_t safe = held_.find(stop_);
  ended_ = safe != std::string::npos;
  if (!ended_) {
    // The longest suffix that is a prefix of the stop text.
    std::size_t kept = std::min(held_.size(), stop_.size() - 1);
    while (!std::string_view(held_).ends_with(std::string_view(stop_).substr(0, kept))) --kept;
    safe = held_.size() - kept;
  }
  std::string text = held_.substr(0, safe);
  held_.erase(0, safe);
  return text;
}

std::string StoppedText::rest() { return ended_ ? "" : std::exchange(held_, ""); }

namespace {

/// The vocabulary of the checkpoint's tokens.
io::TokenInfo vocabulary_of(const CheckpointOnRank0& source, const GenerateOptions& options, io::IoDeadline& deadline) {
  io::TokenInfo own = io::token_info_from_json(source.record().vocabulary);
  if (options.tokenizer_files.empty()) {
    if (own.kind != "ids") return own;
    throw UsageError(fmt::format(
        "{} was trained on tokens that were made elsewhere: name the folder of their tokenizer with --tokenizer-files",
        source.file().string()));
  }
  const io::IoDeadline::Operation reading(&deadline, io::IoDeadline::Kind::reading, options.tokenizer_files);
  io::TokenInfo given = io::read_tokenizer_files(options.tokenizer_files);
  if (own.kind != "ids" && !io::same_vocabulary(own, given)) {
    throw UsageError(fmt::format("--tokenizer-files: {} has its own vocabulary, of kind {}, which is another one",
                                 source.file().string(), own.kind));
  }
  // A network may have more outputs than tokens (rounded up, for speed), but never fewer.
  if (given.vocabulary > own.vocabulary) {
    throw UsageError(fmt::format("--tokenizer-files: {} has {}, {} knows {}", options.tokenizer_files.string(),
                                 counted(given.vocabulary, "token"), source.file().string(), own.vocabulary));
  }
  return given;
}

/// Writes one text, with its prompt and a newline.
void write_text(Console& console, Writer& writer, const io::Tokenizer& tokenizer, std::vector<std::int32_t> text,
                const GenerateOptions& options, std::int64_t sample, StopSignals& signals) {
  const Sampling sampling{.temperature = options.temperature,
                          .top_k = options.top_k,
                          .top_p = options.top_p,
                          .seed = options.seed,
                          .sample = sample};
  StoppedText written(options.stop);
  std::string begun;  // first bytes of a character whose last bytes are not there yet
  const auto show = [&](const std::string& part) {
    begun += part;
    const std::size_t whole = io::whole_letters(begun);
    console.text(begun.substr(0, whole));
    begun.erase(0, whole);
  };
  console.text(options.prompt);
  for (std::int64_t i = 0; i < options.tokens && !signals.stop_requested() && !written.has_ended(); ++i) {
    const std::span<const float> logits = writer.next(text);
    text.push_back(draw_token(logits.first(static_cast<std::size_t>(tokenizer.info().vocabulary)), sampling, i));
    const std::span<const std::int32_t> last = std::span(text).last(1);
    std::string word = tokenizer.decode(last);
    word.insert(0, tokenizer.separator(text[text.size() - 2], last[0]));
    show(written.add(word));
    console.require_output();
  }
  console.text(begun + written.rest() + "\n");
  console.require_output();
}

}  // namespace

int run_generate(comm::MpiSession& session, const GenerateOptions& options, StopSignals& signals) {
  const auto communicator = communicator_of(session, options.execution);
  // The deadline covers files only: writing the text may wait for its reader.
  io::IoDeadline io_deadline = watch_files(session, *communicator, options.execution.io_deadline);
  Console console(true);
  CheckpointOnRank0 source(*communicator, options.checkpoint, &io_deadline);
  for (const std::string& warning : source.warnings()) console.warn(warning);
  const InferenceOptions trained = inference_options_of(source.record());
  if (model::network_kind(trained.network).reads != model::Reads::tokens) {
    throw UsageError(fmt::format("{} is of --model {}, which writes no text: generate needs a language model ({})",
                                 source.file().string(), model::network_kind(trained.network).name,
                                 fmt::join(model::language_models(), ", ")));
  }
  if (options.average && trained.optimizer.average_decay == 0) {
    throw UsageError("--average: the run kept no average of its weights (its --average-decay was 0)");
  }
  const io::Tokenizer tokenizer(vocabulary_of(source, options, io_deadline));
  const std::vector<std::int32_t> prompt = tokenizer.encode(options.prompt);
  if (prompt.empty()) throw UsageError("--prompt is empty: the text must begin with something");

  // A recurrent network reads one token at a time.
  const io::NetworkIdentity& trained_on = source.record().network;
  const std::int64_t context = model::network_kind(trained.network).recurrent ? 1 : trained_on.features;
  const auto network = model::make_network(
      trained.network, {.features = context, .outputs = trained_on.outputs, .image = {}, .tokens = true});
  const Place place = find_place(*communicator, options.execution);
  const auto backend = make_agreed_backend(*communicator, place, options.execution);
  model::ParameterState parameters(*backend, network->parameters(),
                                   {.optimizer = trained.optimizer, .purpose = model::Purpose::evaluation});
  model::Model model(*backend, *network, parameters, {.max_batch = 1, .sample_type = model::ElementType::int32});
  source.restore(parameters);
  const FiniteWeights finite = finite_weights(parameters, network->parameters(), options.average);
  if (!finite.all()) console.warn(fmt::format("{}: {}", source.file().string(), finite.text()));

  signals.note();  // from now on, a signal ends the text after the current token
  const model::Weights weights = options.average ? model::Weights::average : model::Weights::current;
  Writer writer(model, weights, context);
  for (std::int64_t i = 0; i < options.samples && !signals.stop_requested(); ++i) {
    if (options.samples > 1) console.text(fmt::format("--- {} of {} ---\n", i + 1, options.samples));
    write_text(console, writer, tokenizer, prompt, options, i, signals);
  }
  return 0;
}

}  // namespace lockstep::app
