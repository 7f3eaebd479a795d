#include "simulator/uncertainty.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "base/interval_set.hpp"
#include "simulator/engine.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {
namespace {

constexpr std::size_t at(CostFamily family) { return static_cast<std::size_t>(family); }

// Launch costs depend on the host and on what issues them (a C++ program 4 us, an interpreter several times
// as much): half or twice as much as measured is within one standard deviation and a bit.
constexpr CostError kLaunchError{0.5, 0};

// 95 % of a normal lies below this many standard deviations.
constexpr double kQuantile95 = 1.6448536269514722;

std::optional<CostFamily> family_of(KernelKind kind) {
  switch (kind) {
    case KernelKind::kFixed: return std::nullopt;  // Given, not modelled.
    case KernelKind::kMatmul: return CostFamily::kMatmul;
    case KernelKind::kAttention:
    case KernelKind::kAttentionBackward: return CostFamily::kAttention;
    case KernelKind::kElementwise:
    case KernelKind::kEmbedding:
    case KernelKind::kCrossEntropy:
    case KernelKind::kOptimizer:
    case KernelKind::kAccumulate: return CostFamily::kMemory;
  }
  return std::nullopt;
}

enum class Place : std::uint8_t { kNode, kNetwork };  // Where a transfer takes place.

constexpr CostFamily latency_of(Place place) {
  return place == Place::kNode ? CostFamily::kNodeLatency : CostFamily::kNetworkLatency;
}
constexpr CostFamily bandwidth_of(Place place) {
  return place == Place::kNode ? CostFamily::kNodeBandwidth : CostFamily::kNetworkBandwidth;
}

// What each instruction of one class belongs to: a family of kernels, or a place of transfers; neither for
// what isn't modelled.
struct ClassFamilies {
  std::vector<std::optional<CostFamily>> of_compute;
  std::vector<std::optional<Place>> of_transfer;
  std::vector<std::int64_t> group_size;  // By instruction; 1 for what isn't a collective.
};

class Families {
 public:
  Families(const Job& job, const Cluster& cluster)
      : job_(job), per_node_(cluster.gpus_per_domain()), coordinates_(coordinates(*job.program)) {
    for (const JobClass& rank_class : job.classes) by_class_.push_back(families_of(rank_class));
    of_transfer_.assign(job.transfers.size(), std::nullopt);
    for (const Rendezvous& meeting : job.rendezvous) {
      const Participant& first = job.participants[static_cast<std::size_t>(meeting.participants.begin)];
      of_transfer_[static_cast<std::size_t>(meeting.transfer)] =
          of_class(first.rank_class).of_transfer[static_cast<std::size_t>(first.instruction)];
    }
  }

  const ClassFamilies& of_class(std::int32_t rank_class) const {
    return by_class_[static_cast<std::size_t>(rank_class)];
  }
  std::optional<Place> of_transfer(std::size_t transfer) const { return of_transfer_[transfer]; }

 private:
  std::int32_t node_of(RankId rank) const { return job_.program->device_of[rank.index()] / per_node_; }

  // Whether the ranks of one group, or a rank and its peer, stand on several nodes.
  bool crosses_nodes(RankId rank, AxisId axis, std::optional<std::int32_t> offset) const {
    const Coordinate at_axis = coordinates_[axis.index()][rank.index()];
    if (at_axis.group < 0) return false;
    const auto& group = job_.program->axes[axis.index()].groups[static_cast<std::size_t>(at_axis.group)];
    const auto size = static_cast<std::int32_t>(group.size());
    if (offset) {
      const std::int32_t peer = ((at_axis.position + *offset) % size + size) % size;
      return node_of(group[static_cast<std::size_t>(peer)]) != node_of(rank);
    }
    return std::ranges::any_of(group, [&](RankId other) { return node_of(other) != node_of(rank); });
  }

  std::int64_t group_size(RankId rank, AxisId axis) const {
    const std::int32_t group = coordinates_[axis.index()][rank.index()].group;
    return group < 0 ? 1
                     : std::ssize(job_.program->axes[axis.index()].groups[static_cast<std::size_t>(group)]);
  }

