#include "tests/executor/emulated_device.hpp"

#include <algorithm>
#include <deque>

#include "tests/executor/emulated_launches.hpp"

namespace orrery::test {
namespace {

using namespace device;

// Steps run at once, in issue order.
class EmulatedRunner : public Runner {
 public:
  explicit EmulatedRunner(DeviceStep step)
      : step_(std::move(step)),
        staged_(static_cast<std::size_t>(step_.staging_bytes)),
        results_(static_cast<std::size_t>(step_.result_bytes)) {}

  std::span<std::byte> stage(std::int64_t) override { return staged_; }
  void launch(std::int64_t step, bool) override {
    std::copy(staged_.begin(), staged_.end(), step_.staging);
    for (const DeviceInstruction& instruction : step_.instructions) {
      for (const Launch& launch : instruction.launches) perform(launch);
    }
    std::copy_n(step_.results, results_.size(), results_.begin());
    kept_[static_cast<std::size_t>(step) % 3] = results_;
  }
  bool wait(std::int64_t, std::chrono::milliseconds) override { return true; }
  std::span<const std::byte> results(std::int64_t step) override {
    return kept_[static_cast<std::size_t>(step) % 3];
  }
  std::int64_t end_ns(std::int64_t step) override { return step + 1; }
  std::vector<Span> spans(std::int64_t) override { return std::vector<Span>(step_.instructions.size()); }
  RunnerCounters counters() const override { return {}; }
  void start_tracing() override {}
  std::vector<KernelSpan> kernels() override { return {}; }
  std::vector<LaunchTime> time_launches(std::chrono::milliseconds) override { return {}; }

 private:
  DeviceStep step_;
  std::vector<std::byte> staged_, results_;
  std::vector<std::byte> kept_[3];
};

class EmulatedDevice : public Device {
 public:
  DeviceInfo info() const override { return {"emulated", 0, 0, {}}; }
  std::byte* allocate(std::int64_t bytes, std::string_view) override {
    memory_.emplace_back(static_cast<std::size_t>(bytes + 64));
    auto* const data = memory_.back().data();
    return data + (64 - reinterpret_cast<std::uintptr_t>(data) % 64) % 64;
  }
  void write(std::byte* to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(std::span<std::byte> to, const std::byte* from) override {
    std::copy_n(from, to.size(), to.begin());
  }
  void perform(std::span<const Launch> launches) override {
    for (const Launch& launch : launches) test::perform(launch);
  }
  std::unique_ptr<Runner> prepare(const DeviceStep& step, const RunnerOptions&) override {
    return std::make_unique<EmulatedRunner>(step);
  }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace

std::unique_ptr<Device> emulated_device() { return std::make_unique<EmulatedDevice>(); }

}  // namespace orrery::test
