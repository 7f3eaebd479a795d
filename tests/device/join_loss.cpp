// The loss with its gradient in one launch.
#include <catch2/catch.hpp>

#include <functional>

#include "executor/device/join_loss.hpp"

namespace orrery {
namespace {

std::byte* address(std::int64_t at) { return reinterpret_cast<std::byte*>(at << 20); }

struct LossStep {
  LossStep() {
    step.instructions.resize(3);
    device::CrossEntropy loss;
    loss.tokens = 4, loss.vocab = loss.real = 8;
    loss.logits = {address(1), DType::kBf16}, loss.labels = {address(2), DType::kInt64};
    loss.lse = reinterpret_cast<float*>(address(3));
    loss.loss = {address(5), DType::kFp32};
    device::CrossEntropyGrad grad{
        4, 8, 8, 0, 1, loss.logits, loss.labels, loss.lse, {address(4), DType::kBf16}};
    step.instructions[1].launches = {loss};
    step.instructions[2].launches = {grad};
    step.instructions[2].after = {0, 1};
  }
  bool joined() {
    device::join_loss(step);
    return step.instructions[2].launches.empty();
  }
  device::CrossEntropyGrad& grad() {
    return std::get<device::CrossEntropyGrad>(step.instructions[2].launches[0]);
  }

  device::DeviceStep step;
};

}  // namespace

TEST_CASE("a loss that its gradient follows takes it along", "[executor][device]") {
  LossStep of;
  REQUIRE(of.joined());
  CHECK(std::get<device::CrossEntropy>(of.step.instructions[1].launches[0]).dlogits.data == address(4));
  CHECK(of.step.instructions[1].after == std::vector<std::int32_t>{0});
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
  CHECK(stays([](LossStep& of) { of.grad().dlogits.data = address(5) - 32; }));
  CHECK(stays([](LossStep& of) { of.grad().dlogits.data = address(1) + 32; }));  // A part of the logits.
  CHECK(stays([](LossStep& of) { of.step.instructions[2].stream = 1; }));
}

}  // namespace orrery
