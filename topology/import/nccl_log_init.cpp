// What NCCL says while it sets up: versions, variables, networks, who the ranks are, how many channels.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_view.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;

// "2.18.5+cuda12.2", "2.22.3-hip6.3".
bool read_version(const Message& message, NcclLog& log) {
  Cursor cursor(message.text);
  const bool rccl = cursor.skip("RCCL version");
  if (!rccl && !cursor.skip("NCCL version")) return false;
  log.rccl = log.rccl || rccl || message.text.find("hip") != std::string::npos;
  cursor.skip(" : ");
  cursor.blanks();
  Cursor word(cursor.word());
  const std::string_view version = word.until("+-");
  if (version.empty() || std::isdigit(static_cast<unsigned char>(version.front())) == 0) return true;
  const std::string_view cuda = word.seek("cuda") ? word.rest() : std::string_view();
  if (log.version.empty()) {
    log.version = std::string(version);
    log.cuda_version = std::string(cuda);
  } else if (log.version != version && !log.version.starts_with(version)) {
    log.notes.push_back(
        {ImportNote::Kind::kSuspect,
         message.line,
         fmt::format("NCCL {} here, {} above: ranks of different versions may price differently, or "
                     "the log is of several jobs",
                     version, log.version),
         {}});
  }
  return true;
}

bool read_setting(const Message& message, NcclLog& log) {
  static constexpr std::string_view kMark = " set by environment to ";
  const std::size_t at = message.text.find(kMark);
  if (at == std::string::npos) return false;
  LogSetting setting;
  setting.name = std::string(log_text::trimmed(std::string_view(message.text).substr(0, at)));
  std::string_view value = log_text::trimmed(std::string_view(message.text).substr(at + kMark.size()));
  // Numbers are printed with a full stop behind them, words without.
  if (value.ends_with('.') && log_text::whole_integer(value.substr(0, value.size() - 1)))
    value.remove_suffix(1);
  setting.value = std::string(value);
  setting.host = message.host;
  setting.line = message.line;
  if (message.interrupted || setting.name.find(' ') != std::string::npos) {
    log.notes.push_back(
        {ImportNote::Kind::kSuspect, message.line, "a variable's line is torn: left out", {}});
    return true;
  }
  bool differs = false;
  for (const LogSetting& old : log.environment) {
    if (old.name != setting.name) continue;
    if (old.value == setting.value && old.host == setting.host) return true;
    differs = differs || old.value != setting.value;
  }
  if (differs) {
    log.notes.push_back(
        {ImportNote::Kind::kSuspect,
         message.line,
         fmt::format("{} is {} here and something else on another rank", setting.name, setting.value),
         {}});
  }
  log.environment.push_back(std::move(setting));
  return true;
}

// "[0]mlx5_0:1/IB/SHARP" or "[0]eth2:192.0.2.1<0>".
bool read_nic(std::string_view word, LogNic& nic) {
  Cursor cursor(word);
  if (!cursor.skip("[")) return false;
  const auto index = cursor.integer();
  if (!index || *index < 0 || !cursor.skip("]")) return false;
  nic.index = *index;
  nic.name = std::string(cursor.until(":"));
  if (nic.name.empty() || !cursor.skip(":")) return false;
  if (word.ends_with('>')) return true;  // A socket's address.
  const auto port = cursor.integer();
  if (!port || !cursor.skip("/")) return false;
  nic.port = *port;
  nic.link = std::string(cursor.until("/"));
  nic.sharp = cursor.skip("/SHARP");
  return !nic.link.empty() && (cursor.empty() || cursor.rest().front() == '/');
}

