#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "topology/import/platform.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

constexpr std::int32_t kMaxGpus = 128;

// Of the ways' own latency links, which must never be the narrowest.
constexpr double kUnbound = 1e15;

XmlElement element(const char* name, std::vector<XmlAttribute> attributes) {
  return {name, 0, std::move(attributes), {}};
}
std::string text(double value) { return fmt::format("{}", value); }  // Shortest that reads back the same.

XmlElement write(const PlatformHost& host) {
  return element(
      "host",
      {{"id", host.name}, {"speed", text(host.flops_per_s) + "f"}, {"core", fmt::format("{}", host.cores)}});
}

XmlElement write(const PlatformLink& link) {
  return element("link", {{"id", link.name},
                          {"bandwidth", text(link.bytes_per_s) + "Bps"},
                          {"latency", text(link.latency_s) + "s"},
                          {"sharing_policy", std::string(to_string(link.sharing))}});
}

XmlElement write(const PlatformRoute& route) {
  XmlElement written = element(
      "route", {{"src", route.from}, {"dst", route.to}, {"symmetrical", route.symmetrical ? "YES" : "NO"}});
  for (const PlatformHop& hop : route.hops) {
    XmlElement link = element("link_ctn", {{"id", hop.link}});
    if (hop.direction != PlatformHop::Direction::kNone)
      link.attributes.push_back({"direction", hop.direction == PlatformHop::Direction::kUp ? "UP" : "DOWN"});
    written.children.push_back(std::move(link));
  }
  return written;
}

// prefix and suffix around numbers that count up; SimGrid makes the names anew from these.
std::vector<XmlAttribute> cluster_names(const PlatformCluster& cluster) {
  const std::string& first = cluster.hosts.front();
  // The number is the first digits at which all names are one pattern.
  for (std::size_t begin = 0; begin < first.size(); ++begin) {
    const std::size_t end = std::min(first.find_first_not_of("0123456789", begin), first.size());
    if (end == begin) continue;
    const std::string prefix = first.substr(0, begin), suffix = first.substr(end);
    std::string radical;
    const bool fits = std::ranges::all_of(cluster.hosts, [&](const std::string& host) {
      if (host.size() <= prefix.size() + suffix.size() || !host.starts_with(prefix) ||
          !host.ends_with(suffix))
        return false;
      const std::string number = host.substr(prefix.size(), host.size() - prefix.size() - suffix.size());
      radical += (radical.empty() ? "" : ",") + number;
      return number.find_first_not_of("0123456789") == std::string::npos &&
             (number.size() == 1 || number[0] != '0');
    });
    if (fits) return {{"prefix", prefix}, {"suffix", suffix}, {"radical", radical}};
  }
  fail(ErrorKind::kInput,
       "cluster \"{}\": its hosts' names don't differ by one number alone, as SimGrid's do", cluster.name);
}

XmlElement write(const PlatformCluster& cluster) {
  if (cluster.hosts.empty()) fail(ErrorKind::kInput, "cluster \"{}\" has no hosts", cluster.name);
  XmlElement written = element("cluster", {{"id", cluster.name}});
  std::ranges::move(cluster_names(cluster), std::back_inserter(written.attributes));
  const auto set = [&](const char* name, std::string value) {
    written.attributes.push_back({name, std::move(value)});
  };
  set("speed", text(cluster.flops_per_s) + "f");
  set("core", fmt::format("{}", cluster.cores));
  set("bw", text(cluster.bytes_per_s) + "Bps");
  set("lat", text(cluster.latency_s) + "s");
  set("sharing_policy", std::string(to_string(cluster.sharing)));
  if (cluster.backbone_bytes_per_s > 0) {
    set("bb_bw", text(cluster.backbone_bytes_per_s) + "Bps");
    set("bb_lat", text(cluster.backbone_latency_s) + "s");
  }
  if (cluster.loopback_bytes_per_s > 0) {
    set("loopback_bw", text(cluster.loopback_bytes_per_s) + "Bps");
    set("loopback_lat", text(cluster.loopback_latency_s) + "s");
  }
  if (cluster.topology == ClusterTopology::kFlat) return written;
  set("topology", cluster.topology == ClusterTopology::kFatTree ? "FAT_TREE"
                  : cluster.topology == ClusterTopology::kTorus ? "TORUS"
                                                                : "DRAGONFLY");
  std::vector<std::string> lists;
  for (const std::vector<std::int32_t>& list : cluster.parameters)
    lists.push_back(fmt::format("{}", fmt::join(list, ",")));
  set("topo_parameters", fmt::format("{}", fmt::join(lists, ";")));
  return written;
}

