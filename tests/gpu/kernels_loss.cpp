// Cross-entropy against the host backend.
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

struct LossShape {
  std::int64_t tokens, vocab;
  std::int64_t real = 0;         // 0: all.
  std::int64_t first_entry = 0;  // Gradient alone: a part of the vocabulary.
  double size = 8;               // Logits lie within half of it.
};

const std::vector<LossShape> kLossShapes = {{300, 251}, {33, 32000}, {5, 128256},
                                            {7, 32003}, {4, 2},      {9, 50304, 50257},
                                            {2100, 16}, {40, 7, 5},  {6, 999, 0, 0, 200}};

// Small, so that gradients are normal numbers of fp16.
constexpr std::int64_t kTokensOfMean = 5;

HostOp host_op(OpKind kind, const LossShape& shape, const Values& logits, const Values& labels) {
  HostOp op(kind);
  op.view.vocab_begin = shape.first_entry;
  op.view.vocab = shape.real > 0 ? shape.first_entry + shape.real : 0;
  op.view.loss_tokens = kTokensOfMean;
  op.input({1, shape.tokens, shape.vocab}, logits).input({1, shape.tokens}, labels, DType::kInt64);
  return op;
}

// Logits as large as 100 have exponentials whose exponents were rounded by 4e-6.
double of_exponentials(const LossShape& shape, DType type) {
  return std::max(tolerance_of(type), shape.size * 1e-6);
}

void check_loss(const LossShape& shape, DType type, DType of_labels, std::size_t offset, bool in_place) {
  const std::size_t n = product({shape.tokens, shape.vocab}), tokens = static_cast<std::size_t>(shape.tokens);
  const std::int64_t real = shape.real > 0 ? shape.real : shape.vocab;
  const Values logits = numbers(n, type, 1, shape.size), labels = whole_numbers(tokens, 0, real - 1, 2);
  DeviceCase forward;
  const device::Array lse = forward.output(tokens, DType::kFp32);
  const device::CrossEntropy loss{shape.tokens,
                                  shape.vocab,
                                  real,
                                  0,
                                  static_cast<double>(kTokensOfMean),
                                  forward.input(logits, type, offset),
                                  forward.input(labels, of_labels),
                                  forward.output(1, DType::kFp32),
                                  reinterpret_cast<float*>(lse.data),
                                  {}};
  forward.run(loss);
  const std::vector<Values> wanted =
      host_op(OpKind::kCrossEntropy, shape, logits, labels).output({1}).output({1, shape.tokens}).run();
  CHECK(element_error(forward.values(loss.loss), wanted[0]) < 1e-5);
  CHECK(element_error(forward.values(lse), wanted[1]) < 1e-5);

  DeviceCase backward;
  device::CrossEntropyGrad grad;
  grad.tokens = shape.tokens, grad.vocab = shape.vocab, grad.real = real;
  grad.tokens_of_mean = static_cast<double>(kTokensOfMean);
  grad.logits = in_place ? backward.changed(logits, type, offset) : backward.input(logits, type, offset);
  grad.dlogits = in_place ? grad.logits : backward.output(n, type, 0);
  grad.labels = backward.input(labels, of_labels);
  grad.lse = reinterpret_cast<const float*>(backward.input(wanted[1], DType::kFp32).data);
  backward.run(grad);
  HostOp op = host_op(OpKind::kCrossEntropyGrad, shape, logits, labels);
  op.input({1, shape.tokens}, wanted[1]).output({1, shape.tokens, shape.vocab});
  CHECK(element_error(backward.values(grad.dlogits), op.run()[0]) < of_exponentials(shape, type));
}

// In one launch, whatever the rows' places: those that no kernel takes at once go through two.
void check_both(const LossShape& shape, DType type, std::size_t offset, bool in_place) {
  const std::size_t n = product({shape.tokens, shape.vocab}), tokens = static_cast<std::size_t>(shape.tokens);
  const std::int64_t real = shape.real > 0 ? shape.real : shape.vocab;
  const Values logits = numbers(n, type, 1, shape.size), labels = whole_numbers(tokens, 0, real - 1, 2);
  DeviceCase on_device;
  const device::Array lse = on_device.output(tokens, DType::kFp32);
  device::CrossEntropy loss;
  loss.tokens = shape.tokens, loss.vocab = shape.vocab, loss.real = real;
  loss.tokens_of_mean = static_cast<double>(kTokensOfMean);
  loss.logits = in_place ? on_device.changed(logits, type, offset) : on_device.input(logits, type, offset);
  loss.dlogits = in_place ? loss.logits : on_device.output(n, type, offset);
  loss.labels = on_device.input(labels, DType::kInt64);
  loss.loss = on_device.output(1, DType::kFp32);
  loss.lse = reinterpret_cast<float*>(lse.data);
  on_device.run(loss);
  const std::vector<Values> wanted =
      host_op(OpKind::kCrossEntropy, shape, logits, labels).output({1}).output({1, shape.tokens}).run();
  CHECK(element_error(on_device.values(loss.loss), wanted[0]) < 1e-5);
  CHECK(element_error(on_device.values(lse), wanted[1]) < 1e-5);
  HostOp op = host_op(OpKind::kCrossEntropyGrad, shape, logits, labels);
  op.input({1, shape.tokens}, wanted[1]).output({1, shape.tokens, shape.vocab});
  CHECK(element_error(on_device.values(loss.dlogits), op.run()[0]) < of_exponentials(shape, type));
}

}  // namespace

TEST_CASE("the loss with its gradient on the device is the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const LossShape& shape : kLossShapes) {
      CAPTURE(to_string(type), shape.tokens, shape.vocab, shape.real);
      check_both(shape, type, 0, true);
      check_both(shape, type, 0, false);
      check_both(shape, type, 1, true);
      check_both(shape, type, 1, false);
    }
  }
}

TEST_CASE("cross-entropy on the device is the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const LossShape& shape : kLossShapes) {
      CAPTURE(to_string(type), shape.tokens, shape.vocab, shape.real);
      check_loss(shape, type, DType::kInt64, 0, true);
      check_loss(shape, type, DType::kInt64, 1, true);
      check_loss(shape, type, DType::kInt32, 1, false);
    }
  }
}

TEST_CASE("the gradient of a part of the vocabulary knows which labels are its own", "[gpu]") {
  if (!have_gpu()) return;
  const LossShape shape = {50, 160, 150, 320};
  const Values logits = numbers(50 * 160, DType::kBf16, 1, 8), labels = whole_numbers(50, 0, 640, 2);
  const Values lse(50, 6.5);
  HostOp op = host_op(OpKind::kCrossEntropyGrad, shape, logits, labels);
  op.input({1, 50}, lse).output({1, 50, 160});
  const Values wanted = op.run()[0];
  for (const bool in_place : {false, true}) {
    CAPTURE(in_place);
    DeviceCase on_device;
    device::CrossEntropyGrad grad{shape.tokens, shape.vocab, shape.real, shape.first_entry, kTokensOfMean, {},
                                  {},           nullptr,     {}};
    grad.logits = in_place ? on_device.changed(logits, DType::kBf16) : on_device.input(logits, DType::kBf16);
    grad.labels = on_device.input(labels, DType::kInt64);
    grad.lse = reinterpret_cast<const float*>(on_device.input(lse, DType::kFp32).data);
    grad.dlogits = in_place ? grad.logits : on_device.output(logits.size(), DType::kBf16);
    on_device.run(grad);
    CHECK(element_error(on_device.values(grad.dlogits), wanted) < tolerance_of(DType::kBf16));
  }
}
