// Which machine a published row ran on.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <utility>

#include "calibration/training_case.hpp"

namespace orrery {
namespace {

// Names of GPUs as tables print them, and the catalogue's node. NVLink and PCIe per GPU and direction are the
// datasheets', for machines whose network is not the catalogue node's.
struct Machine {
  std::string_view gpu, node;
  double nvlink_bytes_per_s, pcie_bytes_per_s;
};
constexpr std::array<Machine, 12> kMachines{{
    {"A100", "dgx-a100", 300e9, 32e9},
    {"A100-80GB", "dgx-a100", 300e9, 32e9},
    {"A100-40GB", "dgx-a100-40", 300e9, 32e9},
    {"A800-80GB", "hgx-a800", 200e9, 32e9},
    {"H100", "dgx-h100", 450e9, 64e9},
    {"H800", "hgx-h800", 200e9, 64e9},
    {"H200", "dgx-h200", 450e9, 64e9},
    {"B200", "dgx-b200", 900e9, 64e9},
    {"B300", "dgx-b300", 900e9, 64e9},
    {"GB200", "gb200-nvl72", 900e9, 64e9},
    {"GB300", "gb300-nvl72", 900e9, 64e9},
    {"V100-32GB", "dgx-v100", 150e9, 16e9},
}};

struct Network {
  std::int64_t nics = 0;
  double nic_gigabits = 0;
  bool operator==(const Network&) const = default;
};

// "8x400 Gb/s", "400 Gb/s x8", "400 Gb/s RoCE per GPU", "1600 Gb/s RoCE per node", "1.6 Tb/s per node".
std::optional<Network> parse_network(const std::string& text, std::int64_t gpus_per_node) {
  static const std::regex kCounted(R"((\d+)x(\d+(?:\.\d+)?) Gb/s)");
  static const std::regex kCountAfter(R"((\d+(?:\.\d+)?) Gb/s x(\d+))");
  static const std::regex kRate(R"((\d+(?:\.\d+)?) ([GT])b/s)");
  std::smatch match;
  if (std::regex_search(text, match, kCounted)) return Network{std::stoll(match[1]), std::stod(match[2])};
  if (std::regex_search(text, match, kCountAfter)) return Network{std::stoll(match[2]), std::stod(match[1])};
  if (!std::regex_search(text, match, kRate)) return std::nullopt;
  const double gigabits = std::stod(match[1]) * (match[2] == "T" ? 1000 : 1);
  const bool per_gpu = text.find("per GPU") != std::string::npos;
  return Network{gpus_per_node, per_gpu ? gigabits : gigabits / static_cast<double>(gpus_per_node)};
}

NodeType described_node(const Machine& machine, const GpuType& gpu, std::int64_t gpus,
                        const Network& network) {
  NodeShape shape;
  shape.name = fmt::format("{} with {}x{:g} Gb/s", machine.node, network.nics, network.nic_gigabits);
  shape.gpus = static_cast<std::int32_t>(gpus);
  shape.nvlink_bytes_per_s = machine.nvlink_bytes_per_s;
  shape.pcie_bytes_per_s = machine.pcie_bytes_per_s;
  shape.nics = static_cast<std::int32_t>(network.nics);
  shape.nic_bytes_per_s = network.nic_gigabits * 1e9 / 8;
  return make_node(shape, gpu);
}

// The catalogue's node, or one like it with the row's GPUs and network.
NodeType node_of(const TrainingRow& row, const Machine& machine, const NodeType& listed, bool several,
                 std::vector<std::string>& assumed) {
  const std::int64_t gpus = std::max<std::int64_t>(row.gpus_per_node.value_or(listed.gpus), 1);
  const Network own{listed.nics, std::round(listed.nic_bytes_per_s * 8 / 1e9)};
  const std::optional<Network> given = parse_network(row.interconnect, gpus);
  if (several && !given)
    assumed.push_back(
        fmt::format("network between nodes: the {}'s {}x{:g} Gb/s", listed.name, own.nics, own.nic_gigabits));
  const bool own_network = !several || !given || *given == own;
  if (own_network && gpus <= listed.gpus) return listed;
  // A machine with more GPUs than its network was described for keeps the ratio of one NIC to two GPUs.
  return described_node(
      machine, listed.gpu, gpus,
      own_network ? Network{std::max<std::int64_t>(gpus / 2, 1), own.nic_gigabits} : *given);
}

}  // namespace

std::variant<Cluster, TrainingRefusal> training_cluster(const TrainingRow& row,
                                                        std::vector<std::string>& assumed) {
  if (row.interconnect.starts_with("PCIe")) return TrainingRefusal{"GPU not in the catalogue: " + row.gpu};
  const auto* const machine = std::ranges::find(kMachines, std::string_view(row.gpu), &Machine::gpu);
  if (machine == kMachines.end()) return TrainingRefusal{"GPU not in the catalogue: " + row.gpu};
  const std::optional<NodeType> listed = catalogue_node(machine->node);
  if (!listed) return TrainingRefusal{"GPU not in the catalogue: " + row.gpu};
  if (!row.gpus || *row.gpus < 1) return TrainingRefusal{"gpus not published"};
  if (row.gpu == "A100") assumed.push_back("A100: the SXM one of 80 GB");

  Cluster cluster;
  const std::int64_t per_node = row.gpus_per_node.value_or(listed->gpus);
  cluster.node = node_of(row, *machine, *listed, *row.gpus > per_node, assumed);
  cluster.nodes = static_cast<std::int32_t>((*row.gpus + cluster.node.gpus - 1) / cluster.node.gpus);
  cluster.name = cluster.node.name;
  // Switch hops: as in the scenarios, 300 ns each; nobody publishes more of the fabric than its links.
  cluster.fabric.hop_latency_s = 300e-9;
  return cluster;
}

}  // namespace orrery
