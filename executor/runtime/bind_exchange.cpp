// Collectives and messages: what moves between whose memory, and who waits for whom.

#include <algorithm>
#include <cassert>

#include "executor/runtime/bind_parts.hpp"

namespace orrery::host {
namespace {

TensorView part(const TensorView& view, std::int64_t begin, std::int64_t count) {
  return {view.data + begin * size_bytes(view.dtype), view.dtype, count};
}

CopyBytes copy(const TensorView& to, std::int64_t to_begin, const TensorView& from, std::int64_t from_begin,
               std::int64_t count) {
  assert(to.dtype == from.dtype);
  const std::int64_t width = size_bytes(to.dtype);
  return {to.data + to_begin * width, from.data + from_begin * width, count * width};
}

class ExchangeBinder {
 public:
  ExchangeBinder(Tables& tables, RankId rank, std::int32_t index)
      : tables_(tables),
        rank_(rank),
        index_(index),
        instruction_(tables.role(rank).instructions[static_cast<std::size_t>(index)]) {}

  Exchange message() {
    const auto [peer, theirs] = tables_.other_side(rank_, index_);
    exchange_.listeners = {peer};
    if (std::holds_alternative<Send>(instruction_.work)) {
      exchange_.readers = {{peer, theirs}};
      return std::move(exchange_);
    }
    ExchangePhase& arrive = exchange_.phases.emplace_back();
    arrive.after = {{peer, theirs}};
    const auto to = tables_.operands(rank_, instruction_);
    const auto from =
        tables_.operands(peer, tables_.role(peer).instructions[static_cast<std::size_t>(theirs)]);
    if (to.size() != from.size()) fault("the message's two ends hold different tensors");
    for (std::size_t o = 0; o < to.size(); ++o) {
      const TensorView target = tables_.view(rank_, to[o].buffer);
      const TensorView source = tables_.view(peer, from[o].buffer);
      if (target.elements != source.elements || target.dtype != source.dtype) {
        fault("the message's two ends differ in size or type");
      }
      arrive.work.emplace_back(copy(target, 0, source, 0, target.elements));
    }
    return std::move(exchange_);
  }

  Exchange collective() {
    sides_ = tables_.sides(rank_, index_);
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      const auto& [member, theirs] = sides_[m];
      operands_.push_back(
          tables_.operands(member, tables_.role(member).instructions[static_cast<std::size_t>(theirs)]));
      if (member == rank_) {
        own_ = m;
        continue;
      }
      peers_.push_back({member, theirs});
      exchange_.listeners.push_back(member);
    }
    exchange_.readers = peers_;
    const auto& mine = operands_[own_];
    if (mine.empty()) {
      if (instruction_.operands.begin != instruction_.operands.end) fault("its operands hold no tensor");
      add_phase().work.emplace_back(MergeNorm{});
    } else if (std::all_of(mine.begin(), mine.end(), [](const Operand& operand) { return operand.writes; })) {
      in_place();
    } else {
      between();
    }
    return std::move(exchange_);
  }

 private:
  [[noreturn]] void fault(const std::string& what) const { refuse(tables_, rank_, instruction_, what); }
  const Collective& work() const { return std::get<Collective>(instruction_.work); }
  bool sums() const {
    return work().kind == CollectiveKind::kReduceScatter || work().kind == CollectiveKind::kAllReduce;
  }
  ExchangePhase& add_phase() {
    ExchangePhase& phase = exchange_.phases.emplace_back();
    phase.after = peers_;
    return phase;
  }

  // ---- In place, on the concatenation of all operands. Of a gradient that an earlier collective has divided
  // only the rank's own elements are a sum, so only they take part.

  std::vector<TensorView> stretch(std::size_t member) {
    const RankId rank = sides_[member].first;
    std::vector<TensorView> views;
    for (const Operand& operand : operands_[member]) {
      const TensorView view = tables_.view(rank, operand.buffer);
      const DividedGradient& divided = tables_.divided(rank)[operand.buffer.index()];
      const bool earlier = divided.collective >= 0 && divided.collective < sides_[member].second;
      const bool gradient =
          tables_.role(rank).buffers[operand.buffer.index()].category == MemoryCategory::kGradients;
      views.push_back(earlier && gradient ? part(view, divided.own.begin, divided.own.size()) : view);
    }
    return views;
  }