bool read_nics(const Message& message, NcclLog& log) {
  Cursor cursor(message.text);
  if (!cursor.skip("NET/")) return false;
  LogNicList list;
  list.network = std::string(cursor.until(" :"));
  if (!cursor.skip(" : Using ")) return false;
  list.host = message.host;
  list.line = message.line;
  bool whole = !message.interrupted;
  for (cursor.blanks(); whole && !cursor.empty() && cursor.rest().front() != ';'; cursor.blanks()) {
    const std::string_view word = cursor.until(" \t;");
    LogNic nic;
    if (word == "[RO]") {
      list.relaxed_ordering = true;
    } else if (read_nic(word, nic)) {
      list.nics.push_back(std::move(nic));
    } else {
      whole = false;
    }
  }
  if (cursor.skip("; OOB ")) list.out_of_band = std::string(cursor.rest());
  if (!whole) {
    log.notes.push_back({ImportNote::Kind::kSuspect,
                         message.line,
                         fmt::format("the list of network cards is torn behind {} of them", list.nics.size()),
                         {}});
  }
  for (const LogNicList& old : log.nic_lists) {
    if (old.host != list.host || old.network != list.network) continue;
    if (old.nics == list.nics) return true;
    log.notes.push_back(
        {ImportNote::Kind::kSuspect,
         message.line,
         fmt::format("{} has two different lists of network cards (line {})", list.host, old.line),
         {}});
  }
  log.nic_lists.push_back(std::move(list));
  return true;
}

bool read_gpu_direct(const Message& message, NcclLog& log) {
  const std::size_t at = message.text.find("GPU Direct RDMA ");
  if (at == std::string::npos) return false;
  Cursor cursor(std::string_view(message.text).substr(at));
  cursor.skip("GPU Direct RDMA ");
  LogGpuDirect said;
  said.host = message.host;
  said.line = message.line;
  said.enabled = cursor.skip("Enabled");
  if (!said.enabled && !cursor.skip("Disabled")) return false;
  if (cursor.skip(" for GPU ")) said.gpu = std::string(cursor.until(" "));
  if (cursor.seek("HCA ")) said.nic = cursor.integer().value_or(-1);
  if (cursor.seek("(distance ")) said.distance = cursor.integer().value_or(-1);
  if (cursor.skip(" <= ") || cursor.skip(" > ")) said.limit = cursor.integer().value_or(-1);
  log.gpu_direct.push_back(std::move(said));
  return true;
}

bool tells_of_failure(const Message& message) {
  return message.warning || message.text.find("falling back to simple order") != std::string::npos ||
         message.text.find("Call to ibv_") != std::string::npos ||
         message.text.find("Net : Connection refused") != std::string::npos;
}

bool read_warning(const Message& message, NcclLog& log) {
  if (!tells_of_failure(message)) return false;
  const std::string_view text = log_text::trimmed(message.text);
  log.warnings.push_back({message.line, message.host, std::string(text)});
  if (text.find("falling back to simple order") != std::string_view::npos) {
    log.notes.push_back(
        {ImportNote::Kind::kSuspect, message.line,
         fmt::format("{}: NCCL's search failed, and it runs GPUs in order at 0.1 GB/s: look for a link "
                     "of 0 in the machine's tree",
                     text),
         "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints the tree; nvidia-smi nvlink -s the links"});
  }
  return true;
}

// Takes "name value" where it stands next; the value must be followed by something, or it may have been cut.
bool take_field(Cursor& cursor, std::string_view name, std::int32_t& target) {
  Cursor ahead = cursor;
  if (!ahead.skip(name)) return false;
  const auto value = ahead.integer();
  if (!value || !ahead.rest().starts_with(" ")) return false;
  target = *value;
  cursor = ahead;
  return true;
}

bool is_bus_id(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

bool count_field(std::string_view name, std::int32_t value, LogChannelCounts& counts) {
  if (name == "coll channels")
    counts.collective = value;
  else if (name == "collnet channels")
    counts.collnet = value;
  else if (name == "nvls channels")
    counts.nvls = value;
  else if (name == "p2p channels")
    counts.p2p = value;
  else if (name == "p2p channels per peer")
    counts.p2p_per_peer = value;
  else
    return false;
  return true;
}

}  // namespace

bool read_process_line(const Message& message, NcclLog& log) {
  return read_warning(message, log) || read_version(message, log) || read_setting(message, log) ||
         read_nics(message, log) || read_gpu_direct(message, log);
}

