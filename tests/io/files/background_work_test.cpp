#include "io/files/background_work.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

constexpr double kPatience = 60;

TEST(BackgroundWork, GoesOnBesideItsCaller) {
  BackgroundWork work(kPatience);
  EXPECT_TRUE(work.wait(0)) << "there is nothing to wait for";
  EXPECT_FALSE(work.collect());
  std::promise<void> permission;
  std::atomic<int> done = 0;
  work.start([&] {
    permission.get_future().wait();
    ++done;
  });
  EXPECT_TRUE(work.under_way());
  EXPECT_FALSE(work.wait(0.001));
  EXPECT_FALSE(work.collect());
  permission.set_value();
  EXPECT_TRUE(work.wait(kPatience));
  EXPECT_TRUE(work.under_way()) << "until it is collected";
  EXPECT_TRUE(work.collect());
  EXPECT_FALSE(work.under_way());
  EXPECT_EQ(done, 1);
}

TEST(BackgroundWork, OnePieceAtATime) {
  BackgroundWork work(kPatience);
  for (int i = 0; i < 3; ++i) {
    work.start([] {});
    EXPECT_THROW(work.start([] {}), std::logic_error);
    EXPECT_TRUE(work.wait(kPatience));
    EXPECT_TRUE(work.collect());
  }
}

TEST(BackgroundWork, TellsOnceWhatWentWrong) {
  BackgroundWork work(kPatience);
  work.start([] { throw FileError("disk/step-1.h5: no space"); });
  EXPECT_TRUE(work.wait(kPatience));
  EXPECT_EQ(error_text<FileError>([&] { work.collect(); }), "disk/step-1.h5: no space");
  EXPECT_FALSE(work.collect());
  work.start([] {});
  EXPECT_TRUE(work.wait(kPatience));
  EXPECT_TRUE(work.collect());
}

TEST(BackgroundWork, WhatAPieceOwnsIsGivenBackBeforeItCountsAsDone) {
  BackgroundWork work(kPatience);
  auto owned = std::make_shared<int>(7);
  work.start([owned] { EXPECT_EQ(*owned, 7); });
  EXPECT_TRUE(work.wait(kPatience));
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(BackgroundWork, TheDestructorWaits) {
  std::atomic<bool> done = false;
  {
    BackgroundWork work(kPatience);
    work.start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

TEST(BackgroundWork, TheDestructorDoesNotWaitForEver) {
  struct Shared {
    std::promise<void> permission;
    std::promise<void> ended;
  };
  const auto shared = std::make_shared<Shared>();
  {
    BackgroundWork work(kPatience);
    work.start([shared] {
      shared->permission.get_future().wait();
      shared->ended.set_value();
    });
    work.give_up();
  }
  shared->permission.set_value();  // the thread has lived on, and its data, too
  shared->ended.get_future().wait();
}

}  // namespace
}  // namespace lockstep::io
