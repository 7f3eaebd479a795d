#include <catch2/catch.hpp>

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
    CHECK(gpu.peak(DType::kFp16) > 2 * gpu.peak(DType::kFp32));
    CHECK(gpu.peak(DType::kBf16) <= gpu.peak(DType::kFp16));
    CHECK(gpu.memory_bytes > 15'000'000'000);
    CHECK(gpu.memory_bytes_per_s > 500e9);
    CHECK(gpu.power_w > 0);
    CHECK_FALSE(gpu.source.empty());
    CHECK(catalogue_gpu(gpu.name).value().name == gpu.name);
    CHECK(default_profile(gpu).provenance.size() == 12);
  }
  for (const std::string& name : catalogue_names()) {
    INFO(name);
    Cluster cluster;
    cluster.node = catalogue_node(name).value();
    cluster.nodes = 2;
    CHECK_FALSE(cluster.node.source.empty());
    const Router router(cluster);  // Throws where a GPU can't reach something.
    CHECK(router.path(0, cluster.node.gpus).crosses_nodes);
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

TEST_CASE("the H200 profile holds the measured fractions, others say that they borrow", "[topology]") {
  const Profile measured = default_profile(catalogue_gpu("h200").value());
  CHECK(measured.matmul_efficiency == Approx(669.0 / 989.4).epsilon(1e-3));
  CHECK(measured.compute_interference == Approx(1.145));
  CHECK(measured.transfer_interference == Approx(1.6));
  const Profile borrowed = default_profile(catalogue_gpu("a100").value());
  CHECK(borrowed.matmul_efficiency == measured.matmul_efficiency);
  CHECK(borrowed.compute_interference == 1.0);
  CHECK(borrowed.provenance.front().find("borrowed from H200") != std::string::npos);
}
