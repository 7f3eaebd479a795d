// Times the kernels that memory bounds, at the shapes of three models, beside a copy that moves as many
// bytes: one JSON document {device, rows: [{kernel, shape, bytes, us, copy_us, share}]} on standard output.
// share: copy_us / us.
//
// Each kernel works on several sets of arrays in turn, so that the second-level cache holds nothing of the
// next one, and is replayed as a graph, so that the host is not measured.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "executor/cuda/kernels.hpp"
#include "tests/gpu/speed/speed_main.hpp"

namespace {

using namespace orrery;
using cuda::Stream;
using device::Array;
using test::check;
using Run = std::function<void(Stream)>;

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 30;
constexpr std::int64_t kColdBytes = std::int64_t{512} << 20;  // Ten times the cache of an H200.

class Arena {
 public:
  Arena() {
    check(cudaMalloc(&memory_, kArenaBytes));
    clear();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { static_cast<void>(cudaFree(memory_)); }

  // 0.0115 in bf16 and fp32, 1.06 in fp16.
  void clear() {
    used_ = 0;
    check(cudaMemset(memory_, 0x3c, kArenaBytes));
  }
  std::byte* take(std::int64_t bytes) {
    std::byte* const part = static_cast<std::byte*>(memory_) + used_;
    used_ += cuda::align_part(bytes);
    if (used_ > kArenaBytes) cuda::refuse("measured", "it needs more than the 16 GiB set apart");
    return part;
  }
  Array array(std::int64_t elements, DType type) { return {take(elements * size_bytes(type)), type}; }
  Array whole(std::int64_t count, std::int64_t below) {
    Random random(7);
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::int64_t& value : values) value = random.between(0, below - 1);
    const Array to = array(count, DType::kInt64);
    check(cudaMemcpy(to.data, values.data(), values.size() * 8, cudaMemcpyHostToDevice));
    return to;
  }

 private:
  void* memory_ = nullptr;
  std::int64_t used_ = 0;
};

// With the table and the workspace that it needs.
template <class Launch>
Run ready(Arena& arena, const Launch& launch) {
  std::vector<std::byte> table(static_cast<std::size_t>(cuda::table_bytes(launch)));
  cuda::write_table(launch, table.data());
  std::byte* const there = arena.take(static_cast<std::int64_t>(table.size()));
  if (!table.empty()) check(cudaMemcpy(there, table.data(), table.size(), cudaMemcpyHostToDevice));
  std::byte* const workspace = arena.take(cuda::workspace_bytes(launch));
  return [launch, there, workspace](Stream stream) { cuda::launch(launch, there, workspace, stream); };
}

// Median of seven replays, in microseconds for one launch.
double time_of(const std::vector<Run>& sets, std::int64_t bytes, Stream stream) {
  const std::int64_t wanted = std::max<std::int64_t>((std::int64_t{24} << 30) / bytes, 4);  // Some 6 ms.
  const std::int64_t launches = std::min<std::int64_t>(wanted, 200);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (std::int64_t i = 0; i < launches; ++i) sets[static_cast<std::size_t>(i) % sets.size()](stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&replay, graph, 0));
  check(cudaGraphLaunch(replay, stream));
  std::vector<float> times;
  for (int turn = 0; turn < 7; ++turn) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(replay, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&times.emplace_back(), start, end));
  }
  check(cudaGraphExecDestroy(replay));
  check(cudaGraphDestroy(graph));
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[3]) * 1e3 / static_cast<double>(launches);
}

class Table {
 public:
  explicit Table(Stream stream) : stream_(stream) {}

  // `make`: a launch on arrays of its own, which moves so many bytes.
  void add(const std::string& kernel, const std::string& shape, std::int64_t bytes,
           const std::function<Run(Arena&)>& make) {
    const double us = measure(bytes, make);
    const double copy_us = copy_time(bytes);
    rows_.push_back(fmt::format(
        R"({{"kernel": "{}", "shape": "{}", "bytes": {}, "us": {:.2f}, "copy_us": {:.2f}, "share": {:.3f}}})",
        kernel, shape, bytes, us, copy_us, copy_us / us));
    std::fprintf(stderr, "%s\n", rows_.back().c_str());
  }
  void print(const std::string& device) const {
    std::string text = fmt::format("{{\"device\": \"{}\", \"rows\": [", device);
    for (std::size_t i = 0; i < rows_.size(); ++i) text += (i > 0 ? ",\n" : "\n") + rows_[i];
    std::puts((text + "\n]}").c_str());
  }

