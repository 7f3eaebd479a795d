// Which algorithm and protocol a call gets, and how much of the GPU.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "base/error.hpp"
#include "simulator/collective_tuning.hpp"

namespace orrery::nccl {
namespace {

constexpr std::array<std::string_view, kAlgorithmCount> kAlgorithms{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, kProtocolCount> kProtocols{"LL", "LL128", "Simple"};

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](char c) { return std::tolower(static_cast<unsigned char>(c)); },
      [](char c) { return std::tolower(static_cast<unsigned char>(c)); });
}

std::string_view cut(std::string_view& text, char at) {
  const std::size_t end = text.find(at);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

std::string_view function_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "AllReduce";
    case CollectiveKind::kAllGather: return "AllGather";
    case CollectiveKind::kReduceScatter: return "ReduceScatter";
    case CollectiveKind::kBroadcast: return "Broadcast";
    case CollectiveKind::kAllToAll: break;
  }
  return "";
}

bool is_function(std::string_view name) {
  constexpr std::array<std::string_view, 5> kFunctions{"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                       "AllReduce"};
  return std::ranges::any_of(kFunctions, [&](std::string_view known) { return same(known, name); });
}

// One list of names, to what it leaves.
template <std::size_t kCount>
std::array<bool, kCount> read_list(std::string_view list, const std::array<std::string_view, kCount>& names,
                                   std::string_view variable, std::string_view whole) {
  const bool without = list.starts_with('^');
  if (without) list.remove_prefix(1);
  std::array<bool, kCount> chosen{};
  chosen.fill(without);
  while (!list.empty()) {
    const std::string_view name = cut(list, ',');
    const auto found = std::ranges::find_if(names, [&](std::string_view n) { return same(n, name); });
    if (found == names.end())
      fail(ErrorKind::kInput, "{}={}: \"{}\" is none that NCCL knows, and it would stop: it knows {}",
           variable, whole, name, fmt::join(names, ", "));
    chosen[static_cast<std::size_t>(found - names.begin())] = !without;
  }
  return chosen;
}

template <std::size_t kCount>
std::array<bool, kCount> selected(std::string_view setting, CollectiveKind kind,
                                  const std::array<std::string_view, kCount>& names,
                                  std::string_view variable) {
  std::array<bool, kCount> result{};
  result.fill(true);
  const std::string_view whole = setting;
  for (bool first = true; !setting.empty(); first = false) {
    std::string_view entry = cut(setting, ';');
    std::string_view function;
    if (entry.find(':') != std::string_view::npos) function = cut(entry, ':');
    if (function.empty() && !first)
      fail(ErrorKind::kInput,
           "{}={}: only the first entry may lack a function (AllReduce:…), and NCCL would stop", variable,
           whole);
    if (!function.empty() && !is_function(function))
      fail(ErrorKind::kInput, "{}={}: \"{}\" is no collective that NCCL knows, and it would stop", variable,
           whole, function);
    const auto list = read_list(entry, names, variable, whole);
    if (function.empty() || same(function, function_name(kind))) result = list;
  }
  return result;
}

// NVLS adds up in the switch, which knows few types.
bool nvls_reduces(const CallTraits& traits) {
  if (traits.scaled) return false;
  if (!traits.type) return true;
  switch (*traits.type) {
    case DType::kInt64:
    case DType::kInt32:
    case DType::kFp16:
    case DType::kBf16: return true;
    case DType::kFp32:
    case DType::kTf32: return traits.sum;
    case DType::kFp8:
    case DType::kUint8: return false;
  }
  return false;
}

std::string_view refusal(CollectiveKind kind, const Cell& cell, const Communicator& comm,
                         const Selection& chosen, const CallTraits& traits) {
  const Variables& variables = comm.variables;
  const bool nvls = cell.algorithm == Algorithm::kNvls || cell.algorithm == Algorithm::kNvlsTree;
  if (!chosen.algorithms[static_cast<std::size_t>(cell.algorithm)]) return "deselected by NCCL_ALGO";
  if (!chosen.protocols[static_cast<std::size_t>(cell.protocol)]) return "deselected by NCCL_PROTO";
  if (cell.protocol == Protocol::kLl128 && !chosen.ll128_forced && !ll128_is_safe(cell.algorithm, comm))
    return "LL128 isn't safe over these links";
  if (nvls && variables.nvls == 0) return "NCCL_NVLS_ENABLE=0";
  if (nvls && kind != CollectiveKind::kAllGather && !nvls_reduces(traits))
    return "the NVSwitch can't reduce this type";
  // By default only where every GPU is alone in its node, over a network that the CPU drives.
  if (cell.algorithm == Algorithm::kPat &&
      (variables.pat == 0 ||
       (variables.pat == 2 && (comm.ranks != comm.nodes || comm.nodes == 1 || !comm.host_driven_network))))
    return "PAT is for one GPU per node";
  return cell.price.gb_per_s > 0 ? "" : "doesn't exist here";
}

std::int32_t most_threads(const Choice& choice, const Communicator& comm) {
  const bool ring = choice.algorithm == Algorithm::kRing, tree = choice.algorithm == Algorithm::kTree;
  const std::int32_t asked = comm.variables.threads.value_or(512);
  switch (choice.protocol) {
    case Protocol::kLl: return asked;
    case Protocol::kLl128: return comm.variables.ll128_threads.value_or(640);
    case Protocol::kSimple: break;
  }
  // As much as one PCIe generation 3 link carries.
  if (ring && !comm.variables.threads && comm.ring.node_gb_per_s * comm.ring.channels <= 12) return 256;
  return ring || tree ? asked : 640;
}

// Per byte of the payload, in 32 KiB cells: how many channels a lone call's traffic reaches.
std::int32_t reached_channels(CollectiveKind kind, std::int64_t bytes, Protocol protocol,
                              std::int32_t channels) {
  std::int64_t traffic = bytes;  // Gathers: of all ranks together, as they are given.
  if (kind == CollectiveKind::kAllReduce) traffic *= 2;
  if (protocol == Protocol::kLl) traffic *= 4;
  constexpr std::int64_t kCell = 32 << 10;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>((traffic + kCell - 1) / kCell, 1, channels));
}

}  // namespace

