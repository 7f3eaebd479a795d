// Norms, rotations, tables and sums over rows against the host backend.
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

struct RowShape {
  std::int64_t rows, width;
  std::size_t offset = 0;  // In elements: arrays that aren't aligned to 16 bytes.
};

// Held by groups of warps of all sizes, most of them with several rows to a group, and read; not aligned.
const std::vector<RowShape> kRowShapes = {
    {5, 7},      {37, 129},   {16000, 8},  {300, 512}, {2200, 768}, {300, 1024}, {100, 1536}, {600, 2048},
    {300, 3072}, {280, 4096}, {300, 4104}, {9, 8192},  {5, 16384},  {3, 24576},  {3, 40000},  {40, 256, 1}};

std::size_t elements_of(const RowShape& shape) { return product({shape.rows, shape.width}); }

// Large cases are for one type: what they try doesn't depend on it, and the host takes its time.
bool takes_too_long(DType type, std::size_t elements) { return type != DType::kBf16 && elements > 200'000; }

struct NormCase {
  device::NormKind kind;
  bool weight, bias;
};
const std::vector<NormCase> kNormCases = {{device::NormKind::kRms, true, false},
                                          {device::NormKind::kLayer, true, true},
                                          {device::NormKind::kRms, false, false},
                                          {device::NormKind::kRms, true, true}};
// Large shapes are for what models have.
bool takes_too_long(const NormCase& which, std::size_t elements) {
  return which.weight == which.bias && which.kind == device::NormKind::kRms && elements > 200'000;
}

NormKind host_kind(device::NormKind kind) {
  return kind == device::NormKind::kRms ? NormKind::kRms : NormKind::kLayer;
}

Values rounded_sum(const Values& x, const Values& y, DType type) {
  Values sum = x;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
  return to_values(to_bytes(sum, type), type);
}

void check_norm(const NormCase& which, const RowShape& shape, DType type, bool with_residual) {
  const std::size_t n = elements_of(shape), width = static_cast<std::size_t>(shape.width);
  const Values x = numbers(n, type, 1, 3), residual = numbers(n, type, 2);
  const Values weight = numbers(width, type, 3), bias = numbers(width, type, 4);
  DeviceCase on_device;
  device::Norm norm;
  norm.kind = which.kind;
  norm.rows = shape.rows, norm.width = shape.width;
  norm.x = on_device.input(x, type, shape.offset);
  if (with_residual) {
    norm.residual = on_device.input(residual, type, shape.offset);
    norm.sum = on_device.output(n, type, shape.offset);
  }
  if (which.weight) norm.weight = on_device.input(weight, type, shape.offset);
  if (which.bias) norm.bias = on_device.input(bias, type, shape.offset);
  norm.y = on_device.output(n, type, shape.offset);
  on_device.run(norm);

  const Values sum = with_residual ? rounded_sum(x, residual, type) : x;
  HostOp op(OpKind::kNorm);
  op.op.attributes.norm = host_kind(which.kind);
  op.op.attributes.weight = which.weight, op.op.attributes.bias = which.bias;
  op.input({shape.rows, shape.width}, sum);
  if (which.weight) op.input({shape.width}, weight);
  if (which.bias) op.input({shape.width}, bias);
  op.output({shape.rows, shape.width});
  CHECK(element_error(on_device.values(norm.y), op.run()[0]) < tolerance_of(type));
  if (with_residual) CHECK(element_error(on_device.values(norm.sum), sum) == 0);
}

void check_norm_grad(const NormCase& which, const RowShape& shape, DType type, DType of_gradient,
                     bool with_residual) {
  const std::size_t n = elements_of(shape), width = static_cast<std::size_t>(shape.width);
  const Values x = numbers(n, type, 1, 3), dy = numbers(n, type, 2), residual = numbers(n, type, 5);
  const Values weight = numbers(width, type, 3);
  const Values start = numbers(width, of_gradient, 6);
  DeviceCase on_device;
  device::NormGrad norm;
  norm.kind = which.kind;
  norm.rows = shape.rows, norm.width = shape.width;
  norm.x = on_device.input(x, type, shape.offset);
  norm.dy = on_device.input(dy, type, shape.offset);
  norm.dx = on_device.output(n, type, shape.offset);
  if (with_residual) norm.residual = on_device.input(residual, type, shape.offset);
  if (which.weight) {
    norm.weight = on_device.input(weight, type, shape.offset);
    norm.dweight = on_device.changed(start, of_gradient);
  }
  if (which.bias) norm.dbias = on_device.changed(start, of_gradient);
  norm.accumulate = true;
  on_device.run(norm);

  HostOp op(OpKind::kNormGrad);
  op.op.attributes.norm = host_kind(which.kind);
  op.op.attributes.weight = which.weight, op.op.attributes.bias = which.bias;
  op.input({shape.rows, shape.width}, x);
  if (which.weight) op.input({shape.width}, weight);
  op.input({shape.rows, shape.width}, dy).output({shape.rows, shape.width});
  if (which.weight) op.gradient({shape.width}, start);
  if (which.bias) op.gradient({shape.width}, start);
  std::vector<Values> wanted = op.run();
  for (std::size_t i = 0; with_residual && i < n; ++i) wanted[0][i] += residual[i];
  CHECK(element_error(on_device.values(norm.dx), wanted[0]) < tolerance_of(type));
  // Sums of thousands of products, of which most cancel.
  const double of_sums = std::max(tolerance_of(of_gradient), 5e-4);
  if (which.weight) CHECK(element_error(on_device.values(norm.dweight), wanted[1]) < of_sums);
  if (which.bias) CHECK(element_error(on_device.values(norm.dbias), wanted[2]) < of_sums);
}

}  // namespace