 private:
  double measure(std::int64_t bytes, const std::function<Run(Arena&)>& make) {
    arena_.clear();
    std::vector<Run> sets;
    const auto count = std::clamp<std::int64_t>(kColdBytes / bytes + 1, 1, 16);
    for (std::int64_t i = 0; i < count; ++i) sets.push_back(make(arena_));
    return time_of(sets, bytes, stream_);
  }
  // The better one of the driver's copy and a kernel's; half of the bytes are read and half are written.
  double copy_time(std::int64_t bytes) {
    const std::int64_t elements = bytes / 8;
    const double by_kernel = measure(bytes, [&](Arena& arena) {
      return ready(arena, device::Convert{elements, arena.array(elements, DType::kFp32),
                                          arena.array(elements, DType::kFp32)});
    });
    const double by_driver = measure(bytes, [&](Arena& arena) {
      return ready(arena,
                   device::CopyBytes{arena.take(4 * elements), arena.take(4 * elements), 4 * elements});
    });
    return std::min(by_kernel, by_driver);
  }

  Stream stream_;
  Arena arena_;
  std::vector<std::string> rows_;
};

struct Model {
  std::int64_t tokens, sequence, width, heads, kv_heads, ffn, vocab;
};
constexpr DType kType = DType::kBf16;

void norms(Table& table, const Model& m) {
  const std::int64_t n = m.tokens * m.width;
  const std::string shape = fmt::format("{} x {}", m.tokens, m.width);
  const auto norm = [=](Arena& arena, bool residual) {
    device::Norm launch;
    launch.rows = m.tokens, launch.width = m.width;
    launch.x = arena.array(n, kType), launch.y = arena.array(n, kType);
    launch.weight = arena.array(m.width, kType);
    if (residual) launch.residual = arena.array(n, kType), launch.sum = arena.array(n, kType);
    return ready(arena, launch);
  };
  table.add("norm", shape, 4 * n, [&](Arena& arena) { return norm(arena, false); });
  table.add("norm with residual", shape, 8 * n, [&](Arena& arena) { return norm(arena, true); });
  const auto grad = [=](Arena& arena, device::NormKind kind, bool residual) {
    device::NormGrad launch;
    launch.kind = kind;
    launch.rows = m.tokens, launch.width = m.width;
    launch.x = arena.array(n, kType), launch.dy = arena.array(n, kType), launch.dx = arena.array(n, kType);
    launch.weight = arena.array(m.width, kType);
    launch.dweight = arena.array(m.width, DType::kFp32);
    if (kind == device::NormKind::kLayer) launch.dbias = arena.array(m.width, DType::kFp32);
    launch.accumulate = true;
    if (residual) launch.residual = arena.array(n, kType);
    return ready(arena, launch);
  };
  table.add("norm_grad", shape, 6 * n,
            [&](Arena& arena) { return grad(arena, device::NormKind::kRms, false); });
  table.add("norm_grad with residual", shape, 8 * n,
            [&](Arena& arena) { return grad(arena, device::NormKind::kRms, true); });
  table.add("layer norm_grad with residual", shape, 8 * n,
            [&](Arena& arena) { return grad(arena, device::NormKind::kLayer, true); });
}

void elements(Table& table, const Model& m) {
  const std::int64_t n = m.tokens * m.ffn, narrow = m.tokens * m.width;
  const std::string shape = fmt::format("{} x {}", m.tokens, m.ffn),
                    rows = fmt::format("{} x {}", m.tokens, m.width);
  const auto bf16 = [=](Arena& arena) { return arena.array(n, kType); };
  constexpr auto kSilu = device::Activation::kSilu, kGelu = device::Activation::kGelu;
  table.add("unary (gelu)", shape, 4 * n, [&](Arena& arena) {
    return ready(arena, device::Unary{n, kGelu, 0, bf16(arena), {}, bf16(arena)});
  });
  table.add("unary_grad (gelu)", shape, 6 * n, [&](Arena& arena) {
    return ready(arena, device::Unary{n, kGelu, 0, bf16(arena), bf16(arena), bf16(arena)});
  });
  table.add("gated (silu)", shape, 6 * n, [&](Arena& arena) {
    return ready(arena, device::Gated{n, kSilu, 0, bf16(arena), bf16(arena), bf16(arena)});
  });
  table.add("gated_grad (silu)", shape, 10 * n, [&](Arena& arena) {
    return ready(arena, device::GatedGrad{n, kSilu, 0, bf16(arena), bf16(arena), bf16(arena), bf16(arena),
                                          bf16(arena)});
  });
  table.add("add_scaled", rows, 6 * narrow, [&](Arena& arena) {
    return ready(arena, device::AddScaled{narrow, 1, arena.array(narrow, kType), arena.array(narrow, kType),
                                          arena.array(narrow, kType)});
  });
  table.add("column_sum", shape, 2 * n, [&](Arena& arena) {
    return ready(arena,
                 device::ColumnSum{m.tokens, m.ffn, bf16(arena), arena.array(m.ffn, DType::kFp32), true});
  });
}

