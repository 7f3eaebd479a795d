// Rows of the generic kernels against the host's: bit by bit where the arithmetic is the same.
#include <cmath>

#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kFp32 = DType::kFp32;

std::size_t count(std::int64_t n) { return static_cast<std::size_t>(n); }

// As the host would keep its fp32 results.
Bytes as_bits(const Values& values, DType type) { return to_bytes(values, type); }

// Sums of exponentials, −∞ for some.
Values sums_of(std::size_t n, std::uint64_t seed, std::size_t every) {
  Values sums = numbers(n, kFp32, seed, 8);
  for (std::size_t i = 0; i < n; i += every) sums[i] = -std::numeric_limits<double>::infinity();
  return sums;
}

struct Merged {
  Values o, lse;
};
// By plain loops: shares of two sums of exponentials. o[b,s,heads,e], lse[b,heads,s].
Merged merge(const Merged& first, const Merged& second, std::size_t queries, std::size_t heads) {
  Merged merged = {Values(first.o.size()), first.lse};
  const std::size_t e = first.o.size() / first.lse.size();
  for (std::size_t row = 0; row < first.lse.size(); ++row) {
    const std::size_t at = (row / heads / queries * heads + row % heads) * queries + row / heads % queries;
    const double largest = std::max(first.lse[at], second.lse[at]);
    merged.lse[at] = largest;
    if (!std::isfinite(largest)) continue;
    const double a = std::exp(first.lse[at] - largest), b = std::exp(second.lse[at] - largest);
    merged.lse[at] = largest + std::log(a + b);
    for (std::size_t c = row * e; c < (row + 1) * e; ++c) {
      merged.o[c] = (a * first.o[c] + b * second.o[c]) / (a + b);
    }
  }
  return merged;
}

void check_merge(DType type, std::int64_t batch, std::int64_t queries, std::int64_t heads, std::int64_t e,
                 bool in_place) {
  CAPTURE(to_string(type), batch, queries, heads, e, in_place);
  const std::size_t rows = count(batch * queries * heads), all = rows * count(e);
  const Merged first = {numbers(all, type, 1), sums_of(rows, 3, 3)};
  const Merged second = {numbers(all, type, 2), sums_of(rows, 4, 2)};
  const Merged wanted = merge(first, second, count(queries), count(heads));
  DeviceCase device;
  device::AttentionMerge launch;
  launch.batch = batch, launch.queries = queries, launch.heads = heads, launch.e = e;
  launch.o = in_place ? device.changed(first.o, type) : device.input(first.o, type);
  launch.o_block = device.input(second.o, type);
  const device::Array lse = in_place ? device.changed(first.lse, kFp32) : device.input(first.lse, kFp32);
  const device::Array lse_block = device.input(second.lse, kFp32);
  launch.o_to = in_place ? launch.o : device.output(all, type);
  const device::Array lse_to = in_place ? lse : device.output(rows, kFp32);
  launch.lse = reinterpret_cast<const float*>(lse.data);
  launch.lse_block = reinterpret_cast<const float*>(lse_block.data);
  launch.lse_to = reinterpret_cast<float*>(lse_to.data);
  device.run(launch);
  CHECK(relative_error(device.values(launch.o_to), wanted.o) < tolerance_of(type));
  // A logarithm in fp32.
  CHECK(relative_error(device.values(lse_to), wanted.lse) < 1e-6);
}

