// Profiles as files: written and read back, and what damaged ones say.

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>

#include "base/error.hpp"
#include "scenarios/profile_file.hpp"
#include "tests/scenarios/texts.hpp"
#include "topology/host_cores.hpp"

using namespace orrery;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

GpuType core() { return make_host_node({}).gpu; }

Profile calibrated() {
  Profile profile = default_profile(core());
  profile.name = "my host";
  profile.instruction_s = 2.5e-6;
  profile.message_fit = {4e-6, 2e-10, 0.1, 200, "ping-pong"};
  profile.collective_fits = {{"all-reduce", 2, 1e-5, 5e-10, 0.1, 100, "sweep"},
                             {"all-reduce", 4, 2e-5, 9e-10, 0.2, 100, "sweep"}};
  profile.kernel_fits = {{"matmul", "", 1e-6, 4.2e10, 0, 0.15, 60, "fit"},
                         {"matmul", "qkv", 2e-6, 5e10, 0, 0.05, 6, "fit"}};
  profile.cores_together = 1.6;
  MeasuredKernel kernel;
  kernel.label = "qkv";
  kernel.kind = "matmul";
  kernel.m = 128;
  kernel.n = 256;
  kernel.k = 128;
  kernel.flops = 8388608;
  kernel.read_bytes = 196608;
  kernel.written_bytes = 131072;
  kernel.seconds = 2.1e-4;
  kernel.sigma = 0.05;
  kernel.samples = 100;
  kernel.source = "timed";
  profile.kernels = {kernel};
  return profile;
}

std::string fault_of(const std::string& text) {
  Profile profile;
  try {
    read_profile_json(text, "host.json", core(), profile);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(profile.name == "ideal");  // Nothing was changed.
    return error.what();
  }
  return "";
}

// The file of calibrated() with its first `from` replaced.
std::string fault_with(const std::string& from, const std::string& to) {
  std::string text = profile_json(calibrated(), core());
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return fault_of(text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("a Profile reads back as it was written, byte for byte", "[scenarios][profile]") {
  const std::string text = profile_json(calibrated(), core());
  Profile read;
  read_profile_json(text, "host.json", core(), read);
  CHECK(profile_json(read, core()) == text);
  CHECK(read.instruction_s == 2.5e-6);
  CHECK(read.communication_on_core);
  CHECK(read.collective_fits.size() == 2);
  CHECK(read.kernels.at(0).seconds == 2.1e-4);
  // What replaces a model brings its own deviation.
  CHECK(read.errors.matmul.entry_sigma == 0.15);
  CHECK(read.collectives.node_latency.entry_sigma == 0.2);
  CHECK(std::ranges::count(read.provenance, "profile my host: read from host.json") == 1);
}

TEST_CASE("what a file leaves out stays", "[scenarios][profile]") {
  Profile profile = default_profile(core());
  const double before = profile.matmul_efficiency;
  read_profile_json(R"({"format": "orrery-profile", "version": 1, "name": "m", "device": "host-core",
                        "figures": {"instruction_s": {"value": 3e-6, "source": "timed"}}})",
                    "host.json", core(), profile);
  CHECK(profile.instruction_s == 3e-6);
  CHECK(profile.matmul_efficiency == before);
  CHECK(std::ranges::count(profile.provenance, "instruction 3e-06: timed") == 1);
}

TEST_CASE("a damaged file is told with file and field", "[scenarios][profile]") {
  CHECK_THAT(fault_of(""), StartsWith("host.json: isn't JSON"));
  CHECK_THAT(fault_of("[1]"), StartsWith("host.json: is a list; expected an object"));
  CHECK_THAT(fault_with("orrery-profile", "other"), Contains("host.json: format: is 'other'"));
  CHECK_THAT(fault_with("\"version\": 1", "\"version\": 2"), Contains("version: is 2; expected"));
  CHECK_THAT(fault_with("host-core", "H100"), Contains("device: is 'H100', but the cluster has host-core"));
  CHECK_THAT(fault_with("\"seconds\": 0.00021", "\"seconds\": -1"), Contains("kernels[0].seconds: is -1"));
  CHECK_THAT(fault_with("\"label\": \"qkv\"", "\"lable\": \"qkv\""),
             Contains("kernel_fits[1].lable: isn't known here") && Contains("label"));
  CHECK_THAT(fault_with("\"ranks\": 4", "\"ranks\": 2"),
             Contains("collectives[1].kind") && Contains("twice"));
  CHECK_THAT(fault_with("\"kind\": \"all-reduce\"", "\"kind\": \"reduce\""),
             Contains("collectives[0].kind: is 'reduce'; expected one of all-reduce"));
  CHECK_THAT(fault_with("\"flops_per_s\": 42000000000.0", "\"flops_per_s\": 0.5"),
             Contains("kernel_fits[0].flops_per_s"));
  CHECK_THAT(fault_with("\"value\": 2.5e-06", "\"value\": \"2.5\""),
             Contains("figures.instruction_s.value: is '2.5'; expected a number"));
  CHECK_THAT(fault_with("\"name\"", "\"format\""), Contains("stands twice"));
  const std::string text = profile_json(calibrated(), core());
  for (std::size_t size = 0; size + 2 < text.size(); size += 37)
    CHECK(!fault_of(text.substr(0, size)).empty());
}

TEST_CASE("a scenario names the file relative to itself, and its own figures win", "[scenarios][profile]") {
  const fs::path folder = fs::temp_directory_path() / "orrery-profile-test";
  fs::create_directories(folder);
  std::ofstream(folder / "host.profile.json") << profile_json(calibrated(), core());
  const std::string yaml =
      "model: {hidden: 128, layers: 2, heads: 4, ffn: 384, vocab: 256}\n"
      "sequence: 128\n"
      "global_batch: 8\n"
      "cluster: {host: {cores: 2}}\n"
      "plan: {dp: 2, precision: fp32}\n";
  const Scenario scenario = parse_scenario(yaml + "profile: {file: host.profile.json, step_latency: 9us}\n",
                                           folder / "scenario.yaml");
  CHECK(scenario.profile.name == "my host");
  CHECK(scenario.profile.instruction_s == 2.5e-6);
  CHECK(scenario.profile.step_latency_s == 9e-6);
  CHECK_THAT(message_of(yaml + "profile: {file: nowhere.json}\n"),
             Contains("profile.file") && Contains("can't be read"));
  fs::remove_all(folder);
}