  ClassFamilies families_of(const JobClass& rank_class) const {
    const RankId rank = rank_class.ranks.ranks.front();
    const Role& role = job_.program->roles[rank_class.ranks.role.index()];
    const auto place_of = [](bool crosses) { return crosses ? Place::kNetwork : Place::kNode; };
    // Groups are few, instructions many.
    std::map<std::int32_t, Place> of_axis;
    ClassFamilies families;
    for (const Instruction& instruction : role.instructions) {
      std::optional<CostFamily> family;
      std::optional<Place> place;
      std::int64_t size = 1;
      if (const auto* compute = std::get_if<Compute>(&instruction.work)) {
        family = family_of(job_.program->kernels[compute->kernel.index()].kind);
      } else if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
        const auto [known, fresh] = of_axis.try_emplace(collective->axis.value, Place::kNode);
        if (fresh) known->second = place_of(crosses_nodes(rank, collective->axis, std::nullopt));
        place = known->second;
        size = group_size(rank, collective->axis);
      } else if (const auto* send = std::get_if<Send>(&instruction.work)) {
        place = place_of(crosses_nodes(rank, send->axis, send->offset));
      } else if (const auto* receive = std::get_if<Recv>(&instruction.work)) {
        place = place_of(crosses_nodes(rank, receive->axis, receive->offset));
      }
      families.of_compute.push_back(family);
      families.of_transfer.push_back(place);
      families.group_size.push_back(size);
    }
    return families;
  }

  const Job& job_;
  std::int32_t per_node_;
  std::vector<std::vector<Coordinate>> coordinates_;
  std::vector<ClassFamilies> by_class_;
  std::vector<std::optional<Place>> of_transfer_;
};

SimTime scaled(SimTime time, double factor) {
  return SimTime{std::llround(static_cast<double>(time.picoseconds) * factor)};
}

// The job with all costs of one family multiplied.
Job with_family_scaled(Job job, const Families& families, CostFamily family, double factor) {
  if (family == CostFamily::kLaunch) job.launch = scaled(job.launch, factor);
  for (std::size_t c = 0; c < job.classes.size(); ++c) {
    const ClassFamilies& of = families.of_class(static_cast<std::int32_t>(c));
    for (std::size_t i = 0; i < job.classes[c].work.size(); ++i) {
      if (of.of_compute[i] == family) job.classes[c].work[i] = scaled(job.classes[c].work[i], factor);
    }
  }
  for (std::size_t t = 0; t < job.transfers.size(); ++t) {
    const std::optional<Place> place = families.of_transfer(t);
    if (!place) continue;
    Transfer& transfer = job.transfers[t];
    if (latency_of(*place) == family) transfer.latency = scaled(transfer.latency, factor);
    // More bytes rather than a lower cap: that also slows what shares a full link.
    if (bandwidth_of(*place) == family)
      transfer.bytes = std::llround(static_cast<double>(transfer.bytes) * factor);
  }
  return job;
}

// Seconds that the busiest class spends in each family, and how unevenly over single costs.
struct Shares {
  std::int32_t busiest = 0;
  ByFamily<double> seconds{};
  ByFamily<double> concentration{};  // Σ share² over distinct costs: 1 for a single one.
};

std::int32_t busiest_class(const Job& job, const Timeline& timeline) {
  std::vector<double> busy(job.classes.size());
  for (const Span& span : timeline.spans) {
    const auto c = static_cast<std::size_t>(span.rank_class);
    if (job.classes[c].rendezvous[static_cast<std::size_t>(span.first)] < 0)
      busy[c] += (span.end - span.start).seconds();
  }
  return static_cast<std::int32_t>(std::ranges::max_element(busy) - busy.begin());
}

// Exposed time of one place's transfers, of which a part is latency.
struct Moving {
  std::vector<Interval> spans;
  double latency_s = 0, total_s = 0;
};

class ShareCounter {
 public:
  ShareCounter(const Job& job, const Families& families, std::int32_t busiest)
      : job_(job),
        rank_class_(job.classes[static_cast<std::size_t>(busiest)]),
        of_(families.of_class(busiest)) {
    shares_.busiest = busiest;
  }

  void add(const Span& span) {
    const auto i = static_cast<std::size_t>(span.first);
    const double seconds = (span.end - span.ready).seconds();
    if (seconds <= 0) return;
    if (rank_class_.rendezvous[i] < 0) {
      compute_.push_back({span.start, span.end});
      if (of_.of_compute[i]) count(*of_.of_compute[i], kernel_of(i), seconds);
    } else if (of_.of_transfer[i]) {
      add_transfer(span, *of_.of_transfer[i], seconds);
    }
  }