void check_head_concat(DType type, std::int64_t heads, std::int64_t shared, std::int64_t c, std::int64_t e,
                       std::size_t offset = 0) {
  CAPTURE(to_string(type), heads, shared, c, e, offset);
  constexpr std::int64_t kTokens = 7;
  const std::vector<std::int64_t> x_shape = {1, kTokens, heads, c}, y_shape = {1, kTokens, shared, e};
  const std::vector<std::int64_t> z_shape = {1, kTokens, heads, c + e};
  const Values x = numbers(product(x_shape), type, 1), y = numbers(product(y_shape), type, 2);
  const Values z = numbers(product(z_shape), type, 3);
  const auto wanted = HostOp(OpKind::kHeadConcat).input(x_shape, x).input(y_shape, y).output(z_shape).run();
  const auto parts = HostOp(OpKind::kHeadConcatGrad).input(z_shape, z).output(x_shape).output(y_shape).run();
  device::HeadConcat launch;
  launch.tokens = kTokens, launch.heads = heads, launch.shared = shared, launch.c = c, launch.e = e;
  DeviceCase forward, backward;
  launch.x = forward.input(x, type), launch.y = forward.input(y, type, offset);
  launch.z = forward.output(z.size(), type);
  forward.run(launch);
  CHECK(forward.bytes(launch.z) == as_bits(wanted[0], type));
  launch.back = true;
  launch.x = backward.output(x.size(), type, offset), launch.y = backward.output(y.size(), type);
  launch.z = backward.input(z, type);
  backward.run(launch);
  CHECK(backward.bytes(launch.x) == as_bits(parts[0], type));
  CHECK(backward.bytes(launch.y) == as_bits(parts[1], type));
}

void check_positions(DType type, DType table_type, const std::vector<std::int64_t>& positions,
                     std::int64_t width) {
  CAPTURE(to_string(type), to_string(table_type), positions.size(), width);
  const std::vector<std::int64_t> x_shape = {3, 5, width}, table_shape = {40, width};
  const Values x = numbers(product(x_shape), type, 1), table = numbers(product(table_shape), table_type, 2);
  HostOp add(OpKind::kAddPositions), add_back(OpKind::kAddPositionsGrad);
  add.view.positions = add_back.view.positions = positions;
  const auto wanted = add.input(x_shape, x).input(table_shape, table).output(x_shape).run();
  const auto gradient = add_back.input(x_shape, x).gradient(table_shape, table).run();
  const auto upload = [&](DeviceCase& device) -> const std::int64_t* {
    if (positions.empty()) return nullptr;
    const device::Array array = device.input(Values(positions.begin(), positions.end()), DType::kInt64);
    return reinterpret_cast<const std::int64_t*>(array.data);
  };
  DeviceCase forward, backward;
  device::AddPositions launch;
  launch.batch = 3, launch.sequence = 5, launch.width = width, launch.positions = upload(forward);
  launch.x = forward.input(x, type), launch.table = forward.input(table, table_type);
  launch.y = forward.output(x.size(), type);
  forward.run(launch);
  CHECK(forward.bytes(launch.y) == as_bits(wanted[0], type));
  device::AddPositionsGrad back;
  back.batch = 3, back.sequence = 5, back.width = width, back.positions = upload(backward);
  back.dy = backward.input(x, type), back.table = backward.changed(table, table_type);
  backward.run(back);
  CHECK(backward.bytes(back.table) == as_bits(gradient[0], table_type));
}

void check_row_gate(DType type, std::int64_t rows, std::int64_t width, std::size_t offset = 0) {
  CAPTURE(to_string(type), rows, width, offset);
  const std::size_t all = count(rows * width);
  const Values gate = numbers(count(rows), type, 1, 10), x = numbers(all, type, 2),
               dy = numbers(all, type, 3);
  const auto y =
      HostOp(OpKind::kRowGate).input({rows}, gate).input({rows, width}, x).output({rows, width}).run();
  HostOp back_op(OpKind::kRowGateGrad);
  back_op.input({rows}, gate).input({rows, width}, x).input({rows, width}, dy);
  const auto gradients = back_op.output({rows}).output({rows, width}).run();
  DeviceCase forward, backward;
  device::RowGate launch;
  launch.rows = rows, launch.width = width;
  launch.gate = forward.input(gate, type), launch.x = forward.input(x, type, offset);
  launch.y = forward.output(all, type);
  forward.run(launch);
  CHECK(relative_error(forward.values(launch.y), y[0]) < tolerance_of(type));
  device::RowGateGrad back;
  back.rows = rows, back.width = width;
  back.gate = backward.input(gate, type), back.x = backward.input(x, type);
  back.dy = backward.input(dy, type, offset);
  back.dgate = backward.output(count(rows), type), back.dx = backward.output(all, type);
  backward.run(back);
  CHECK(relative_error(backward.values(back.dgate), gradients[0]) < tolerance_of(type));
  CHECK(relative_error(backward.values(back.dx), gradients[1]) < tolerance_of(type));
}