std::string_view to_string(Algorithm algorithm) { return kAlgorithms[static_cast<std::size_t>(algorithm)]; }
std::string_view to_string(Protocol protocol) { return kProtocols[static_cast<std::size_t>(protocol)]; }

Selection selection(CollectiveKind kind, const Variables& variables) {
  Selection result;
  result.algorithms = selected(variables.algorithms, kind, kAlgorithms, "NCCL_ALGO");
  result.protocols = selected(variables.protocols, kind, kProtocols, "NCCL_PROTO");
  result.ll128_forced =
      !variables.protocols.empty() && result.protocols[static_cast<std::size_t>(Protocol::kLl128)];
  return result;
}

Explanation explain(CollectiveKind kind, std::int64_t bytes, const Communicator& comm,
                    const CallTraits& traits) {
  const Selection chosen = selection(kind, comm.variables);
  Explanation result;
  double least = std::numeric_limits<double>::infinity(), next = least;
  bool found = false;
  for (std::size_t a = 0; a < kAlgorithmCount; ++a)
    for (std::size_t p = 0; p < kProtocolCount; ++p) {
      Cell cell{static_cast<Algorithm>(a), static_cast<Protocol>(p), {}, 0, {}};
      cell.price = price_for(bytes, kind, cell.algorithm, cell.protocol, comm);
      cell.reason = refusal(kind, cell, comm, chosen, traits);
      if (cell.reason.empty()) {
        cell.microseconds = cell.price.microseconds(bytes);
        // Sums in fp8 over long rings lose too much.
        if (cell.algorithm == Algorithm::kRing && traits.type == DType::kFp8 && comm.ranks > 8 &&
            kind != CollectiveKind::kAllGather && kind != CollectiveKind::kBroadcast)
          cell.microseconds *= 1024;
        const std::size_t index = result.cells.size();
        if (cell.microseconds < least) {
          if (found) result.second = result.best;
          next = least;
          least = cell.microseconds;
          result.best = index;
          found = true;
        } else if (cell.microseconds < next) {
          next = cell.microseconds;
          result.second = index;
        }
      }
      result.cells.push_back(cell);
    }
  if (!found) {
    if (comm.nccl_minor >= 24)
      fail(
          ErrorKind::kInput,
          "NCCL_ALGO={} and NCCL_PROTO={} leave no way to do {}: NCCL stops with an error since 2.24 (before "
          "it fell back to rings); allow at least one pair that exists here",
          comm.variables.algorithms, comm.variables.protocols, function_name(kind));
    result.best = static_cast<std::size_t>(Algorithm::kRing) * kProtocolCount +
                  static_cast<std::size_t>(Protocol::kSimple);
    Cell& ring = result.cells[result.best];
    ring.microseconds = ring.price.microseconds(bytes);
    ring.reason = {};
  }
  if (result.second) result.margin = next / least - 1;
  return result;
}

Choice choose(CollectiveKind kind, std::int64_t bytes, const Communicator& comm, const CallTraits& traits) {
  const Explanation why = explain(kind, bytes, comm, traits);
  const Cell& best = why.cells[why.best];
  return {best.algorithm, best.protocol, best.price};
}

