#include "app/agree/combinations.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>

#include "app/agree/agreement.hpp"
#include "app/options/usage_error.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;

std::string guide() {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path();
  std::ifstream file(root / "comm" / "README.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The sentence of the refusal; "" if the job is accepted.
std::string refusal(const Combination& job) {
  return test::message_of<UsageError>([&] { require_combination(job); });
}

Combination job_with(const TrainOptions& options) {
  return {.agree = options.agree,
          .execution = options.execution,
          .run = options.run,
          .optimizer = options.optimizer,
          .reproducible = options.work.reproducible};
}

std::string refusal(const TrainOptions& options, int servers = 0) {
  Combination job = job_with(options);
  job.servers = servers;
  return refusal(job);
}

std::string refusal_on_gpus(const TrainOptions& options) {
  Combination job = job_with(options);
  job.gpus = true;
  return refusal(job);
}

std::string refusal_of_sums_in_forward(const TrainOptions& options) {
  Combination job = job_with(options);
  job.synchronizes = true;
  return refusal(job);
}

TrainOptions local() {
  TrainOptions options;
  options.agree.local_steps = 4;
  return options;
}

TrainOptions quorum() {
  TrainOptions options;
  options.agree.quorum = 2;
  return options;
}

TEST(Combinations, StandInTheGuide) { EXPECT_THAT(guide(), HasSubstr("\n" + format_combinations() + "\n")); }

TEST(Combinations, OfNothingSpecialAreAllowed) {
  TrainOptions async;
  async.agree.asynchronous = true;
  for (const TrainOptions& options : {TrainOptions(), local(), quorum(), async}) EXPECT_EQ(refusal(options), "");
}

TEST(Combinations, NameModePartAndReason) {
  TrainOptions options = quorum();
  options.execution.wire = comm::WireFormat::bf16;
  EXPECT_EQ(refusal(options), "--agree quorum does not go with --wire bf16: gradients travel in full");
  options.agree.quorum = 0;
  EXPECT_EQ(refusal(options), "");
  options.work.reproducible = true;
  EXPECT_EQ(refusal(options), "--reproducible does not go with --wire bf16: each rank would round its own sums");
}

TEST(Combinations, OfTheModeAsyncAreThoseOfAQuorum) {
  TrainOptions options;
  options.agree.asynchronous = true;
  options.work.reproducible = true;
  EXPECT_EQ(refusal(options), "--agree async does not go with --reproducible: gradients are added as they come");
  options.agree.replay = "arrivals-0";
  EXPECT_THAT(refusal(options), HasSubstr("--agree async does not go with --reproducible"));
}

TEST(Combinations, RefuseOptionsOfOtherModes) {
  TrainOptions options = local();
  options.agree.servers.shared = true;
  EXPECT_EQ(refusal(options), "--servers has an effect only with --agree quorum=RANKS or async");
  options = TrainOptions();
  options.agree.replay = "arrivals-0";
  EXPECT_EQ(refusal(options), "--replay has an effect only with --agree quorum=RANKS or async");
  const auto refused = [](auto set) {
    TrainOptions with = quorum();
    set(with.agree);
    return refusal(with);
  };
  const std::string words = "--agree quorum does not go with ", why = ": that is for --agree local";
  EXPECT_EQ(refused([](AgreeOptions& agree) { agree.islands = 2; }), words + "--islands" + why);
  EXPECT_EQ(refused([](AgreeOptions& agree) { agree.after = 2; }), words + "--agree-after" + why);
  EXPECT_EQ(refused([](AgreeOptions& agree) { agree.outer.rate = 0.5; }), words + "--outer-optimizer" + why);
  EXPECT_EQ(refused([](AgreeOptions& agree) { agree.fragments = 2; }), words + "--fragments" + why);
  EXPECT_EQ(refused([](AgreeOptions& agree) { agree.delay = 2; }), words + "--delay" + why);
}

TEST(Combinations, RefuseAPartOfAnOption) {
  TrainOptions options = local();
  options.execution.shard_optimizer = true;
  EXPECT_EQ(refusal(options), "");
  options.agree.after = 8;
  EXPECT_THAT(refusal(options), HasSubstr("--agree local does not go with --shard-optimizer and --agree-after: first"));
  options = quorum();
  options.run.roll_back = 1;
  EXPECT_EQ(refusal(options), "");
  options.agree.replay = "arrivals-0";
  EXPECT_THAT(refusal(options), HasSubstr("--agree quorum does not go with --roll-back beside --replay: the record"));
  options = quorum();
  options.optimizer.kind = model::OptimizerKind::lamb;
  EXPECT_EQ(refusal(options, 1), "");
  EXPECT_THAT(refusal(options, 2),
              HasSubstr("--agree quorum does not go with --optimizer lamb on 2 servers: it looks"));
}

TEST(Combinations, DependOnDevicesAndNetwork) {
  TrainOptions options = local();
  EXPECT_EQ(refusal_on_gpus(options), "--agree local does not go with GPUs yet: give --device cpu");
  EXPECT_EQ(refusal_of_sums_in_forward(options), "");
  options = quorum();
  EXPECT_EQ(refusal_of_sums_in_forward(options),
            "--agree quorum does not go with --sync-batch-norm: ranks are in different steps");
  options = TrainOptions();
  options.execution.tune = options.work.reproducible = true;
  EXPECT_EQ(refusal(options), "");
  EXPECT_THAT(refusal_on_gpus(options), HasSubstr("--reproducible does not go with --tune: each rank would choose"));
}

TEST(Agreement, DividesRanks) {
  const auto all = make_agreement(AgreeOptions(), 5);
  EXPECT_EQ(all->roles().training_ranks, 5);
  EXPECT_FALSE(all->roles().groups);
  EXPECT_EQ(all->group_of(3).size, 5);
  TrainOptions options = local();
  options.agree.islands = 2;
  const auto islands = make_agreement(options.agree, 5);
  EXPECT_EQ(islands->roles().training_ranks, 5);
  EXPECT_EQ(islands->roles().owner_of_most, 1) << "the last rank of the smaller island";
  EXPECT_EQ(islands->group_of(1).first, 0);
  EXPECT_EQ(islands->group_of(1).size, 2);
  EXPECT_EQ(islands->group_of(4).first, 2);
  EXPECT_EQ(islands->group_of(4).largest, 3);
  options.agree.after = 10;
  EXPECT_EQ(make_agreement(options.agree, 5)->group_of(4).largest, 5) << "all ranks make the first steps";
  options = quorum();
  options.agree.servers.count = 2;
  const auto servers = make_agreement(options.agree, 5);
  EXPECT_EQ(servers->roles().training_ranks, 3);
  EXPECT_EQ(servers->roles().servers, 2);
  EXPECT_FALSE(servers->roles().updates_here);
  EXPECT_EQ(servers->group_of(2).size, 1);
}

TEST(Agreement, RefusesContradictions) {
  TrainOptions options = local();
  options.agree.fragments = 5;
  EXPECT_THROW(make_agreement(options.agree, 2), UsageError) << "more fragments than steps";
  options.agree.fragments = options.agree.delay = 2;
  EXPECT_THROW(make_agreement(options.agree, 2), UsageError) << "a delay as long as a turn";
  options.agree.delay = 1;
  EXPECT_NO_THROW(make_agreement(options.agree, 2));
}

TEST(Agreement, RefusesOtherNumbersOfRanks) {
  TrainOptions options = local();
  options.agree.islands = 3;
  EXPECT_THROW(make_agreement(options.agree, 2), UsageError);
  options = quorum();
  EXPECT_THROW(make_agreement(options.agree, 1), UsageError) << "two gradients of one rank";
  options.agree.servers.count = 2;
  EXPECT_THROW(make_agreement(options.agree, 2), UsageError) << "nobody trains";
}

TEST(Agreement, OfAResumedRunMayLoseState) {
  AgreeOptions two = local().agree, three = two;
  two.islands = 2;
  three.islands = 3;
  EXPECT_EQ(check_resumed_mode("runs/r", two, two, 8), "");
  EXPECT_THROW(check_resumed_mode("runs/r", two, three, 8), UsageError);
  EXPECT_THAT(check_resumed_mode("runs/r", two, AgreeOptions(), 8), HasSubstr("the others' state is left behind"));
  EXPECT_EQ(check_resumed_mode("runs/r", AgreeOptions(), two, 8), "");
}

}  // namespace
}  // namespace lockstep::app
