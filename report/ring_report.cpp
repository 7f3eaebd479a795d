#include "report/ring_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/units.hpp"
#include "topology/import/nccl_graph_xml.hpp"
#include "topology/import/nccl_log_derive.hpp"

namespace orrery {
namespace {

std::string order_text(const RingOrder& order) { return fmt::format("{}", fmt::join(order, " ")); }

std::string link_name(const NodeType& node, Arc arc) {
  const NodeLink& link = node.links[static_cast<std::size_t>(arc / 2)];
  const auto device = [&](std::int32_t index) { return node.devices[static_cast<std::size_t>(index)].name; };
  return arc % 2 == 0 ? device(link.a) + " -> " + device(link.b) : device(link.b) + " -> " + device(link.a);
}

std::string edges_table(const NodeType& node, const RingCost& cost) {
  std::string text = "  ring  edge           class  links    alone   shared  narrowest link\n";
  for (std::size_t r = 0; r < cost.rings.size(); ++r)
    for (const RingEdge& edge : cost.rings[r]) {
      const std::string ends = fmt::format("gpu{} -> gpu{}", edge.from, edge.to);
      text += fmt::format("  {:>4}  {:<14} {:<5} {:>6} {:>8.4g} {:>8.4g}  {}{}\n", r, ends,
                          nccl::to_string(edge.path), edge.links, edge.alone_bytes_per_s * 1e-9,
                          edge.bytes_per_s * 1e-9, link_name(node, edge.narrowest),
                          edge.sharing > 1 ? fmt::format(", shared by {}", edge.sharing) : "");
    }
  return text;
}

std::size_t edges_off_nvlink(const RingCost& cost) {
  std::size_t count = 0;
  for (const auto& ring : cost.rings)
    for (const RingEdge& edge : ring) count += edge.path > nccl::PathClass::kNvb;
  return count;
}

std::string figures(const RingCost& cost, std::int64_t bytes) {
  return fmt::format(
      "{:.4g} GB/s, {:.2f} links per edge, {} of {} edges off NVLink, all-reduce of {} in {}\n",
      cost.bytes_per_s * 1e-9, cost.mean_links, edges_off_nvlink(cost),
      cost.rings.size() * cost.rings.front().size(), format_bytes(static_cast<double>(bytes)),
      format_time(from_seconds(cost.all_reduce_seconds(bytes))));
}

nlohmann::ordered_json json_of(const NodeType& node, const std::vector<RingOrder>& orders,
                               const RingCost& cost, std::int64_t bytes) {
  nlohmann::ordered_json object{{"orders", orders},
                                {"bytes_per_s", cost.bytes_per_s},
                                {"mean_links", cost.mean_links},
                                {"edges_off_nvlink", edges_off_nvlink(cost)},
                                {"all_reduce_s", cost.all_reduce_seconds(bytes)}};
  object["edges"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < cost.rings.size(); ++r)
    for (const RingEdge& edge : cost.rings[r])
      object["edges"].push_back({{"ring", r},
                                 {"from", edge.from},
                                 {"to", edge.to},
                                 {"class", nccl::to_string(edge.path)},
                                 {"links", edge.links},
                                 {"latency_s", edge.latency_s},
                                 {"alone_bytes_per_s", edge.alone_bytes_per_s},
                                 {"bytes_per_s", edge.bytes_per_s},
                                 {"narrowest", link_name(node, edge.narrowest)},
                                 {"sharing", edge.sharing}});
  return object;
}

void check_order(const NodeType& node, const RingOrder& order) {
  std::set<std::int32_t> seen;
  for (const std::int32_t gpu : order) {
    if (gpu < 0 || gpu >= node.gpus)
      fail(ErrorKind::kInput, "ring order {}: there is no GPU {}; {} has GPUs 0 to {}", order_text(order),
           gpu, node.name, node.gpus - 1);
    if (!seen.insert(gpu).second)
      fail(ErrorKind::kInput, "ring order {}: GPU {} stands there twice; name each once", order_text(order),
           gpu);
  }
  if (order.size() < 2)
    fail(ErrorKind::kInput, "ring order {}: a ring has at least two GPUs", order_text(order));
}

}  // namespace

RingReport ring_report(const NodeType& node, std::vector<RingOrder> given, std::string order_source) {
  RingReport report;
  report.node = node;
  report.order_source = std::move(order_source);
  report.given = std::move(given);
  std::vector<std::int32_t> members = report.given.front();
  std::ranges::sort(members);
  for (const RingOrder& order : report.given) {
    check_order(node, order);
    RingOrder sorted = order;
    std::ranges::sort(sorted);
    if (sorted != members)
      fail(ErrorKind::kInput, "rings {} and {} are over different GPUs; compare rings over the same ones",
           order_text(report.given.front()), order_text(order));
  }
  const NodeRoutes routes = find_routes(node);
  report.given_cost = ring_cost(node, routes, report.given);
  const BestRing best = best_ring(node, routes, members);
  report.best_proved = best.proved;
  for (std::size_t r = 0; r < report.given.size(); ++r) {
    report.best.push_back(best.order);
    if (r % 2 == 1) std::reverse(report.best.back().begin() + 1, report.best.back().end());
  }
  report.best_cost = ring_cost(node, routes, report.best);
  return report;
}

std::vector<RingOrder> rings_of(const TopologyFile& file) {
  std::vector<RingOrder> rings;
  const auto add = [&](RingOrder order) {
    if (order.size() > 1 && std::ranges::find(rings, order) == rings.end()) rings.push_back(std::move(order));
  };
  for (const nccl::Graph& graph : file.graphs)
    if (graph.kind == nccl::GraphKind::kRing)
      for (const nccl::GraphChannel& channel : graph.channels) {
        RingOrder order;
        for (const std::int64_t gpu : channel.gpus) {
          if (gpu > 0xffff) return {};  // GPUs of other hosts.
          order.push_back(static_cast<std::int32_t>(gpu));
        }
        add(std::move(order));
      }
  if (!file.log) return rings;
  const LogComm* largest = nullptr;
  for (const LogComm& comm : file.log->comms)
    if (largest == nullptr || comm.rank_count > largest->rank_count) largest = &comm;
  if (largest == nullptr) return rings;
  const std::vector<RankDevice> devices = rank_devices(*file.log);
  for (const RankDevice& device : devices)
    if (device.host != devices.front().host) return rings;
  for (const std::vector<std::int32_t>& ranks : ring_orders(*largest)) {
    RingOrder order;
    for (const std::int32_t rank : ranks) {
      const auto found = std::ranges::find(devices, rank, &RankDevice::rank);
      if (found == devices.end() || found->device < 0) return rings;
      order.push_back(found->device);
    }
    add(std::move(order));
  }
  return rings;
}

std::string to_table(const RingReport& report, std::int64_t bytes) {
  std::string text =
      fmt::format("Rings of {} ({}), GB/s per direction:\n", report.order_source, report.node.name);
  text += edges_table(report.node, report.given_cost);
  text += "  all: " + figures(report.given_cost, bytes);
  text += fmt::format(
      "Best order{}: {}\n",
      report.best_proved ? ", which no single ring over these GPUs beats" : ", as far as was searched",
      order_text(report.best.front()));
  text += edges_table(report.node, report.best_cost);
  text += "  all: " + figures(report.best_cost, bytes);
  return text;
}

std::string to_json(const RingReport& report, std::int64_t bytes) {
  nlohmann::ordered_json object{
      {"node", report.node.name}, {"order_source", report.order_source}, {"bytes", bytes}};
  object["given"] = json_of(report.node, report.given, report.given_cost, bytes);
  object["best"] = json_of(report.node, report.best, report.best_cost, bytes);
  object["best_proved"] = report.best_proved;
  return object.dump(2) + "\n";
}

std::string nccl_graph_file(const RingReport& report) {
  nccl::Graph graph;
  const auto rings = static_cast<double>(report.best.size());
  graph.node_gb_per_s = graph.network_gb_per_s = report.best_cost.bytes_per_s / rings * 1e-9;
  for (const auto& ring : report.best_cost.rings)
    for (const RingEdge& edge : ring) graph.node_path = std::max(graph.node_path, edge.path);
  graph.network_path = graph.node_path;
  graph.same_channels = report.best.size() == 1;
  for (const RingOrder& order : report.best) {
    nccl::GraphChannel channel;
    channel.gpus.assign(order.begin(), order.end());
    graph.channels.push_back(std::move(channel));
  }
  return write_nccl_graphs({&graph, 1});
}

}  // namespace orrery
