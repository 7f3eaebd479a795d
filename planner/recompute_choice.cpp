#include "planner/recompute_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "planner/recompute.hpp"
#include "planner/stage_builder.hpp"
#include "simulator/engine.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

// 2^12 subsets are looked at in milliseconds; what comes after the twelve largest saves next to nothing.
constexpr std::size_t kMostItems = 12;

// What the ops of one name make for the backward.
struct Item {
  std::string name;
  std::int64_t bytes = 0;  // Over the layers of the role at hand.
};

// A subset of the items, by bit.
struct Candidate {
  std::uint32_t items = 0;
  std::int64_t saved_bytes = 0;
  double seconds = 0;
};

std::int64_t peak_bytes(const Program& program) {
  return peak_memory(program.roles[fullest_role(program).index()]).bytes;
}

bool read_by_backward(const Graph& graph, const GraphIndex& index, TensorId tensor) {
  const auto& readers = index.readers[tensor.index()];
  return std::any_of(readers.begin(), readers.end(),
                     [&](OpId reader) { return graph[reader].phase == Phase::kBackward; });
}

// The ops that make what a layer can recompute.
std::vector<std::string> everything_names(const Graph& graph) {
  const GraphIndex index(graph);
  std::vector<std::string> names;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorId tensor(static_cast<std::int64_t>(t));
    if (!recomputable(graph, index, tensor) || !read_by_backward(graph, index, tensor)) continue;
    const std::string name = without_layer(graph[graph[tensor].producer].name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

Plan with_tensors(Plan plan, std::vector<std::string> names) {
  plan.recompute = names.empty() ? Recompute::kNone : Recompute::kTensors;
  plan.recompute_tensors = std::move(names);
  plan.recompute_memory = 0;
  return plan;
}

class Choice {
 public:
  // `nothing` and `everything` recomputed, lowered; the costs are those of `role`.
  Choice(const Graph& graph, const Program& nothing, const Program& everything, std::size_t role)
      : graph_(graph), index_(graph), nothing_(nothing), everything_(everything), role_(role) {
    measure_tensors();
    find_items();
  }

  // In the order of their cost, each saving more than the one before.
  std::vector<Candidate> candidates(const Cluster& cluster, const Profile& profile) {
    measure_ops(cluster, profile);
    std::vector<Candidate> all;
    for (std::uint32_t items = 1; items < (1u << items_.size()); ++items) all.push_back(weigh(items));
    std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(a.seconds, -a.saved_bytes, a.items) < std::tuple(b.seconds, -b.saved_bytes, b.items);
    });
    std::vector<Candidate> front;
    for (const Candidate& candidate : all) {
      if (front.empty() || candidate.saved_bytes > front.back().saved_bytes) front.push_back(candidate);
    }
    return front;
  }

  std::vector<std::string> names(std::uint32_t items) const {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if ((items >> i & 1) != 0) found.push_back(items_[i].name);
    }
    return found;
  }

 private:
  bool saves(TensorId tensor) const {
    return recomputable(graph_, index_, tensor) && read_by_backward(graph_, index_, tensor);
  }

  void measure_tensors() {
    for (const Buffer& buffer : nothing_.roles[role_].buffers) {
      if (buffer.microbatch != 0 || buffer.category != MemoryCategory::kActivations) continue;
      if (buffer.tensor.valid() && saves(buffer.tensor)) bytes_[buffer.tensor] = buffer.bytes;
    }
  }

  void find_items() {
    for (const auto& [tensor, bytes] : bytes_) {
      const std::string name = without_layer(graph_[graph_[tensor].producer].name);
      const auto known =
          std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.name == name; });
      (known == items_.end() ? items_.emplace_back(Item{name}) : *known).bytes += bytes;
    }
    const std::vector<Item> in_order = items_;
    std::stable_sort(items_.begin(), items_.end(),
                     [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
    if (items_.size() > kMostItems) items_.resize(kMostItems);
    std::vector<Item> kept;  // In the layers' order again: that is how the choice is told.
    for (const Item& item : in_order) {
      const bool large = std::any_of(items_.begin(), items_.end(),
                                     [&](const Item& other) { return other.name == item.name; });
      if (large) kept.push_back(item);
    }
    items_ = std::move(kept);
  }

  // The time of each op where everything is recomputed, over the micro-batches of a step, with the
  // collectives that bring its inputs and sum its outputs.
  void measure_ops(const Cluster& cluster, const Profile& profile) {
    const Job job = make_job(everything_, cluster, profile, {});
    const auto of_role = std::find_if(job.classes.begin(), job.classes.end(),
                                      [&](const JobClass& one) { return one.ranks.role.index() == role_; });
    assert(of_role != job.classes.end());
    const Role& role = everything_.roles[role_];
    std::map<BufferId, double> brought;  // By collectives, until the first compute reads it.
    OpId last;
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      const Instruction& instruction = role.instructions[i];
      const bool again = instruction.purpose == Purpose::kRecompute;
      if (!again && !everything_.labels[instruction.label.index()].starts_with("recompute.")) continue;
      double time = again ? of_role->work[i].seconds() + job.launch.seconds()
                          : collective_seconds(job, of_role->rendezvous[i]);
      BufferId written;
      for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
        const Operand& operand = role.operands[static_cast<std::size_t>(o)];
        if (operand.writes) {
          written = operand.buffer;
        } else if (const auto found = brought.find(operand.buffer); found != brought.end()) {
          time += found->second;
          brought.erase(found);
        }
      }
      if (again) {
        last = role.ops[static_cast<std::size_t>(instruction.ops.begin)];
        for (std::int32_t o = instruction.ops.begin + 1; o < instruction.ops.end; ++o) {
          joined_[role.ops[static_cast<std::size_t>(o)]] = last;
        }
      }
      const auto* const collective = std::get_if<Collective>(&instruction.work);
      const bool brings = collective != nullptr && (collective->kind == CollectiveKind::kAllGather ||
                                                    collective->kind == CollectiveKind::kAllToAll);
      (brings ? brought[written] : seconds_[last]) += time;
    }
  }

  static double collective_seconds(const Job& job, std::int32_t meeting) {
    const Rendezvous& rendezvous = job.rendezvous[static_cast<std::size_t>(meeting)];
    return uncontended_time(job.transfers[static_cast<std::size_t>(rendezvous.transfer)]).seconds();
  }

  bool dropped(TensorId tensor, std::uint32_t items) const {
    const std::string name = without_layer(graph_[graph_[tensor].producer].name);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].name == name) return (items >> i & 1) != 0;
    }
    return false;
  }

  // Ops that run again to make `tensor`, which isn't kept.
  void add_ops(TensorId tensor, std::uint32_t items, std::set<OpId>& again) const {
    const OpId producer = graph_[tensor].producer;
    if (!again.insert(producer).second) return;
    for (const TensorId input : graph_[producer].inputs) {
      if (!recomputable(graph_, index_, input)) continue;
      if (!bytes_.contains(input) || dropped(input, items)) add_ops(input, items, again);
    }
  }

  Candidate weigh(std::uint32_t items) const {
    Candidate candidate{items};
    std::set<OpId> again, launches;
    for (const auto& [tensor, bytes] : bytes_) {
      if (!dropped(tensor, items)) continue;
      candidate.saved_bytes += bytes;
      add_ops(tensor, items, again);
    }
    for (const OpId op : again) {
      const auto joined = joined_.find(op);
      launches.insert(joined == joined_.end() ? op : joined->second);
    }
    for (const OpId op : launches) candidate.seconds += seconds_.at(op);
    return candidate;
  }

  const Graph& graph_;
  const GraphIndex index_;
  const Program &nothing_, &everything_;
  std::size_t role_;
  std::vector<Item> items_;
  std::map<TensorId, std::int64_t>
      bytes_;                       // Of one micro-batch: what the backward reads of the role's layers.
  std::map<OpId, double> seconds_;  // By the first op of a launch.
  std::map<OpId, OpId> joined_;     // Others of a launch → its first.
};

}  // namespace