  Shares result() {
    IntervalSet taken(std::move(compute_));
    for (const Place place : {Place::kNode, Place::kNetwork}) {
      Moving& moving = moving_[static_cast<std::size_t>(place)];
      if (moving.spans.empty()) continue;
      const IntervalSet exposed = IntervalSet(std::move(moving.spans)).without(taken);
      const double latency_part = moving.latency_s / moving.total_s;
      shares_.seconds[at(latency_of(place))] = exposed.length().seconds() * latency_part;
      shares_.seconds[at(bandwidth_of(place))] = exposed.length().seconds() * (1 - latency_part);
      taken = taken.united(exposed);
    }
    for (std::size_t family = 0; family < by_cost_.size(); ++family) {
      double sum = 0, squares = 0;
      for (const auto& [cost, seconds] : by_cost_[family]) sum += seconds, squares += seconds * seconds;
      if (sum > 0) shares_.concentration[family] = squares / (sum * sum);
    }
    return std::move(shares_);
  }

 private:
  std::int32_t kernel_of(std::size_t instruction) const {
    const Role& role = job_.program->roles[rank_class_.ranks.role.index()];
    return static_cast<std::int32_t>(std::get<Compute>(role.instructions[instruction].work).kernel.value);
  }

  void count(CostFamily family, std::int32_t cost, double seconds) {
    shares_.seconds[at(family)] += seconds;
    by_cost_[at(family)][cost] += seconds;
  }

  void add_transfer(const Span& span, Place place, double seconds) {
    const std::int32_t meeting = rank_class_.rendezvous[static_cast<std::size_t>(span.first)];
    const std::int32_t transfer = job_.rendezvous[static_cast<std::size_t>(meeting)].transfer;
    const double latency = job_.transfers[static_cast<std::size_t>(transfer)].latency.seconds();
    Moving& moving = moving_[static_cast<std::size_t>(place)];
    moving.spans.push_back({span.ready, span.end});
    moving.total_s += seconds;
    moving.latency_s += std::min(latency, seconds);
    by_cost_[at(latency_of(place))][transfer] += seconds;
    by_cost_[at(bandwidth_of(place))][transfer] += seconds;
  }

  const Job& job_;
  const JobClass& rank_class_;
  const ClassFamilies& of_;
  Shares shares_;
  std::vector<Interval> compute_;
  std::array<Moving, 2> moving_;
  ByFamily<std::map<std::int32_t, double>> by_cost_;  // By kernel, by transfer.
};

Shares shares_of(const Job& job, const Families& families, const Timeline& timeline) {
  const std::int32_t busiest = busiest_class(job, timeline);
  ShareCounter counter(job, families, busiest);
  for (const Span& span : timeline.spans) {
    if (span.rank_class == busiest) counter.add(span);
  }
  return counter.result();
}

// Waits for the slowest of a group: at each collective that holds up compute, over what was computed since.
double noise_wait(const Job& job, const Families& families, const Shares& shares, double noise) {
  if (noise <= 0) return 0;
  const JobClass& rank_class = job.classes[static_cast<std::size_t>(shares.busiest)];
  const ClassFamilies& of = families.of_class(shares.busiest);
  const Role& role = job.program->roles[rank_class.ranks.role.index()];
  std::map<std::int64_t, double> maximum;  // By group size: few, and costly to work out.
  double wait = 0, since_last = 0, in_step = 0;
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const double work = rank_class.work[i].seconds();
    since_last += work * work;
    in_step += work * work;
    const Purpose purpose = role.instructions[i].purpose;
    const bool holds_up = purpose == Purpose::kTensorParallel || purpose == Purpose::kSequenceParallel ||
                          purpose == Purpose::kContextParallel || purpose == Purpose::kExpertParallel;
    if (!holds_up || of.group_size[i] <= 1) continue;
    const auto [known, fresh] = maximum.try_emplace(of.group_size[i], 0.0);
    if (fresh) known->second = expected_maximum(of.group_size[i]);
    wait += known->second * noise * std::sqrt(since_last);
    since_last = 0;
  }
  std::int64_t ranks = 0;
  for (const JobClass& one : job.classes) ranks += std::ssize(one.ranks.ranks);
  return wait + expected_maximum(ranks) * noise * std::sqrt(in_step);
}

}  // namespace