TEST_CASE("norms on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  int turn = 0;
  for (const DType type : kActivationTypes) {
    for (const RowShape& shape : kRowShapes) {
      if (takes_too_long(type, elements_of(shape))) continue;
      for (const NormCase& which : kNormCases) {
        if (takes_too_long(which, elements_of(shape))) continue;
        const bool with_residual = turn++ % 2 == 0;
        CAPTURE(to_string(type), shape.rows, shape.width, shape.offset, which.bias, with_residual);
        check_norm(which, shape, type, with_residual);
      }
      ++turn;  // Else each kind would have a residual always or never.
    }
  }
}

TEST_CASE("gradients of norms on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  int turn = 0;
  for (const DType type : kActivationTypes) {
    for (const RowShape& shape : kRowShapes) {
      if (takes_too_long(type, elements_of(shape))) continue;
      for (const NormCase& which : kNormCases) {
        if (takes_too_long(which, elements_of(shape))) continue;
        const bool with_residual = turn++ % 2 == 0;
        CAPTURE(to_string(type), shape.rows, shape.width, shape.offset, which.bias, with_residual);
        check_norm_grad(which, shape, type, with_residual ? type : DType::kFp32, with_residual);
      }
      ++turn;  // Else each kind would have a residual always or never.
    }
  }
}