// Queries and keys in place in packed rows of queries, keys and values: two launches.
void rotations(Table& table, const Model& m) {
  const std::int64_t width = m.width / m.heads, row = (m.heads + 2 * m.kv_heads) * width;
  const std::string shape =
      fmt::format("{} x ({} + {}) x {} of {}", m.tokens, m.heads, m.kv_heads, width, row);
  const auto rotation = [=](Arena& arena, bool back) {
    device::Rope queries;
    queries.batch = m.tokens / m.sequence, queries.sequence = m.sequence;
    queries.heads = m.heads, queries.width = queries.rotated = width;
    queries.back = back;
    queries.x = queries.y = arena.array(m.tokens * row, kType);
    queries.x_stride = queries.y_stride = row;
    device::Rope keys = queries;
    keys.heads = m.kv_heads;
    keys.x.data += m.width * size_bytes(kType);
    keys.y = keys.x;
    return Run([first = ready(arena, queries), second = ready(arena, keys)](Stream stream) {
      first(stream);
      second(stream);
    });
  };
  const std::int64_t bytes = 4 * m.tokens * (m.heads + m.kv_heads) * width;
  table.add("rope of packed q, k", shape, bytes, [&](Arena& arena) { return rotation(arena, false); });
  table.add("rope_grad of packed q, k", shape, bytes, [&](Arena& arena) { return rotation(arena, true); });
}

// Copies for FP8 products, with and without a search for the largest element.
void quantized(Table& table, const Model& m) {
  const std::int64_t n = m.tokens * m.ffn;
  const std::string shape = fmt::format("{} x {}", m.tokens, m.ffn);
  for (const bool known : {false, true}) {
    for (const int ways : {1, 2, 3}) {
      const bool straight = ways != 2, turned = ways != 1;
      const std::int64_t bytes = (known ? 2 : 4) + (straight ? 1 : 0) + (turned ? 1 : 0);
      const std::string name = ways == 1 ? "quantize" : ways == 2 ? "quantize turned" : "quantize both ways";
      table.add(name + (known ? ", largest known" : ""), shape, bytes * n, [=](Arena& arena) {
        const auto floats = [&] { return reinterpret_cast<float*>(arena.array(1, DType::kFp32).data); };
        device::Quantize copy;
        copy.rows = m.tokens, copy.width = copy.stride = m.ffn;
        copy.x = arena.array(n, kType);
        if (straight) copy.to = arena.take(n);
        if (turned) copy.turned = arena.take(n);
        copy.scale = floats();
        if (known) copy.known_largest = floats();
        return ready(arena, copy);
      });
    }
  }
}

// Copies with scales for blocks, whose largest elements are found as they are made.
void quantized_by_blocks(Table& table, const Model& m) {
  const std::int64_t n = m.tokens * m.ffn;
  const std::string shape = fmt::format("{} x {}", m.tokens, m.ffn);
  const auto add = [&](const std::string& name, Fp8Scales scales, bool straight, bool turned) {
    table.add(name, shape, (straight && turned ? 4 : 3) * n, [=](Arena& arena) {
      const auto room = [&](std::int64_t outer, std::int64_t inner) {
        const std::int64_t count = fp8_scale_count(scales, outer, inner);
        return reinterpret_cast<float*>(arena.array(count, DType::kFp32).data);
      };
      device::Quantize copy;
      copy.rows = m.tokens, copy.width = copy.stride = m.ffn;
      copy.x = arena.array(n, kType);
      copy.scales = scales;
      if (straight) copy.to = arena.take(n), copy.scale = room(m.tokens, m.ffn);
      if (turned) copy.turned = arena.take(n), copy.turned_scale = room(m.ffn, m.tokens);
      return ready(arena, copy);
    });
  };
  add("quantize by rows", Fp8Scales::kRows, true, false);
  add("quantize by rows, turned", Fp8Scales::kRows, false, true);
  add("quantize by rows, both ways", Fp8Scales::kRows, true, true);
  add("quantize by squares", Fp8Scales::kSquares, true, false);
  add("quantize by squares, turned", Fp8Scales::kSquares, false, true);
}

