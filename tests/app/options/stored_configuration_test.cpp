#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/stored_options.hpp"

namespace lockstep::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TrainOptions settings() {
  TrainOptions made;
  made.data.path = "shards/train";
  made.data.validation = "shards/test";
  made.run.folder = "runs/a";
  return made;
}

TEST(StoredConfiguration, NamesItsFilesForEveryFolder) {
  const std::string here = std::filesystem::current_path().string();
  const std::string stored = stored_configuration(settings());
  EXPECT_THAT(stored, HasSubstr("\ndata = " + here + "/shards/train\n"));
  EXPECT_THAT(stored, HasSubstr("\nvalidation = " + here + "/shards/test\n"));
  EXPECT_THAT(stored, HasSubstr("\nrun = " + here + "/runs/a\n"));
  EXPECT_EQ(train_options_from_ini(stored_configuration({})).data.path, "") << "no path is none from anywhere";
}

TEST(StoredConfiguration, LeavesOutWhatBelongsToOneLaunch) {
  TrainOptions launched = settings();
  launched.run.resume.from = Resume::From::newest;
  launched.run.force = true;
  launched.run.time_limit = {.kind = TimeLimit::Kind::given, .seconds = 60};
  EXPECT_EQ(stored_configuration(launched), stored_configuration(settings()));
}

TEST(ChangedOptions, AreNoneWhereAPathIsOnlySpeltOtherwise) {
  TrainOptions absolute = settings();
  absolute.data.path = std::filesystem::current_path() / "shards" / "." / "train" / "";
  EXPECT_THAT(changed_options({settings().to_ini()}, absolute), IsEmpty());
  EXPECT_THAT(changed_options({stored_configuration(settings())}, settings()), IsEmpty());
}

TEST(ChangedOptions, AreTheLinesThatDifferAndNotTheFolder) {
  TrainOptions changed = settings();
  changed.work.epochs = 3;
  changed.run.folder = "runs/b";
  EXPECT_THAT(changed_options({settings().to_ini()}, changed), ElementsAre("epochs = 3"));
}

}  // namespace
}  // namespace lockstep::app
