// NCCL's environment variables that a log names: which of them hold it back, and by how much.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "report/diagnose_rules.hpp"

namespace orrery::diagnosis {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

bool is_zero(const std::string& value) { return value == "0"; }
bool is_set(const std::string& value) { return value != "0" && !value.empty(); }
bool always(const std::string&) { return true; }
bool below_five(const std::string& value) {
  return value.size() == 1 && value.front() >= '1' && value.front() <= '4';
}
bool near_only(const std::string& value) {
  return value == "LOC" || value == "NVL" || value == "0" || value == "1";
}

struct Rule {
  const char* name;
  bool (*harms)(const std::string& value);
  bool between_nodes;  // What it holds back shows between nodes.
  const char* cause;
};

// Meanings: NCCL 2.30 user guide, environment variables.
constexpr std::array<Rule, 12> kRules{{
    {"NCCL_P2P_DISABLE", is_set, false,
     "GPUs of a node no longer write to each other's memory: NVLink is not used"},
    {"NCCL_P2P_LEVEL", near_only, false, "P2P is allowed only over the shortest distances"},
    {"NCCL_SHM_DISABLE", is_set, false, "GPUs without P2P talk over the network even inside a node"},
    {"NCCL_IB_DISABLE", is_set, true, "InfiniBand and RoCE are not used; nodes talk over TCP sockets"},
    {"NCCL_NET_GDR_LEVEL", near_only, true, "cards may not read GPU memory: data is copied through the host"},
    {"NCCL_CROSS_NIC", is_zero, true, "a ring may not enter and leave a node by different cards"},
    {"NCCL_NVLS_ENABLE", is_zero, false, "reductions in the NVSwitch (NVLS, NVLSTree) are off"},
    {"NCCL_MAX_NCHANNELS", below_five, false, "so few channels don't fill NVLink or several cards"},
    {"NCCL_MAX_CTAS", below_five, false, "so few channels don't fill NVLink or several cards"},
    {"NCCL_ALGO", always, false, "one algorithm for all sizes: what it is good at is a range of them"},
    {"NCCL_PROTO", always, false,
     "one protocol for all sizes: LL and LL128 give away bandwidth of large messages, Simple latency of "
     "small ones"},
    {"NCCL_BUFFSIZE", [](const std::string& value) { return value.size() < 7; }, true,
     "buffers below 1 MB leave too little on its way between nodes"},
}};

std::optional<nccl::Variables> variables(const Settings& settings) {
  try {
    return nccl::read_variables(settings).values;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void look_at_settings(const TopologyFile& file, std::span<const Host> hosts, Findings& found) {
  Settings all;
  for (const LogSetting& setting : file.log->environment) all.emplace_back(setting.name, setting.value);
  for (const Rule& rule : kRules) {
    const auto set = std::ranges::find_if(file.log->environment, [&](const LogSetting& setting) {
      return setting.name == rule.name && rule.harms(setting.value);
    });
    if (set == file.log->environment.end()) continue;
    Finding finding;
    finding.id = "setting-" + std::string(rule.name);
    finding.title = fmt::format("{} is set to {}", set->name, set->value);
    finding.evidence.push_back(
        {file.name, set->line, fmt::format("{} set by environment to {}.", set->name, set->value)});
    finding.cause = rule.cause;
    finding.remedy = fmt::format("unset {}, unless it works round something that is known", rule.name);
    Settings without = all;
    std::erase_if(without, [&](const auto& setting) { return setting.first == rule.name; });
    const auto now = variables(all), mended = variables(without);
    if (now && mended && *now != *mended && !hosts.empty()) {
      finding.now_gb_per_s = ring_gb_per_s(hosts.front(), rule.between_nodes, *now);
      finding.mended_gb_per_s = ring_gb_per_s(hosts.front(), rule.between_nodes, *mended);
      finding.rate_of = rule.between_nodes ? "rings between nodes" : "rings inside a node";
      // The search doesn't see it: channels are capped afterwards, algorithms are chosen per size.
      if (finding.now_gb_per_s == finding.mended_gb_per_s)
        finding.now_gb_per_s = finding.mended_gb_per_s = std::nullopt;
    }
    found.push_back(std::move(finding));
  }
}

}  // namespace orrery::diagnosis