namespace {

struct RopeShape {
  std::int64_t batch, sequence, heads, width, rotated;
};

void check_rope(const RopeShape& shape, DType type, bool back, bool given_positions, std::size_t offset) {
  const std::vector<std::int64_t> dims = {shape.batch, shape.sequence, shape.heads, shape.width};
  const std::size_t n = product(dims);
  const Values x = numbers(n, type, 1);
  HostOp op(back ? OpKind::kRopeGrad : OpKind::kRope);
  op.op.attributes.rotary_fraction = static_cast<double>(shape.rotated) / static_cast<double>(shape.width);
  op.op.attributes.rope_theta = 500000;
  DeviceCase on_device;
  device::Rope rope;
  rope.batch = shape.batch, rope.sequence = shape.sequence, rope.heads = shape.heads,
  rope.width = shape.width;
  rope.rotated = shape.rotated, rope.theta = 500000, rope.back = back;
  if (given_positions) {
    for (std::int64_t i = 0; i < shape.sequence; ++i) op.view.positions.push_back(7 * i + 100000 % (i + 3));
    const Values positions(op.view.positions.begin(), op.view.positions.end());
    rope.positions = reinterpret_cast<const std::int64_t*>(on_device.input(positions, DType::kInt64).data);
  }
  rope.x = on_device.input(x, type, offset);
  rope.y = on_device.output(n, type, offset);
  on_device.run(rope);
  op.input(dims, x).output(dims);
  CHECK(element_error(on_device.values(rope.y), op.run()[0]) < tolerance_of(type));

  DeviceCase in_place;
  rope.positions = nullptr;
  rope.x = rope.y = in_place.changed(x, type, offset);
  in_place.run(rope);
  op.view.positions.clear();
  CHECK(element_error(in_place.values(rope.y), op.run()[0]) < tolerance_of(type));
}

// In place, where a row of queries, keys and values has the heads in its middle.
void check_packed_rope(const RopeShape& shape, DType type, bool back) {
  const std::int64_t heads_width = shape.heads * shape.width, row = heads_width + 2 * shape.width;
  const std::size_t tokens = product({shape.batch, shape.sequence});
  const Values packed = numbers(tokens * static_cast<std::size_t>(row), type, 1);
  Values wanted = packed;
  const auto begin_of = [&](Values& values, std::size_t token) {
    return values.begin() + static_cast<std::int64_t>(token) * row + shape.width;
  };
  HostOp op(back ? OpKind::kRopeGrad : OpKind::kRope);
  op.op.attributes.rope_theta = 10000;
  Values x;
  for (std::size_t t = 0; t < tokens; ++t) {
    x.insert(x.end(), begin_of(wanted, t), begin_of(wanted, t) + heads_width);
  }
  const std::vector<std::int64_t> dims = {shape.batch, shape.sequence, shape.heads, shape.width};
  op.input(dims, x).output(dims);
  const Values rotated = op.run()[0];
  for (std::size_t t = 0; t < tokens; ++t) {
    std::copy_n(rotated.begin() + static_cast<std::int64_t>(t) * heads_width, heads_width,
                begin_of(wanted, t));
  }
  DeviceCase on_device;
  const device::Array all = on_device.changed(packed, type);
  device::Rope rope;
  rope.batch = shape.batch, rope.sequence = shape.sequence, rope.heads = shape.heads;
  rope.width = rope.rotated = shape.width;
  rope.back = back;
  rope.x = rope.y = {all.data + shape.width * size_bytes(type), type};
  rope.x_stride = rope.y_stride = row;
  on_device.run(rope);
  CHECK(element_error(on_device.values(all), wanted) < tolerance_of(type));
}

}  // namespace

TEST_CASE("rotations on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  const std::vector<RopeShape> shapes = {{2, 33, 3, 128, 128}, {1, 17, 12, 64, 64},  {2, 9, 5, 96, 48},
                                         {1, 50, 1, 10, 6},    {3, 5, 33, 256, 256}, {1, 4, 2, 7, 4},
                                         {1, 3, 2, 1024, 1024}};
  for (const DType type : kActivationTypes) {
    for (const RopeShape& shape : shapes) {
      for (const bool back : {false, true}) {
        CAPTURE(to_string(type), shape.heads, shape.width, shape.rotated, back);
        check_rope(shape, type, back, false, 0);
        check_rope(shape, type, back, true, 0);
        check_rope(shape, type, back, false, 1);
        if (shape.rotated == shape.width) check_packed_rope(shape, type, back);
      }
    }
  }
}

