#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/error.hpp"
#include "topology/import/platform.hpp"
#include "topology/import/platform_units.hpp"
#include "topology/import/xml_tree.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxHosts = 1 << 17;  // Of a file: more than any machine that was built.

struct Reader {
  std::string_view file;
  PlatformDescription platform = {};
  std::set<std::string> hosts = {}, links = {};  // Names, to find what routes mean.

  template <class... Args>
  [[noreturn]] void refuse(const XmlElement& at, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kInput, "{}: line {}: {}", file, at.line,
         fmt::format(format, std::forward<Args>(args)...));
  }
  void allow(const XmlElement& element, std::initializer_list<std::string_view> attributes) const;
  std::string word(const XmlElement& element, std::string_view name, const char* fallback = nullptr) const;
  double quantity(const XmlElement& element, std::string_view name, const char* fallback,
                  std::optional<double> (*parse)(std::string_view), std::string_view example) const;
  std::int32_t cores(const XmlElement& element) const;
  double speed(const XmlElement& element) const;
  double bandwidth(const XmlElement& element, std::string_view name, const char* fallback = nullptr) const {
    return quantity(element, name, fallback, parse_platform_bandwidth, "10Gbps");
  }
  double latency(const XmlElement& element, std::string_view name, const char* fallback = nullptr) const {
    return quantity(element, name, fallback, parse_platform_latency, "50us");
  }
  LinkSharing sharing(const XmlElement& element, const char* fallback) const;
  std::vector<std::int32_t> radical(const XmlElement& element) const;
  std::vector<std::vector<std::int32_t>> parameters(const XmlElement& element) const;

  void add_host(const XmlElement& at, const std::string& name);
  void read_zone(const XmlElement& element);
  void read_host(const XmlElement& element);
  void read_link(const XmlElement& element);
  void read_route(const XmlElement& element);
  void read_cluster(const XmlElement& element);
};

void Reader::allow(const XmlElement& element, std::initializer_list<std::string_view> attributes) const {
  for (const XmlAttribute& attribute : element.attributes)
    if (std::ranges::find(attributes, attribute.name) == attributes.end())
      refuse(element, "{} of <{}> is not among what is read here: {}", attribute.name, element.name,
             fmt::join(attributes, ", "));
}

std::string Reader::word(const XmlElement& element, std::string_view name, const char* fallback) const {
  const std::string* value = element.find(name);
  if (value != nullptr && !value->empty()) return *value;
  if (fallback == nullptr) refuse(element, "<{}> lacks {}", element.name, name);
  return fallback;
}

double Reader::quantity(const XmlElement& element, std::string_view name, const char* fallback,
                        std::optional<double> (*parse)(std::string_view), std::string_view example) const {
  const std::string text = word(element, name, fallback);
  const std::optional<double> value = parse(text);
  if (!value)
    refuse(element, "{}=\"{}\" of <{}>; something like \"{}\" is expected", name, text, element.name,
           example);
  return *value;
}

// Of a list of speeds the first, which is that of the state a host starts in.
double Reader::speed(const XmlElement& element) const {
  const std::string text = word(element, "speed");
  const std::optional<double> value = parse_platform_speed(std::string_view(text).substr(0, text.find(',')));
  if (!value)
    refuse(element, "speed=\"{}\" of <{}>; something like \"98.1Gf\" is expected", text, element.name);
  return *value;
}

std::int32_t Reader::cores(const XmlElement& element) const {
  const std::optional<std::int64_t> value = parse_xml_integer(word(element, "core", "1"));
  if (!value || *value < 1 || *value > 1 << 20)
    refuse(element, "core of <{}> must be 1 or more", element.name);
  return static_cast<std::int32_t>(*value);
}

LinkSharing Reader::sharing(const XmlElement& element, const char* fallback) const {
  const std::string text = word(element, "sharing_policy", fallback);
  for (const LinkSharing each : {LinkSharing::kShared, LinkSharing::kSplitDuplex, LinkSharing::kFatPipe})
    if (to_string(each) == text) return each;
  refuse(element, "sharing_policy=\"{}\"; SHARED, SPLITDUPLEX and FATPIPE are read", text);
}

