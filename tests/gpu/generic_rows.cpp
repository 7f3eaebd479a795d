// Rows of the generic kernels against the host's: bit by bit where the arithmetic is the same.
#include <cmath>

#include "tests/gpu/generic_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kFp32 = DType::kFp32;
constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

template <class Launch>
auto runner(const Launch& launch) {
  return [&launch] { cuda::launch(launch, nullptr, nullptr, nullptr); };
}

Values zeros(std::int64_t n) { return Values(static_cast<std::size_t>(n)); }

// lse[b,heads,s] as many rows as o has, −∞ for some.
Values sums_of(std::int64_t n, std::uint64_t seed, std::size_t every) {
  Values sums = numbers(n, seed, kFp32, 8);
  for (std::size_t i = 0; i < sums.size(); i += every) sums[i] = -std::numeric_limits<double>::infinity();
  return sums;
}

// By plain loops: shares of two sums of exponentials.
void check_merge(DType type, std::int64_t batch, std::int64_t queries, std::int64_t heads, std::int64_t e) {
  CAPTURE(to_string(type), batch, queries, heads, e);
  const std::int64_t rows = batch * queries * heads;
  const Values o = numbers(rows * e, 1, type), block = numbers(rows * e, 2, type);
  const Values lse = sums_of(rows, 3, 3), block_lse = sums_of(rows, 4, 2);
  Values merged = zeros(rows * e), merged_lse = zeros(rows);
  for (std::size_t row = 0; row < lse.size(); ++row) {
    const auto a = static_cast<std::size_t>(heads), s = static_cast<std::size_t>(queries);
    const std::size_t at = (row / a / s * a + row % a) * s + row / a % s;
    const double largest = std::max(lse[at], block_lse[at]);
    merged_lse[at] = largest;
    if (!std::isfinite(largest)) continue;
    const double first = std::exp(lse[at] - largest), second = std::exp(block_lse[at] - largest);
    merged_lse[at] = largest + std::log(first + second);
    for (std::size_t c = row * static_cast<std::size_t>(e); c < (row + 1) * static_cast<std::size_t>(e);
         ++c) {
      merged[c] = (first * o[c] + second * block[c]) / (first + second);
    }
  }
  const DeviceMemory on_o = upload(o, type), on_block = upload(block, type);
  const DeviceMemory on_lse = upload(lse, kFp32), on_block_lse = upload(block_lse, kFp32);
  DeviceMemory to = output(rows * e, type), lse_to = output(rows, kFp32);
  device::AttentionMerge launch;
  launch.batch = batch, launch.queries = queries, launch.heads = heads, launch.e = e;
  launch.o = on_o.array(type), launch.o_block = on_block.array(type), launch.o_to = to.array(type);
  launch.lse = on_lse.as<const float>(), launch.lse_block = on_block_lse.as<const float>();
  launch.lse_to = lse_to.as<float>();
  run_twice({&to, &lse_to}, runner(launch));
  CHECK(relative_error(download(to, type), merged) < tolerance_of(type));
  CHECK(relative_error(download(lse_to, kFp32), merged_lse) < 1e-6);
  // In place.
  const DeviceMemory both = upload(o, type), both_lse = upload(lse, kFp32);
  launch.o = launch.o_to = both.array(type);
  launch.lse = launch.lse_to = both_lse.as<float>();
  runner(launch)();
  CHECK(both.download() == to.download());
  CHECK(both_lse.download() == lse_to.download());
}

