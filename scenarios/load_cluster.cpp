#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "scenarios/sections.hpp"
#include "topology/host_cores.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxGpusPerNode = 256;

// The keys that describe a node which isn't in the catalogue.
constexpr std::array kDescribingKeys = {"gpu", "gpus_per_node", "nvlink", "pcie", "nics", "nic"};

std::string names(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

void read_peaks(const Section& gpu_section, GpuType& gpu) {
  if (!gpu_section.require("peak", "dense peak rates by type, e.g. {bf16: 989T}")) return;
  const Section peak(*gpu_section.node("peak"), gpu_section.path("peak"), "peak", gpu_section.faults());
  for (const DType type : {DType::kFp32, DType::kTf32, DType::kBf16, DType::kFp16, DType::kFp8}) {
    peak.flops_rate(to_string(type), gpu.peak_flops_per_s[static_cast<std::size_t>(type)]);
  }
}

std::optional<GpuType> read_own_gpu(const YamlNode& node, const std::string& path, Faults& faults) {
  const std::size_t before = faults.count();
  const Section section(node, path, "gpu", faults);
  GpuType gpu;
  gpu.name = "own GPU";
  section.text("name", gpu.name);
  read_peaks(section, gpu);
  if (section.require("memory", "the GPU's memory, e.g. 80GiB")) {
    section.bytes("memory", gpu.memory_bytes, 1 << 20, std::int64_t{1} << 50);
  }
  if (section.require("bandwidth", "the memory's bandwidth, e.g. 3.35TB/s")) {
    section.bandwidth("bandwidth", gpu.memory_bytes_per_s);
  }
  section.number("power", gpu.power_w, 0, 100'000);
  gpu.source = "scenario file";
  section.text("source", gpu.source);
  return faults.count() == before ? std::optional(gpu) : std::nullopt;
}

std::optional<GpuType> read_gpu(const Section& section) {
  const YamlNode& node = *section.node("gpu");
  if (node.kind == YamlNode::Kind::kMap) {
    return read_own_gpu(node, section.path("gpu"), section.faults());
  }
  std::string name;
  section.text("gpu", name);
  if (name.empty()) return std::nullopt;
  auto gpu = catalogue_gpu(name);
  if (!gpu) {
    section.fault(
        "gpu", fmt::format("no GPU called {} in the catalogue; expected one of {}, or {{name: …, peak: …}}{}",
                           quote(name), names(gpu_names()), did_you_mean(name, gpu_names())));
  }
  return gpu;
}

void describe_node(const Section& section, Cluster& cluster) {
  const std::size_t before = section.faults().count();
  NodeShape shape;
  const auto gpu = read_gpu(section);
  section.integer("gpus_per_node", shape.gpus, 1, kMaxGpusPerNode);
  shape.nics = shape.gpus;
  section.integer("nics", shape.nics, 0, kMaxGpusPerNode);
  section.bandwidth("nvlink", shape.nvlink_bytes_per_s);
  section.bandwidth("pcie", shape.pcie_bytes_per_s);
  section.bandwidth("nic", shape.nic_bytes_per_s);
  if (!gpu || section.faults().count() > before) return;
  shape.name = fmt::format("{} x {}", shape.gpus, gpu->name);
  try {
    cluster.node = make_node(shape, *gpu);
  } catch (const Error& error) {
    section.fault("gpu", error.what());
  }
}

void catalogued_node(const Section& section, Cluster& cluster) {
  for (const char* key : kDescribingKeys) {
    if (section.has(key)) section.fault(key, "says what node: has said already; drop one of the two");
  }
  std::string name;
  section.text("node", name);
  if (name.empty()) return;
  if (const auto node = catalogue_node(name)) {
    cluster.node = *node;
  } else {
    section.fault(
        "node",
        fmt::format("no node called {} in the catalogue; expected one of {}, or a description: gpu: …{}",
                    quote(name), names(catalogue_names()), did_you_mean(name, catalogue_names())));
  }
}

void read_cores(const Section& host, Scenario& scenario, std::int32_t& cores) {
  const YamlNode* node = host.node("cores");
  if (!host.require("cores", "how many cores the ranks share, e.g. 2; or auto: those of this machine"))
    return;
  if (node->kind != YamlNode::Kind::kScalar || node->text != "auto")
    return host.integer("cores", cores, 1, kMaxGpusPerNode);
  const auto found = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  cores = std::clamp(found, 1, static_cast<std::int32_t>(kMaxGpusPerNode));
  scenario.notes.push_back(fmt::format(
      "cluster.host.cores is auto: {} here; on another machine this file predicts something else", cores));
}

void read_host(const Section& section, Scenario& scenario) {
  for (const char* key : {"node", "topology", "gpu", "gpus_per_node", "nvlink", "pcie", "nics", "nic",
                          "nvlink_domain", "fabric"})
    if (section.has(key)) section.fault(key, "is of a GPU machine; drop it or host:");
  if (section.has("nodes"))
    section.fault("nodes", "isn't known of host:, whose ranks all run on one machine; drop it");
  const std::size_t before = section.faults().count();
  const Section host(*section.node("host"), section.path("host"), "host", section.faults());
  HostShape shape;
  read_cores(host, scenario, shape.cores);
  host.integer("slots", shape.slots, 1, kMaxGpusPerNode);
  host.bytes("memory", shape.memory_bytes, 1 << 20, std::int64_t{1} << 50);
  host.flops_rate("peak", shape.peak_flops_per_s);
  host.bandwidth("bandwidth", shape.memory_bytes_per_s);
  if (section.faults().count() == before) scenario.cluster.node = make_host_node(shape);
}

// Whether the parts make a cluster whose GPUs can reach each other.
void check_cluster(const Section& section, const Cluster& cluster) {
  const std::int64_t gpus = std::int64_t{cluster.nodes} * cluster.node.gpus;
  if (gpus > kMaxGpus) {
    section.fault("nodes", fmt::format("makes {} GPUs; expected at most {}", format_count(gpus),
                                       format_count(kMaxGpus)));
    return;
  }
  const bool networked = cluster.nodes > cluster.nodes_per_nvlink_domain;
  if (networked && cluster.fabric.kind == FabricKind::kNone) {
    section.fault(
        "fabric",
        fmt::format("is none, but there are {} nodes; expected rail-optimised or fat-tree", cluster.nodes));
    return;
  }
  if (networked && cluster.node.nics == 0) {
    section.fault("nics", fmt::format("none, but there are {} nodes; expected at least 1", cluster.nodes));
    return;
  }
  try {
    const Router router(cluster);
  } catch (const Error& error) {
    section.fault("node", error.what());
  }
}

}  // namespace

void read_cluster(const Section& file, Scenario& scenario) {
  if (!file.require("cluster", "the machines, e.g. {node: dgx-h100, nodes: 1}")) return;
  const std::size_t before = file.faults().count();
  const Section section(*file.node("cluster"), "cluster", "cluster", file.faults());
  Cluster& cluster = scenario.cluster;
  section.integer("nodes", cluster.nodes, 1, kMaxNodes);
  section.integer("nvlink_domain", cluster.nodes_per_nvlink_domain, 1, kMaxNodes);
  read_fabric(section, cluster.fabric);
  if (section.has("host")) {
    read_host(section, scenario);
  } else if (section.has("topology")) {
    for (const char* key : {"node", "gpus_per_node", "nvlink", "pcie", "nics"})
      if (section.has(key))
        section.fault(key, "says what the file under topology: has said; drop one of the two");
    read_topology_node(section, cluster, scenario.notes);
  } else if (section.has("node")) {
    catalogued_node(section, cluster);
  } else if (section.require("gpu",
                             "node: NAME from the catalogue, topology: FILE, host: for ranks on a CPU, or "
                             "gpu: and the rest "
                             "of a description")) {
    describe_node(section, cluster);
  }
  cluster.name = fmt::format("{} x {}", cluster.nodes, cluster.node.name);
  section.text("name", cluster.name);
  if (cluster.nodes > 1 && cluster.fabric.routing == FabricRouting::kFeedback)
    scenario.notes.push_back("queue feedback counts as adaptive routing, its ideal, in a step");
  if (file.faults().count() == before) check_cluster(section, cluster);
}

}  // namespace orrery