std::string RecomputeChoice::text() const {
  const auto size = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (plan.recompute == Recompute::kNone) {
    return fmt::format("recompute auto: nothing, {} fit in {}", size(bytes_before), size(limit_bytes));
  }
  return fmt::format("recompute auto: {} ({} become {} of {}, {:.1f} ms of recomputation a step)",
                     describe_recompute(plan), size(bytes_before), size(bytes_after), size(limit_bytes),
                     recompute_s * 1e3);
}

RecomputeChoice choose_recompute(const Plan& plan, const Graph& graph, const Cluster& cluster,
                                 const Profile& profile, int threads) {
  if (plan.recompute != Recompute::kAuto) return {plan};
  RecomputeChoice choice;
  choice.limit_bytes = plan.recompute_memory > 0 ? plan.recompute_memory : cluster.node.gpu.memory_bytes;
  choice.plan = with_tensors(plan, {});
  const Program nothing = lower(graph, choice.plan, threads);
  choice.bytes_before = choice.bytes_after = peak_bytes(nothing);
  if (choice.bytes_before <= choice.limit_bytes) return choice;

  const Program everything = lower(graph, with_tensors(plan, everything_names(graph)), threads);
  if (const std::int64_t least = peak_bytes(everything); least > choice.limit_bytes) {
    fail(ErrorKind::kInfeasible,
         "plan.recompute: auto: {} is allowed, but {} needs {} with all of its layers recomputed; use a "
         "larger "
         "tp or pp, a smaller microbatch, or zero: 1",
         format_bytes(static_cast<double>(choice.limit_bytes)),
         everything.roles[fullest_role(everything).index()].name, format_bytes(static_cast<double>(least)));
  }
  Choice search(graph, nothing, everything, fullest_role(nothing).index());
  const std::vector<Candidate> front = search.candidates(cluster, profile);
  const auto peak = [&](const Candidate& candidate) {
    return peak_bytes(lower(graph, with_tensors(plan, search.names(candidate.items)), threads));
  };
  std::size_t fails = 0, fits = front.size();  // Of [0, fails) none fits, from `fits` on all do.
  while (fails < fits) {
    const std::size_t middle = fails + (fits - fails) / 2;
    const std::int64_t bytes = peak(front[middle]);
    if (bytes > choice.limit_bytes) {
      fails = middle + 1;
      continue;
    }
    fits = middle;
    choice.bytes_after = bytes;
  }
  if (fits == front.size()) {  // The smallest things, which no candidate has, make the difference.
    choice.plan = with_tensors(plan, everything_names(graph));
    choice.bytes_after = peak_bytes(everything);
    choice.recompute_s = front.empty() ? 0 : front.back().seconds;
    return choice;
  }
  choice.plan = with_tensors(plan, search.names(front[fits].items));
  choice.recompute_s = front[fits].seconds;
  return choice;
}

}  // namespace orrery
