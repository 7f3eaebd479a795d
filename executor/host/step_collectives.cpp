// Collectives in double precision: between placements, or in place on flat parts.

#include <algorithm>

#include "base/error.hpp"
#include "executor/host/step_parts.hpp"

namespace orrery::host {
namespace {

double combine(Reduction reduction, double a, double b) {
  return reduction == Reduction::kMax ? std::max(a, b) : a + b;
}

class Exchange {
 public:
  Exchange(const Graph& graph, const Program& program, const std::vector<Member>& group)
      : graph_(graph),
        program_(program),
        group_(group),
        work_(std::get<Collective>(group.front().instruction->work)) {
    for (const Member& member : group_) operands_.push_back(member.rank->operands(*member.instruction));
  }

  void run() {
    if (operands_.front().empty()) return;  // A number that no buffer holds: the gradient's norm.
    const bool in_place = std::all_of(operands_.front().begin(), operands_.front().end(),
                                      [](const Operand& operand) { return operand.writes; });
    if (in_place) {
      run_in_place();
      return;
    }
    for (std::size_t o = 0; o < operands_.front().size(); ++o) {
      if (operands_.front()[o].writes) run_between(o);
    }
  }

 private:
  [[noreturn]] void fault(const std::string& what) const {
    fail(ErrorKind::kRuntime, "rank {}, {}: {}", group_.front().rank->rank().value,
         instruction_name(program_, *group_.front().instruction), what);
  }

  TensorId tensor_of(std::size_t member, const Operand& operand) const {
    return group_[member].rank->role().buffers[operand.buffer.index()].tensor;
  }

  // The operand that is only read and holds the tensor.
  BufferId source_of(std::size_t member, TensorId tensor) const {
    for (const Operand& operand : operands_[member]) {
      if (!operand.writes && tensor_of(member, operand) == tensor) return operand.buffer;
    }
    fault("has no source for what it writes");
  }

  // From the operand that is only read to the one that is written: every element of a target comes from
  // whoever has it; where several do, they are summed (reduce) or are the same (gather).
  void run_between(std::size_t written) {
    std::vector<Values> sources;
    std::vector<const Shard*> shards;
    for (std::size_t m = 0; m < group_.size(); ++m) {
      const BufferId source = source_of(m, tensor_of(m, operands_[m][written]));
      sources.push_back(group_[m].rank->load(source));
      shards.push_back(&group_[m].rank->shard(source));
    }
    const bool sums =
        work_.kind == CollectiveKind::kReduceScatter || work_.kind == CollectiveKind::kAllReduce;
    for (std::size_t m = 0; m < group_.size(); ++m) {
      RankState& rank = *group_[m].rank;
      const BufferId target = operands_[m][written].buffer;
      const Shard wanted = piece(m, operands_[m][written]);
      Values values(wanted.size(), kNoValue);
      std::vector<bool> known(values.size());
      for (std::size_t s = 0; s < group_.size(); ++s) {
        const std::vector<std::int64_t> from = positions_in(wanted, *shards[s]);
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (from[i] < 0) continue;
          const double value = sources[s][static_cast<std::size_t>(from[i])];
          values[i] = known[i] && sums ? combine(work_.reduction, values[i], value) : value;
          known[i] = true;
        }
      }
      if (!std::all_of(known.begin(), known.end(), [](bool is) { return is; })) {
        fault("nobody has a part of what it brings");
      }
      rank.store(target, wanted, values);
    }
  }

  // What a collective brings of its target: a piece of each rank's run of a gathered sequence, or of the one
  // run that a scattered one is.
  Shard piece(std::size_t member, const Operand& target) const {
    const Piece& of = group_[member].instruction->piece;
    const std::int32_t segments = work_.kind == CollectiveKind::kReduceScatter ? 1 : of.segments;
    return piece_of(graph_, tensor_of(member, target), group_[member].rank->shard(target.buffer), of,
                    segments);
  }

  Values concatenated(std::size_t member) const {
    Values all;
    for (const Operand& operand : operands_[member]) {
      const Values values = group_[member].rank->load(operand.buffer);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  void run_in_place() {
    std::vector<Values> all;
    for (std::size_t m = 0; m < group_.size(); ++m) all.push_back(concatenated(m));
    const std::size_t total = all.front().size();
    for (const Values& values : all) {
      if (values.size() != total) fault("the ranks' operands differ in size");
    }
    const std::size_t part = (total + group_.size() - 1) / group_.size();
    for (std::size_t m = 0; m < group_.size(); ++m) {
      Values result(total, kNoValue);
      for (std::size_t i = 0; i < total; ++i) {
        const std::size_t owner = i / part;
        if (work_.kind == CollectiveKind::kAllGather) {
          result[i] = all[owner][i];
        } else if (work_.kind == CollectiveKind::kAllReduce || owner == m) {
          result[i] = all[0][i];
          for (std::size_t s = 1; s < all.size(); ++s)
            result[i] = combine(work_.reduction, result[i], all[s][i]);
        }
      }
      scatter(m, result);
    }
  }

  void scatter(std::size_t member, const Values& all) {
    std::size_t begin = 0;
    for (const Operand& operand : operands_[member]) {
      RankState& rank = *group_[member].rank;
      const std::size_t size = rank.shard(operand.buffer).size();
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
      rank.store(operand.buffer, Values(from, from + static_cast<std::ptrdiff_t>(size)));
      begin += size;
    }
  }

  const Graph& graph_;
  const Program& program_;
  const std::vector<Member>& group_;
  const Collective& work_;
  std::vector<std::vector<Operand>> operands_;  // By member.
};

}  // namespace

void run_collective(const Graph& graph, const Program& program, const std::vector<Member>& group) {
  Exchange(graph, program, group).run();
}

}  // namespace orrery::host
