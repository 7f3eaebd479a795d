#include "simulator/fabric_load.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "simulator/fabric_weights.hpp"
#include "simulator/max_min.hpp"

namespace orrery {
namespace {

// A connection's traffic in whole shares, as the solver counts links: enough to divide evenly by all numbers
// of paths up to ten and by most that fabrics have.
constexpr std::int32_t kShares = 20160;

// Streams are connections that progress alike; each uses links by its shares of them.
class Solver {
 public:
  Solver(const Cluster& cluster, const FabricRoutes& fabric) : cluster_(cluster), fabric_(fabric) {
    capacity_.resize(static_cast<std::size_t>(fabric.link_count()));
    slot_.assign(capacity_.size(), -1);
  }

  // A link besides the fabric's.
  std::int32_t add_link(double bytes_per_s) {
    capacity_.push_back(std::llround(bytes_per_s));
    slot_.push_back(-1);
    return static_cast<std::int32_t>(capacity_.size()) - 1;
  }

  void start_stream() { current_.clear(); }
  void use(std::int32_t link, std::int64_t shares) {
    std::int32_t& slot = slot_[static_cast<std::size_t>(link)];
    if (slot < 0) {
      slot = static_cast<std::int32_t>(current_.size());
      current_.push_back({link, 0});
    }
    const std::int64_t count = current_[static_cast<std::size_t>(slot)].count + shares;
    if (count > std::numeric_limits<std::int32_t>::max())
      fail(ErrorKind::kInput, "too many connections between two leaf switches; use fewer nodes per leaf");
    current_[static_cast<std::size_t>(slot)].count = static_cast<std::int32_t>(count);
  }
  void use_path(std::int32_t from, std::int32_t to, std::int64_t path, std::int64_t shares) {
    path_.clear();
    fabric_.append_path(from, to, path, path_);
    for (const PathLink& link : path_) {
      capacity_[static_cast<std::size_t>(link.link)] = std::llround(link.bytes_per_s);
      use(static_cast<std::int32_t>(link.link), shares);
    }
  }
  void end_stream() {
    for (const LinkUse& used : current_) slot_[static_cast<std::size_t>(used.link)] = -1;
    streams_.push_back(current_);
  }

  // By stream, of one connection.
  std::vector<double> solve(std::vector<double>& utilisation) const {
    fast::MaxMin solver(capacity_);
    const auto cap = static_cast<fast::Rate>(cluster_.node.nic_bytes_per_s * fast::kRatePerByte / kShares);
    for (std::size_t s = 0; s < streams_.size(); ++s)
      solver.add(static_cast<std::int32_t>(s), streams_[s], std::max<fast::Rate>(1, cap));
    solver.solve();
    std::vector<double> rates;
    utilisation.assign(static_cast<std::size_t>(fabric_.link_count()), 0);
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const double share =
          static_cast<double>(solver.rate(static_cast<std::int32_t>(s))) / fast::kRatePerByte;
      rates.push_back(share * kShares);
      for (const LinkUse& used : streams_[s]) {
        const auto link = static_cast<std::size_t>(used.link);
        if (link < utilisation.size())
          utilisation[link] += share * used.count / static_cast<double>(capacity_[link]);
      }
    }
    return rates;
  }

 private:
  const Cluster& cluster_;
  const FabricRoutes& fabric_;
  std::vector<std::int64_t> capacity_;  // By link, 0 where nobody has asked.
  std::vector<std::int32_t> slot_;      // Into current_.
  std::vector<LinkUse> current_;
  std::vector<PathLink> path_;
  std::vector<std::vector<LinkUse>> streams_;
};

// The k-th of n parts of so many shares.
std::int64_t part(std::int64_t shares, std::int64_t k, std::int64_t n) {
  return shares * (k + 1) / n - shares * k / n;
}

// Links for the NICs that are used, out and in.
class NicLinks {
 public:
  NicLinks(Solver& solver, const Cluster& cluster) : solver_(solver), cluster_(cluster) {}

  std::int32_t of(FabricPort port, bool out) {
    const auto [at, fresh] = known_.try_emplace({port.node * cluster_.node.nics + port.nic, out}, -1);
    if (fresh) at->second = solver_.add_link(cluster_.node.nic_bytes_per_s);
    return at->second;
  }