void check_head_concat(DType type, std::int64_t heads, std::int64_t shared, std::int64_t c, std::int64_t e) {
  CAPTURE(to_string(type), heads, shared, c, e);
  constexpr std::int64_t kTokens = 7;
  const Values x = numbers(kTokens * heads * c, 1, type), y = numbers(kTokens * shared * e, 2, type);
  const Values z = numbers(kTokens * heads * (c + e), 3, type);
  OneOp forward, backward;
  forward.op.kind = OpKind::kHeadConcat, backward.op.kind = OpKind::kHeadConcatGrad;
  forward.reads({1, kTokens, heads, c}, type), forward.reads({1, kTokens, shared, e}, type);
  forward.writes({1, kTokens, heads, c + e}, type);
  backward.reads({1, kTokens, heads, c + e}, type);
  backward.writes({1, kTokens, heads, c}, type), backward.writes({1, kTokens, shared, e}, type);
  const auto wanted = on_host(forward, {x, y}, {z});
  const auto wanted_back = on_host(backward, {z}, {x, y});

  DeviceMemory on_x = upload(x, type), on_y = upload(y, type), on_z = output(kTokens * heads * (c + e), type);
  device::HeadConcat launch;
  launch.tokens = kTokens, launch.heads = heads, launch.shared = shared, launch.c = c, launch.e = e;
  launch.x = on_x.array(type), launch.y = on_y.array(type), launch.z = on_z.array(type);
  run_twice({&on_z}, runner(launch));
  CHECK(on_z.download() == wanted[0]);
  on_z = upload(z, type);
  launch.z = on_z.array(type);
  launch.back = true;
  run_twice({&on_x, &on_y}, runner(launch));
  CHECK(on_x.download() == wanted_back[0]);
  CHECK(on_y.download() == wanted_back[1]);
}

void check_positions(DType type, DType table_type, const std::vector<std::int64_t>& positions,
                     std::int64_t width) {
  CAPTURE(to_string(type), to_string(table_type), positions.size(), width);
  constexpr std::int64_t kBatch = 3, kSequence = 5, kEntries = 40;
  const Values x = numbers(kBatch * kSequence * width, 1, type),
               table = numbers(kEntries * width, 2, table_type);
  OneOp forward, backward;
  forward.op.kind = OpKind::kAddPositions, backward.op.kind = OpKind::kAddPositionsGrad;
  forward.view.positions = backward.view.positions = positions;
  forward.reads({kBatch, kSequence, width}, type), forward.reads({kEntries, width}, table_type);
  forward.writes({kBatch, kSequence, width}, type);
  backward.reads({kBatch, kSequence, width}, type);
  backward.writes({kEntries, width}, table_type, TensorKind::kParameterGradient);
  const DeviceMemory on_x = upload(x, type), on_table = upload(table, table_type), at = upload(positions);
  DeviceMemory y = output(kBatch * kSequence * width, type);
  device::AddPositions launch;
  launch.batch = kBatch, launch.sequence = kSequence, launch.width = width;
  launch.positions = at.as<const std::int64_t>();
  launch.x = on_x.array(type), launch.table = on_table.array(table_type), launch.y = y.array(type);
  run_twice({&y}, runner(launch));
  CHECK(y.download() == on_host(forward, {x, table}, {x})[0]);
  device::AddPositionsGrad back;
  back.batch = kBatch, back.sequence = kSequence, back.width = width;
  back.positions = at.as<const std::int64_t>();
  back.dy = on_x.array(type), back.table = on_table.array(table_type);
  runner(back)();
  CHECK(on_table.download() == on_host(backward, {x}, {table})[0]);
}

void check_row_gate(DType type, std::int64_t rows, std::int64_t width) {
  CAPTURE(to_string(type), rows, width);
  const Values gate = numbers(rows, 1, type, 10), x = numbers(rows * width, 2, type);
  const Values dy = numbers(rows * width, 3, type);
  OneOp forward, backward;
  forward.op.kind = OpKind::kRowGate, backward.op.kind = OpKind::kRowGateGrad;
  forward.reads({rows}, type), forward.reads({rows, width}, type), forward.writes({rows, width}, type);
  backward.reads({rows}, type), backward.reads({rows, width}, type), backward.reads({rows, width}, type);
  backward.writes({rows}, type), backward.writes({rows, width}, type);
  const auto wanted = on_host(forward, {gate, x}, {x});
  const auto wanted_back = on_host(backward, {gate, x, dy}, {gate, x});
  const DeviceMemory on_gate = upload(gate, type), on_x = upload(x, type), on_dy = upload(dy, type);
  DeviceMemory y = output(rows * width, type), dgate = output(rows, type), dx = output(rows * width, type);
  device::RowGate launch = {rows, width, on_gate.array(type), on_x.array(type), y.array(type)};
  run_twice({&y}, runner(launch));
  CHECK(relative_error(download(y, type), to_values(wanted[0], type)) < tolerance_of(type));
  device::RowGateGrad back;
  back.rows = rows, back.width = width;
  back.gate = on_gate.array(type), back.x = on_x.array(type), back.dy = on_dy.array(type);
  back.dgate = dgate.array(type), back.dx = dx.array(type);
  run_twice({&dgate, &dx}, runner(back));
  CHECK(relative_error(download(dgate, type), to_values(wanted_back[0], type)) < tolerance_of(type));
  CHECK(relative_error(download(dx, type), to_values(wanted_back[1], type)) < tolerance_of(type));
}

