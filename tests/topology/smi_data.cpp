// The published matrices: each is read with its devices and a few of its cells, or refused for what it is.

#include <catch2/catch.hpp>
#include <iostream>
#include <map>

#include "base/error.hpp"
#include "tests/topology/smi_pastes.hpp"
#include "topology/import/smi_host.hpp"

namespace orrery {
namespace {

struct Expected {
  std::size_t gpus, nics;
  // "GPU0 NIC3 PXB": by label.
  std::vector<std::string> cells;
  // Part of a note that there must be; empty: there must be none of a repair or a fault.
  std::string note = "";
};

// Counted and read off the files by hand.
const std::map<std::string, Expected>& expected_matrices() {
  static const std::map<std::string, Expected> table = {
      {"a100-2-nps-header-left.txt", {2, 0, {"GPU0 GPU1 NV4"}}},
      {"a100-4-2hca-hdr.txt", {4, 2, {"GPU1 mlx5_0 PIX", "GPU3 mlx5_1 SYS", "mlx5_0 mlx5_1 SYS"}}},
      {"a100-4-3nic-blank-affinity.txt",
       {4, 3, {"NIC0 NIC1 PIX", "NIC2 NIC0 PHB", "GPU3 NIC2 NODE"}, "GPU2, GPU3: CPU Affinity is blank"}},
      {"a100-4-bare.txt", {4, 0, {"GPU0 GPU3 NV12"}}},
      {"a100-4-comment-prefixed.txt", {4, 1, {"GPU3 mlx5_0 PHB", "GPU0 mlx5_0 SYS"}, "no row for mlx5_0"}},
      {"a100-4-uneven-numa.txt", {4, 0, {"GPU0 GPU3 NV12"}}},
      {"a100-8-10hca-merged-cells.txt",
       {8,
        10,
        {"GPU0 mlx5_4 NODE", "GPU0 mlx5_9 SYS", "GPU4 mlx5_6 PXB", "GPU6 GPU7 ?"},
        "\"NODENODE\" is taken apart"}},
      {"a100-8-10nic-xright.txt", {8, 10, {"GPU0 NIC2 PXB", "NIC8 NIC9 PXB", "NIC6 NIC7 PIX"}}},
      {"a100-8-10nic.txt", {8, 10, {"GPU7 NIC7 PXB", "NIC8 NIC9 PIX"}}},
      {"a100-8-2nic-indented.txt", {8, 2, {"GPU2 mlx5_0 NODE", "GPU5 mlx5_1 PXB"}}},
      {"a100-8-narrow.txt", {8, 0, {"GPU0 GPU7 NV12"}}},
      {"a100-8-vm-phb-glued.txt", {8, 8, {"GPU7 NIC7 PHB", "NIC0 NIC7 PHB"}, "cell GPU0 × NIC7 is damaged"}},
      {"a40-4-nv4-pairs-far-nic.txt", {4, 1, {"GPU2 NIC0 PXB", "GPU3 NIC0 PIX", "GPU0 GPU2 SYS"}}},
      {"a6000-3-pair-plus-one.txt", {3, 0, {"GPU0 GPU1 NV4", "GPU2 GPU0 NODE"}}},
      {"a800-8-2nic-glued-affinity.txt",
       {8, 2, {"GPU6 NIC1 NODE", "GPU0 NIC0 PXB"}, "taken as CPUs 0-31,64-95 and NUMA node 0"}},
      {"adroit-a100-pcie-4.txt", {4, 1, {"GPU1 mlx5_0 NODE", "GPU0 GPU2 SYS"}, "six entries"}},
      {"aws-p4d-no-nic.txt", {8, 0, {"GPU0 GPU7 NV12"}}},
      {"azure-nc96-a100-4.txt", {4, 0, {"GPU2 GPU3 NV12", "GPU1 GPU2 SYS"}}},
      {"b200-8-16nic-one-row.txt",
       {8, 16, {"GPU0 NIC4 PIX", "GPU0 NIC15 SYS", "GPU1 NIC0 ?"}, "\"SYSSYS\" is taken apart"}},
      {"b200-8-gpu2-lost-nvlink.txt",
       {8, 12, {"GPU2 GPU0 NODE", "GPU2 NIC2 PXB", "GPU5 GPU7 NV18"}, "GPU2 has no NVLink"}},
      {"b300-8-9nic-ansi.txt", {8, 9, {"GPU7 NIC7 PXB", "GPU7 NIC8 NODE", "GPU0 NIC8 SYS"}}},
      {"dgx-a100-12hca.txt", {8, 12, {"GPU4 mlx5_6 PXB", "mlx5_4 mlx5_5 PIX", "mlx5_10 mlx5_11 PIX"}}},
      {"dgx-a100-12nic-cut.txt", {8, 12, {"GPU4 NIC6 PXB", "GPU4 NIC11 SYS"}, "CPU list \"112-127,240-25\""}},
      {"dgx-h100-12nic-cut.txt",
       {8, 12, {"GPU7 NIC11 PXB", "NIC1 NIC2 PIX", "NIC6 NIC7 ?"}, "no row for NIC6"}},
      {"dgx-h200-12nic.txt", {8, 12, {"GPU7 NIC11 PXB", "NIC7 NIC8 PIX"}}},
      {"dgx1-p100-glued-header.txt",
       {8, 4, {"GPU2 mlx5_1 PIX", "GPU0 mlx5_1 PHB", "mlx5_2 mlx5_3 PHB"}, "glued"}},
      {"dgx2-16-cut.txt", {16, 10, {"GPU4 mlx5_2 PIX", "GPU0 GPU15 NV6", "GPU5 GPU6 ?"}, "no row for GPU5"}},
      {"edge-wrapped-header.txt", {8, 2, {"GPU1 NIC1 PXB", "GPU0 GPU7 NV18"}, "wrapped"}},
      {"epyc-4gpu-5nic-roce.txt", {4, 5, {"NIC0 NIC1 PIX", "GPU3 NIC4 NODE"}}},
      {"four-gpu-mlx4-soc.txt", {4, 1, {"GPU2 mlx4_0 PHB", "GPU0 mlx4_0 SYS"}, "SOC"}},
      {"four-gpu-node.txt", {4, 0, {"GPU0 GPU3 NODE"}}},
      {"four-gpu-phb.txt", {4, 0, {"GPU0 GPU3 PHB"}}},
      {"gb200-4-6nic-cut.txt",
       {4, 6, {"GPU2 NIC5 SYS", "GPU3 NIC0 SYS", "GPU3 NIC1 ?"}, "it ends after 5 of 10 cells"}},
      {"gb200-4-degraded.txt", {4, 0, {"GPU2 GPU3 NV16", "GPU0 GPU3 NV18"}, "GPU2 has 16 NVLinks"}},
      {"gcp-a3ultra-h200-ansi.txt", {8, 8, {"GPU7 NIC6 PIX", "NIC6 NIC7 PIX", "GPU0 NIC2 NODE"}}},
      {"gcp-a4-b200.txt", {8, 8, {"GPU7 NIC6 PIX", "GPU4 NIC7 NODE"}}},
      {"h100-4-blank-affinity.txt", {4, 0, {"GPU0 GPU3 NV18"}, "GPU1, GPU2, GPU3: CPU Affinity is blank"}},
      {"h100-8-10nic-sys.txt", {8, 10, {"GPU3 NIC5 PIX", "GPU3 NIC3 SYS"}, "no row for NIC0"}},
      {"h100-8-12nic-mp.txt", {8, 12, {"GPU0 NIC2 PIX", "GPU0 GPU1 NODE", "NIC10 NIC11 NODE"}, "topo -mp"}},
      {"h100-8-narrow.txt", {8, 0, {"GPU0 GPU7 NV18"}}},
      {"h100-8-no-nic.txt", {8, 0, {"GPU0 GPU7 NV18"}}},
      {"h100-8-tk.txt", {8, 0, {"GPU0 GPU7 NV18"}}},
      {"h100-dgx-mlx5-columns.txt",
       {8, 10, {"GPU7 mlx5_7 PIX", "GPU7 mlx5_9 NODE", "GPU0 mlx5_8 NODE"}, "no row for mlx5_0"}},
      {"h200-8-sncs-4numa-cut.txt",
       {8, 9, {"GPU3 NIC4 PIX", "GPU3 NIC3 NODE", "GPU5 NIC6 PIX"}, "no row for GPU6"}},
      {"pcie-8-pix-pairs.txt", {8, 0, {"GPU6 GPU7 PIX", "GPU5 GPU6 PHB", "GPU0 GPU4 SYS"}}},
      {"power9-v100-4.txt", {4, 4, {"GPU0 GPU1 NV3", "mlx5_2 mlx5_3 PIX", "GPU3 mlx5_3 NODE"}}},
      {"rtx5090-2-phb.txt", {2, 0, {"GPU0 GPU1 PHB"}}},
      {"two-gpu-nv2-3col.txt", {2, 0, {"GPU0 GPU1 NV2"}}},
      {"two-gpu-nv2-numa-na.txt", {2, 0, {"GPU0 GPU1 NV2"}}},
      {"two-gpu-phb-numa-na.txt", {2, 0, {"GPU0 GPU1 PHB"}}},
      {"v100-4-nv2-2nic.txt", {4, 2, {"GPU3 NIC1 PIX", "GPU0 NIC1 SYS"}}},
      {"v100-8-2hca-cut.txt", {8, 2, {"GPU3 GPU7 NV2", "GPU2 mlx5_1 PIX"}, "CPU list \"24-47,\" is cut"}},
      {"v100-8-cubemesh-node.txt", {8, 4, {"GPU0 GPU4 NV1", "GPU0 GPU5 NODE", "GPU7 mlx5_3 PHB"}}},
  };
  return table;
}

std::string described(const SmiMatrix& matrix, std::size_t a, std::size_t b) {
  return matrix.devices[a].label + " " + matrix.devices[b].label + " " + to_string(matrix.at(a, b));
}

bool has_cell(const SmiMatrix& matrix, const std::string& cell) {
  for (std::size_t a = 0; a < matrix.devices.size(); ++a) {
    for (std::size_t b = 0; b < matrix.devices.size(); ++b) {
      if (described(matrix, a, b) == cell) return true;
    }
  }
  return false;
}

void check(const SmiMatrix& matrix, const Expected& expected) {
  CHECK(matrix.gpu_count() == expected.gpus);
  CHECK(matrix.devices.size() == expected.gpus + expected.nics);
  for (const std::string& cell : expected.cells) {
    INFO(cell);
    CHECK(has_cell(matrix, cell));
  }
  bool found = expected.note.empty();
  for (const ImportNote& note : matrix.notes) {
    INFO(note.text);
    found = found || note.text.find(expected.note) != std::string::npos;
    const bool doubt = note.kind == ImportNote::Kind::kRepaired || note.kind == ImportNote::Kind::kSuspect;
    if (expected.note.empty()) CHECK_FALSE(doubt);
  }
  CHECK(found);
}

}  // namespace

TEST_CASE("every published matrix is read, or refused for what it is", "[smi][data]") {
  const auto files = smi_test::data_files();
  if (files.empty()) {
    std::cout << "skipped: no published matrices (set ORRERY_DATA to the data folder)\n";
    return;
  }
  for (const auto& file : files) {
    const std::string name = file.filename().string();
    INFO(name);
    const std::string text = smi_test::read(file);
    if (name.starts_with("p2p")) {
      CHECK_THROWS_WITH(read_smi_matrix(text, name), Catch::Contains("topo -p2p"));
      continue;
    }
    REQUIRE(expected_matrices().count(name) == 1);
    const SmiMatrix matrix = read_smi_matrix(text, name);
    check(matrix, expected_matrices().at(name));
    const HostImport import = host_from_smi(matrix);
    CHECK(import.hosts.at(0).gpus.size() == matrix.gpu_count());
    CHECK(import.hosts.at(0).nics.size() == matrix.devices.size() - matrix.gpu_count());
  }
}

}  // namespace orrery