 private:
  Solver& solver_;
  const Cluster& cluster_;
  std::map<std::pair<std::int32_t, bool>, std::int32_t> known_;
};

// Rates of flows whose paths are decided. `path_of(flow, queue pair)`; −1: spread over all.
template <class PathOf>
FabricLoad solve_flows(const Cluster& cluster, const FabricRoutes& fabric, std::span<const FabricFlow> flows,
                       std::int32_t queue_pairs, PathOf&& path_of) {
  Solver solver(cluster, fabric);
  NicLinks nics(solver, cluster);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const FabricFlow& flow = flows[f];
    const std::int32_t from = fabric.leaf(flow.from), to = fabric.leaf(flow.to);
    solver.start_stream();
    solver.use(nics.of(flow.from, true), kShares);
    solver.use(nics.of(flow.to, false), kShares);
    for (std::int32_t pair = 0; from != to && pair < queue_pairs; ++pair) {
      const std::int64_t path = path_of(f, pair), shares = part(kShares, pair, queue_pairs);
      if (path >= 0) {
        solver.use_path(from, to, path, shares);
        continue;
      }
      const std::int64_t paths = fabric.path_count(from, to);
      for (std::int64_t p = 0; p < paths; ++p) solver.use_path(from, to, p, part(shares, p, paths));
    }
    solver.end_stream();
  }
  FabricLoad load;
  load.bytes_per_s = solver.solve(load.utilisation);
  load.slowest =
      static_cast<std::size_t>(std::ranges::min_element(load.bytes_per_s) - load.bytes_per_s.begin());
  return load;
}

void check_flows(const FabricRoutes& fabric, std::span<const FabricFlow> flows) {
  for (const FabricFlow& flow : flows)
    if (fabric.path_count(fabric.leaf(flow.from), fabric.leaf(flow.to)) == 0)
      fail(ErrorKind::kInput,
           "NIC {} of node {} and NIC {} of node {} aren't joined: the fabric keeps rails apart",
           flow.from.nic, flow.from.node, flow.to.nic, flow.to.node);
}

FabricLoad load_with_feedback(const Cluster& cluster, const FabricRoutes& fabric,
                              std::span<const FabricFlow> flows, const FabricLoadOptions& options) {
  SteeredFlows steered(cluster, fabric, flows, options);
  const FeedbackRule& rule = options.feedback;
  std::vector<FabricLoad> last;
  const auto solve = [&] {
    return solve_flows(cluster, fabric, flows, options.queue_pairs,
                       [&](std::size_t flow, std::int32_t pair) { return steered.path(flow, pair); });
  };
  std::int32_t round = 1;
  for (; round <= rule.rounds; ++round) {
    const bool rest = !steered.adjust();
    if (rest) last.clear();
    if (rest || round > rule.rounds - rule.averaged) last.push_back(solve());
    if (rest) break;
  }
  FabricLoad load = std::move(last.front());
  load.settled = round <= rule.rounds;
  load.rounds = std::min(round, rule.rounds);
  const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
    std::ranges::transform(to, from, to.begin(), std::plus<>());
  };
  for (std::size_t i = 1; i < last.size(); ++i) {
    add(load.bytes_per_s, last[i].bytes_per_s);
    add(load.utilisation, last[i].utilisation);
  }
  const auto count = static_cast<double>(last.size());
  for (double& rate : load.bytes_per_s) rate /= count;
  for (double& share : load.utilisation) share /= count;
  load.slowest =
      static_cast<std::size_t>(std::ranges::min_element(load.bytes_per_s) - load.bytes_per_s.begin());
  return load;
}

}  // namespace