namespace {

struct TableShape {
  std::int64_t tokens, width, entries;
  std::int64_t first_entry = 0;
  std::int64_t high = -1;  // Largest id; −1: of the table.
};

// Each id a few times; few ids, over many chunks; one id for all; ids outside; one token.
const std::vector<TableShape> kTableShapes = {
    {1000, 768, 400}, {4097, 129, 251}, {5000, 64, 256, 0, 0}, {333, 7, 50, 20, 90}, {2048, 520, 100, 0, 3},
    {1, 16, 4},       {600, 8, 128256}, {20000, 32, 256},      {64, 40, 1}};

Values ids_of(const TableShape& shape) {
  const std::int64_t high = shape.high < 0 ? shape.entries - 1 : shape.high;
  return whole_numbers(static_cast<std::size_t>(shape.tokens), 0, high, 11);
}

void check_embedding(const TableShape& shape, DType type, DType of_ids) {
  const Values ids = ids_of(shape), table = numbers(product({shape.entries, shape.width}), type, 1);
  DeviceCase on_device;
  device::Embedding embedding;
  embedding.tokens = shape.tokens, embedding.width = shape.width;
  embedding.entries = shape.entries, embedding.first_entry = shape.first_entry;
  embedding.ids = on_device.input(ids, of_ids);
  embedding.table = on_device.input(table, type);
  embedding.y = on_device.output(product({shape.tokens, shape.width}), type);
  on_device.run(embedding);
  HostOp op(OpKind::kEmbedding);
  op.view.vocab_begin = shape.first_entry;
  op.input({1, shape.tokens}, ids, DType::kInt64).input({shape.entries, shape.width}, table);
  op.output({1, shape.tokens, shape.width});
  CHECK(element_error(on_device.values(embedding.y), op.run()[0]) == 0);
}

void check_embedding_grad(const TableShape& shape, DType type, DType of_table, DType of_ids) {
  const Values ids = ids_of(shape), dy = numbers(product({shape.tokens, shape.width}), type, 1);
  const Values start = numbers(product({shape.entries, shape.width}), of_table, 2);
  DeviceCase on_device;
  device::EmbeddingGrad embedding;
  embedding.tokens = shape.tokens, embedding.width = shape.width;
  embedding.entries = shape.entries, embedding.first_entry = shape.first_entry;
  embedding.ids = on_device.input(ids, of_ids);
  embedding.dy = on_device.input(dy, type);
  embedding.table = on_device.changed(start, of_table);
  on_device.run(embedding);
  HostOp op(OpKind::kEmbeddingGrad);
  op.view.vocab_begin = shape.first_entry;
  op.input({1, shape.tokens}, ids, DType::kInt64).input({1, shape.tokens, shape.width}, dy);
  op.gradient({shape.entries, shape.width}, start);
  const double tolerance =
      std::max(tolerance_of(of_table), 5e-4);  // The host's sums are chains of thousands.
  CHECK(element_error(on_device.values(embedding.table), op.run()[0]) < tolerance);
}

}  // namespace

TEST_CASE("embeddings on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const TableShape& shape : kTableShapes) {
      if (takes_too_long(type, product({shape.entries + shape.tokens, shape.width}))) continue;
      CAPTURE(to_string(type), shape.tokens, shape.width, shape.entries);
      check_embedding(shape, type, DType::kInt64);
      check_embedding_grad(shape, type, DType::kFp32, DType::kInt64);
    }
    check_embedding(kTableShapes[0], type, DType::kInt32);
    check_embedding_grad(kTableShapes[1], type, type, DType::kInt32);
  }
}

TEST_CASE("sums over rows on the device are the definition's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const RowShape& shape : kRowShapes) {
      CAPTURE(to_string(type), shape.rows, shape.width);
      const std::size_t width = static_cast<std::size_t>(shape.width);
      if (takes_too_long(type, elements_of(shape))) continue;
      const Values x = numbers(elements_of(shape), type, 1), start = numbers(width, DType::kFp32, 2);
      for (const bool accumulate : {false, true}) {
        DeviceCase on_device;
        device::ColumnSum sum{shape.rows, shape.width, on_device.input(x, type, shape.offset),
                              on_device.changed(start, DType::kFp32), accumulate};
        on_device.run(sum);
        Values wanted = accumulate ? start : Values(width);
        for (std::size_t i = 0; i < x.size(); ++i) wanted[i % width] += x[i];
        CHECK(element_error(on_device.values(sum.to), wanted) < 2e-4);
      }
    }
  }
}
