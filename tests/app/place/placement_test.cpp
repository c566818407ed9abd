/// The rule as a function of what ranks see; memory in numbers; and find_place in a world of one.
#include "app/place/placement.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/choices.hpp"
#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"

namespace lockstep::app {
namespace {

using model::Precision;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Kind and identity.
std::string describe(const Place& place, const ExecutionOptions& options) {
  const std::string identity = device_identity(place);
  return device_kind(place, options) + (identity.empty() ? "" : " ") + identity;
}

constexpr const char* kNoDriver = "no NVIDIA driver is installed here";

/// GPU `number` of a host, at place `index` among the visible ones.
model::Device h200(const std::string& host, int number, int index) {
  model::Device device;
  device.index = index;
  device.name = "NVIDIA H200";
  device.pci = fmt::format("0000:{:02x}:00.0", 16 + number);
  device.uuid = fmt::format("GPU-{}{}-1111-2222", host, number);
  device.major = 9;
  device.processors = 132;
  device.bytes = std::size_t{141} << 30;
  return device;
}

model::Device v100(const std::string& host, int number, int index) {
  model::Device device = h200(host, number, index);
  device.name = "Tesla V100-SXM2-16GB";
  device.major = 7;
  device.processors = 80;
  return device;
}

/// A rank that sees these GPUs of its host, in this order.
RankView view(const std::string& host, int local_rank, const std::vector<int>& visible,
              const std::string& obstacle = "") {
  RankView view{.local_rank = local_rank, .host = host, .visible_devices = "", .survey = {}};
  for (std::size_t i = 0; i < visible.size(); ++i) {
    view.survey.devices.push_back(h200(host, visible[i], static_cast<int>(i)));
  }
  if (visible.empty()) view.survey.obstacle = obstacle.empty() ? kNoDriver : obstacle;
  return view;
}

std::vector<int> up_to(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

/// `ranks` ranks that all see all `gpus` GPUs of one host.
std::vector<RankView> one_host(int ranks, int gpus, const std::string& host = "node1") {
  std::vector<RankView> views;
  for (int rank = 0; rank < ranks; ++rank) views.push_back(view(host, rank, up_to(gpus)));
  return views;
}

std::vector<RankView> operator+(std::vector<RankView> a, const std::vector<RankView>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int> indices(const std::vector<Place>& places) {
  std::vector<int> indices;
  for (const Place& place : places) indices.push_back(place.gpu ? place.gpu->index : -1);
  return indices;
}

std::vector<std::string> uuids(const std::vector<Place>& places) {
  std::vector<std::string> uuids;
  for (const Place& place : places) uuids.push_back(place.gpu->uuid.substr(0, place.gpu->uuid.find("-1111")));
  return uuids;
}

struct Complaint {
  std::string text;
  bool usage = false;
};

Complaint complaint(const std::vector<RankView>& views, const ExecutionOptions& options) {
  try {
    decide_places(views, options);
  } catch (const UsageError& error) {
    return {error.what(), true};
  } catch (const comm::ConsensusError& error) {
    return {error.what(), false};
  }
  return {"no complaint", false};
}

TEST(Placement, GivesEachLocalRankItsDevice) {
  for (const DeviceChoice device : {DeviceChoice::automatic, DeviceChoice::gpu}) {
    const auto places = decide_places(one_host(8, 8), {.device = device});
    EXPECT_THAT(indices(places), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    for (const Place& place : places) {
      EXPECT_EQ(place.precision, Precision::bf16);
      EXPECT_EQ(place.note, "device: gpu (precision bf16)");
      EXPECT_EQ(place.host, "node1");
      EXPECT_EQ(place.sharers, 1);
      EXPECT_FALSE(place.gpus_are_shared);
      EXPECT_EQ(place.communication_processors, 8);
    }
  }
}

TEST(Placement, CountsPerHost) {
  EXPECT_THAT(indices(decide_places(one_host(4, 4) + one_host(4, 4, "node2"), {})),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(Placement, TakesDeviceZeroWhereEachTaskSeesOneOfItsOwn) {
  std::vector<RankView> views;
  for (int rank = 0; rank < 8; ++rank) views.push_back(view(rank < 4 ? "a" : "b", rank % 4, {rank % 4}));
  const auto places = decide_places(views, {.device = DeviceChoice::gpu});
  EXPECT_THAT(indices(places), Each(0));
  EXPECT_THAT(uuids(places),
              ElementsAre("GPU-a0", "GPU-a1", "GPU-a2", "GPU-a3", "GPU-b0", "GPU-b1", "GPU-b2", "GPU-b3"));
}

TEST(Placement, LeavesDevicesOverWhereThereAreMoreThanRanks) {
  EXPECT_THAT(indices(decide_places(one_host(3, 8), {})), ElementsAre(0, 1, 2));
  const auto alone = decide_places(one_host(1, 8), {});
  EXPECT_THAT(indices(alone), ElementsAre(0));
  EXPECT_EQ(alone[0].communication_processors, 0);
}

TEST(Placement, TakesTheNextWhereAnotherRankHasTheDeviceAlready) {
  // A launcher that rotates the list so that each rank's own GPU comes first: number i of the rotated list is not rank
  // i's.
  std::vector<RankView> views;
  for (int rank = 0; rank < 4; ++rank) {
    views.push_back(view("node1", rank, {rank, (rank + 1) % 4, (rank + 2) % 4, (rank + 3) % 4}));
  }
  const auto places = decide_places(views, {});
  EXPECT_THAT(uuids(places), ElementsAre("GPU-node10", "GPU-node12", "GPU-node11", "GPU-node13"));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(places[rank].gpu->uuid,
              views[rank].survey.devices[static_cast<std::size_t>(places[rank].gpu->index)].uuid);
  }
  // Reversed lists, and pairs of one's own.
  EXPECT_THAT(uuids(decide_places({view("a", 0, {1, 0}), view("a", 1, {0, 1})}, {})), ElementsAre("GPU-a1", "GPU-a0"));
  EXPECT_THAT(uuids(decide_places({view("a", 0, {0, 1}), view("a", 1, {2, 3})}, {})), ElementsAre("GPU-a0", "GPU-a3"));
}

TEST(Placement, RefusesTwoRanksOnOneDeviceUnlessToldTo) {
  const auto views = one_host(2, 2, "node0") + one_host(5, 2);
  const Complaint shared = complaint(views, {});
  EXPECT_FALSE(shared.usage);
  EXPECT_EQ(shared.text,
            "--device auto: ranks 2,4,6 on node1 would share one GPU, NVIDIA H200 (0000:10:00.0), ranks 3,5 on node1 "
            "would share one GPU, NVIDIA H200 (0000:11:00.0); start as many ranks per host as it has GPUs, or compute "
            "with --device cpu. --share-gpu lets ranks share, for tests");
  const auto places = decide_places(views, {.share_gpu = true});
  EXPECT_THAT(indices(places), ElementsAre(0, 1, 0, 1, 0, 1, 0));
  std::vector<int> sharers;
  for (const Place& place : places) {
    sharers.push_back(place.sharers);
    EXPECT_TRUE(place.gpus_are_shared);
    EXPECT_EQ(place.communication_processors, 1);
  }
  EXPECT_THAT(sharers, ElementsAre(1, 1, 3, 2, 3, 2, 3));
  EXPECT_FALSE(decide_places(one_host(2, 2), {.share_gpu = true})[0].gpus_are_shared) << "nobody has to";
}

TEST(Placement, NamesTheVariableThatMadeRanksShare) {
  std::vector<RankView> views{view("n", 0, {3}), view("n", 1, {3})};
  for (RankView& view : views) view.visible_devices = "3";
  EXPECT_THAT(complaint(views, {.device = DeviceChoice::gpu}).text,
              HasSubstr("(CUDA_VISIBLE_DEVICES is '3' for each); start as many ranks"));
  views[1].visible_devices = "3,99";
  EXPECT_THAT(complaint(views, {.device = DeviceChoice::gpu}).text, Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(Placement, DoesNotListEverySharedDeviceOfALargeJob) {
  std::vector<RankView> views;
  for (int host = 0; host < 9; ++host) views = views + one_host(2, 1, fmt::format("node{}", host));
  const std::string text = complaint(views, {}).text;
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 4-5 on node2"), HasSubstr("and so on for 6 more"), Not(HasSubstr("node3"))));
}

TEST(Placement, LetsSlicesOfAGpuPassAsDevices) {
  RankView alone = view("node1", 0, {0});
  alone.survey.devices[0].name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
  alone.survey.devices[0].uuid = "MIG-5f1c0b2a-0000-1111";
  alone.survey.devices[0].processors = 16;
  const Place place = decide_places({alone}, {})[0];
  EXPECT_EQ(describe(place, {}), "NVIDIA H100 80GB HBM3 MIG 1g.10gb 0000:10:00.0 MIG-5f1c0b2a");

  // Two slices of one GPU are two devices, but one GPU for NCCL.
  RankView other = alone;
  other.local_rank = 1;
  other.survey.devices[0].uuid = "MIG-77777777-0000-1111";
  EXPECT_THAT(complaint({alone, other}, {}).text, HasSubstr("ranks 0-1 on node1 would share slices of one GPU, NVIDIA "
                                                            "H100 80GB HBM3 MIG 1g.10gb (0000:10:00.0); start"));
  const auto shared = decide_places({alone, other}, {.share_gpu = true});
  EXPECT_TRUE(shared[0].gpus_are_shared);
  EXPECT_EQ(shared[0].sharers, 1) << "each slice has memory of its own";
  other.survey.devices[0].pci = "0000:11:00.0";
  const auto apart = decide_places({alone, other}, {});
  EXPECT_FALSE(apart[0].gpus_are_shared);
  EXPECT_EQ(apart[0].communication_processors, 2) << "an eighth of so small a device";
}

TEST(Placement, TellsHostsOfTheSameNameApartByTheirDevices) {
  auto views = one_host(2, 2, "localhost");
  for (int rank = 0; rank < 2; ++rank) {
    RankView far = view("localhost", 2 + rank, up_to(2));
    for (model::Device& device : far.survey.devices) device.uuid += "-far";
    views.push_back(far);
  }
  EXPECT_THAT(indices(decide_places(views, {})), ElementsAre(0, 1, 0, 1));
}

TEST(Placement, TakesTheCpuWhereNobodyHasAGpuAndSaysWhy) {
  const auto places = decide_places({view("a", 0, {}), view("b", 0, {})}, {});
  for (const Place& place : places) {
    EXPECT_FALSE(place.gpu);
    EXPECT_EQ(place.precision, Precision::fp32);
    EXPECT_EQ(place.note, "device: cpu (no NVIDIA driver is installed here)");
  }
  EXPECT_EQ(decide_places({view("a", 0, {}), view("b", 0, {}, "the driver is too old")}, {})[0].note,
            "device: cpu (rank 0 on a: no NVIDIA driver is installed here; rank 1 on b: the driver is too old)");
}

TEST(Placement, TakesTheCpuWhereToldTo) {
  for (const Place& place : decide_places(one_host(2, 2), {.device = DeviceChoice::cpu})) {
    EXPECT_FALSE(place.gpu);
    EXPECT_EQ(place.note, "");
  }
}

TEST(Placement, RefusesAWorldOfBothKinds) {
  auto views = one_host(4, 4);
  for (int rank = 0; rank < 4; ++rank) views.push_back(view("node2", rank, {}));
  for (const DeviceChoice device : {DeviceChoice::automatic, DeviceChoice::gpu}) {
    const Complaint mixed = complaint(views, {.device = device});
    EXPECT_FALSE(mixed.usage);
    EXPECT_EQ(mixed.text,
              fmt::format("--device {}: ranks 4-7 on node2 see no GPU (no NVIDIA driver is installed here), "
                          "while ranks 0-3 on node1 do; --device cpu computes on the CPU everywhere, or "
                          "leave node2 out",
                          word_of(device)));
  }
  EXPECT_EQ(
      complaint({view("a", 0, {0}), view("a", 1, {}, "the job got none")}, {}).text,
      "--device auto: rank 1 on a sees no GPU (the job got none), while rank 0 on a does; --device cpu computes on "
      "the CPU everywhere, or give every rank a GPU");
}

TEST(Placement, RefusesToGoWithoutAGpuThatWasAskedFor) {
  const Complaint alone = complaint({view("box", 0, {})}, {.device = DeviceChoice::gpu});
  EXPECT_FALSE(alone.usage) << "the command line is right, the machine is not";
  EXPECT_EQ(alone.text,
            "--device gpu: box sees no GPU (no NVIDIA driver is installed here); --device cpu computes without one");
  std::vector<RankView> views;
  for (int host = 0; host < 6; ++host) {
    for (int rank = 0; rank < 2; ++rank) views.push_back(view(fmt::format("n{}", host), rank, {}));
  }
  EXPECT_EQ(
      complaint(views, {.device = DeviceChoice::gpu}).text,
      "--device gpu: ranks 0-11 on n0, n1, n2 and 3 more see no GPU (no NVIDIA driver is installed here); --device "
      "cpu computes without one");
  views.resize(4);
  views[3].survey.obstacle = "the driver is too old";
  EXPECT_THAT(complaint(views, {.device = DeviceChoice::gpu}).text,
              HasSubstr("ranks 0-2 on n0 and n1 see no GPU (no NVIDIA driver is installed here), rank 3 on n1 sees no "
                        "GPU (the driver is too old); "));
}

TEST(Placement, ChoosesThePrecisionThatAllDevicesHave) {
  auto views = one_host(2, 2);
  views.push_back(view("old", 0, {}));
  views[2].survey = {.devices = {v100("old", 0, 0)}, .obstacle = ""};
  views[2].survey.devices[0].processors = 48;
  for (const Place& place : decide_places(views, {})) {
    EXPECT_EQ(place.precision, Precision::fp32);
    EXPECT_EQ(place.note,
              "device: gpu (precision fp32: the GPU of rank 2 on old has no bf16 (Tesla V100-SXM2-16GB, compute "
              "capability 7.0))");
    EXPECT_EQ(place.communication_processors, 6) << "the same on every rank: an eighth of the smallest";
  }
  EXPECT_THAT(decide_places(views, {.precision = Precision::fp32})[2].note, "device: gpu (precision fp32)");
  for (const Precision precision : {Precision::bf16, Precision::tf32}) {
    const Complaint refused = complaint(views, {.precision = precision});
    EXPECT_FALSE(refused.usage);
    EXPECT_EQ(
        refused.text,
        fmt::format("--precision {0}: the GPU of rank 2 on old has no {0} (Tesla V100-SXM2-16GB, compute capability "
                    "7.0); --precision fp32 runs everywhere, without --precision all take the best that all have",
                    model::name_of(precision)));
  }
}

TEST(Placement, TakesThePrecisionThatIsAskedFor) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    EXPECT_EQ(decide_places(one_host(1, 1), {.precision = precision})[0].precision, precision);
  }
}

TEST(Placement, RefusesThePrecisionThatCpusDoNotHave) {
  const Complaint contradiction =
      complaint(one_host(1, 1), {.device = DeviceChoice::cpu, .precision = Precision::tf32});
  EXPECT_TRUE(contradiction.usage);
  EXPECT_EQ(contradiction.text,
            "--precision tf32 needs a GPU, and --device cpu takes none: CPUs compute in fp32, which --precision auto "
            "takes where there is no GPU, or in bf16");
  const Complaint missing = complaint({view("a", 0, {})}, {.precision = Precision::tf32});
  EXPECT_FALSE(missing.usage) << "elsewhere the same command line is right";
  EXPECT_THAT(missing.text, HasSubstr("needs a GPU, and there is none (no NVIDIA driver is installed here): CPUs"));
  EXPECT_EQ(complaint({view("a", 0, {})}, {.device = DeviceChoice::cpu, .precision = Precision::fp32}).text,
            "no complaint");
  EXPECT_EQ(complaint({view("a", 0, {})}, {.device = DeviceChoice::cpu, .wire = comm::WireFormat::bf16}).text,
            "no complaint");
  const Complaint wire =
      complaint(one_host(1, 1), {.device = DeviceChoice::gpu, .wire = comm::WireFormat::bf16_feedback});
  EXPECT_TRUE(wire.usage);
  EXPECT_THAT(wire.text, HasSubstr("--wire bf16-feedback is for CPUs"));
}

/// Ranks of two hosts, with these choices for bf16.
std::vector<RankView> two_hosts(const model::Bf16Choice& a, const model::Bf16Choice& b) {
  std::vector<RankView> views{view("a", 0, {}), view("a", 1, {}), view("b", 0, {})};
  views[0].bf16 = views[1].bf16 = a;
  views[2].bf16 = b;
  return views;
}

TEST(Placement, MultipliesInBf16WhereEveryCpuIsFasterSo) {
  using model::Bf16Unit;
  const ExecutionOptions cpu{.device = DeviceChoice::cpu, .precision = Precision::bf16};
  for (const Place& place : decide_places(two_hosts({.unit = Bf16Unit::avx512, .obstacle = "", .gain = 1.84},
                                                    {.unit = Bf16Unit::avx512, .obstacle = "", .gain = 1.76}),
                                          cpu)) {
    EXPECT_EQ(place.precision, Precision::bf16);
    EXPECT_EQ(place.bf16_unit, Bf16Unit::avx512);
    EXPECT_EQ(place.note, "precision: bf16 by AVX512-BF16, measured: 1.8 times as fast as fp32");
  }
  const model::Bf16Choice emulated{.unit = Bf16Unit::emulated_amx, .obstacle = "", .gain = 0};
  EXPECT_EQ(decide_places(two_hosts(emulated, emulated),
                          {.precision = Precision::bf16, .bf16_unit = Bf16Unit::emulated_amx})[2]
                .note,
            "device: cpu (no NVIDIA driver is installed here); precision: bf16 by an emulation of AMX");
}

TEST(Placement, RefusesBf16WhereACpuIsNotFasterSo) {
  using model::Bf16Unit;
  const ExecutionOptions cpu{.device = DeviceChoice::cpu, .precision = Precision::bf16};
  const model::Bf16Choice fast{.unit = Bf16Unit::amx, .obstacle = "", .gain = 7},
      slow{.unit = Bf16Unit::none, .obstacle = "AVX512-BF16 multiplies at 93 GFLOP/s here, fp32 at 165", .gain = 0.6},
      none{.unit = Bf16Unit::none, .obstacle = "this processor has neither AMX nor AVX512-BF16", .gain = 0};
  const std::string remedy =
      "; give --precision fp32, or --bf16-unit emulated-avx512 or emulated-amx for the bits of bf16, slowly";
  const Complaint all = complaint(two_hosts(slow, slow), cpu);
  EXPECT_TRUE(all.usage);
  EXPECT_EQ(all.text, "--precision bf16: AVX512-BF16 multiplies at 93 GFLOP/s here, fp32 at 165" + remedy);
  EXPECT_EQ(complaint(two_hosts(fast, none), cpu).text,
            "--precision bf16: rank 2 on b: this processor has neither AMX nor AVX512-BF16" + remedy);
  EXPECT_EQ(complaint(two_hosts(slow, none), cpu).text,
            "--precision bf16: ranks 0-1 on a: AVX512-BF16 multiplies at 93 GFLOP/s here, fp32 at 165; rank 2 on b: "
            "this processor has neither AMX nor AVX512-BF16" +
                remedy);
  ExecutionOptions named = cpu;
  named.bf16_unit = Bf16Unit::amx;
  const model::Bf16Choice no_amx{.unit = Bf16Unit::none, .obstacle = "this processor has no AMX", .gain = 0};
  EXPECT_EQ(complaint(two_hosts(no_amx, no_amx), named).text,
            "--precision bf16 --bf16-unit amx: this processor has no AMX" + remedy);
}

TEST(Placement, RefusesCpusThatWouldMultiplyByOtherInstructions) {
  using model::Bf16Unit;
  const Complaint mixed = complaint(two_hosts({.unit = Bf16Unit::amx, .obstacle = "", .gain = 7},
                                              {.unit = Bf16Unit::avx512, .obstacle = "", .gain = 1.8}),
                                    {.device = DeviceChoice::cpu, .precision = Precision::bf16});
  EXPECT_TRUE(mixed.usage);
  EXPECT_EQ(
      mixed.text,
      "--precision bf16: CPUs differ, and so would their bits: ranks 0-1 on a by AMX; rank 2 on b by AVX512-BF16; "
      "name one that all have (--bf16-unit avx512), or leave hosts out");
}

TEST(RankViewText, ComesBackAsItWas) {
  RankView before = view("n", 0, {2, 0});
  before.bf16 = {.unit = model::Bf16Unit::none, .obstacle = "this processor has neither", .gain = 0.625};
  before.visible_devices = "2, 0";
  before.survey.devices[1].uuid = before.survey.devices[1].pci = "";
  const RankView after = view_from(to_text(before));
  EXPECT_EQ(after.visible_devices, "2, 0");
  EXPECT_EQ(after.bf16.unit, before.bf16.unit);
  EXPECT_EQ(after.bf16.obstacle, before.bf16.obstacle);
  EXPECT_EQ(after.bf16.gain, before.bf16.gain);
  ASSERT_EQ(after.survey.devices.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const model::Device &a = after.survey.devices[i], &b = before.survey.devices[i];
    EXPECT_EQ(a.index, b.index);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.pci, b.pci);
    EXPECT_EQ(a.uuid, b.uuid);
    EXPECT_EQ(a.major, b.major);
    EXPECT_EQ(a.minor, b.minor);
    EXPECT_EQ(a.processors, b.processors);
    EXPECT_EQ(a.bytes, b.bytes);
  }
  RankView none = view("n", 0, {}, "two\nlines");
  EXPECT_EQ(view_from(to_text(none)).survey.obstacle, "two lines");
  EXPECT_TRUE(view_from(to_text(none)).survey.devices.empty());
}

TEST(RankViewText, OfAnotherProgramIsRefused) {
  const std::string good = to_text(view("n", 0, {0}));
  for (const std::string& bad :
       {std::string(), std::string("lockstep view 1\n\n\n"), std::string("lockstep view 2\n\n\n9 0 \n"),
        good.substr(0, good.size() - 40), good + "x", good + "0 9 0 many 1 - - name\n"}) {
    EXPECT_THROW(view_from(bad), std::invalid_argument) << bad;
  }
}

TEST(PlaceText, NamesTheDevice) {
  Place place;
  EXPECT_EQ(describe(place, {.threads = 2}), "cpu (2 threads)");
  EXPECT_EQ(device_identity(place), "");
  place.gpu = h200("n", 0, 0);
  place.gpu->uuid = "GPU-8f3c1a2b-0123-4567-89ab-0123456789ab";
  EXPECT_EQ(device_kind(place, {}), "NVIDIA H200");
  EXPECT_EQ(device_identity(place), "0000:10:00.0 GPU-8f3c1a2b");
  EXPECT_EQ(describe(place, {}), "NVIDIA H200 0000:10:00.0 GPU-8f3c1a2b");
  EXPECT_EQ(name_with_pci(*place.gpu), "NVIDIA H200 (0000:10:00.0)");
}

TEST(PlaceText, SaysWhatArenasAreMadeOf) {
  Place place;
  EXPECT_TRUE(memory_types(place).is_host);
  EXPECT_EQ(memory_types(place).compute, model::ElementType::float32);
  place.gpu = h200("n", 0, 0);
  place.precision = Precision::bf16;
  EXPECT_FALSE(memory_types(place).is_host);
  EXPECT_EQ(memory_types(place).compute, model::ElementType::bfloat16);
  EXPECT_EQ(memory_types(place).master, model::ElementType::float32);
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// 1 GiB at any batch, and 1 MiB for each sample.
model::MemoryPlan plan_of(std::int64_t batch) {
  model::MemoryPlan plan;
  plan.parameters = 1024 * kMiB;
  plan.activations = static_cast<std::size_t>(batch) * kMiB;
  plan.kernels = 512 * kMiB;
  return plan;
}

GpuMemory free_memory_of(std::size_t mebibytes, const std::string& host = "node1", int sharers = 1) {
  return {.host = host,
          .gpu = "NVIDIA H200 (0000:10:00.0)",
          .free_bytes = mebibytes * kMiB,
          .bytes = 8192 * kMiB,
          .sharers = sharers};
}

std::string complaint_of(const std::vector<GpuMemory>& ranks, std::int64_t batch) {
  return memory_complaint(ranks, plan_of(batch), batch, plan_of);
}

TEST(GpuMemory, IsEnoughUpToTheByte) {
  const std::size_t needed = bytes_on_gpu(plan_of(1000));
  EXPECT_EQ(needed, 2536 * kMiB + 2536 * kMiB / 20);
  GpuMemory memory = free_memory_of(0);
  memory.free_bytes = needed;
  EXPECT_EQ(complaint_of({memory}, 1000), "");
  memory.free_bytes = needed - 1;
  EXPECT_THAT(complaint_of({memory}, 1000), HasSubstr("--batch 999 would fit"));
}

TEST(GpuMemory, SuggestsTheLargestBatchThatFits) {
  for (const std::size_t mebibytes : {1700u, 1800u, 2000u, 2500u, 4000u}) {
    const std::string text = complaint_of({free_memory_of(mebibytes)}, 100000);
    const std::size_t at = text.find("--batch ");
    ASSERT_NE(at, std::string::npos) << text;
    const std::int64_t batch = std::stoll(text.substr(at + 8));
    EXPECT_LE(bytes_on_gpu(plan_of(batch)), mebibytes * kMiB);
    EXPECT_GT(bytes_on_gpu(plan_of(batch + 1)), mebibytes * kMiB);
  }
  EXPECT_THAT(complaint_of({free_memory_of(1500)}, 64),
              HasSubstr("Not even --batch 1 would fit: take a smaller network"));
  EXPECT_THAT(complaint_of({free_memory_of(1500)}, 1), HasSubstr("Not even --batch 1 would fit"));
}

TEST(GpuMemory, IsAccountedForPerArena) {
  EXPECT_EQ(
      complaint_of({free_memory_of(2000)}, 1024),
      "out of GPU memory before the start: a rank with 1,024 samples at once needs 2.6 GiB = parameters 1.0 GiB + "
      "activations 1.0 GiB + kernels 512.0 MiB and 5 % more; NVIDIA H200 (0000:10:00.0) has 2.0 GiB "
      "of 8.0 GiB free. --batch 368 would fit");
}

TEST(GpuMemory, HoldsMoreThanArenas) {
  EXPECT_EQ(beside_arenas({}), "") << "on a CPU";
  EXPECT_EQ(beside_arenas({.products = 64 * kMiB,
                           .patches = 100 * kMiB,
                           .cudnn = 256 * kMiB,
                           .kernels = 512 * kMiB,
                           .communication = 147 * kMiB}),
            " + products 64.0 MiB + patches 100.0 MiB + cuDNN 256.0 MiB + kernels 512.0 MiB + NCCL 147.0 MiB");
}

TEST(GpuMemory, OfNcclGrowsWithBlocksAndConnections) {
  const auto bytes = [](int ranks, int processors, bool ring) {
    comm::DeviceCommunicatorOptions options;
    options.processors = processors, options.ring = ring;
    return comm::device_communicator_bytes(ranks, options);
  };
  EXPECT_EQ(bytes(1, 8, true), 0u);
  EXPECT_EQ(bytes(2, 8, true), 8 * 2 * comm::kNcclConnectionBytes);
  EXPECT_EQ(bytes(2, 8, false), 8 * 4 * comm::kNcclConnectionBytes);
  EXPECT_EQ(bytes(1000, 8, false), 8 * 10 * comm::kNcclConnectionBytes);
  comm::DeviceCommunicatorOptions shared;
  shared.wire = comm::WireFormat::bf16, shared.shared_device = true, shared.processors = 1;
  EXPECT_EQ(comm::device_communicator_bytes(2, shared), 2 * comm::kNcclConnectionBytes + comm::kDeviceStagingBytes);
}

TEST(GpuMemory, OfTheRankThatHasLeastDecides) {
  const std::string text = complaint_of(
      {free_memory_of(8000), free_memory_of(2500), free_memory_of(2000, "node2"), free_memory_of(8000, "node2")}, 1024);
  EXPECT_THAT(text, AllOf(HasSubstr("NVIDIA H200 (0000:10:00.0) of rank 2 on node2 has 2.0 GiB of 8.0 GiB free (too "
                                    "little on ranks 1-2). --batch 368 would fit")));
}

TEST(GpuMemory, IsDividedAmongRanksThatShareAGpu) {
  const std::vector<GpuMemory> ranks(2, free_memory_of(4000, "node1", 2));
  EXPECT_EQ(complaint_of(ranks, 300), "");
  EXPECT_THAT(complaint_of(ranks, 1024), AllOf(HasSubstr("has 3.9 GiB of 8.0 GiB free for 2 ranks that share it (too "
                                                         "little on ranks 0-1). --batch 368 would fit")));
}

TEST(FindPlace, DoesNotLookForGpusWhereTheCpuIsAskedFor) {
  comm::SerialCommunicator alone;
  const Place place = find_place(alone, {.device = DeviceChoice::cpu});
  EXPECT_FALSE(place.gpu);
  EXPECT_EQ(place.note, "");
  EXPECT_THROW(find_place(alone, {.device = DeviceChoice::cpu, .precision = Precision::tf32}), UsageError);
  EXPECT_EQ(transport_of(place, alone), comm::Transport::serial);
  EXPECT_EQ(make_backend(place, {.device = DeviceChoice::cpu})->name(), "cpu");
  EXPECT_NO_THROW(require_gpu_memory(alone, place, plan_of(1 << 30), 1 << 30, plan_of)) << "only GPUs are asked";
}

TEST(FindPlace, MultipliesInBf16WhereAskedTo) {
  comm::SerialCommunicator alone;
  ExecutionOptions options{
      .device = DeviceChoice::cpu, .precision = Precision::bf16, .bf16_unit = model::Bf16Unit::emulated_avx512};
  const Place place = find_place(alone, options);
  EXPECT_EQ(place.bf16_unit, model::Bf16Unit::emulated_avx512);
  EXPECT_EQ(memory_types(place).compute, model::ElementType::float32) << "tensors stay as they are";
  EXPECT_EQ(memory_types(place).narrow, model::ElementType::bfloat16);
  EXPECT_THAT(make_backend(place, options)->description(), HasSubstr("own products in bf16 by an emulation of AVX512"));
  options.bf16_unit = {};
  if (model::bf16_instructions() == model::Bf16Facts{}) {
    EXPECT_THROW(find_place(alone, options), UsageError);
  }
}

TEST(FindPlace, TakesWhatIsThere) {
  comm::SerialCommunicator alone;
  const Place place = find_place(alone, {});
  EXPECT_EQ(place.gpu.has_value(), !model::survey_devices().devices.empty());
  EXPECT_THAT(place.note, HasSubstr(place.gpu ? "device: gpu (precision " : "device: cpu ("));
  if (!place.gpu) {
    EXPECT_THROW(find_place(alone, {.device = DeviceChoice::gpu}), comm::ConsensusError);
  }
}

TEST(PlanPlace, ImaginesTheGpuThatIsAskedFor) {
  comm::SerialCommunicator alone;
  const Place place = plan_place(alone, {.device = DeviceChoice::gpu});
  ASSERT_TRUE(place.gpu);
  EXPECT_EQ(memory_types(place).compute, model::ElementType::bfloat16);
  EXPECT_EQ(plan_place(alone, {.device = DeviceChoice::gpu, .precision = Precision::tf32}).precision, Precision::tf32);
  EXPECT_EQ(describe(place, {}), "gpu");
  EXPECT_FALSE(plan_place(alone, {.device = DeviceChoice::cpu}).gpu);
}

}  // namespace
}  // namespace lockstep::app
