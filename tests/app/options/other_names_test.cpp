/// \file
/// Option names of other programs: for every command, hints must name options that the command has.
#include "app/options/other_names.hpp"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "app/bench/bench_options.hpp"
#include "app/check/check_options.hpp"
#include "app/evaluate/generate_options.hpp"
#include "app/evaluate/trained_model_options.hpp"
#include "app/exchange/export_options.hpp"
#include "app/exchange/import_options.hpp"
#include "app/info/info_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/pack/pack_options.hpp"
#include "app/pack/train_tokenizer_options.hpp"
#include "app/train/train_command_line.hpp"
#include "model/network.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using Arguments = std::vector<std::string>;

struct Parser {
  std::string name;
  std::function<void(const Arguments&)> parse;
};

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> all{{"train", [](const Arguments& a) { parse_train(a); }},
                                       {"check", [](const Arguments& a) { parse_check(a); }},
                                       {"eval", [](const Arguments& a) { parse_eval(a); }},
                                       {"predict", [](const Arguments& a) { parse_predict(a); }},
                                       {"generate", [](const Arguments& a) { parse_generate(a); }},
                                       {"export", [](const Arguments& a) { parse_export(a); }},
                                       {"import", [](const Arguments& a) { parse_import(a); }},
                                       {"pack", [](const Arguments& a) { parse_pack(a); }},
                                       {"tokenizer train", [](const Arguments& a) { parse_tokenizer_train(a); }},
                                       {"info", [](const Arguments& a) { parse_info(a); }},
                                       {"bench step", [](const Arguments& a) { parse_bench_step(a); }},
                                       {"bench scale", [](const Arguments& a) { parse_bench_scale(a); }},
                                       {"bench input", [](const Arguments& a) { parse_bench_input(a); }},
                                       {"bench all-reduce", [](const Arguments& a) { parse_bench_all_reduce(a); }}};
  return all;
}

std::string complaint(const Parser& command, const Arguments& arguments) {
  return test::message_of<UsageError>([&] { command.parse(arguments); });
}

std::string hint(std::string_view command, std::string_view word) {
  for (const Parser& one : parsers()) {
    if (one.name == command) return complaint(one, {fmt::format("--{}", word)});
  }
  return "no such command";
}

TEST(OtherNames, AreAnsweredWithOurs) {
  EXPECT_EQ(hint("train", "num-epochs"), "unknown option --num-epochs; did you mean --epochs?");
  EXPECT_EQ(hint("train", "num_epochs=3"), "unknown option --num_epochs; did you mean --epochs?");
  EXPECT_EQ(hint("train", "output"), "unknown option --output; did you mean --run?");
  EXPECT_EQ(hint("pack", "output"), "unknown option --output; did you mean --out?");
  EXPECT_EQ(hint("eval", "output"), "unknown option --output; did you mean --json?");
  EXPECT_EQ(hint("train", "lr"), "unknown option --lr; did you mean --learning-rate?");
  EXPECT_EQ(hint("train", "batch-size"), "unknown option --batch-size; did you mean --batch?");
  EXPECT_EQ(hint("eval", "batch-size"), "unknown option --batch-size; did you mean --evaluation-batch?");
  EXPECT_EQ(hint("train", "fp16"), "unknown option --fp16; did you mean --precision bf16?");
  EXPECT_EQ(hint("generate", "max-new-tokens"), "unknown option --max-new-tokens; did you mean --tokens?");
  EXPECT_EQ(hint("train", "gpus"),
            "unknown option --gpus; ranks are started by the launcher: `mpirun -np N lockstep ...`, one rank for each "
            "GPU or core");
  EXPECT_EQ(hint("train", "workers"),
            "unknown option --workers; there is nothing to set: each rank reads ahead in a thread of its own");
  EXPECT_EQ(hint("info", "lr"), "unknown option --lr");
}

TEST(OtherNames, NameOnlyOptionsThatTheCommandHas) {
  std::set<std::string> unused;
  for (const std::string_view word : names_in_other_programs()) {
    bool answered = false;
    for (const Parser& command : parsers()) {
      const std::string said = complaint(command, {fmt::format("--{}", word)});
      const std::size_t at = said.find("did you mean --");
      if (!said.starts_with("unknown option")) {  // the command has this option
        answered = true;
        continue;
      }
      if (at == std::string::npos) {
        answered = answered || said.find("; `lockstep") == std::string::npos;
        continue;
      }
      answered = true;
      std::string option = said.substr(at + 13);  // "--device gpu?"
      option = option.substr(0, option.find_first_of(" ?"));
      if (option == "--config") continue;
      EXPECT_FALSE(complaint(command, {option}).starts_with("unknown option")) << command.name << ": " << said;
    }
    if (!answered) unused.insert(std::string(word));
  }
  EXPECT_TRUE(unused.empty()) << *unused.begin() << " is answered by no command";
}

TEST(OtherNames, StandOnceInTheList) {
  std::set<std::string_view> seen;
  for (const std::string_view word : names_in_other_programs()) EXPECT_TRUE(seen.insert(word).second) << word;
}

}  // namespace
}  // namespace lockstep::app
