#include "topology/nccl/nccl_variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/error.hpp"

namespace orrery::nccl {
namespace {

// As strtoll with base 0 takes it: decimal, or hexadecimal after 0x.
std::optional<std::int64_t> whole(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return negative ? -value : value;
}

struct Setting {
  std::string_view name, value;

  std::int64_t number(std::int64_t least, std::int64_t most, std::string_view otherwise) const {
    const auto read = whole(value);
    if (!read)
      fail(ErrorKind::kInput,
           "{}={} isn't a whole number: NCCL would warn and take its default ({}); give a number or unset it",
           name, value, otherwise);
    if (*read < least || *read > most)
      fail(ErrorKind::kInput, "{}={} is outside {} … {}: NCCL would {}; give a number of that range", name,
           value, least, most, otherwise);
    return *read;
  }
  std::int32_t count(std::int32_t least, std::int32_t most, std::string_view otherwise) const {
    return static_cast<std::int32_t>(number(least, most, otherwise));
  }
  bool flag(std::string_view otherwise) const { return number(0, 1, otherwise) == 1; }
};

constexpr std::int32_t kAny = std::numeric_limits<std::int32_t>::max();

// Since 2.5 by name; the numbers before that run LOC, PIX, PXB, PHB, SYS and larger ones mean SYS.
PathClass level(const Setting& setting) {
  if (const auto named = parse_path_class(setting.value); named && *named <= PathClass::kSys) return *named;
  constexpr std::array kOld{PathClass::kLoc, PathClass::kPix, PathClass::kPxb, PathClass::kPhb,
                            PathClass::kSys};
  const auto old = whole(setting.value);
  if (!old || *old < 0)
    fail(ErrorKind::kInput,
         "{}={} is no level: NCCL would ignore it; give LOC, NVL, PIX, PXB, PHB or SYS (or the old numbers 0 "
         "to 5)",
         setting.name, setting.value);
  return kOld[static_cast<std::size_t>(std::min<std::int64_t>(*old, kOld.size() - 1))];
}

void net_policy(const Setting& setting, Variables& to) {
  const std::string_view value = setting.value;
  if (value == "AUTO") {
    to.net_policy = NetPolicy::kAuto;
  } else if (value == "ALL") {
    to.net_policy = NetPolicy::kAll;
  } else if (value.starts_with("MAX:") && whole(value.substr(4)).value_or(0) > 0) {
    to.net_policy = NetPolicy::kMax;
    to.net_policy_most = static_cast<std::int32_t>(std::min<std::int64_t>(*whole(value.substr(4)), 1024));
  } else {
    fail(
        ErrorKind::kInput,
        "{}={} is no policy: NCCL would ignore it and take AUTO; give AUTO, ALL or MAX:N with N of 1 or more",
        setting.name, value);
  }
}

using Apply = void (*)(const Setting&, Variables&);
struct Known {
  std::string_view name;
  Apply apply;
};

// Older names of the same things stand beside the newer ones.
constexpr Known kKnown[] = {
    {"NCCL_ALGO", [](const Setting& s, Variables& to) { to.algorithms = s.value; }},
    {"NCCL_PROTO", [](const Setting& s, Variables& to) { to.protocols = s.value; }},
    {"NCCL_MIN_NRINGS",
     [](const Setting& s, Variables& to) { to.min_channels = s.count(0, 64, "limit it to 64"); }},
    {"NCCL_MIN_NCHANNELS",
     [](const Setting& s, Variables& to) { to.min_channels = s.count(0, 64, "limit it to 64"); }},
    {"NCCL_MIN_CTAS", [](const Setting& s, Variables& to) { to.min_channels = s.count(1, 64, "ignore it"); }},
    {"NCCL_MAX_NRINGS",
     [](const Setting& s, Variables& to) { to.max_channels = s.count(1, 64, "set it to 1 or 64"); }},
    {"NCCL_MAX_NCHANNELS",
     [](const Setting& s, Variables& to) { to.max_channels = s.count(1, 64, "set it to 1 or 64"); }},
    {"NCCL_MAX_CTAS", [](const Setting& s, Variables& to) { to.max_channels = s.count(1, 64, "ignore it"); }},
    {"NCCL_NTHREADS",
     [](const Setting& s, Variables& to) {
       to.threads = s.count(64, 512, "take the nearest of the range");
       if (*to.threads % 32 != 0)
         fail(ErrorKind::kInput,
              "NCCL_NTHREADS={} isn't a multiple of 32: NCCL would warn and take its default; round it",
              s.value);
     }},
    {"NCCL_LL128_NTHREADS",
     [](const Setting& s, Variables& to) {
       to.ll128_threads = s.count(160, 640, "take the nearest of the range");
     }},
    {"NCCL_BUFFSIZE",
     [](const Setting& s, Variables& to) { to.buffer_bytes = s.number(1, 1LL << 40, "fail to allocate"); }},
    {"NCCL_LL_BUFFSIZE",
     [](const Setting& s, Variables& to) {
       to.ll_buffer_bytes = s.number(1, 1LL << 40, "fail to allocate");
     }},
    {"NCCL_LL128_BUFFSIZE",
     [](const Setting& s, Variables& to) {
       to.ll128_buffer_bytes = s.number(1, 1LL << 40, "fail to allocate");
     }},
    {"NCCL_NVLS_ENABLE", [](const Setting& s, Variables& to) { to.nvls = s.count(0, 2, "take it for 2"); }},
    {"NCCL_NVLS_NCHANNELS",
     [](const Setting& s, Variables& to) { to.nvls_channels = s.count(1, 64, "limit it"); }},
    {"NCCL_PAT_ENABLE", [](const Setting& s, Variables& to) { to.pat = s.count(0, 2, "take it for 1"); }},
    {"NCCL_COLLNET_ENABLE", [](const Setting& s, Variables& to) { to.collnet = s.flag("take it for 0"); }},
    {"NCCL_COLLNET_NODE_THRESHOLD",
     [](const Setting& s, Variables& to) { to.collnet_nodes = s.count(0, kAny, "2"); }},
    {"NCCL_CROSS_NIC",
     [](const Setting& s, Variables& to) { to.cross_nic = s.count(0, 2, "take it for 0"); }},
    {"NCCL_P2P_LEVEL",
     [](const Setting& s, Variables& to) {
       if (to.p2p_level != PathClass::kLoc) to.p2p_level = level(s);
     }},
    {"NCCL_P2P_DISABLE",
     [](const Setting& s, Variables& to) {
       if (s.flag("take it for 0")) to.p2p_level = PathClass::kLoc;
     }},
    {"NCCL_SHM_DISABLE", [](const Setting& s, Variables& to) { to.shm = !s.flag("take it for 0"); }},
    {"NCCL_NVB_DISABLE", [](const Setting& s, Variables& to) { to.nvb = !s.flag("take it for 1"); }},
    {"NCCL_NET_DISABLE_INTRA",
     [](const Setting& s, Variables& to) { to.net_inside_node = !s.flag("take it for 0"); }},
    {"NCCL_NET_GDR_LEVEL", [](const Setting& s, Variables& to) { to.gdr_level = level(s); }},
    {"NCCL_NET_GDR_READ",
     [](const Setting& s, Variables& to) { to.gdr_read = s.flag("take a negative one for unset"); }},
    {"NCCL_NET_GDR_C2C", [](const Setting& s, Variables& to) { to.gdr_c2c = s.flag("take it for 1"); }},
    {"NCCL_PXN_DISABLE", [](const Setting& s, Variables& to) { to.pxn = !s.flag("take it for 0"); }},
    {"NCCL_PXN_C2C", [](const Setting& s, Variables& to) { to.pxn_c2c = s.flag("take it for 1"); }},
    {"NCCL_P2P_PXN_LEVEL",
     [](const Setting& s, Variables& to) { to.p2p_pxn_level = s.count(0, 2, "take it for 0"); }},
    {"NCCL_LL128_C2C", [](const Setting& s, Variables& to) { to.ll128_c2c = s.flag("take it for 1"); }},
    {"NCCL_NETDEVS_POLICY", net_policy},
    {"NCCL_MIN_P2P_NCHANNELS",
     [](const Setting& s, Variables& to) { to.min_p2p_channels = s.count(1, 64, "fail"); }},
    {"NCCL_MAX_P2P_NCHANNELS",
     [](const Setting& s, Variables& to) { to.max_p2p_channels = s.count(1, 64, "fail"); }},
    {"NCCL_NCHANNELS_PER_NET_PEER",
     [](const Setting& s, Variables& to) { to.net_peer_channels = s.count(1, 64, "ignore it"); }},
    {"NCCL_P2P_PER_CHANNEL_NET_BW",
     [](const Setting& s, Variables& to) { to.p2p_channel_net_gb_per_s = s.count(1, kAny, "divide by it"); }},
    {"NCCL_NET_OVERHEAD",  // Nanoseconds.
     [](const Setting& s, Variables& to) {
       to.net_overhead_us = static_cast<double>(s.number(0, kAny, "take it for unset")) * 1e-3;
     }},
    {"NCCL_UNPACK_DOUBLE_NCHANNELS",
     [](const Setting& s, Variables& to) { to.unpack_doubles_channels = s.flag("take it for 1"); }},
    {"NCCL_MNNVL_ENABLE",
     [](const Setting& s, Variables& to) { to.mnnvl = s.count(0, 2, "take it for 1") > 0; }},
    {"NCCL_TOPO_FILE", [](const Setting& s, Variables& to) { to.topology_file = s.value; }},
    {"NCCL_GRAPH_FILE", [](const Setting& s, Variables& to) { to.graph_file = s.value; }},
};

// Known to NCCL, and without a say in what it decides here.
constexpr std::string_view kHarmless[] = {"NCCL_DEBUG",
                                          "NCCL_DEBUG_SUBSYS",
                                          "NCCL_DEBUG_FILE",
                                          "NCCL_SOCKET_IFNAME",
                                          "NCCL_SOCKET_FAMILY",
                                          "NCCL_SOCKET_NTHREADS",
                                          "NCCL_NSOCKS_PERTHREAD",
                                          "NCCL_NET",
                                          "NCCL_NET_PLUGIN",
                                          "NCCL_TOPO_DUMP_FILE",
                                          "NCCL_TOPO_DUMP_FILE_RANK",
                                          "NCCL_GRAPH_DUMP_FILE",
                                          "NCCL_COMM_ID",
                                          "NCCL_LAUNCH_MODE",
                                          "NCCL_RUNTIME_CONNECT",
                                          "NCCL_CUMEM_ENABLE",
                                          "NCCL_CUMEM_HOST_ENABLE",
                                          "NCCL_IGNORE_NET_MISMATCH",
                                          "NCCL_IGNORE_CPU_AFFINITY",
                                          "NCCL_CHECK_POINTERS",
                                          "NCCL_HOSTID",
                                          "NCCL_CONF_FILE",
                                          "NCCL_ASYNC_ERROR_HANDLING",
                                          "NCCL_BLOCKING_WAIT",
                                          "NCCL_DMABUF_ENABLE",
                                          "NCCL_RAS_ENABLE",
                                          "NCCL_NET_SHARED_BUFFERS",
                                          "NCCL_SET_STACK_SIZE",
                                          "NCCL_GRAPH_DUMP_FILE_RANK",
                                          "NCCL_IGNORE_DISABLED_P2P",
                                          "NCCL_OOB_NET_ENABLE",
                                          "NCCL_LOCAL_REGISTER"};
// InfiniBand's, of the profiler and of RAS: they change how data moves, never which algorithm.
constexpr std::string_view kHarmlessStems[] = {"NCCL_IB_", "NCCL_PROFILER", "NCCL_RAS_", "NCCL_GIN_"};

bool harmless(std::string_view name) {
  return std::ranges::find(kHarmless, name) != std::end(kHarmless) ||
         std::ranges::any_of(kHarmlessStems, [&](std::string_view stem) { return name.starts_with(stem); });
}

void apply(const Setting& setting, std::int32_t line, ReadVariables& result) {
  const auto* const known = std::ranges::find(kKnown, setting.name, &Known::name);
  if (known != std::end(kKnown)) {
    known->apply(setting, result.values);
  } else if (!harmless(setting.name)) {
    result.notes.push_back(
        {ImportNote::Kind::kSuspect, line,
         fmt::format("{} is no variable that is known here: it changes nothing", setting.name),
         "compare it with NCCL's list of environment variables"});
  }
}

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

ReadVariables read_variables(const std::vector<std::pair<std::string, std::string>>& settings) {
  ReadVariables result;
  for (const auto& [name, value] : settings)
    if (name.starts_with("NCCL_")) apply({name, value}, 0, result);
  return result;
}

ReadVariables parse_variables(std::string_view text, std::string_view source) {
  ReadVariables result;
  std::int32_t line = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view row = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
    if (row.empty() || row.starts_with('#')) continue;
    if (row.starts_with("export ")) row = trimmed(row.substr(7));
    const std::size_t equals = row.find('=');
    if (equals == std::string_view::npos)
      fail(ErrorKind::kInput, "{}:{}: expected NAME=VALUE, got \"{}\"", source, line, row);
    const Setting setting{trimmed(row.substr(0, equals)), unquoted(trimmed(row.substr(equals + 1)))};
    if (!setting.name.starts_with("NCCL_")) continue;
    try {
      apply(setting, line, result);
    } catch (const Error& error) {
      fail(error.kind(), "{}:{}: {}", source, line, error.what());
    }
  }
  return result;
}

}  // namespace orrery::nccl