void check_dropout(DType type, DType mask_type, const std::vector<std::int64_t>& positions,
                   bool with_addend) {
  CAPTURE(to_string(type), to_string(mask_type), with_addend);
  const std::vector<std::int64_t> shape = {2, 5, 301};
  const std::size_t all = product(shape);
  const Values x = numbers(all, type, 1), addend = numbers(all, type, 2);
  HostOp drop(OpKind::kDropout), drop_back(OpKind::kDropoutGrad);
  drop.op.attributes.rate = drop_back.op.attributes.rate = 0.1;
  drop.view.positions = positions;
  auto wanted = drop.input(shape, x).output(shape).output(shape).run();
  const auto gradient = drop_back.input(shape, addend).input(shape, wanted[1]).output(shape).run();
  // In double precision, and rounded to fp32 as the kernel's sum is.
  for (std::size_t i = 0; with_addend && i < all; ++i) wanted[0][i] += addend[i];
  DeviceCase forward, backward;
  device::Dropout launch;
  launch.batch = 2, launch.sequence = 5, launch.width = 301, launch.keep_scale = static_cast<float>(1 / 0.9);
  if (!positions.empty()) {
    const device::Array at = forward.input(Values(positions.begin(), positions.end()), DType::kInt64);
    launch.positions = reinterpret_cast<const std::int64_t*>(at.data);
  }
  launch.x = forward.input(x, type), launch.y = forward.output(all, type);
  launch.mask = forward.output(all, mask_type);
  if (with_addend) launch.addend = forward.input(addend, type);
  forward.run(launch);
  CHECK(forward.bytes(launch.y) == as_bits(wanted[0], type));
  CHECK(forward.values(launch.mask) == wanted[1]);
  device::DropoutGrad back;
  back.elements = static_cast<std::int64_t>(all), back.keep_scale = launch.keep_scale;
  back.dy = backward.input(addend, type), back.mask = backward.input(wanted[1], mask_type);
  back.dx = backward.output(all, type);
  backward.run(back);
  CHECK(backward.bytes(back.dx) == as_bits(gradient[0], type));
}

}  // namespace

TEST_CASE("ring attention's sums weigh blocks by their sums of exponentials", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const bool in_place : {false, true}) {
      check_merge(type, 2, 5, 3, 64, in_place);
      check_merge(type, 1, 9, 2, 33, in_place);
      check_merge(type, 1, 2, 1, 256, in_place);
    }
  }
}

TEST_CASE("heads side by side have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    check_head_concat(type, 4, 4, 32, 16);
    check_head_concat(type, 4, 4, 32, 16, 1);
    check_head_concat(type, 4, 1, 128, 64);
    check_head_concat(type, 6, 2, 5, 3);
    check_head_concat(type, 3, 1, 300, 7);
  }
}

TEST_CASE("tables of positions have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    check_positions(type, type, {}, 300);
    check_positions(type, kFp32, {3, 4, 30, 31, 39}, 17);
  }
}

TEST_CASE("gates of rows are the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    check_row_gate(type, 5, 4096);
    check_row_gate(type, 5, 512, 1);
    check_row_gate(type, 3, 77);
  }
}

TEST_CASE("dropout has the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    check_dropout(type, DType::kUint8, {}, false);
    check_dropout(type, type, {3, 4, 30, 31, 35}, false);
    check_dropout(type, DType::kUint8, {3, 4, 30, 31, 35}, true);
  }
}
