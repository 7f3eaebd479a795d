// Which instructions of a device's step may run beside which, and the loss with its gradient in one launch.
#include <catch2/catch.hpp>

#include <functional>

#include "base/random.hpp"
#include "executor/device/join_loss.hpp"
#include "executor/device/side_stream.hpp"

namespace orrery {
namespace {

using device::Footprint;

std::byte* address(std::int64_t at) { return reinterpret_cast<std::byte*>(at << 20); }

bool conflict(const Footprint& first, const Footprint& second) {
  for (const device::Touched& a : first) {
    for (const device::Touched& b : second) {
      if ((a.written || b.written) && a.begin < b.end && b.begin < a.end) return true;
    }
  }
  return false;
}

// By instruction: which have ended before it begins, by streams and by what it waits for.
std::vector<std::vector<bool>> ended_before(const device::DeviceStep& step) {
  const std::size_t count = step.instructions.size();
  std::vector<std::vector<bool>> ended(count, std::vector<bool>(count, false));
  for (std::size_t i = 0; i < count; ++i) {
    const device::DeviceInstruction& instruction = step.instructions[i];
    std::vector<std::size_t> before;
    for (std::size_t j = i; j-- > 0;) {
      if (step.instructions[j].stream != instruction.stream) continue;
      before.push_back(j);
      break;
    }
    for (const std::int32_t other : instruction.after) before.push_back(static_cast<std::size_t>(other));
    for (const std::size_t other : before) {
      ended[i][other] = true;
      for (std::size_t k = 0; k < other; ++k) {
        if (ended[other][k]) ended[i][k] = true;
      }
    }
  }
  return ended;
}

// Compute on stream 0, and on stream 1 what waits for some of it.
device::DeviceStep random_step(Random& random, std::size_t count) {
  device::DeviceStep step;
  step.streams = 2;
  for (std::size_t i = 0; i < count; ++i) {
    device::DeviceInstruction& instruction = step.instructions.emplace_back();
    instruction.stream = i > 0 && random.between(0, 4) == 0 ? 1 : 0;
    const std::int32_t other = 1 - instruction.stream;
    for (std::size_t j = i; j-- > 0 && instruction.after.empty();) {
      if (step.instructions[j].stream == other && random.between(0, 1) == 0)
        instruction.after.push_back(static_cast<std::int32_t>(j));
    }
  }
  return step;
}

Footprint random_footprint(Random& random) {
  Footprint footprint;
  for (std::int64_t k = random.between(1, 3); k > 0; --k) {
    const std::int64_t begin = random.between(0, 30);
    footprint.push_back({address(begin), address(begin + random.between(1, 3)), random.between(0, 2) == 0});
  }
  return footprint;
}

}  // namespace

TEST_CASE("what conflicts on one stream keeps its order beside a second one", "[executor][device]") {
  Random random(11);
  int beside = 0;
  for (int turn = 0; turn < 50; ++turn) {
    device::DeviceStep step = random_step(random, 60);
    const auto ordered = ended_before(step);
    std::vector<Footprint> footprints;
    std::vector<bool> moved;
    for (const device::DeviceInstruction& instruction : step.instructions) {
      footprints.push_back(random_footprint(random));
      moved.push_back(instruction.stream == 0 && random.between(0, 3) == 0);
    }
    device::use_side_stream(step, footprints, moved);
    CHECK(step.streams == 3);
    const auto now = ended_before(step);
    for (std::size_t i = 0; i < step.instructions.size(); ++i) {
      CHECK(step.instructions[i].stream == (moved[i] ? 2 : step.instructions[i].stream % 2));
      for (std::size_t j = 0; j < i; ++j) {
        if (!ordered[i][j] || now[i][j]) continue;
        CHECK_FALSE(conflict(footprints[i], footprints[j]));
        ++beside;
      }
    }
  }
  CHECK(beside > 1000);  // There is something to gain.
}

TEST_CASE("without weight gradients a step keeps its streams", "[executor][device]") {
  Random random(3);
  device::DeviceStep step = random_step(random, 10);
  device::use_side_stream(step, std::vector<Footprint>(10), std::vector<bool>(10, false));
  CHECK(step.streams == 2);
}

namespace {

struct LossStep {
  LossStep() {
    step.instructions.resize(3);
    device::CrossEntropy loss;
    loss.tokens = 4, loss.vocab = loss.real = 8;
    loss.logits = {address(1), DType::kBf16}, loss.labels = {address(2), DType::kInt64};
    loss.lse = reinterpret_cast<float*>(address(3));
    device::CrossEntropyGrad grad{
        4, 8, 8, 0, 1, loss.logits, loss.labels, loss.lse, {address(4), DType::kBf16}};
    step.instructions[1].launches = {loss};
    step.instructions[2].launches = {grad};
    step.instructions[2].after = {0, 1};
    footprints = {{},
                  {{address(1), address(1) + 64, false}, {address(3), address(3) + 16, true}},
                  {{address(1), address(1) + 64, false}, {address(4), address(4) + 64, true}}};
  }
  bool joined() {
    device::join_loss(step, footprints);
    return step.instructions[2].launches.empty();
  }
  device::CrossEntropyGrad& grad() {
    return std::get<device::CrossEntropyGrad>(step.instructions[2].launches[0]);
  }

  device::DeviceStep step;
  std::vector<Footprint> footprints;
};

}  // namespace

TEST_CASE("a loss that its gradient follows takes it along", "[executor][device]") {
  LossStep of;
  REQUIRE(of.joined());
  CHECK(std::get<device::CrossEntropy>(of.step.instructions[1].launches[0]).dlogits.data == address(4));
  CHECK(of.step.instructions[1].after == std::vector<std::int32_t>{0});
  CHECK(of.footprints[1].size() == 4);
}

TEST_CASE("a loss and a gradient that don't belong together stay apart", "[executor][device]") {
  const auto stays = [](const std::function<void(LossStep&)>& change) {
    LossStep of;
    change(of);
    return !of.joined();
  };
  CHECK_FALSE(stays([](LossStep& of) { of.grad().dlogits = of.grad().logits; }));  // In place.
  CHECK(stays([](LossStep& of) { of.grad().logits.data = address(9); }));
  CHECK(stays([](LossStep& of) { of.grad().real = 7; }));
  CHECK(stays([](LossStep& of) { of.grad().dlogits.data = address(3) - 32; }));  // What the loss writes.
  CHECK(stays([](LossStep& of) { of.grad().dlogits.data = address(1) + 32; }));  // A part of the logits.
  CHECK(stays([](LossStep& of) { of.step.instructions[2].stream = 1; }));
}

}  // namespace orrery
