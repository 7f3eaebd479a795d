#include "topology/import/smi_host.hpp"

#include <catch2/catch.hpp>

#include "tests/topology/smi_pastes.hpp"
#include "topology/import/smi_tree.hpp"

namespace orrery {
namespace {

HostImport host_of(const std::string& text, const SmiAssumptions& assumptions = {}) {
  return host_from_smi(read_smi_matrix(text, "paste.txt"), assumptions);
}

bool says(const HostImport& import, ImportNote::Kind kind, const std::string& part) {
  for (const ImportNote& note : import.notes) {
    if (note.kind == kind && note.text.find(part) != std::string::npos) return true;
  }
  return false;
}

std::int32_t parent(const Host& host, std::int32_t device) {
  return host.pci.at(static_cast<std::size_t>(device)).parent;
}

using Kind = ImportNote::Kind;

}  // namespace

TEST_CASE("PIX is one switch, PXB two below one, PHB one bus domain, NODE two, SYS another CPU",
          "[smi][host]") {
  const HostImport import = host_of(smi_test::four_gpus());
  const Host& host = import.hosts.at(0);
  REQUIRE(host.cpus.size() == 2);
  CHECK(host.cpus[0].numa == 0);
  CHECK(host.cpus[1].affinity == "16-31,48-63");
  REQUIRE(host.gpus.size() == 4);
  REQUIRE(host.nics.size() == 2);
  // GPU0 and NIC0 are PIX; GPU1 meets both one switch higher.
  const std::int32_t near = parent(host, host.gpus[0].pci);
  CHECK(parent(host, host.nics[0].pci) == near);
  CHECK(parent(host, near) == parent(host, parent(host, host.gpus[1].pci)));
  CHECK(parent(host, parent(host, near)) == -1);
  // GPU2 and NIC1 are PHB, GPU3 and NIC1 NODE.
  const auto domain = [&](std::int32_t device) {
    return host.pci.at(static_cast<std::size_t>(device)).bus_id.substr(0, 4);
  };
  CHECK(parent(host, host.gpus[2].pci) == -1);
  CHECK(domain(host.gpus[2].pci) == domain(host.nics[1].pci));
  CHECK(domain(host.gpus[3].pci) != domain(host.nics[1].pci));
  CHECK(host.nics[1].cpu == 1);
  CHECK(host.nics[1].name == "mlx5_bond_0");
  for (std::size_t i = 0; i < host.pci.size(); ++i) CHECK(host.pci[i].parent < static_cast<std::int32_t>(i));
  // Pairs with a bridge: cables from GPU to GPU.
  REQUIRE(host.gpus[0].nvlinks.size() == 1);
  CHECK(host.gpus[0].nvlinks[0].count == 4);
  CHECK(host.gpus[0].nvlinks[0].target == host.pci.at(static_cast<std::size_t>(host.gpus[1].pci)).bus_id);
  CHECK_FALSE(says(import, Kind::kSuspect, "no tree"));
}

TEST_CASE("cells that sum up to more links than a GPU has end at switches", "[smi][host]") {
  const HostImport import = host_of(smi_test::switched_gpus());
  const Host& host = import.hosts.at(0);
  for (const HostGpu& gpu : host.gpus) {
    REQUIRE(gpu.nvlinks.size() == 1);
    CHECK(gpu.nvlinks[0].count == 18);  // 3 · 18 = 54 would be more than any GPU has.
    CHECK(gpu.nvlinks[0].target_class == 0x068000);
    CHECK(gpu.nvlinks[0].target == kSmiSwitchBusId);
    CHECK(gpu.compute_capability == 90);
  }
  CHECK(says(import, Kind::kAssumed, "compute capability 9.0"));
  CHECK(says(import, Kind::kAssumed, "NVSwitches"));
  // A100 boards with four GPUs: 3 · 4 = 12 links, all that there are.
  const HostImport four = host_of(smi_test::replaced(smi_test::switched_gpus(), "NV18", "NV4"));
  CHECK(four.hosts.at(0).gpus[0].nvlinks.size() == 3);
  CHECK(four.hosts.at(0).gpus[0].compute_capability == 80);
}

TEST_CASE("what the user knows is taken, and not assumed", "[smi][host]") {
  const HostImport import = host_of(smi_test::four_gpus(), {.gpu_model = "NVIDIA A40",
                                                            .compute_capability = 0,
                                                            .gigatransfers_per_s = 8,
                                                            .nic_bytes_per_s = 25e9,
                                                            .nvswitch = true,
                                                            .cpu_architecture = "x86_64",
                                                            .cpu_vendor = "AuthenticAMD"});
  const Host& host = import.hosts.at(0);
  CHECK(host.gpus[0].compute_capability == 86);
  CHECK(host.gpus[0].model == "NVIDIA A40");
  CHECK(host.gpus[0].nvlinks.at(0).target == kSmiSwitchBusId);
  CHECK(host.pci[0].gigatransfers_per_s == 8);
  CHECK(host.nics[0].bytes_per_s == 25e9);
  CHECK(host.cpus[1].vendor == "AuthenticAMD");
  CHECK(import.notes.size() == 1);  // Bus ids are made up, whatever one knows.
}

TEST_CASE("a matrix without a tree gets the one most of it agrees with", "[smi][host]") {
  // PIX twice and PHB once: the third pair is taken as PIX, and said.
  const std::string text = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tPHB\nGPU1\tPIX\tX\tPIX\nGPU2\tPHB\tPIX\tX\n";
  const SmiMatrix matrix = read_smi_matrix(text, "paste.txt");
  const SmiTree tree = smi_tree(matrix);
  CHECK(relation_in(tree, 0, 1) == SmiRelation::kPix);
  // GPU2 has one vote of two for the switch of GPU0 and GPU1, which is no majority; two of two for their
  // bridge.
  CHECK(relation_in(tree, 0, 2) == SmiRelation::kPhb);
  CHECK(says(host_of(text), Kind::kSuspect, "1 pair is PIX there and PHB here: GPU1 × GPU2"));
}

TEST_CASE("NUMA nodes outweigh SYS between devices of one node", "[smi][host]") {
  const std::string text =
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\tSYS\t0-7\t0\n"
      "GPU1\tNV4\tX\tPIX\t0-7\t0\nNIC0\tSYS\tPIX\tX\n";
  const HostImport import = host_of(text);
  CHECK(import.hosts.at(0).cpus.size() == 1);
  CHECK(says(import, Kind::kSuspect, "1 pair is SYS there and NODE here: GPU0 × NIC0"));
}

}  // namespace orrery