// "node0.gpu1 → node0.nvswitch0" without what other tools stumble over.
std::string link_name(const Router& router, LinkInstance link) {
  std::string name = router.name(link);
  const std::string arrow = " → ";
  const std::size_t at = name.find(arrow);
  return name.replace(at, arrow.size(), ":");
}

class Builder {
 public:
  explicit Builder(const Cluster& cluster) : router_(cluster), cluster_(cluster) {}

  PlatformDescription build() {
    const std::int32_t gpus = cluster_.gpu_count();
    for (std::int32_t gpu = 0; gpu < gpus; ++gpu)
      platform_.hosts.push_back({host_name(gpu), cluster_.node.gpu.peak(DType::kBf16), 1});
    for (std::int32_t from = 0; from < gpus; ++from)
      for (std::int32_t to = 0; to < gpus; ++to)
        if (from != to) add_route(from, to);
    add_links();
    return std::move(platform_);
  }

 private:
  std::string host_name(std::int32_t gpu) const {
    return fmt::format("node{}.gpu{}", gpu / cluster_.node.gpus, gpu % cluster_.node.gpus);
  }

  void add_route(std::int32_t from, std::int32_t to) {
    const Path path = router_.path(from, to);
    PlatformRoute route{host_name(from), host_name(to), {}, false};
    for (const PathLink& link : path.links) {
      rates_[link.link] = link.bytes_per_s;
      route.hops.push_back({link_name(router_, link.link)});
    }
    if (path.latency_s > 0) {
      const std::string delay = fmt::format("latency-{}us", path.latency_s * 1e6);
      delays_[path.latency_s] = delay;
      route.hops.push_back({delay});
    }
    platform_.routes.push_back(std::move(route));
  }

  // What no way uses, too; only of trunks it takes a way to know the rate.
  void add_links() {
    for (LinkInstance link = 0; link < router_.link_count(); ++link) {
      const LinkPlace place = router_.place(link);
      if (place.kind == LinkPlace::Kind::kInNode)
        rates_[link] = cluster_.node.links[static_cast<std::size_t>(place.index)].bytes_per_s;
      else if (place.kind == LinkPlace::Kind::kNicCable)
        rates_[link] = cluster_.node.nic_bytes_per_s;
    }
    for (const auto& [link, rate] : rates_)
      platform_.links.push_back({link_name(router_, link), rate, 0, LinkSharing::kShared});
    for (const auto& [latency_s, name] : delays_)
      platform_.links.push_back({name, kUnbound, latency_s, LinkSharing::kFatPipe});
  }

  Router router_;
  const Cluster& cluster_;
  PlatformDescription platform_;
  std::map<LinkInstance, double> rates_;
  std::map<double, std::string> delays_;
};

}  // namespace

std::string write_simgrid_platform(const PlatformDescription& platform) {
  XmlElement zone = element("zone", {{"id", "orrery"}, {"routing", "Full"}});
  for (const PlatformHost& host : platform.hosts) zone.children.push_back(write(host));
  for (const PlatformLink& link : platform.links) zone.children.push_back(write(link));
  for (const PlatformRoute& route : platform.routes) zone.children.push_back(write(route));
  XmlElement root = element("platform", {{"version", "4.1"}});
  // A cluster is a zone of its own; beside one that is empty there is nothing to join it to.
  if (!zone.children.empty()) root.children.push_back(std::move(zone));
  for (const PlatformCluster& cluster : platform.clusters) root.children.push_back(write(cluster));
  return "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n" +
         write_xml(root);
}

PlatformDescription make_platform(const Cluster& cluster) {
  if (cluster.gpu_count() > kMaxGpus)
    fail(ErrorKind::kInput,
         "{}: {} GPUs; a platform file lists the way of each pair, so that {} is the most that is written",
         cluster.name, cluster.gpu_count(), kMaxGpus);
  return Builder(cluster).build();
}

std::string write_simgrid_platform(const Cluster& cluster) {
  return write_simgrid_platform(make_platform(cluster));
}

}  // namespace orrery