std::string_view to_string(CostFamily family) {
  switch (family) {
    case CostFamily::kMatmul: return "matmuls";
    case CostFamily::kAttention: return "attention";
    case CostFamily::kMemory: return "memory-bound kernels";
    case CostFamily::kNodeLatency: return "latency inside nodes";
    case CostFamily::kNodeBandwidth: return "transfers inside nodes";
    case CostFamily::kNetworkLatency: return "latency between nodes";
    case CostFamily::kNetworkBandwidth: return "transfers between nodes";
    case CostFamily::kLaunch: return "launches";
  }
  return "";
}

CostUncertainty cost_uncertainty(const Profile& profile) {
  const KernelErrors& errors = profile.errors;
  CostUncertainty uncertainty;
  const auto set = [&](CostFamily family, const CostError& error) {
    uncertainty.systematic[at(family)] = error.family_sigma;
    uncertainty.independent[at(family)] = error.entry_sigma;
  };
  set(CostFamily::kMatmul, errors.matmul);
  // Both directions at once, as wide as the wider: they run in one proportion in every step.
  const bool backward = errors.attention_backward.family_sigma > errors.attention.family_sigma;
  set(CostFamily::kAttention, backward ? errors.attention_backward : errors.attention);
  set(CostFamily::kMemory, errors.memory);
  set(CostFamily::kNodeLatency, profile.collectives.node_latency);
  set(CostFamily::kNodeBandwidth, profile.collectives.node_bandwidth);
  set(CostFamily::kNetworkLatency, profile.collectives.network_latency);
  set(CostFamily::kNetworkBandwidth, profile.collectives.network_bandwidth);
  if (profile.launch_s > 0) set(CostFamily::kLaunch, kLaunchError);
  uncertainty.launch_noise = errors.launch_sigma;
  return uncertainty;
}

double expected_maximum(std::int64_t n) {
  if (n <= 1) return 0;
  // E = b - integral of F(x)^n up to b, with F the normal distribution function and F(b) as good as 1; by the
  // trapezoidal rule, which is exact to many digits for so smooth a function.
  constexpr double kEnd = 9, kStep = 1.0 / 128;
  double integral = 0;
  for (double x = -kEnd; x <= kEnd; x += kStep)
    integral += std::pow(0.5 * std::erfc(-x / std::sqrt(2.0)), static_cast<double>(n)) * kStep;
  return kEnd + kStep / 2 - integral;
}

StepInterval step_interval(const Job& job, const Cluster& cluster, const Profile& profile,
                           const Timeline& timeline, const UncertaintyOptions& options) {
  const double step = timeline.step_time.seconds();
  StepInterval interval{step, step};
  if (step <= 0 || job.classes.empty()) return interval;
  const CostUncertainty uncertainty = cost_uncertainty(profile);
  const Families families(job, cluster);
  const Shares shares = shares_of(job, families, timeline);
  const double busy = std::accumulate(shares.seconds.begin(), shares.seconds.end(), 0.0);
  interval.run_again = std::ssize(timeline.spans) * timeline.steps <= options.max_instructions;

  double variance = 0;
  for (std::size_t f = 0; f < kCostFamilyCount; ++f) {
    const double sigma = uncertainty.systematic[f];
    const double share = busy > 0 ? shares.seconds[f] / busy : 0;
    double& sensitivity = interval.sensitivity[f];
    if (interval.run_again && sigma > 0) {
      const Job slower = with_family_scaled(job, families, static_cast<CostFamily>(f), std::exp(sigma));
      sensitivity = std::log(run_fast(slower).step_time.seconds() / step);
    } else {
      sensitivity = share * sigma;
    }
    const double independent = share * uncertainty.independent[f];
    variance += sensitivity * sensitivity + independent * independent * shares.concentration[f];
  }
  interval.noise_wait_s = noise_wait(job, families, shares, uncertainty.launch_noise);
  const double spread = kQuantile95 * std::sqrt(variance);
  interval.low_s = step * std::exp(-spread) + interval.noise_wait_s;
  interval.high_s = step * std::exp(spread) + interval.noise_wait_s;
  return interval;
}

}  // namespace orrery