void check_dropout(DType type, DType mask_type, const std::vector<std::int64_t>& positions,
                   bool with_addend) {
  CAPTURE(to_string(type), to_string(mask_type), with_addend);
  constexpr std::int64_t kBatch = 2, kSequence = 5, kWidth = 301, kAll = kBatch * kSequence * kWidth;
  const Values x = numbers(kAll, 1, type), addend = numbers(kAll, 2, type);
  OneOp forward, backward;
  forward.op.kind = OpKind::kDropout, backward.op.kind = OpKind::kDropoutGrad;
  forward.op.attributes.rate = backward.op.attributes.rate = 0.1;
  forward.view.positions = positions;
  // Without rounding where something is added.
  const DType kept_type = with_addend ? kFp32 : type;
  forward.reads({kBatch, kSequence, kWidth}, type);
  forward.writes({kBatch, kSequence, kWidth}, kept_type),
      forward.writes({kBatch, kSequence, kWidth}, mask_type);
  backward.reads({kBatch, kSequence, kWidth}, type), backward.reads({kBatch, kSequence, kWidth}, mask_type);
  backward.writes({kBatch, kSequence, kWidth}, type);
  auto wanted = on_host(forward, {x}, {x, zeros(kAll)});
  if (with_addend) {
    Values sums = to_values(wanted[0], kFp32);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += addend[i];
    wanted[0] = to_bytes(sums, type);
  }
  const Values mask_values = to_values(wanted[1], mask_type);
  const DeviceMemory on_x = upload(x, type), on_addend = upload(addend, type), at = upload(positions);
  DeviceMemory y = output(kAll, type), mask = output(kAll, mask_type), dx = output(kAll, type);
  device::Dropout launch;
  launch.batch = kBatch, launch.sequence = kSequence, launch.width = kWidth;
  launch.keep_scale = static_cast<float>(1 / 0.9), launch.positions = at.as<const std::int64_t>();
  launch.x = on_x.array(type), launch.y = y.array(type), launch.mask = mask.array(mask_type);
  if (with_addend) launch.addend = on_addend.array(type);
  run_twice({&y, &mask}, runner(launch));
  CHECK(y.download() == wanted[0]);
  CHECK(mask.download() == wanted[1]);
  device::DropoutGrad back = {kAll, launch.keep_scale, on_addend.array(type), mask.array(mask_type),
                              dx.array(type)};
  run_twice({&dx}, [&] {
    runner(back)();
    CHECK(mask.download() == wanted[1]);
  });
  CHECK(dx.download() == on_host(backward, {addend, mask_values}, {x})[0]);
}

}  // namespace

TEST_CASE("ring attention's sums weigh blocks by their sums of exponentials", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    check_merge(type, 2, 5, 3, 64);
    check_merge(type, 1, 9, 2, 33);
    check_merge(type, 1, 2, 1, 256);
  }
}

TEST_CASE("heads side by side have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    check_head_concat(type, 4, 4, 32, 16);
    check_head_concat(type, 4, 1, 128, 64);
    check_head_concat(type, 6, 2, 5, 3);
    check_head_concat(type, 3, 1, 300, 7);
  }
}

TEST_CASE("tables of positions have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    check_positions(type, type, {}, 300);
    check_positions(type, kFp32, {3, 4, 30, 31, 39}, 17);
  }
}

TEST_CASE("gates of rows are the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    check_row_gate(type, 5, 4096);
    check_row_gate(type, 3, 77);
  }
}

TEST_CASE("dropout has the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    check_dropout(type, DType::kUint8, {}, false);
    check_dropout(type, type, {3, 4, 30, 31, 35}, false);
    check_dropout(type, DType::kUint8, {3, 4, 30, 31, 35}, true);
  }
}
