#include "executor/runtime/state.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/random.hpp"

namespace orrery::host {
namespace {

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a.
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

enum class Begins : std::uint8_t { kRandom, kOne, kZero };

Begins begins(const Graph& graph, TensorId parameter) {
  if (graph[parameter].shape.size() > 1) {
    for (const Op& op : graph.ops) {
      // An expert's bias has two dimensions.
      const bool bias = op.kind == OpKind::kMatmul && op.attributes.bias;
      for (std::size_t i = 1 + op.outputs.size(); bias && i < op.inputs.size(); ++i) {
        if (op.inputs[i] == parameter) return Begins::kZero;
      }
    }
    return Begins::kRandom;
  }
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kNorm && op.attributes.weight && op.inputs[1] == parameter) return Begins::kOne;
  }
  return Begins::kZero;
}

}  // namespace

std::vector<ParameterRun> parameter_runs(Tables& tables, RankId rank, bool counted) {
  std::vector<ParameterRun> found;
  const auto& buffers = tables.role(rank).buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const Buffer& buffer = buffers[b];
    const BufferId id(static_cast<std::int64_t>(b));
    if (!buffer.persistent || !buffer.tensor.valid() || buffer.category != MemoryCategory::kParameters)
      continue;
    if (counted && !tables.counts(rank, id)) continue;
    const Begins kind = begins(tables.graph(), buffer.tensor);
    ParameterRun run;
    run.name = hash_name(tables.graph()[buffer.tensor].name);
    run.drawn = kind == Begins::kRandom;
    run.constant = kind == Begins::kOne ? 1.0f : 0.0f;
    const TensorView view = tables.view(rank, id);
    for (const Run& of :
         runs_between(tables.shard(rank, id), whole(tables.graph(), tables.program(), buffer.tensor))) {
      run.view = {view.data + of.to * size_bytes(view.dtype), view.dtype, of.count};
      run.first = of.from;
      found.push_back(run);
    }
  }
  return found;
}

std::uint64_t initial_key(std::uint64_t seed, std::uint64_t name) { return mix64(seed ^ name); }

double initial_scale(double deviation) {
  // Variance 8 · (65536² − 1) / 12.
  return deviation / std::sqrt(8 * (65536.0 * 65536.0 - 1) / 12);
}

namespace {

float drawn(std::uint64_t tensor_key, std::int64_t element, double scale) {
  const std::uint64_t key = tensor_key + 2 * static_cast<std::uint64_t>(element);
  std::int64_t sum = 0;
  for (const std::uint64_t bits : {mix64(key), mix64(key + 1)}) {
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
  }
  const double centred = static_cast<double>(sum) - 8 * 32767.5;  // The mean.
  return static_cast<float>(centred * scale);
}

}  // namespace

float initial_value(std::uint64_t seed, std::string_view tensor, std::int64_t element, double deviation) {
  return drawn(initial_key(seed, hash_name(tensor)), element, initial_scale(deviation));
}

void initialize(Tables& tables, BoundRank& rank, const InitialState& initial) {
  Workspace workspace;
  std::vector<float> values;
  const double scale = initial_scale(initial.deviation);
  for (const ParameterRun& run : parameter_runs(tables, rank.rank, false)) {
    values.assign(static_cast<std::size_t>(run.view.elements), run.constant);
    const std::uint64_t key = initial_key(initial.seed, run.name);
    for (std::int64_t i = 0; run.drawn && i < run.view.elements; ++i) {
      values[static_cast<std::size_t>(i)] = drawn(key, run.first + i, scale);
    }
    convert({reinterpret_cast<std::byte*>(values.data()), DType::kFp32, run.view.elements}, run.view,
            workspace);
  }
  for (const BoundInstruction& instruction : rank.instructions) {
    for (const Action& action : instruction.actions) {
      const auto* const update = std::get_if<Update>(&action);
      if (update == nullptr) continue;
      for (const UpdateSlice& slice : update->slices) {
        if (slice.weights.dtype == DType::kFp32) continue;
        auto* const master = reinterpret_cast<std::byte*>(slice.master);
        convert(slice.weights, {master, DType::kFp32, slice.weights.elements}, workspace);
      }
    }
  }
}

std::array<std::uint64_t, 2> parameter_hash(Tables& tables, RankId rank) {
  std::array<std::uint64_t, 2> hash = {};
  for (const ParameterRun& run : parameter_runs(tables, rank, true)) {
    const auto width = static_cast<std::size_t>(size_bytes(run.view.dtype));
    for (std::int64_t i = 0; i < run.view.elements; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, run.view.data + i * static_cast<std::int64_t>(width), width);
      const std::uint64_t key = mix64(run.name + static_cast<std::uint64_t>(run.first + i)) ^ bits;
      hash[0] += mix64(key);
      hash[1] += mix64(key ^ 0xd6e8feb86659fd93ull);
    }
  }
  return hash;
}

}  // namespace orrery::host