  void in_place() {
    std::vector<std::vector<TensorView>> all;
    for (std::size_t m = 0; m < sides_.size(); ++m) all.push_back(stretch(m));
    std::int64_t total = 0;
    for (std::size_t o = 0; o < all[own_].size(); ++o) {
      total += all[own_][o].elements;
      for (const auto& views : all) {
        if (views.size() != all[own_].size() || views[o].elements != all[own_][o].elements) {
          fault("the ranks' operands differ in size");
        }
      }
    }
    if (sums()) {
      ExchangePhase& reduce = add_phase();
      each_piece(all[own_], total, own_, [&](std::size_t o, std::int64_t begin, std::int64_t count) {
        Reduce& sum = std::get<Reduce>(reduce.work.emplace_back(Reduce{}));
        sum.to = part(all[own_][o], begin, count);
        for (const auto& views : all) sum.from.push_back(part(views[o], begin, count));
        sum.reduction = work().reduction;
      });
    }
    if (work().kind == CollectiveKind::kReduceScatter) return;
    ExchangePhase& gather = add_phase();
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      if (m == own_) continue;
      if (divided_by_placement()) {
        gather_updated(m, gather.work);
        continue;
      }
      each_piece(all[own_], total, m, [&](std::size_t o, std::int64_t begin, std::int64_t count) {
        gather.work.emplace_back(copy(all[own_][o], begin, all[m][o], begin, count));
      });
    }
  }

  // ZeRO 2: a rank has updated what its gradients are of, not a part of the concatenation.
  bool divided_by_placement() {
    return std::any_of(operands_[own_].begin(), operands_[own_].end(), [&](const Operand& operand) {
      const BufferId gradient = updated_by(own_, operand);
      return gradient.valid() &&
             tables_.shard(rank_, gradient).indices != tables_.shard(rank_, operand.buffer).indices;
    });
  }
  BufferId updated_by(std::size_t member, const Operand& operand) const {
    const RankId rank = sides_[member].first;
    const Buffer& buffer = tables_.role(rank).buffers[operand.buffer.index()];
    const bool parameter = buffer.persistent && buffer.category == MemoryCategory::kParameters;
    return parameter ? tables_.gradient_of(rank, operand.buffer) : BufferId();
  }
  void gather_updated(std::size_t member, std::vector<Transfer>& work_list) {
    for (std::size_t o = 0; o < operands_[own_].size(); ++o) {
      const RankId rank = sides_[member].first;
      const BufferId theirs = operands_[member][o].buffer;
      const Shard& updated = tables_.shard(rank, updated_by(member, operands_[member][o]));
      for (const Run& run : runs_between(tables_.shard(rank_, operands_[own_][o].buffer), updated)) {
        work_list.emplace_back(copy(tables_.view(rank_, operands_[own_][o].buffer), run.to,
                                    tables_.view(rank, theirs), run.to, run.count));
      }
    }
  }

  // Of the part of the concatenation that `member` owns: operand, first element in it, elements.
  template <class Visit>
  void each_piece(const std::vector<TensorView>& views, std::int64_t total, std::size_t member,
                  Visit visit) const {
    const Elements own = own_part(total, std::ssize(sides_), static_cast<std::int64_t>(member));
    std::int64_t begin = 0;
    for (std::size_t o = 0; o < views.size(); ++o) {
      const std::int64_t first = std::max(own.begin, begin);
      const std::int64_t end = std::min(own.end, begin + views[o].elements);
      if (first < end) visit(o, first - begin, end - first);
      begin += views[o].elements;
    }
  }

  // ---- From an operand that is only read to the one that is written and holds the same tensor.

  TensorId tensor_of(std::size_t member, const Operand& operand) const {
    return tables_.role(sides_[member].first).buffers[operand.buffer.index()].tensor;
  }
  BufferId source_of(std::size_t member, TensorId tensor) const {
    for (const Operand& operand : operands_[member]) {
      if (!operand.writes && tensor_of(member, operand) == tensor) return operand.buffer;
    }
    fault("has no source for what it writes");
  }
  // The piece of a target that the instruction brings.
  Shard wanted(std::size_t member, const Operand& target) {
    const Piece& of = instruction_.piece;
    const std::int32_t segments = work().kind == CollectiveKind::kReduceScatter ? 1 : of.segments;
    return piece_of(tables_.graph(), tensor_of(member, target),
                    tables_.shard(sides_[member].first, target.buffer), of, segments);
  }

  void between() {
    ExchangePhase& first = add_phase();
    std::vector<Transfer> second;
    for (const Operand& target : operands_[own_]) {
      if (!target.writes) continue;
      if (!sums()) {
        gather(target, first.work);
      } else if (work().kind == CollectiveKind::kAllReduce && instruction_.piece.of == 1 && alike(target)) {
        reduce_and_gather(target, first.work, second);
      } else {
        reduce(target, first.work);
      }
    }
    if (!second.empty()) add_phase().work = std::move(second);
  }

