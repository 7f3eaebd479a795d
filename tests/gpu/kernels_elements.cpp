// Element-wise kernels and copies against the host backend.
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Less than a thread's, one thread's and one more, a block's, many blocks' with a rest.
constexpr std::int64_t kCounts[] = {1, 7, 8, 9, 129, 2048, 4096, 100003};

struct Kind {
  Activation host;
  device::Activation on_device;
  float limit;
};
const std::vector<Kind> kKinds = {{Activation::kSilu, device::Activation::kSilu, 0},
                                  {Activation::kGelu, device::Activation::kGelu, 0},
                                  {Activation::kRelu, device::Activation::kRelu, 0},
                                  {Activation::kTanhCap, device::Activation::kTanhCap, 3},
                                  {Activation::kClampedSilu, device::Activation::kClampedSilu, 2}};

HostOp host_op(OpKind kind, const Kind& activation) {
  HostOp op(kind);
  op.op.attributes.activation = activation.host;
  op.op.attributes.limit = static_cast<double>(activation.limit);
  return op;
}

void check_unary(const Kind& kind, std::int64_t count, DType type, std::size_t offset) {
  const auto n = static_cast<std::size_t>(count);
  const Values x = numbers(n, type, 1, 12), dy = numbers(n, type, 2);
  DeviceCase on_device;
  device::Unary unary{count,      kind.on_device,
                      kind.limit, on_device.input(x, type, offset),
                      {},         on_device.output(n, type, offset)};
  on_device.run(unary);
  const Values wanted = host_op(OpKind::kUnary, kind).input({count}, x).output({count}).run()[0];
  CHECK(element_error(on_device.values(unary.y), wanted) < tolerance_of(type));

  DeviceCase backward;
  unary.x = backward.input(x, type, offset);
  unary.dy = unary.y = backward.changed(dy, type, offset);  // In place.
  backward.run(unary);
  HostOp op = host_op(OpKind::kUnaryGrad, kind);
  op.input({count}, x).input({count}, dy).output({count});
  CHECK(element_error(backward.values(unary.y), op.run()[0]) < tolerance_of(type));
}

void check_gated(const Kind& kind, std::int64_t count, DType type, std::size_t offset) {
  const auto n = static_cast<std::size_t>(count);
  const Values gate = numbers(n, type, 1, 12), up = numbers(n, type, 2, 8), dy = numbers(n, type, 3);
  DeviceCase on_device;
  const device::Gated gated{count,
                            kind.on_device,
                            kind.limit,
                            on_device.input(gate, type, offset),
                            on_device.input(up, type, offset),
                            on_device.output(n, type, offset)};
  on_device.run(gated);
  HostOp forward = host_op(OpKind::kGated, kind);
  forward.input({count}, gate).input({count}, up).output({count});
  CHECK(element_error(on_device.values(gated.y), forward.run()[0]) < tolerance_of(type));

  DeviceCase grads;
  const device::GatedGrad grad{count,
                               kind.on_device,
                               kind.limit,
                               grads.input(gate, type, offset),
                               grads.input(up, type, offset),
                               grads.input(dy, type, offset),
                               grads.output(n, type, offset),
                               grads.output(n, type, offset)};
  grads.run(grad);
  HostOp backward = host_op(OpKind::kGatedGrad, kind);
  backward.input({count}, gate).input({count}, up).input({count}, dy).output({count}).output({count});
  const std::vector<Values> wanted = backward.run();
  CHECK(element_error(grads.values(grad.dgate), wanted[0]) < tolerance_of(type));
  CHECK(element_error(grads.values(grad.dup), wanted[1]) < tolerance_of(type));
}

}  // namespace

TEST_CASE("activations and gates on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const Kind& kind : kKinds) {
      for (const std::int64_t count : kCounts) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
          CAPTURE(to_string(type), static_cast<int>(kind.on_device), count, offset);
          if (kind.host != Activation::kClampedSilu) check_unary(kind, count, type, offset);
          check_gated(kind, count, type, offset);
        }
      }
    }
  }
}

namespace {

// One operation in fp32, rounded once: the same bits as the definition's.
void check_exact(const DeviceCase& on_device, const device::Array& found, const Values& wanted) {
  Values rounded(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    rounded[i] = static_cast<double>(static_cast<float>(wanted[i]));
  CHECK(element_error(on_device.values(found), to_values(to_bytes(rounded, found.dtype), found.dtype)) == 0);
}

void check_add_scaled(std::int64_t count, const DType (&types)[3], std::size_t offset) {
  const auto n = static_cast<std::size_t>(count);
  const Values x = numbers(n, types[0], 1), addend = numbers(n, types[1], 2);
  for (const float scale : {1.0f, -0.3f}) {
    DeviceCase on_device;
    device::AddScaled sum{count, scale, on_device.input(x, types[0], offset),
                          on_device.input(addend, types[1], offset), on_device.output(n, types[2], offset)};
    on_device.run(sum);
    Values wanted(n), scaled(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto factor = static_cast<double>(scale);
      wanted[i] = factor * x[i] + addend[i], scaled[i] = factor * x[i];
    }
    check_exact(on_device, sum.y, wanted);
    sum.addend = {};
    on_device.run(sum);
    check_exact(on_device, sum.y, scaled);
  }
}

}  // namespace

TEST_CASE("sums and roundings on the device are exact", "[gpu]") {
  if (!have_gpu()) return;
  for (const std::int64_t count : kCounts) {
    const auto n = static_cast<std::size_t>(count);
    for (const DType from : kActivationTypes) {
      for (const DType to : kActivationTypes) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
          CAPTURE(count, to_string(from), to_string(to), offset);
          check_add_scaled(count, {from, from, to}, offset);
          check_add_scaled(count, {from, to, to}, offset);
          const Values x = numbers(n, from, 1), start = numbers(n, to, 2);
          DeviceCase sums;
          const device::Accumulate sum{count, sums.input(x, from, offset), sums.changed(start, to, offset)};
          sums.run(sum);
          Values wanted = start;
          for (std::size_t i = 0; i < n; ++i) wanted[i] += x[i];
          check_exact(sums, sum.to, wanted);
          DeviceCase roundings;
          const device::Convert convert{count, roundings.input(x, from, offset),
                                        roundings.output(n, to, offset)};
          roundings.run(convert);
          check_exact(roundings, convert.to, x);
        }
      }
    }
  }
}

TEST_CASE("memory on the device is copied and zeroed byte by byte", "[gpu]") {
  if (!have_gpu()) return;
  const Values x = whole_numbers(10007, 1, 255, 1);
  DeviceCase on_device;
  const device::Array from = on_device.input(x, DType::kUint8, 3),
                      to = on_device.output(x.size(), DType::kUint8, 5);
  on_device.run(device::CopyBytes{to.data + 1, from.data, 10005});
  Values wanted = x;
  const double untouched = kPoison;
  for (std::size_t i = 0; i < 10005; ++i) wanted[i + 1] = x[i];
  wanted[0] = wanted[10006] = untouched;
  CHECK(on_device.values(to) == wanted);
  on_device.run(device::Zero{to.data + 2, 10000});
  const Values zeroed = on_device.values(to);
  CHECK(zeroed[1] == untouched);
  CHECK(largest_of(Values(zeroed.begin() + 2, zeroed.begin() + 10002)) == 0);
  CHECK(zeroed[10002] == untouched);
}