std::string to_text(const Explanation& explanation) {
  std::string text;
  for (std::size_t i = 0; i < explanation.cells.size(); ++i) {
    const Cell& cell = explanation.cells[i];
    if (cell.reason.empty())
      text += fmt::format("{:>13} {:<6} {:>12.1f} us {:>8.1f} GB/s {}\n", to_string(cell.algorithm),
                          to_string(cell.protocol), cell.microseconds, cell.price.gb_per_s,
                          i == explanation.best ? "<- chosen" : "");
    else if (cell.price.gb_per_s > 0)
      text += fmt::format("{:>13} {:<6} not used: {}\n", to_string(cell.algorithm), to_string(cell.protocol),
                          cell.reason);
  }
  if (explanation.second) {
    const Cell& second = explanation.cells[*explanation.second];
    text += fmt::format("next: {} {}, {:.1f} % slower\n", to_string(second.algorithm),
                        to_string(second.protocol), 100 * explanation.margin);
  }
  return text;
}

std::int64_t thread_threshold(Algorithm algorithm, Protocol protocol, std::int32_t ranks) {
  if (algorithm == Algorithm::kCollNetDirect || algorithm == Algorithm::kCollNetChain) return 512;
  if (protocol == Protocol::kSimple) return 64;
  return algorithm == Algorithm::kRing && protocol == Protocol::kLl ? 8 * std::int64_t{ranks} : 8;
}

CallPlan plan_call(CollectiveKind kind, std::int64_t bytes, const Choice& choice, const Communicator& comm,
                   std::int32_t collective_channels, std::int32_t nvls_channels) {
  CallPlan plan;
  plan.channels = collective_channels;
  plan.threads = most_threads(choice, comm);
  std::int64_t threshold = thread_threshold(choice.algorithm, choice.protocol, comm.ranks);
  const auto too_small = [&](std::int64_t heads) {
    return bytes < heads * plan.channels * plan.threads * threshold;
  };
  switch (choice.algorithm) {
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: plan.channels = nvls_channels; break;
    case Algorithm::kCollNetDirect:
      // Down to 16, 8, 4, … and easier to satisfy half way between.
      for (std::int32_t floor = 16; floor >= 1 && too_small(comm.collnet_direct.channels); floor /= 2)
        while (plan.channels > floor && too_small(comm.collnet_direct.channels)) {
          if (plan.channels == floor + floor / 2) threshold /= 2;
          --plan.channels;
        }
      break;
    default:
      while (too_small(1)) {
        if (plan.channels >= 2)
          --plan.channels;
        else if (plan.threads % 128 == 0)
          plan.threads /= 2;
        else
          break;
      }
  }
  constexpr std::int32_t kWarp = 32;
  if (choice.protocol == Protocol::kSimple && choice.algorithm == Algorithm::kRing) plan.threads += kWarp;
  plan.threads = std::max(plan.threads, 3 * kWarp);
  if (choice.algorithm == Algorithm::kTree || choice.algorithm == Algorithm::kPat) plan.threads = 640;
  plan.used_channels = reached_channels(kind, bytes, choice.protocol, plan.channels);
  return plan;
}

// ---- From a search.

namespace {

ChannelGraph channel_graph(const Graph& graph) {
  ChannelGraph result;
  result.channels = static_cast<std::int32_t>(graph.channels.size());
  result.node_gb_per_s = graph.node_gb_per_s;
  result.network_gb_per_s = graph.network_gb_per_s;
  result.node_path = graph.node_path;
  result.network_path = graph.network_path;
  result.network_latency_us = graph.network_latency_us;
  result.same_channels = graph.same_channels;
  return result;
}

}  // namespace

Communicator make_communicator(const System& system, const Graphs& graphs, std::int32_t ranks,
                               std::int32_t nodes) {
  Communicator comm;
  comm.ranks = ranks;
  comm.nodes = nodes;
  comm.generation = generation_of(system.least_capability());
  comm.ring = channel_graph(graphs.ring);
  comm.tree = channel_graph(graphs.tree);
  comm.nvls = channel_graph(graphs.nvls);
  comm.collnet_direct = channel_graph(graphs.collnet_direct);
  comm.collnet_chain = channel_graph(graphs.collnet_chain);
  comm.collnet = comm.collnet_chain.channels > 0;
  comm.nvlink = graphs.ring.node_path == PathClass::kNvl;
  comm.plain_tree = graphs.tree.pattern == Pattern::kTree;
  comm.nccl_minor = system.nccl_minor;
  comm.nvswitch = !system.all(NodeKind::kNvs).empty();
  comm.variables = system.variables;
  if (const SystemNode* cpu = system.first_cpu()) {
    comm.amd_host = cpu->vendor == CpuVendor::kAmd;
    comm.power_host = cpu->architecture == CpuArchitecture::kPower;
    comm.x86_host = cpu->architecture == CpuArchitecture::kX86;
  }
  for (const std::int32_t gpu : system.all(NodeKind::kGpu))
    if (system.nodes[static_cast<std::size_t>(gpu)].compute_capability != system.least_capability())
      comm.mixed_gpus = true;
  return comm;
}

}  // namespace orrery::nccl