bool read_comm_line(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.seek("comm 0x") || message.text.find(" rank ") == std::string::npos) return false;
  const std::string pointer(cursor.word());
  std::int32_t rank = -1, count = 0;
  if (!take_field(cursor, " rank ", rank)) return false;
  if (!take_field(cursor, " nranks ", count) && !take_field(cursor, " nRanks ", count)) {
    notes.push_back(
        {ImportNote::Kind::kSuspect, message.line, "a communicator's line is torn: left out", {}});
    return true;
  }
  if (rank < 0 || rank >= count) {
    notes.push_back({ImportNote::Kind::kSuspect,
                     message.line,
                     fmt::format("rank {} of {} ranks: left out", rank, count),
                     {}});
    return true;
  }
  view.rank = rank;
  view.rank_count = count;
  if (pointer.find("...") == std::string::npos) view.pointer = pointer;
  take_field(cursor, " nNodes ", view.node_count);
  std::int32_t local_ranks = 0;
  take_field(cursor, " localRanks ", local_ranks);
  take_field(cursor, " localRank ", view.local_rank);
  if (cursor.skip(" MNNVL ")) view.mnnvl = cursor.integer().value_or(-1);
  take_field(cursor, " cudaDev ", view.cuda_device);
  take_field(cursor, " nvmlDev ", view.nvml_device);
  if (cursor.skip(" busId ")) {
    const std::string_view id = cursor.word();
    if (is_bus_id(id) && !cursor.empty()) view.bus_id = std::string(id);
  }
  if (cursor.skip(" commId ")) {
    const std::string_view id = cursor.word();
    if (!cursor.empty() && id.starts_with("0x") && id.find("...") == std::string_view::npos)
      view.comm_id = std::string(id);
  }
  view.closed = view.closed || message.text.find("COMPLETE") != std::string::npos;
  return true;
}

bool read_counts(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (cursor.skip("threadThresholds ")) {
    std::vector<std::int32_t> values;
    while (const auto value = cursor.integer()) {
      values.push_back(*value);
      if (!cursor.skip("/") && !cursor.skip(" | ")) break;
    }
    if (!cursor.empty() || message.interrupted || values.size() < 6) {
      notes.push_back(
          {ImportNote::Kind::kSuspect, message.line, "the thread thresholds are torn: left out", {}});
    } else {
      view.thread_thresholds = std::move(values);
    }
    return true;
  }
  if (message.text.find(" coll channels") == std::string::npos) return false;
  LogChannelCounts counts;
  bool whole = !message.interrupted;
  while (whole && !cursor.empty()) {
    const auto value = cursor.integer();
    cursor.blanks();
    whole = value && *value >= 0 && count_field(log_text::trimmed(cursor.until(",")), *value, counts);
    if (!cursor.skip(", ")) cursor.skip(" ");
  }
  if (!whole || message.text.find("per peer") == std::string::npos) {
    notes.push_back(
        {ImportNote::Kind::kSuspect, message.line, "the counts of channels are torn: left out", {}});
    return true;
  }
  view.channel_counts = counts;
  view.closed = true;
  return true;
}

bool read_timings(const Message& message, View& view, std::vector<ImportNote>& notes) {
  const std::size_t at = message.text.find(" timings");
  const std::size_t total = message.text.find("total ");
  if (at == std::string::npos || total == std::string::npos) return false;
  LogTiming timing;
  timing.what = message.text.substr(0, at);
  timing.rank = view.rank;
  Cursor cursor(message.text);
  if (cursor.seek(": rank ")) timing.rank = cursor.integer().value_or(view.rank);
  cursor = Cursor(std::string_view(message.text).substr(total));
  cursor.skip("total ");
  const auto seconds = cursor.number();
  bool whole = seconds && cursor.skip(" (");
  timing.total_s = seconds.value_or(0);
  while (whole && !cursor.skip(")")) {
    const std::string name(cursor.word());
    cursor.blanks();
    const auto phase = cursor.number();
    whole = phase && !name.empty();
    if (whole) timing.phases_s.emplace_back(name, *phase);
    cursor.skip(", ");
  }
  if (whole)
    view.timings.push_back(std::move(timing));
  else
    notes.push_back({ImportNote::Kind::kSuspect, message.line, "the timings are torn: left out", {}});
  return true;
}

}  // namespace orrery::nccl_log
