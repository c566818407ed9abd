/// \file
/// Networks from users' files: found before the command line is parsed, by --model, --config or the run that resumes.
#include "app/options/network_files.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/stored_options.hpp"
#include "app/train/train_command_line.hpp"
#include "io/io_test_support.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTwoLayers =
    "name: two\noptions: {width: 4, batch-size: 3}\nnetwork: [dense: $width, dense: $outputs]\n";

class NetworkFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = folder_.path() / name;
    std::ofstream(file) << text;
    return file.string();
  }
  template <class Work>
  static std::string refusal(const Work& work) {
    return test::message_of<UsageError>([&] { work(); });
  }
  io::TemporaryFolder folder_;
};

TEST_F(NetworkFiles, AreNamedOnTheCommandLineOrInAConfiguration) {
  const std::string file = write("net.yaml", kTwoLayers);
  EXPECT_EQ(find_network({"--data", "d", "--model", file}).source->name, "two");
  EXPECT_EQ(find_network({"--model=" + file}).source->file, file);
  EXPECT_EQ(find_network({"--config", write("c.ini", "width = 5\nmodel = " + file + "\n")}).source->name, "two");
  EXPECT_EQ(find_network({"--model", "mlp", "--config", write("d.ini", "model = " + file + "\n")}).source, nullptr);
  EXPECT_EQ(find_network({"--model", "mlp"}).source, nullptr);
  EXPECT_EQ(find_network({}).source, nullptr);
  EXPECT_EQ(find_network({"--data", "--", "--model", file}).source, nullptr);
}

TEST_F(NetworkFiles, GiveTheirOptionsTheirOwnTypes) {
  const std::string file = write("net.yaml",
                                 "name: n\noptions: {hidden: 4, layers: [2, 3], dropout: no}\n"
                                 "network: [dense: $outputs]\n");
  const TrainOptions options =
      parse_train({"--data", "d", "--hidden", "5", "--model", file, "--layers", "1,2", "--dropout"});
  EXPECT_EQ(options.network.get<std::int64_t>("hidden"), 5);
  EXPECT_EQ(options.network.get<model::Numbers>("layers"), (model::Numbers{1, 2}));
  EXPECT_TRUE(options.network.get<bool>("dropout"));
  const TrainOptions back = train_options_from_ini(options.to_ini(), options.network.source->text);
  EXPECT_EQ(back.network, options.network);
}

TEST_F(NetworkFiles, RefusesWhatCannotBeReadOrIsNoNetwork) {
  EXPECT_THAT(refusal([&] { read_network_file((folder_.path() / "none.yaml").string()); }),
              HasSubstr("none.yaml cannot be read"));
  EXPECT_THAT(refusal([&] { read_network_file(folder_.path().string()); }), HasSubstr("cannot be read: a text file"));
  EXPECT_THAT(refusal([&] { read_network_file(write("a.yaml", "name: n\n")); }), HasSubstr("a.yaml:1: network: is"));
  EXPECT_THAT(refusal([&] { read_network_file(write("b.yaml", std::string(2 << 20, 'x'))); }),
              HasSubstr("the text of a network has at most 1048576"));
  EXPECT_THAT(refusal([&] {
                parse_train({"--data", "d", "--model",
                             write("c.yaml",
                                   "name: n\noptions: {batch: 4}\n"
                                   "network: [dense: 3]\n")});
              }),
              HasSubstr("options: batch is the name of another option of lockstep train"));
  EXPECT_THAT(refusal([&] {
                parse_train({"--data", "d", "--model",
                             write("d.yaml",
                                   "name: n\ntraining: {run: x}\n"
                                   "network: [dense: 3]\n")});
              }),
              HasSubstr("training: run is no option of training that a network brings"));
}

TEST_F(NetworkFiles, AResumedRunBringsItsOwn) {
  const std::string file = write("net.yaml", "name: changed\nnetwork: [dense: 3]\n");
  const auto stored = [&](const std::filesystem::path&) {
    return StoredRun{.configuration = "model = " + file + "\nwidth = 5\n", .network = kTwoLayers};
  };
  const NamedNetwork named = find_network({"--resume=a.h5", "--model", file, "--width", "6"}, stored);
  EXPECT_EQ(named.source->name, "two");
  EXPECT_THAT(named.arguments, ElementsAre("--resume=a.h5", "--width", "6"));
  EXPECT_THAT(named.note, HasSubstr("net.yaml differs from the network of the run"));
  write("net.yaml", kTwoLayers);
  EXPECT_EQ(find_network({"--resume=a.h5"}, stored).note, "");
  const auto shipped = [](const std::filesystem::path&) { return StoredRun{.configuration = "model = mlp\n"}; };
  EXPECT_EQ(find_network({"--resume=a.h5"}, shipped).source, nullptr);
  const auto stale = [](const std::filesystem::path&) { return StoredRun{"model = mlp\n", kTwoLayers}; };
  EXPECT_EQ(find_network({"--resume=a.h5"}, stale).source, nullptr) << "a text of an earlier run in the folder";
}

TEST_F(NetworkFiles, InitialWeightsOfAnotherFileKeepWhatBothKnow) {
  const StoredRun before{.configuration = "model = /gone/net.yaml\nwidth = 5\n", .network = kTwoLayers};
  const TrainOptions same = with_network_of(parse_train({"--data", "d"}), before);
  EXPECT_EQ(same.network.get<std::int64_t>("width"), 5);
  EXPECT_EQ(model::network_kind(same.network).name, "two");
  const std::string other = write("other.yaml", "name: other\noptions: {depth: 2}\nnetwork: [dense: $outputs]\n");
  const TrainOptions options = with_network_of(parse_train({"--data", "d", "--model", other}), before);
  EXPECT_EQ(model::network_kind(options.network).name, "other");
  EXPECT_EQ(options.network.get<std::int64_t>("depth"), 2);
  EXPECT_EQ(options.network.values.count("width"), 0u);
  const TrainOptions mlp = with_network_of(parse_train({"--data", "d", "--model", "mlp"}), before);
  EXPECT_EQ(mlp.network.name, "mlp");
}

}  // namespace
}  // namespace lockstep::app
