#include "report/host_json.hpp"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("an imported machine as JSON", "[report]") {
  Host host;
  host.source = "t.xml";
  host.cpus = {{-1, "ff", "x86_64", "AuthenticAMD", 175, 1}};
  PciDevice device;
  device.bus_id = "0000:07:00.0";
  device.device_class = 0x030200;
  device.gigatransfers_per_s = 16;
  device.lanes = 16;
  host.pci = {device};
  HostGpu gpu;
  gpu.pci = 0;
  gpu.compute_capability = 80;
  gpu.nvlinks = {{"0000:f0:00.0", 12, 0x068000}};
  host.gpus = {gpu};
  HostNic nic;
  nic.name = "eth\xff";  // No UTF-8.
  nic.bytes_per_s = 12.5e9;
  host.nics = {nic};
  const std::string text = host_json({{host}, {{ImportNote::Kind::kSuspect, 7, "odd", ""}}});
  using Catch::Contains;
  CHECK_THAT(text, Contains("\"numa\": null"));
  CHECK_THAT(text, Contains("\"interconnect_bytes_per_s\": 16000000000.0"));
  CHECK_THAT(text, Contains("\"class\": \"0x030200\""));
  CHECK_THAT(text, Contains("\"vendor\": null"));
  CHECK_THAT(text, Contains("\"bytes_per_s\": 24000000000.0"));   // 120 · 16 / 80 GB/s.
  CHECK_THAT(text, Contains("\"bytes_per_s\": 240000000000.0"));  // 12 · 20 GB/s.
  CHECK_THAT(text, Contains("\"rank\": null"));
  CHECK_THAT(text, Contains("\"bytes_per_s\": 12500000000.0"));
  CHECK_THAT(text, Contains("\"kind\": \"suspect\",\n      \"line\": 7"));
  CHECK(host_json({}) == "{\n  \"hosts\": [],\n  \"notes\": []\n}\n");
}