// "0-3,7" is 0, 1, 2, 3, 7.
std::vector<std::int32_t> Reader::radical(const XmlElement& element) const {
  const std::string text = word(element, "radical");
  std::vector<std::int32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int32_t first = 0, last = 0;
    auto read = std::from_chars(at, end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last < first || (read.ptr != end && *read.ptr != ','))
      refuse(element, "radical=\"{}\"; something like \"0-15\" or \"0-3,7\" is expected", text);
    if (static_cast<std::int64_t>(hosts.size() + numbers.size()) + last - first >= kMaxHosts)
      refuse(element, "radical=\"{}\" makes more than {} hosts", text, kMaxHosts);
    for (std::int64_t number = first; number <= last; ++number)
      numbers.push_back(static_cast<std::int32_t>(number));
    if (read.ptr == end) return numbers;
    at = read.ptr + 1;
  }
}

// "2;4,4;1,2" is three lists.
std::vector<std::vector<std::int32_t>> Reader::parameters(const XmlElement& element) const {
  const std::string text = word(element, "topo_parameters");
  std::vector<std::vector<std::int32_t>> lists(1);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int32_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1 || (stop != end && *stop != ',' && *stop != ';'))
      refuse(element, "topo_parameters=\"{}\"; something like \"2;4,4;1,2;1,2\" is expected", text);
    lists.back().push_back(number);
    if (stop == end) return lists;
    if (*stop == ';') lists.emplace_back();
    at = stop + 1;
  }
}

void Reader::add_host(const XmlElement& at, const std::string& name) {
  if (!hosts.insert(name).second) refuse(at, "a second host \"{}\"", name);
}

void Reader::read_host(const XmlElement& element) {
  allow(element, {"id", "speed", "core"});
  PlatformHost host{word(element, "id"), speed(element), cores(element)};
  add_host(element, host.name);
  platform.hosts.push_back(std::move(host));
}

void Reader::read_link(const XmlElement& element) {
  allow(element, {"id", "bandwidth", "latency", "sharing_policy"});
  PlatformLink link{word(element, "id"), bandwidth(element, "bandwidth"), latency(element, "latency", "0s"),
                    sharing(element, "SHARED")};
  if (!(link.bytes_per_s > 0)) refuse(element, "link \"{}\" without bandwidth carries nothing", link.name);
  if (!links.insert(link.name).second) refuse(element, "a second link \"{}\"", link.name);
  platform.links.push_back(std::move(link));
}

void Reader::read_route(const XmlElement& element) {
  allow(element, {"src", "dst", "symmetrical"});
  PlatformRoute route{word(element, "src"), word(element, "dst"), {}, true};
  const std::string symmetrical = word(element, "symmetrical", "YES");
  if (symmetrical != "YES" && symmetrical != "NO" && symmetrical != "yes" && symmetrical != "no")
    refuse(element, "symmetrical=\"{}\"; YES or NO is expected", symmetrical);
  route.symmetrical = symmetrical == "YES" || symmetrical == "yes";
  for (const std::string& end : {route.from, route.to})
    if (!hosts.contains(end)) refuse(element, "\"{}\" is no host that stands before this route", end);
  for (const XmlElement& child : element.children) {
    if (child.name != "link_ctn") refuse(child, "<{}> in <route>; link_ctn is expected", child.name);
    allow(child, {"id", "direction"});
    PlatformHop hop{word(child, "id"), PlatformHop::Direction::kNone};
    if (!links.contains(hop.link)) refuse(child, "\"{}\" is no link that stands before this route", hop.link);
    const std::string direction = word(child, "direction", "NONE");
    if (direction == "UP")
      hop.direction = PlatformHop::Direction::kUp;
    else if (direction == "DOWN")
      hop.direction = PlatformHop::Direction::kDown;
    else if (direction != "NONE")
      refuse(child, "direction=\"{}\"; UP, DOWN or NONE is expected", direction);
    route.hops.push_back(std::move(hop));
  }
  platform.routes.push_back(std::move(route));
}

