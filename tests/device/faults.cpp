// Ranks on devices that break or hang: what the others say, and when.
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "base/error.hpp"
#include "executor/device/run_device.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/executor/launch_processes.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/training_runs.hpp"

namespace orrery {
namespace {

using namespace std::chrono_literals;

enum class Behaviour : std::uint8_t { kWaits, kBreaks, kStands };  // In the first step.

class FaultyRunner : public device::Runner {
 public:
  FaultyRunner(const device::DeviceStep& step, Behaviour behaviour, std::atomic<bool>& closed)
      : behaviour_(behaviour), closed_(closed), staged_(static_cast<std::size_t>(step.staging_bytes)) {}
  ~FaultyRunner() override {
    if (behaviour_ == Behaviour::kBreaks) std::this_thread::sleep_for(1s);  // A device that is slow to end.
    closed_ = true;
  }

  std::span<std::byte> stage(std::int64_t) override { return staged_; }
  void launch(std::int64_t, bool) override {}
  bool wait(std::int64_t, std::chrono::milliseconds limit) override {
    if (behaviour_ == Behaviour::kBreaks) fail(ErrorKind::kRuntime, "the device broke");
    std::this_thread::sleep_for(behaviour_ == Behaviour::kStands ? 4s : limit);
    return false;
  }
  std::span<const std::byte> results(std::int64_t) override { return {}; }
  std::int64_t end_ns(std::int64_t) override { return 0; }
  std::vector<device::Span> spans(std::int64_t) override { return {}; }
  void start_tracing() override {}
  std::vector<device::KernelSpan> kernels() override { return {}; }
  device::RunnerCounters counters() const override { return {}; }
  std::vector<device::LaunchTime> time_launches(std::chrono::milliseconds) override { return {}; }

 private:
  Behaviour behaviour_;
  std::atomic<bool>& closed_;
  std::vector<std::byte> staged_;
};

class FaultyDevice : public device::Device {
 public:
  FaultyDevice(Behaviour behaviour, std::atomic<bool>& closed) : behaviour_(behaviour), closed_(closed) {}

  device::DeviceInfo info() const override { return memory_->info(); }
  std::byte* allocate(std::int64_t bytes, std::string_view what) override {
    return memory_->allocate(bytes, what);
  }
  void write(std::byte* to, std::span<const std::byte> from) override { memory_->write(to, from); }
  void read(std::span<std::byte> to, const std::byte* from) override { memory_->read(to, from); }
  void perform(std::span<const device::Launch> launches) override { memory_->perform(launches); }
  std::unique_ptr<device::Runner> prepare(const device::DeviceStep& step,
                                          const device::RunnerOptions&) override {
    return std::make_unique<FaultyRunner>(step, behaviour_, closed_);
  }

 private:
  std::unique_ptr<device::Device> memory_ = test::emulated_device();
  Behaviour behaviour_;
  std::atomic<bool>& closed_;
};

struct Said {
  std::array<std::string, 2> ranks;  // What each ends with.
  bool closed = false;               // Whether rank 1's device had been closed when rank 0 ended.
};

// Rank 0 waits for its device; rank 1's behaves like that.
Said run(Behaviour behaviour, std::chrono::milliseconds watchdog) {
  PlanShorthand shorthand;
  shorthand.dp = 2;
  shorthand.global_batch = 4;
  shorthand.settings.sequence = 8;
  shorthand.settings.microbatch_size = 2;
  shorthand.settings.compute_dtype = DType::kFp32;
  shorthand.settings.kernel_set = "reference";
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp32);
  const Plan plan = expand(shorthand, graph, 2);
  Program program = lower(graph, plan);
  place_buffers(program);
  host::RunOptions options;
  options.watchdog = watchdog;
  options.callbacks = [&] { return test::callbacks_of(graph, plan); };
  const std::uint16_t port = launch::test::free_port("127.0.0.1");
  std::array<std::atomic<bool>, 2> closed = {};
  const auto rank = [&](int self) -> std::string {
    FaultyDevice device(self == 0 ? Behaviour::kWaits : behaviour, closed[static_cast<std::size_t>(self)]);
    launch::Rendezvous rendezvous(launch::test::member(self, 2, "127.0.0.1", port));
    try {
      device::run_on_device(graph, program, options, {}, device, RankId(self), &rendezvous);
    } catch (const Error& error) {
      return error.what();
    }
    return "ended";
  };
  std::future<std::string> other = std::async(std::launch::async, rank, 1);
  Said said;
  said.ranks[0] = rank(0);
  said.closed = closed[1];
  said.ranks[1] = other.get();
  return said;
}

}  // namespace

TEST_CASE("other ranks hear what broke before its device has been closed", "[executor][device]") {
  const Said said = run(Behaviour::kBreaks, 60s);
  CHECK(said.ranks[0] == "the device broke");
  CHECK(said.ranks[1] == "the device broke");
  CHECK_FALSE(said.closed);
}

// The step's own limit is over at the same time.
TEST_CASE("a rank that stands still is named by those that wait for it", "[executor][device]") {
  const Said said = run(Behaviour::kStands, 1s);
  for (const std::string& message : said.ranks) {
    CHECK_THAT(message, Catch::StartsWith("rank 1 is stuck during step 0, instruction 0"));
  }
}

}  // namespace orrery
