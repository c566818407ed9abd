#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "app/agree/servers/arrivals.hpp"
#include "app/engine/signals.hpp"
#include "app/runs/report_runs.hpp"
#include "app/runs/run_history.hpp"
#include "app/runs/sweep_folder.hpp"
#include "app/train/train.hpp"
#include "comm/consensus.hpp"
#include "comm/session/mpi_session.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "io/shards/sample_source.hpp"
#include "io/shards/shard_writer.hpp"
#include "torture/mutation/subjects.hpp"

namespace lockstep::torture {
namespace {

namespace fs = std::filesystem;

/// Sends the standard output of its scope nowhere: it belongs to the torture's table.
class Silence {
 public:
  Silence() : out_(::dup(STDOUT_FILENO)) {
    const io::Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    std::fflush(stdout);
    ::dup2(nowhere.get(), STDOUT_FILENO);
  }
  ~Silence() {
    std::fflush(stdout);
    ::dup2(out_.get(), STDOUT_FILENO);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  io::Descriptor out_;
};

/// `lockstep train`, as a process that no launcher has started.
void train(std::vector<std::string> options) {
  static app::StopSignals signals;
  static int argc = 1;
  static char name[] = "lockstep";
  static char* names[] = {name, nullptr};
  static char** argv = names;
  static comm::MpiSession session(argc, argv);
  session.set_end_limit(1e9);  // the process goes on when the training is done
  options.insert(options.end(), {"--progress", "off", "--no-tensorboard", "--device", "cpu"});
  const Silence silence;
  try {
    app::run_train(session, app::read_train_command(options), signals);
  } catch (const comm::ConsensusError& error) {  // a FileError that all ranks know, or another refusal
    throw io::FileError(error.what());
  }
}

std::vector<std::string> training(const fs::path& folder) {
  return {"--data", folder / "set", "--hidden", "6", "--global-batch", "12", "--seed", "3"};
}

/// A small set, and in `run` what a training of four steps leaves.
void train_four_steps(const fs::path& folder) {
  const auto source = io::make_synthetic({.samples = 60, .features = 6, .classes = 3, .seed = 5});
  io::write_shards(*source, {.folder = folder / "set", .shards = 2}, {});
  std::vector<std::string> options = training(folder);
  options.insert(options.end(), {"--steps", "4", "--report-every", "1", "--run", folder / "run"});
  train(options);
}

constexpr const char* kCheckpoint = "run/checkpoints/step-0000000004.h5";

std::string initialize(const fs::path& folder) {
  std::vector<std::string> options = training(folder);
  options.insert(options.end(), {"--steps", "1", "--initialize-from", folder / kCheckpoint, "--run", folder / "new"});
  train(options);
  return "";
}

std::string go_on(const fs::path& folder) {
  train({"--run", folder / "run", "--resume", "--data", folder / "set", "--steps", "5"});
  return "";
}

std::string report(const fs::path& folder) {
  app::run_report({.runs = {folder / "run"}, .out = folder / "page.html"});
  return "";
}

const app::ArrivalHead kHead{.first = 0, .workers = 3, .sums = 0};

void record_arrivals(const fs::path& folder) {
  app::ArrivalRecord record(kHead);
  for (int round = 0; round < 6; ++round) {
    for (int worker = 0; worker < 3; ++worker) record.add({.worker = static_cast<std::uint16_t>(worker), .late = 0});
    record.end_round();
  }
  std::ofstream(folder / "arrivals-0", std::ios::binary) << record.take();
}

std::string arrivals(const fs::path& folder) {
  try {
    app::read_arrivals(folder / "arrivals-0", kHead);
  } catch (const io::FileError&) {
    throw;
  } catch (const std::runtime_error& error) {  // its sentence
    throw io::FileError(error.what());
  }
  return "";
}

constexpr app::SweepTask kTask{.rung = 1, .setting = 3};

void record_sweep(const fs::path& folder) {
  app::SweepFolder(folder).record(kTask,
                                  {.line = "hidden = 6", .metric_key = "accuracy", .metric = 0.5, .exit_code = 0});
}

std::string sweep(const fs::path& folder) {
  app::SweepFolder sweep(folder);
  sweep.result(kTask);
  return "";
}

}  // namespace

void add_commands(std::vector<Subject>& all) {
  const fs::path result = app::SweepFolder("").result_file(kTask);
  all.push_back({"train, initialize from", train_four_steps, {kCheckpoint}, initialize});
  all.push_back({"train, resume",
                 train_four_steps,
                 {kCheckpoint, "run/config.ini", "run/metrics.jsonl", "run/owner", "set/manifest.json"},
                 go_on});
  all.push_back({"report", train_four_steps, {"run/metrics.jsonl", "run/config.ini", "run/log.txt"}, report});
  all.push_back({"arrivals", record_arrivals, {"arrivals-0"}, arrivals});
  all.push_back({"sweep, results", record_sweep, {"sweep/" + result.filename().string()}, sweep});
}

}  // namespace lockstep::torture