void Reader::read_cluster(const XmlElement& element) {
  allow(element,
        {"id", "prefix", "suffix", "radical", "speed", "core", "bw", "lat", "bb_bw", "bb_lat",
         "sharing_policy", "topology", "topo_parameters", "loopback_bw", "loopback_lat", "router_id"});
  if (!element.children.empty())
    refuse(element.children.front(), "<{}> in <cluster> is not read here", element.children.front().name);
  PlatformCluster cluster;
  cluster.name = word(element, "id");
  const std::string prefix = word(element, "prefix", ""), suffix = word(element, "suffix", "");
  for (const std::int32_t number : radical(element)) {
    cluster.hosts.push_back(fmt::format("{}{}{}", prefix, number, suffix));
    add_host(element, cluster.hosts.back());
  }
  cluster.flops_per_s = speed(element);
  cluster.cores = cores(element);
  cluster.bytes_per_s = bandwidth(element, "bw");
  cluster.latency_s = latency(element, "lat");
  cluster.sharing = sharing(element, "SPLITDUPLEX");
  cluster.backbone_bytes_per_s = bandwidth(element, "bb_bw", "0");
  cluster.backbone_latency_s = latency(element, "bb_lat", "0");
  cluster.loopback_bytes_per_s = bandwidth(element, "loopback_bw", "0");
  cluster.loopback_latency_s = latency(element, "loopback_lat", "0");
  // Without bandwidth there is no such link, and nothing for its latency to belong to.
  if (!(cluster.backbone_bytes_per_s > 0)) cluster.backbone_latency_s = 0;
  if (!(cluster.loopback_bytes_per_s > 0)) cluster.loopback_latency_s = 0;
  constexpr std::array<std::string_view, 4> kNames{"FLAT", "FAT_TREE", "TORUS", "DRAGONFLY"};
  const std::string topology = word(element, "topology", "FLAT");
  const auto* const found = std::ranges::find(kNames, topology);
  if (found == kNames.end())
    refuse(element, "topology=\"{}\"; FLAT, FAT_TREE, TORUS and DRAGONFLY are", topology);
  cluster.topology = static_cast<ClusterTopology>(found - kNames.begin());
  if (cluster.topology != ClusterTopology::kFlat) {
    constexpr std::array<std::size_t, 4> kLists{0, 4, 1, 4};
    cluster.parameters = parameters(element);
    if (cluster.parameters.size() != kLists[static_cast<std::size_t>(cluster.topology)])
      refuse(element, "topo_parameters of {} has {} parts where {} belong", topology,
             cluster.parameters.size(), kLists[static_cast<std::size_t>(cluster.topology)]);
  }
  platform.clusters.push_back(std::move(cluster));
}

// Zones only group here: their hosts, links and routes count as those of the whole.
void Reader::read_zone(const XmlElement& element) {
  for (const XmlElement& child : element.children) {
    if (child.name == "zone" || child.name == "AS")
      read_zone(child);
    else if (child.name == "host")
      read_host(child);
    else if (child.name == "link")
      read_link(child);
    else if (child.name == "route")
      read_route(child);
    else if (child.name == "cluster")
      read_cluster(child);
    else
      refuse(child, "<{}> is not read here; host, link, route, cluster and zone are", child.name);
  }
}

}  // namespace

std::string_view to_string(LinkSharing sharing) {
  switch (sharing) {
    case LinkSharing::kShared: return "SHARED";
    case LinkSharing::kSplitDuplex: return "SPLITDUPLEX";
    case LinkSharing::kFatPipe: return "FATPIPE";
  }
  return "";
}

PlatformDescription read_simgrid_platform(std::string_view text, std::string_view file) {
  const XmlFile xml = read_xml(text, file);
  const XmlElement& root = xml.root;
  Reader reader{file};
  if (root.name != "platform")
    reader.refuse(root, "the root is <{}>; a SimGrid file begins with <platform>", root.name);
  const std::string version = reader.word(root, "version");
  if (version != "4" && version != "4.1")
    reader.refuse(root,
                  "version \"{}\" of SimGrid's platform files; 4.1 is read (simgrid_update_xml converts)",
                  version);
  if (xml.text_line > 0)
    fail(ErrorKind::kInput,
         "{}: line {}: text between the tags; part of a tag is lost, or a terminal's colours "
         "were pasted too",
         file, xml.text_line);
  reader.read_zone(root);
  return std::move(reader.platform);
}

}  // namespace orrery