  bool alike(const Operand& target) {
    const Shard& own = tables_.shard(rank_, target.buffer);
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      const RankId member = sides_[m].first;
      if (tables_.shard(member, source_of(m, tensor_of(own_, target))).indices != own.indices) return false;
    }
    return true;
  }

  // Every rank sums its part of the elements, and then brings the others' from where they are.
  void reduce_and_gather(const Operand& target, std::vector<Transfer>& first, std::vector<Transfer>& second) {
    const TensorId tensor = tensor_of(own_, target);
    const TensorView to = tables_.view(rank_, target.buffer);
    const std::int64_t members = std::ssize(sides_);
    const Elements own = own_part(to.elements, members, static_cast<std::int64_t>(own_));
    Reduce sum;
    sum.to = part(to, own.begin, own.size());
    sum.reduction = work().reduction;
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      sum.from.push_back(part(tables_.view(sides_[m].first, source_of(m, tensor)), own.begin, own.size()));
      if (m == own_) continue;
      const Elements theirs = own_part(to.elements, members, static_cast<std::int64_t>(m));
      second.emplace_back(copy(to, theirs.begin, tables_.view(sides_[m].first, target_of(m, tensor)),
                               theirs.begin, theirs.size()));
    }
    first.emplace_back(std::move(sum));
  }
  BufferId target_of(std::size_t member, TensorId tensor) const {
    for (const Operand& operand : operands_[member]) {
      if (operand.writes && tensor_of(member, operand) == tensor) return operand.buffer;
    }
    fault("the ranks' operands differ");
  }

  void reduce(const Operand& target, std::vector<Transfer>& work_list) {
    const TensorId tensor = tensor_of(own_, target);
    const TensorView to = tables_.view(rank_, target.buffer);
    const Shard& full = tables_.shard(rank_, target.buffer);
    const Shard part_wanted = wanted(own_, target);
    // Where the wanted elements lie in the target, and in each source.
    const std::vector<Run> into = runs_between(full, part_wanted);
    std::vector<std::vector<Run>> sources;
    for (std::size_t m = 0; m < sides_.size(); ++m) {
      const Shard& source = tables_.shard(sides_[m].first, source_of(m, tensor));
      sources.push_back(runs_between(part_wanted, source));
      if (sources.back() != sources.front()) fault("partial sums that lie in different ways");
      if (count(sources.back()) != count(into)) fault("nobody has a part of what it brings");
    }
    each_common(into, sources.front(), [&](std::int64_t at, std::int64_t from, std::int64_t size) {
      Reduce sum;
      sum.to = part(to, at, size);
      sum.reduction = work().reduction;
      for (std::size_t m = 0; m < sides_.size(); ++m) {
        sum.from.push_back(part(tables_.view(sides_[m].first, source_of(m, tensor)), from, size));
      }
      work_list.emplace_back(std::move(sum));
    });
  }

  // Every element from the first member that has it.
  void gather(const Operand& target, std::vector<Transfer>& work_list) {
    const TensorId tensor = tensor_of(own_, target);
    const TensorView to = tables_.view(rank_, target.buffer);
    const Shard part_wanted = wanted(own_, target);
    const std::vector<Run> into = runs_between(tables_.shard(rank_, target.buffer), part_wanted);
    std::vector<bool> known(part_wanted.size());
    std::size_t left = known.size();
    for (std::size_t m = 0; m < sides_.size() && left > 0; ++m) {
      const BufferId source = source_of(m, tensor);
      const TensorView from = tables_.view(sides_[m].first, source);
      std::vector<Run> fresh;
      for (const Run& run : runs_between(part_wanted, tables_.shard(sides_[m].first, source))) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          const auto at = static_cast<std::size_t>(run.to + i);
          if (known[at]) continue;
          known[at] = true;
          --left;
          const bool joins = !fresh.empty() && fresh.back().to + fresh.back().count == run.to + i &&
                             fresh.back().from + fresh.back().count == run.from + i;
          if (joins)
            ++fresh.back().count;
          else
            fresh.push_back({run.to + i, run.from + i, 1});
        }
      }
      each_common(into, fresh, [&](std::int64_t at, std::int64_t begin, std::int64_t size) {
        work_list.emplace_back(copy(to, at, from, begin, size));
      });
    }
    if (left > 0) fault("nobody has a part of what it brings");
  }

  // `into` maps the wanted elements (from) to the target (to), `runs` the sources (from) to the wanted (to):
  // both at once, in stretches.
  template <class Visit>
  static void each_common(std::vector<Run> into, const std::vector<Run>& runs, Visit visit) {
    std::sort(into.begin(), into.end(), [](const Run& a, const Run& b) { return a.from < b.from; });
    auto here = into.begin();
    for (const Run& run : runs) {
      std::int64_t done = 0;
      while (done < run.count) {
        const std::int64_t at = run.to + done;
        while (here->from + here->count <= at) ++here;
        const std::int64_t size = std::min(run.count - done, here->from + here->count - at);
        visit(here->to + at - here->from, run.from + done, size);
        done += size;
      }
    }
  }

  Tables& tables_;
  RankId rank_;
  std::int32_t index_;
  const Instruction& instruction_;
  Exchange exchange_;
  std::vector<std::pair<RankId, std::int32_t>> sides_;
  std::vector<std::vector<Operand>> operands_;  // By member.
  std::vector<Peer> peers_;
  std::size_t own_ = 0;
};

}  // namespace

Exchange bind_exchange(Tables& tables, RankId rank, std::int32_t instruction) {
  const Work& work = tables.role(rank).instructions[static_cast<std::size_t>(instruction)].work;
  ExchangeBinder binder(tables, rank, instruction);
  return std::holds_alternative<Collective>(work) ? binder.collective() : binder.message();
}

}  // namespace orrery::host
