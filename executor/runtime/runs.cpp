#include "executor/runtime/runs.hpp"

#include <cassert>
#include <numeric>
#include <unordered_map>

namespace orrery::host {
namespace {

// Of one dimension: entries of `to` that `from` has, neighbours joined.
std::vector<Run> runs_of_dimension(const std::vector<std::int64_t>& to,
                                   const std::vector<std::int64_t>& from) {
  std::unordered_map<std::int64_t, std::int64_t> where;
  where.reserve(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) where.emplace(from[i], static_cast<std::int64_t>(i));
  std::vector<Run> runs;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto found = where.find(to[i]);
    if (found == where.end()) continue;
    const auto at = static_cast<std::int64_t>(i);
    const bool joins = !runs.empty() && runs.back().to + runs.back().count == at &&
                       runs.back().from + runs.back().count == found->second;
    if (joins) {
      ++runs.back().count;
    } else {
      runs.push_back({at, found->second, 1});
    }
  }
  return runs;
}

void append(const Run& run, std::vector<Run>& runs) {
  const bool joins = !runs.empty() && runs.back().to + runs.back().count == run.to &&
                     runs.back().from + runs.back().count == run.from;
  if (joins) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

std::vector<Run> runs_between(const Shard& to, const Shard& from) {
  assert(to.indices.size() == from.indices.size());
  // From the innermost dimension outwards: each entry of a dimension repeats the runs of those within it.
  std::vector<Run> runs = {{0, 0, 1}};
  std::int64_t to_size = 1, from_size = 1;
  for (std::size_t d = to.indices.size(); d-- > 0;) {
    const std::vector<Run> outer = runs_of_dimension(to.indices[d], from.indices[d]);
    std::vector<Run> joined;
    const bool dense = runs.size() == 1 && runs[0] == Run{0, 0, to_size} && to_size == from_size;
    for (const Run& run : outer) {
      if (dense) {
        append({run.to * to_size, run.from * from_size, run.count * to_size}, joined);
        continue;
      }
      for (std::int64_t i = 0; i < run.count; ++i) {
        for (const Run& inner : runs) {
          append({(run.to + i) * to_size + inner.to, (run.from + i) * from_size + inner.from, inner.count},
                 joined);
        }
      }
    }
    runs = std::move(joined);
    to_size *= std::ssize(to.indices[d]);
    from_size *= std::ssize(from.indices[d]);
  }
  return runs;
}

std::int64_t count(const std::vector<Run>& runs) {
  return std::accumulate(runs.begin(), runs.end(), std::int64_t{0},
                         [](std::int64_t sum, const Run& run) { return sum + run.count; });
}

Shard whole(const Graph& graph, const Program& program, TensorId tensor) {
  Shard shard;
  for (const DimId dim : graph[tensor].shape) {
    const std::int64_t fixed = graph[dim].size;
    auto& indices =
        shard.indices.emplace_back(static_cast<std::size_t>(fixed > 0 ? fixed : program.sizes[dim.index()]));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
  }
  return shard;
}

}  // namespace orrery::host
