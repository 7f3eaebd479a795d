#include "calibration/collective_validation.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "calibration/collective_machines.hpp"

using namespace orrery;

namespace {

std::filesystem::path data_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return given;
  return std::filesystem::path(ORRERY_SOURCE_DIR) / ".." / "shared" / "data";
}

ValidationReport report_of(const std::string& lines) {
  const auto file = std::filesystem::temp_directory_path() / "orrery-collective-validation.csv";
  std::ofstream(file) << "id,source,gpu,nodes,gpus,interconnect,collective,size_bytes,time_us,notes\n"
                      << lines;
  ValidationReport report = validate_collectives(file);
  std::filesystem::remove(file);
  return report;
}

}  // namespace

TEST_CASE("a published collective is predicted or refused with its reason", "[calibration]") {
  const ValidationReport report = report_of(
      "a,s,H100,1,8,NVLink4/NVSwitch 900 GB/s,all_reduce,8000000000,31307,\n"
      "b,s,H100,1,8,NVLink4/NVSwitch 900 GB/s,sendrecv,8000000000,31307,\n"
      "c,s,MI300X,2,16,Infinity Fabric,all_reduce,8000000000,31307,\n"
      "d,s,,4,32,not stated,all_reduce,8000000000,31307,\n"
      "e,s,H100,2,16,NVLink4/NVSwitch 900 GB/s,all_reduce,8000000000,31307,\n"
      "f,s,GB200,18,72,NVLink5 NVL72 domain,all_gather,1024,100,\n"
      "g,s,H100,1,8,NVLink4/NVSwitch 900 GB/s,all_reduce,8000000000,,\n");
  REQUIRE(report.rows.size() == 2);
  // NVLS at 272 GB/s of payload.
  CHECK(report.rows[0].predicted_s == Approx(8e9 / 272e9).epsilon(1e-2));
  CHECK(report.rows[0].family == "all_reduce, in a node, from 1 MiB");
  CHECK(report.rows[0].lower_s < report.rows[0].predicted_s);
  CHECK(report.rows[0].upper_s > report.rows[0].predicted_s);
  CHECK(report.rows[1].family == "all_gather, in a node, below 1 MiB");
  std::map<std::string, std::int64_t> reasons;
  for (const ValidationRefusal& refusal : report.refused) reasons[refusal.reason] += refusal.rows;
  CHECK(reasons == std::map<std::string, std::int64_t>{{"not a collective of a Program", 1},
                                                       {"RCCL, not NCCL", 1},
                                                       {"GPU not stated", 1},
                                                       {"NICs not stated", 1},
                                                       {"no size or no time published", 1}});
}

TEST_CASE("machines of published collectives", "[calibration]") {
  const auto machine = [](const char* gpu, const char* interconnect) {
    return published_machine(gpu, interconnect).machine;
  };
  CHECK(machine("GB200", "NVLink5 NVL72 domain")->one_domain);
  CHECK(machine("H100", "NVSwitch; GPUDirect-TCPX, A3 High 1 Tb/s per node")->node.nics == 4);
  // Six links per GPU of a DGX-1.
  const NodeType cube = machine("V100", "single node NVLink (server model not stated)")->node;
  for (std::int32_t gpu = 0; gpu < 8; ++gpu) {
    double rate = 0;
    for (const NodeLink& link : cube.links)
      if (link.kind == LinkKind::kNvLink && (link.a == gpu || link.b == gpu)) rate += link.bytes_per_s;
    CHECK(rate == Approx(120e9));
  }
  CHECK_FALSE(machine("V100-16GB", "4 GPU node, NVLink2").has_value());
}

TEST_CASE("published collectives: inside a node above 1 MiB the median error stays where it is",
          "[calibration]") {
  const auto file = data_folder() / "published" / "collectives.csv";
  if (!std::filesystem::exists(file)) {
    std::cout << "skipped: no published collectives (set ORRERY_DATA to the data folder)\n";
    return;
  }
  const ValidationReport report = validate_collectives(file);
  std::vector<double> errors;
  std::int64_t covered = 0;
  for (const ValidationRow& row : report.rows)
    if (row.family.find("in a node, from 1 MiB") != std::string::npos) {
      errors.push_back(std::abs(row.relative_error()));
      covered += row.covered();
    }
  REQUIRE(errors.size() > 1500);
  std::ranges::sort(errors);
  CHECK(errors[errors.size() / 2] < 0.15);
  CHECK(static_cast<double>(covered) > 0.85 * static_cast<double>(errors.size()));
}
