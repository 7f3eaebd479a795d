#include <catch2/catch.hpp>
#include <cmath>

#include "topology/cluster.hpp"
#include "topology/profile.hpp"

using namespace orrery;

TEST_CASE("names are found in any case and with either dash", "[topology]") {
  CHECK(catalogue_gpu("H100-SXM").value().name == "H100-SXM5-80GB");
  CHECK(catalogue_gpu("h100_sxm5_80gb").value().name == "H100-SXM5-80GB");
  CHECK(catalogue_gpu("NVIDIA H200").value().name == "H200-SXM-141GB");
  CHECK(catalogue_node("DGX_H100").value().name == "DGX-H100");
  CHECK_FALSE(catalogue_gpu("h101"));
  CHECK_FALSE(catalogue_node("dgx"));
}

TEST_CASE("every listed machine exists, is complete and says where it is from", "[topology]") {
  CHECK(gpu_names().size() >= 12);
  for (const std::string& name : gpu_names()) {
    INFO(name);
    const GpuType gpu = catalogue_gpu(name).value();
    CHECK(gpu.peak(DType::kFp32) > 0);
    CHECK(gpu.peak(DType::kFp16) >= 2 * gpu.peak(DType::kFp32));
    CHECK(gpu.architecture != Architecture::kUnknown);
    CHECK(gpu.sms >= 80);
    CHECK(gpu.clock_hz > 1.2e9);
    CHECK(gpu.clock_hz < 2.6e9);
    CHECK(gpu.cache_bytes >= 6 << 20);
    CHECK(gpu.peak(DType::kBf16) <= gpu.peak(DType::kFp16));
    CHECK(gpu.memory_bytes > 15'000'000'000);
    CHECK(gpu.memory_bytes_per_s > 500e9);
    CHECK(gpu.power_w > 0);
    CHECK_FALSE(gpu.source.empty());
    CHECK(catalogue_gpu(gpu.name).value().name == gpu.name);
    CHECK(default_profile(gpu).provenance.size() == 13);
  }
  for (const std::string& name : catalogue_names()) {
    INFO(name);
    Cluster cluster;
    cluster.node = catalogue_node(name).value();
    cluster.nodes = 2;
    CHECK_FALSE(cluster.node.source.empty());
    const Router router(cluster);  // Throws where a GPU can't reach something.
    CHECK(router.path(0, cluster.node.gpus).crosses_network);
    CHECK_FALSE(router.host_path(0, true).links.empty());
  }
}

TEST_CASE("link rates are those of NCCL's table", "[topology]") {
  const auto nvlink = [](const char* name) {
    Cluster cluster;
    cluster.node = catalogue_node(name).value();
    return Router(cluster).path(0, 1).bytes_per_s();
  };
  CHECK(nvlink("dgx-a100") == Approx(240e9));
  CHECK(nvlink("dgx-h100") == Approx(370.8e9));
  CHECK(nvlink("dgx-b200") == Approx(721.8e9));
  CHECK(catalogue_node("dgx-a100")->nic_bytes_per_s == Approx(25e9));
  CHECK(catalogue_node("dgx-h100")->nic_bytes_per_s == Approx(50e9));
}

TEST_CASE("an inline node is reduced from datasheet rates to NCCL's", "[topology]") {
  NodeShape shape;
  shape.gpus = 4;
  shape.nics = 2;
  shape.nvlink_bytes_per_s = 450e9;
  shape.pcie_bytes_per_s = 64e9;
  Cluster cluster;
  cluster.node = make_node(shape, catalogue_gpu("h100-sxm").value());
  cluster.nodes = 2;
  const Router router(cluster);
  CHECK(router.path(0, 3).bytes_per_s() == Approx(370.8e9));
  CHECK(router.path(0, 4).bytes_per_s() == Approx(48e9));

  shape.nvlink_bytes_per_s = 0;
  cluster.node = make_node(shape, catalogue_gpu("l40s").value());
  // GPUs 0 and 1 share a PCIe switch, GPU 2 is under the other one and the other CPU.
  CHECK(Router(cluster).path(0, 1).links.size() == 2);
  CHECK(Router(cluster).path(0, 2).links.size() == 5);
}

TEST_CASE("the H200 profile holds measured figures, others say that they borrow", "[topology]") {
  const Profile measured = default_profile(catalogue_gpu("h200").value());
  // 669 TFLOP/s sustained of large products is what all their costs leave of this.
  CHECK(measured.matmul_efficiency / measured.sustained_slowdown == Approx(0.748).epsilon(0.01));
  CHECK(measured.compute_interference == Approx(1.145));
  CHECK(measured.transfer_interference == Approx(1.6));
  const Profile borrowed = default_profile(catalogue_gpu("h100").value());
  CHECK(borrowed.matmul_efficiency == measured.matmul_efficiency);
  CHECK(borrowed.errors.matmul.family_sigma > measured.errors.matmul.family_sigma);
  CHECK(borrowed.compute_interference == 1.0);
  CHECK(borrowed.provenance.front().find("borrowed from H200") != std::string::npos);
}

TEST_CASE("kernel figures are carried over by what is known of the GPU", "[topology]") {
  const auto profile = [](const char* name) { return default_profile(catalogue_gpu(name).value()); };
  const Profile h100 = profile("h100-sxm"), pcie = profile("h100-pcie"), a100 = profile("a100-sxm-80gb");
  // 350 W for 756 TFLOP/s against 700 W for 989: the cube root of 0.654.
  CHECK(pcie.matmul_efficiency / h100.matmul_efficiency == Approx(std::cbrt(0.6544)).epsilon(1e-3));
  // 400 W for 312 TFLOP/s, of which N7 needs 1 / 0.7 times as much: the cube root of 1.268.
  CHECK(a100.matmul_efficiency / h100.matmul_efficiency == Approx(std::cbrt(1.2684)).epsilon(1e-3));
  // Cycles are longer at 1,411 MHz than at 1,830.
  CHECK(a100.matmul.tile_start_s / h100.matmul.tile_start_s == Approx(1.2975).epsilon(1e-3));
  // No clusters before Hopper; FlashAttention 2 instead of cuDNN's kernels.
  CHECK(a100.matmul.cache_reuse == 1);
  CHECK(a100.attention_efficiency < h100.attention_efficiency);
  for (const char* name : {"v100", "rtx-4090", "l40s"}) CHECK(profile(name).matmul_efficiency <= 0.95);
}

TEST_CASE("a hybrid cube mesh has six cables per GPU, and PCIe between the rest", "[topology]") {
  Cluster cluster;
  cluster.node = catalogue_node("dgx-v100-mesh").value();
  std::vector<double> cables(8, 0);
  for (const NodeLink& link : cluster.node.links) {
    if (link.kind != LinkKind::kNvLink) continue;
    cables[static_cast<std::size_t>(link.a)] += link.bytes_per_s / 20e9;
    cables[static_cast<std::size_t>(link.b)] += link.bytes_per_s / 20e9;
  }
  for (const double count : cables) CHECK(count == Approx(6));
  const Router router(cluster);
  CHECK(router.path(0, 4).bytes_per_s() == Approx(40e9));
  CHECK(router.path(0, 1).bytes_per_s() == Approx(20e9));
  // No cable: two PCIe segments up, the link between the CPUs, two down.
  CHECK(router.path(0, 5).links.size() == 5);
  CHECK(router.path(0, 5).bytes_per_s() == Approx(6e9));
}

TEST_CASE("an NVL72 rack is one NVLink domain whose trays share no CPU link", "[topology]") {
  Cluster cluster;
  cluster.node = catalogue_node("gb200-nvl72").value();
  CHECK(cluster.node.gpus == 72);
  const Router router(cluster);
  CHECK(router.path(0, 71).links.size() == 2);
  CHECK(router.path(0, 71).bytes_per_s() == Approx(721.8e9));
  int between_cpus = 0;
  for (const NodeLink& link : cluster.node.links) between_cpus += link.kind == LinkKind::kCpuInterconnect;
  CHECK(between_cpus == 18);
}

TEST_CASE("cloud shapes have the cloud's network and sometimes a price", "[topology]") {
  const auto gigabits = [](const char* name) {
    const NodeType node = catalogue_node(name).value();
    return node.nics * node.nic_bytes_per_s * 8e-9;
  };
  CHECK(gigabits("p4d") == Approx(400));
  CHECK(gigabits("p5") == Approx(3200));
  CHECK(gigabits("a3-high") == Approx(800));
  CHECK(gigabits("a3-mega") == Approx(1600));
  CHECK(gigabits("nd-a100-v4") == Approx(1600));
  const CataloguePrice price = catalogue_price("p5.48xlarge").value();
  CHECK(price.usd_per_gpu_hour == Approx(55.04 / 8));
  CHECK(price.date == "2026-11");
  CHECK_FALSE(price.source.empty());
  CHECK_FALSE(catalogue_price("dgx-h100"));
  CHECK_FALSE(catalogue_price("no such node"));
}