FabricLoad load_fabric(const Cluster& cluster, const FabricRoutes& fabric, std::span<const FabricFlow> flows,
                       const FabricLoadOptions& options) {
  if (flows.empty()) return {};
  check_flows(fabric, flows);
  switch (options.routing) {
    case FabricRouting::kAdaptive:
      return solve_flows(cluster, fabric, flows, 1,
                         [](std::size_t, std::int32_t) { return std::int64_t{-1}; });
    case FabricRouting::kEcmp:
      return solve_flows(cluster, fabric, flows, options.queue_pairs, [&](std::size_t f, std::int32_t pair) {
        const FabricFlow& flow = flows[f];
        return fabric.hashed_path(fabric.leaf(flow.from), fabric.leaf(flow.to),
                                  flow_hash(flow.from, flow.to, pair, options.seed));
      });
    case FabricRouting::kFeedback: break;
  }
  return load_with_feedback(cluster, fabric, flows, options);
}

double LeafPairLoad::slowest() const {
  return bytes_per_s.empty() ? 0 : *std::ranges::min_element(bytes_per_s);
}

double LeafPairLoad::mean() const {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    sum += bytes_per_s[i] * static_cast<double>(pairs[i].connections);
    count += static_cast<double>(pairs[i].connections);
  }
  return count > 0 ? sum / count : 0;
}

LeafPairLoad load_all_to_all(const Cluster& cluster, const FabricRoutes& fabric,
                             std::span<const std::int32_t> nodes, const FabricLoadOptions& options) {
  assert(options.routing != FabricRouting::kFeedback);
  Solver solver(cluster, fabric);
  LeafPairLoad load;
  std::map<std::int32_t, std::vector<FabricPort>> under;  // By leaf switch, of one rail.
  for (std::int32_t nic = 0; nic < cluster.node.nics; ++nic) {
    under.clear();
    for (const std::int32_t node : nodes) under[fabric.leaf({node, nic})].push_back({node, nic});
    std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>> nics;  // Of all NICs of one leaf: out, in.
    for (const auto& [leaf, ports] : under) {
      const double rate = static_cast<double>(ports.size()) * cluster.node.nic_bytes_per_s;
      const std::int32_t out = solver.add_link(rate);
      nics[leaf] = {out, solver.add_link(rate)};
    }
    std::map<std::int64_t, std::int64_t> connections;  // By path.
    for (const auto& [a, senders] : under)
      for (const auto& [b, receivers] : under) {
        const auto all =
            static_cast<std::int64_t>(senders.size() * receivers.size() - (a == b ? senders.size() : 0));
        if (all == 0) continue;
        solver.start_stream();
        solver.use(nics[a].first, all * kShares);
        solver.use(nics[b].second, all * kShares);
        if (a != b && options.routing == FabricRouting::kAdaptive) {
          const std::int64_t paths = fabric.path_count(a, b);
          for (std::int64_t p = 0; p < paths; ++p) solver.use_path(a, b, p, part(all * kShares, p, paths));
        } else if (a != b) {
          connections.clear();
          for (const FabricPort from : senders)
            for (const FabricPort to : receivers)
              for (std::int32_t pair = 0; pair < options.queue_pairs; ++pair)
                connections[fabric.hashed_path(a, b, flow_hash(from, to, pair, options.seed))] +=
                    part(kShares, pair, options.queue_pairs);
          for (const auto& [path, shares] : connections) solver.use_path(a, b, path, shares);
        }
        solver.end_stream();
        load.pairs.push_back({a, b, all});
      }
  }
  load.bytes_per_s = solver.solve(load.utilisation);
  return load;
}

std::vector<double> job_slowdowns(const Cluster& cluster, const FabricRoutes& fabric,
                                  std::span<const FabricFlow> flows, const FabricLoadOptions& options) {
  std::map<std::int32_t, std::vector<FabricFlow>> by_job;
  for (const FabricFlow& flow : flows) by_job[flow.job].push_back(flow);
  const FabricLoad together = load_fabric(cluster, fabric, flows, options);
  std::vector<double> slowdowns;
  for (const auto& [job, own] : by_job) {
    double slowest = std::numeric_limits<double>::infinity();
    for (std::size_t f = 0; f < flows.size(); ++f)
      if (flows[f].job == job) slowest = std::min(slowest, together.bytes_per_s[f]);
    const FabricLoad alone = load_fabric(cluster, fabric, own, options);
    slowdowns.push_back(alone.bytes_per_s[alone.slowest] / slowest);
  }
  return slowdowns;
}

}  // namespace orrery
