/// Checkpoints beside the training, in a world of one.
#include "app/engine/checkpointer.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/host/serial_communicator.hpp"
#include "io/io_test_support.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointerTest : public testing::Test {
 protected:
  CheckpointerTest() { checkpointer_.open({.folder = folder_}); }

  static io::TrainingRecord record_of(std::int64_t step) {
    io::TrainingRecord record;
    record.step = step;
    record.configuration = std::string(std::size_t{1} << 20, 'c');
    return record;
  }
  /// Every number of the state identifies its group, element and step.
  void set_state(std::int64_t step) {
    std::vector<float> values(training_.parameters.elements());
    float group_number = 0;
    for (const std::string& group : training_.parameters.state_groups()) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(step, group_number, i);
      training_.parameters.upload_group(group, values);
      ++group_number;
    }
  }
  static float value(std::int64_t step, float group, std::size_t element) {
    return static_cast<float>(step) * 1000 + group * 100 + static_cast<float>(element);
  }
  void expect_state_in(const fs::path& file, std::int64_t step) const {
    const io::Checkpoint checkpoint = io::read_checkpoint(file);
    EXPECT_EQ(checkpoint.record.step, step);
    const std::vector<std::string> groups = training_.parameters.state_groups();
    ASSERT_EQ(checkpoint.tensors.size(), training_.parameters.state_tensors().size());
    for (const model::StateTensor& tensor : training_.parameters.state_tensors()) {
      const io::StoredTensor* stored = checkpoint.find(tensor.group, tensor.name);
      ASSERT_NE(stored, nullptr) << tensor.group << '/' << tensor.name;
      EXPECT_EQ(stored->shape, tensor.shape);
      const auto group = static_cast<float>(std::find(groups.begin(), groups.end(), tensor.group) - groups.begin());
      for (std::size_t i = 0; i < tensor.count; ++i) {
        ASSERT_EQ(stored->values[i], value(step, group, tensor.offset + i)) << tensor.group << '/' << tensor.name;
      }
    }
  }

  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  comm::SerialCommunicator communicator_;
  std::unique_ptr<model::Backend> backend_ = model::make_backend("cpu", {.threads = 1});
  std::unique_ptr<model::Network> network_ = model::make_network({.name = "linear"}, {.features = 7, .outputs = 3});
  model::Training training_{*backend_,
                            *network_,
                            {.loss = model::LossKind::mean_squared_error, .max_batch = 1},
                            {.optimizer = {.kind = model::OptimizerKind::adam, .average_decay = 0.9}}};
  Checkpointer checkpointer_{{.communicator = communicator_,
                              .sharing = communicator_,
                              .training = training_,
                              .buckets = {},
                              .memory = backend_->memory()}};
};

TEST_F(CheckpointerTest, ACheckpointIsOfTheMomentOfItsCopyThoughTrainingGoesOn) {
  for (const std::int64_t step : {1, 2, 3}) {
    set_state(step);
    checkpointer_.take();
    checkpointer_.write(record_of(step));
    set_state(step + 50);  // while it is written
    EXPECT_TRUE(checkpointer_.under_way());
    checkpointer_.wait();
    const auto written = checkpointer_.poll();
    ASSERT_TRUE(written.has_value());
    EXPECT_EQ(written->step, step);
    EXPECT_GE(written->seconds, written->stall * 0.5);
    EXPECT_GT(written->stall, 0);
    expect_state_in(written->file, step);
    EXPECT_FALSE(checkpointer_.under_way());
    EXPECT_FALSE(checkpointer_.poll().has_value()) << "said once";
  }
}

TEST_F(CheckpointerTest, AFailureIsToldByWhoAsksNext) {
  checkpointer_.take();
  checkpointer_.write(record_of(1));
  checkpointer_.wait();
  ASSERT_TRUE(checkpointer_.poll().has_value());
  fs::remove_all(folder_);
  checkpointer_.take();
  checkpointer_.write(record_of(2));
  checkpointer_.wait();
  EXPECT_THAT(test::message_of<io::FileError>([&] { checkpointer_.poll(); }),
              HasSubstr((folder_ / "step-0000000002.h5").string()));
  EXPECT_FALSE(checkpointer_.under_way());
}

TEST_F(CheckpointerTest, TheCopyIsTheWritersUntilItHasWritten) {
  std::promise<void> permission;
  const std::shared_future<void> permitted = permission.get_future().share();
  std::atomic<bool> held_up = false;
  checkpointer_.open({.folder = folder_, .still_owner = [&] {
                        if (held_up) permitted.wait();
                      }});
  set_state(1);
  checkpointer_.take();
  held_up = true;
  checkpointer_.write(record_of(1));
  EXPECT_THROW(checkpointer_.take(), std::logic_error);
  EXPECT_FALSE(checkpointer_.poll().has_value());
  permission.set_value();
  checkpointer_.wait();
  EXPECT_NO_THROW(checkpointer_.take());  // with or without a caller that asks for the result
  const auto written = checkpointer_.poll();
  ASSERT_TRUE(written.has_value());
  expect_state_in(written->file, 1);
}

TEST_F(CheckpointerTest, AFileSystemThatDoesNotAnswerIsGivenUp) {
  const auto permission = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  {
    const auto held_up = std::make_shared<std::atomic<bool>>(false);
    Checkpointer impatient({.communicator = communicator_,
                            .sharing = communicator_,
                            .training = training_,
                            .buckets = {},
                            .memory = std::pmr::get_default_resource(),
                            .patience = 0.05});
    impatient.open({.folder = folder_, .still_owner = [=] {
                      if (!*held_up) return;
                      permission->get_future().wait();
                      ended->set_value();
                      throw io::FileError("too late");
                    }});
    impatient.take();
    *held_up = true;
    impatient.write(record_of(3));
    EXPECT_THAT(test::message_of<io::FileError>([&] { impatient.wait(); }),
                testing::AllOf(HasSubstr("step 3"), HasSubstr("does not answer")));
  }  // the destructor does not wait either
  permission->set_value();
  ended->get_future().wait();
}

}  // namespace
}  // namespace lockstep::app
