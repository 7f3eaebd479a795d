#include "tests/device/emulated_device.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>

#include "executor/launch/status_page.hpp"
#include "tests/device/emulated_launches.hpp"

namespace orrery::test {

void Fabric::post(const Meeting& meeting, Participant participant) {
  const std::lock_guard guard(lock_);
  const auto& group = participant.groups[static_cast<std::size_t>(participant.exchange.group)];
  const std::size_t members = group.ranks.size();
  std::vector<Participant>& here = waiting_[meeting];
  here.push_back(std::move(participant));
  if (here.size() == members) {
    std::sort(here.begin(), here.end(), [](const Participant& a, const Participant& b) {
      return a.groups[static_cast<std::size_t>(a.exchange.group)].position <
             b.groups[static_cast<std::size_t>(b.exchange.group)].position;
    });
    const std::string fault = test::perform(here);
    if (fault_.empty()) fault_ = fault;
    happened_[meeting] = true;
    waiting_.erase(meeting);
  }
  posted_.notify_all();
}

bool Fabric::happened(const Meeting& meeting) {
  const std::lock_guard guard(lock_);
  return happened_.count(meeting) > 0;
}

void Fabric::wait() {
  std::unique_lock guard(lock_);
  if (!fault_.empty()) throw std::runtime_error(fault_);
  posted_.wait_for(guard, std::chrono::milliseconds(1));
}

namespace {

using namespace device;

// Calls read and write nowhere but in the memory that the step says they do.
void check_exchanged(const DeviceStep& step) {
  const auto check = [&](const std::byte* begin, std::int64_t bytes, const std::string& what) {
    const auto has = [&](std::span<std::byte> one) {
      return begin >= one.data() && begin + bytes <= one.data() + one.size();
    };
    if (begin == nullptr || std::any_of(step.exchanged.begin(), step.exchanged.end(), has)) return;
    throw std::runtime_error(what + " touches memory that isn't said to be exchanged");
  };
  for (const DeviceInstruction& instruction : step.instructions) {
    for (const Call& call : instruction.calls) {
      const auto members = std::ssize(step.groups[static_cast<std::size_t>(instruction.group)].ranks);
      const std::int64_t bytes = call.count * (call.fp64 ? 8 : size_bytes(call.dtype));
      check(call.from, call.kind == CallKind::kReduceScatter ? members * bytes : bytes, instruction.name);
      check(call.to, call.kind == CallKind::kAllGather ? members * bytes : bytes, instruction.name);
    }
  }
}

// Streams in turn, each as far as it can go, until the step has ended.
class EmulatedRunner : public Runner {
 public:
  EmulatedRunner(DeviceStep step, Fabric* fabric, RankId rank)
      : step_(std::move(step)),
        fabric_(fabric),
        rank_(rank),
        staged_(static_cast<std::size_t>(step_.staging_bytes)),
        results_(static_cast<std::size_t>(step_.result_bytes)),
        streams_(static_cast<std::size_t>(step_.streams)),
        met_(step_.groups.size(), 0) {
    for (std::size_t i = 0; i < step_.instructions.size(); ++i) {
      streams_[static_cast<std::size_t>(step_.instructions[i].stream)].push_back(i);
    }
  }

  std::span<std::byte> stage(std::int64_t) override { return staged_; }
  void launch(std::int64_t step, bool) override {
    std::copy(staged_.begin(), staged_.end(), step_.staging);
    done_.assign(step_.instructions.size(), false);
    next_.assign(streams_.size(), 0);
    meetings_.assign(step_.instructions.size(), {});
    for (std::size_t left = done_.size(); left > 0;) {
      std::size_t ended = 0;
      for (std::size_t s = 0; s < streams_.size(); ++s) {
        while (next_[s] < streams_[s].size() && advance(streams_[s][next_[s]])) ++next_[s], ++ended;
      }
      left -= ended;
      if (ended > 0 || left == 0) continue;
      launch::keep_waiting();
      fabric_->wait();
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
  // Whether the instruction has ended.
  bool advance(std::size_t i) {
    const DeviceInstruction& instruction = step_.instructions[i];
    Fabric::Meeting& meeting = meetings_[i];
    if (meeting.first.empty()) {
      const auto ended = [&](std::int32_t other) { return done_[static_cast<std::size_t>(other)]; };
      if (!std::all_of(instruction.after.begin(), instruction.after.end(), ended)) return false;
      for (const Launch& launch : instruction.launches) perform(launch);
      if (!instruction.calls.empty()) {
        meeting = post(instruction);
      }
    }
    if (!meeting.first.empty() && !fabric_->happened(meeting)) return false;
    for (const Launch& launch : instruction.landing) perform(launch);
    return done_[i] = true;
  }

  Fabric::Meeting post(const DeviceInstruction& instruction) {
    const auto group = static_cast<std::size_t>(instruction.group);
    const Fabric::Meeting meeting = {step_.groups[group].name, met_[group]++};
    Participant self;
    self.rank = rank_;
    self.groups = step_.groups;
    self.exchange.group = instruction.group;
    self.exchange.calls = instruction.calls;
    fabric_->post(meeting, std::move(self));
    return meeting;
  }

  DeviceStep step_;
  Fabric* fabric_;
  RankId rank_;
  std::vector<std::byte> staged_, results_;
  std::vector<std::byte> kept_[3];
  std::vector<std::vector<std::size_t>> streams_;  // Their instructions, in order.
  std::vector<std::int64_t> met_;                  // By group: how often.
  std::vector<bool> done_;
  std::vector<std::size_t> next_;
  std::vector<Fabric::Meeting> meetings_;  // By instruction whose calls are posted.
};

class EmulatedDevice : public Device {
 public:
  EmulatedDevice(Fabric* fabric, RankId rank) : fabric_(fabric), rank_(rank) {}

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
    check_exchanged(step);
    return std::make_unique<EmulatedRunner>(step, fabric_, rank_);
  }

 private:
  Fabric* fabric_;
  RankId rank_;
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace

std::unique_ptr<Device> emulated_device(Fabric* fabric, RankId rank) {
  return std::make_unique<EmulatedDevice>(fabric, rank);
}

}  // namespace orrery::test
