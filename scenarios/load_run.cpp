// How the plan is run: engine, deviations from the ideal machine, prices, files to write.

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "scenarios/profile_file.hpp"
#include "scenarios/sections.hpp"
#include "simulator/collective_cost.hpp"

namespace orrery {

void read_engine(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("engine");
  if (node == nullptr) return;
  const Choices<std::string> kinds = {{"fast", "fast"}, {"simgrid", "simgrid"}, {"both", "both"}};
  if (node->kind == YamlNode::Kind::kScalar) {
    file.choice("engine", scenario.engine, kinds);
    return;
  }
  const Section section(*node, "engine", "engine", file.faults());
  section.choice("kind", scenario.engine, kinds);
  section.boolean("fold", scenario.fold);
}

void read_stragglers(const Section& file, Scenario& scenario) {
  for (const YamlNode* item : file.items("stragglers")) {
    const Section section(*item, "stragglers", "straggler", file.faults());
    const bool has_rank = section.require("rank", "the slow rank");
    const bool has_slowdown = section.require("slowdown", "by how much, e.g. 1.3");
    if (!has_rank || !has_slowdown) continue;
    std::int64_t rank = -1;
    double slowdown = 0;
    section.integer("rank", rank, 0, kMaxGpus - 1);
    section.number("slowdown", slowdown, 1, 1000);
    if (rank < 0 || slowdown < 1) continue;  // Noted already.
    const bool repeated = std::any_of(scenario.stragglers.begin(), scenario.stragglers.end(),
                                      [&](const auto& other) { return other.first == RankId(rank); });
    if (repeated) {
      section.fault("rank", fmt::format("{} is listed twice", rank));
      continue;
    }
    scenario.stragglers.emplace_back(RankId(rank), slowdown);
  }
}

namespace {

// "2.27" and "2.27.5" are NCCL 2's minor version 27.
std::optional<std::int64_t> nccl_minor(std::string_view text) {
  if (!text.starts_with("2.")) return std::nullopt;
  text.remove_prefix(2);
  const std::size_t dot = text.find('.');
  if (dot != std::string_view::npos && !parse_integer(text.substr(dot + 1))) return std::nullopt;
  const auto minor = parse_integer(text.substr(0, dot));
  return minor && *minor >= 0 && *minor <= 999 ? minor : std::nullopt;
}

void read_nccl(const Section& section, const NodeType& node, CollectiveCosts& costs) {
  std::string version;
  section.text("nccl", version);
  if (const auto minor = nccl_minor(version)) {
    costs.nccl_minor = static_cast<std::int32_t>(*minor);
  } else if (!version.empty()) {
    section.fault("nccl", fmt::format("is {}; expected a version of NCCL 2, e.g. 2.27", quote(version)));
  }
  section.boolean("nvls", costs.nvls);
  if (!section.has("nvls") || !costs.nvls) return;
  if (node.gpus > 0 && !collective_machine(node).has_multicast())
    section.fault("nvls",
                  fmt::format("is true; {} in {} has no NVSwitch that multicasts (those of Hopper and "
                              "later do); leave it out",
                              node.gpu.name, node.name));
  if (costs.nccl_minor < 17)
    section.fault("nvls",
                  fmt::format("is true; NCCL 2.{} hasn't got it, 2.17 and later have; leave it out or "
                              "raise profile.nccl",
                              costs.nccl_minor));
}

// Figures of the scenario itself come after those of the file, and win.
void read_measured(const Section& section, const GpuType& device, Profile& profile) {
  std::filesystem::path path;
  section.file("file", path);
  if (path.empty()) return;
  try {
    read_profile_file(path, device, profile);
  } catch (const Error& error) {
    section.fault("file", error.what());
  }
}

}  // namespace

void read_profile(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("profile");
  if (node == nullptr) return;
  const Section section(*node, "profile", "profile", file.faults());
  Profile& profile = scenario.profile;
  read_measured(section, scenario.cluster.node.gpu, profile);
  section.number("matmul_efficiency", profile.matmul_efficiency, 0.01, 1);
  section.number("attention_efficiency", profile.attention_efficiency, 0.01, 1);
  section.number("attention_backward_efficiency", profile.attention_backward_efficiency, 0.01, 1);
  section.number("memory_efficiency", profile.memory_efficiency, 0.01, 1);
  section.seconds("launch", profile.launch_s, 1);
  section.seconds("graph_node", profile.graph_node_s, 1);
  section.seconds("kernel_floor", profile.kernel_floor_s, 1);
  section.seconds("instruction", profile.instruction_s, 1);
  section.boolean("communication_on_core", profile.communication_on_core);
  section.number("compute_interference", profile.compute_interference, 1, 100);
  section.number("transfer_interference", profile.transfer_interference, 1, 100);
  section.seconds("step_latency", profile.step_latency_s, 1);
  section.seconds("network_step_latency", profile.network_step_latency_s, 1);
  section.seconds("collective_base", profile.collective_base_s, 1);
  read_nccl(section, scenario.cluster.node, profile.collectives);
  if (node->kind != YamlNode::Kind::kMap) return;
  for (std::size_t i = 0; i < node->keys.size(); ++i) {
    profile.provenance.push_back(
        fmt::format("{} {}: set by the scenario", node->keys[i], node->children[i].text));
  }
}

void read_prices(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("prices");
  if (node == nullptr) return;
  const Section section(*node, "prices", "prices", file.faults());
  Prices& prices = scenario.prices;
  if (section.require("gpu_hour", "the price of one GPU for one hour, e.g. 2.50 USD")) {
    std::string written;
    section.text("gpu_hour", written);
    const std::size_t space = written.find(' ');
    const auto amount = parse_number(written.substr(0, space));
    const std::string currency = space == std::string::npos ? prices.currency : written.substr(space + 1);
    const bool known = currency.size() == 3 && std::all_of(currency.begin(), currency.end(),
                                                           [](char c) { return c >= 'A' && c <= 'Z'; });
    if (amount && *amount > 0 && *amount <= 1e6 && known) {
      prices.gpu_hour = *amount;
      prices.currency = currency;
    } else if (!written.empty()) {
      section.fault("gpu_hour",
                    fmt::format("is {}; expected an amount and a currency of three letters, e.g. 2.50 USD",
                                quote(written)));
    }
  }
  section.text("source", prices.source);
  section.text("date", prices.date);
}

void read_output(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("output");
  if (node == nullptr) return;
  const Section section(*node, "output", "output", file.faults());
  section.file("json", scenario.output.json);
  section.file("trace", scenario.output.trace);
}

}  // namespace orrery