void tables(Table& table, const Model& m) {
  const std::int64_t n = m.tokens * m.width;
  for (const std::int64_t vocab : {std::int64_t{256}, m.vocab}) {
    const std::string shape = fmt::format("{} x {} of {}", m.tokens, m.width, vocab);
    table.add("embedding", shape, 4 * n, [&](Arena& arena) {
      return ready(arena, device::Embedding{m.tokens, m.width, vocab, 0, arena.whole(m.tokens, vocab),
                                            arena.array(vocab * m.width, kType), arena.array(n, kType)});
    });
    // The rows of the table that some token has are read and written.
    const std::int64_t touched = std::min(vocab, m.tokens);
    table.add("embedding_grad", shape, 2 * n + 8 * touched * m.width, [&](Arena& arena) {
      return ready(arena,
                   device::EmbeddingGrad{m.tokens, m.width, vocab, 0, arena.whole(m.tokens, vocab),
                                         arena.array(n, kType), arena.array(vocab * m.width, DType::kFp32)});
    });
  }
  const std::string shape = fmt::format("{} x {}", m.tokens, m.vocab);
  const std::int64_t logits = m.tokens * m.vocab;
  const auto loss_of = [=](Arena& arena, bool with_gradient) {
    device::CrossEntropy loss;
    loss.tokens = m.tokens, loss.vocab = loss.real = m.vocab;
    loss.tokens_of_mean = static_cast<double>(m.tokens);
    loss.logits = arena.array(logits, kType), loss.labels = arena.whole(m.tokens, m.vocab);
    loss.loss = arena.array(1, DType::kFp32);
    loss.lse = reinterpret_cast<float*>(arena.take(4 * m.tokens));
    if (with_gradient) loss.dlogits = loss.logits;
    return ready(arena, loss);
  };
  table.add("cross_entropy", shape, 2 * logits, [&](Arena& arena) { return loss_of(arena, false); });
  table.add("cross_entropy with its gradient", shape, 4 * logits,
            [&](Arena& arena) { return loss_of(arena, true); });
  table.add("cross_entropy_grad", shape, 4 * logits, [&](Arena& arena) {
    device::CrossEntropyGrad loss;
    loss.tokens = m.tokens, loss.vocab = loss.real = m.vocab;
    loss.tokens_of_mean = static_cast<double>(m.tokens);
    loss.logits = loss.dlogits = arena.array(logits, kType);
    loss.labels = arena.whole(m.tokens, m.vocab);
    loss.lse = reinterpret_cast<const float*>(arena.take(4 * m.tokens));
    return ready(arena, loss);
  });
}

void state(Table& table) {
  constexpr std::int64_t n = std::int64_t{1} << 27;
  const std::string shape = fmt::format("{}", n);
  constexpr DType kFp32 = DType::kFp32;
  const auto floats = [](Arena& arena) { return arena.array(n, kFp32); };
  table.add("adamw", shape, 30 * n, [&](Arena& arena) {
    device::AdamW update;
    constexpr std::int64_t kSegments = 128;
    for (std::int64_t i = 0; i < kSegments; ++i) {
      const auto moment = [&] { return reinterpret_cast<float*>(arena.array(n / kSegments, kFp32).data); };
      update.segments.push_back({arena.array(n / kSegments, kFp32), arena.array(n / kSegments, kType),
                                 moment(), moment(), moment(), n / kSegments, i % 2 == 0});
    }
    const device::StepScalars scalars;
    std::byte* const there = arena.take(sizeof(scalars));
    check(cudaMemcpy(there, &scalars, sizeof(scalars), cudaMemcpyHostToDevice));
    update.scalars = reinterpret_cast<const device::StepScalars*>(there);
    return ready(arena, update);
  });
  table.add("sum_squares", shape, 4 * n, [&](Arena& arena) {
    return ready(arena, device::SumSquares{{{floats(arena), n}}, reinterpret_cast<double*>(arena.take(8))});
  });
  table.add("accumulate fp32 += bf16", shape, 10 * n, [&](Arena& arena) {
    return ready(arena, device::Accumulate{n, arena.array(n, kType), floats(arena)});
  });
  table.add("convert fp32 to bf16", shape, 6 * n, [&](Arena& arena) {
    return ready(arena, device::Convert{n, floats(arena), arena.array(n, kType)});
  });
}

void measure_all() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  Stream stream = nullptr;
  check(cudaStreamCreate(&stream));
  Table table(stream);
  for (const Model& m :
       {Model{32768, 1024, 768, 12, 12, 2048, 50304}, Model{16384, 2048, 2048, 16, 16, 5504, 50304},
        Model{8192, 4096, 4096, 32, 8, 14336, 128256}}) {
    norms(table, m);
    elements(table, m);
    rotations(table, m);
    quantized(table, m);
    quantized_by_blocks(table, m);
    tables(table, m);
  }
  state(table);
  table.print(properties.name);
  check(cudaStreamDestroy(stream));
}

}  // namespace

int main() { return orrery::test::speed_main("kernel-speed", measure_all); }
