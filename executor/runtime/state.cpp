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

// Calls visit(buffer, its runs from the whole tensor) for the rank's parameters.
template <class Visit>
void each_parameter(Tables& tables, RankId rank, Visit visit) {
  const auto& buffers = tables.role(rank).buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const Buffer& buffer = buffers[b];
    if (!buffer.persistent || !buffer.tensor.valid() || buffer.category != MemoryCategory::kParameters)
      continue;
    const BufferId id(static_cast<std::int64_t>(b));
    visit(id, runs_between(tables.shard(rank, id), whole(tables.graph(), tables.program(), buffer.tensor)));
  }
}

void fill_parameter(Tables& tables, RankId rank, BufferId id, const std::vector<Run>& runs,
                    const InitialState& initial, Workspace& workspace) {
  const TensorId tensor = tables.role(rank).buffers[id.index()].tensor;
  const Begins kind = begins(tables.graph(), tensor);
  std::vector<float> values(static_cast<std::size_t>(tables.elements(rank)[id.index()]));
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      float& value = values[static_cast<std::size_t>(run.to + i)];
      if (kind == Begins::kOne) value = 1;
      if (kind == Begins::kRandom) {
        value = initial_value(initial.seed, tables.graph()[tensor].name, run.from + i, initial.deviation);
      }
    }
  }
  const TensorView source = {reinterpret_cast<std::byte*>(values.data()), DType::kFp32, std::ssize(values)};
  convert(source, tables.view(rank, id), workspace);
}

}  // namespace

float initial_value(std::uint64_t seed, std::string_view tensor, std::int64_t element, double deviation) {
  const std::uint64_t key = mix64(seed ^ hash_name(tensor)) + 2 * static_cast<std::uint64_t>(element);
  std::int64_t sum = 0;
  for (const std::uint64_t bits : {mix64(key), mix64(key + 1)}) {
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
  }
  // Mean 8 · 32767.5; variance 8 · (65536² − 1) / 12.
  const double centred = static_cast<double>(sum) - 8 * 32767.5;
  return static_cast<float>(centred * (deviation / std::sqrt(8 * (65536.0 * 65536.0 - 1) / 12)));
}

void initialize(Tables& tables, BoundRank& rank, const InitialState& initial) {
  Workspace workspace;
  each_parameter(tables, rank.rank, [&](BufferId id, const std::vector<Run>& runs) {
    fill_parameter(tables, rank.rank, id, runs, initial, workspace);
  });
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
  each_parameter(tables, rank, [&](BufferId id, const std::vector<Run>& runs) {
    if (!tables.counts(rank, id)) return;
    const TensorView view = tables.view(rank, id);
    const auto width = static_cast<std::size_t>(size_bytes(view.dtype));
    const std::uint64_t name = hash_name(tables.graph()[tables.role(rank).buffers[id.index()].tensor].name);
    for (const Run& run : runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, view.data + (run.to + i) * static_cast<std::int64_t>(width), width);
        const std::uint64_t key = mix64(name + static_cast<std::uint64_t>(run.from + i)) ^ bits;
        hash[0] += mix64(key);
        hash[1] += mix64(key ^ 0xd6e8feb86659fd93ull);
      }
    }
  });
  return hash;
}

}  // namespace orrery::host
