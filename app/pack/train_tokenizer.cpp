#include "app/pack/train_tokenizer.hpp"

#include <fmt/format.h>

#include "app/options/usage_error.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/tokenizer_files.hpp"

namespace lockstep::app {

int run_tokenizer_train(const TokenizerOptions& options) {
  for (const char* const name : {"vocab.json", "merges.txt", "tokenizer.json"}) {
    if (options.force || !std::filesystem::exists(options.out / name)) continue;
    throw UsageError(fmt::format("--out: {} exists; --force replaces it", (options.out / name).string()));
  }
  if (std::filesystem::exists(options.out / "tokenizer.json")) {
    throw UsageError(fmt::format("--out: {} has a tokenizer.json, which would be read first: choose another folder",
                                 options.out.string()));
  }
  Console console(true);
  const StopWatch watch;
  const io::TokenInfo info = io::learn_byte_pairs(options.texts, options.vocabulary);
  io::write_tokenizer_files(options.out, info);
  console.info(fmt::format("learnt   {} tokens: 256 bytes, {} merges, <|endoftext|>; {:.1f} s",
                           with_commas(info.vocabulary), with_commas(static_cast<std::int64_t>(info.merges.size())),
                           watch.seconds()));
  console.info(
      fmt::format("written  {}, {}", (options.out / "vocab.json").string(), (options.out / "merges.txt").string()));
  if (info.vocabulary < options.vocabulary) {
    console.warn(fmt::format("{} tokens were asked for; no pair occurs twice any more: give more text",
                             with_commas(options.vocabulary)));
  }
  console.mention_lost_output();
  return 0;
}

}  // namespace lockstep::app
