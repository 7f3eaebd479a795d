// "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0(4)/GDRDMA", and how older versions say it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_view.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;

bool is_device(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == ':';
  });
}

// "3[8a000]".
bool read_end(Cursor& cursor, std::int32_t& rank, std::string& device) {
  const auto number = cursor.integer();
  if (!number || *number < 0 || !cursor.skip("[")) return false;
  rank = *number;
  device = std::string(cursor.until("] "));
  return is_device(device) && cursor.skip("]");
}

// "NET/IB/0(4)/GDRDMA(PCI)/Shared". The plugin's name may hold blanks ("AWS Libfabric").
bool read_network(std::string_view via, LogConnection& connection) {
  Cursor cursor(via);
  if (!cursor.skip("NET/")) return false;
  connection.transport = LogTransport::kNet;
  connection.network = std::string(cursor.until("/"));
  if (!cursor.skip("/")) return false;
  const auto device = cursor.integer();
  if (!device || *device < 0) return false;
  connection.net_device = *device;
  if (cursor.skip("(")) {
    const auto proxy = cursor.integer();
    if (!proxy || *proxy < 0 || !cursor.skip(")")) return false;
    connection.proxy_rank = *proxy;
  }
  connection.gpu_direct_rdma = cursor.rest().starts_with("/GDRDMA");
  static constexpr std::string_view kKnown[] = {"/GDRDMA(PCI)", "/GDRDMA", "/Shared", "/NVLSHM"};
  while (!cursor.empty()) {
    const bool known =
        std::ranges::any_of(kKnown, [&](std::string_view suffix) { return cursor.skip(suffix); });
    if (!known) return false;
  }
  return true;
}

bool read_local(std::string_view via, LogConnection& connection) {
  struct Wording {
    std::string_view text;
    LogTransport transport;
  };
  static constexpr Wording kWordings[] = {
      {"P2P/direct pointer", LogTransport::kP2pDirect}, {"P2P/IPC", LogTransport::kP2pIpc},
      {"P2P/CUMEM", LogTransport::kP2pCumem},           {"P2P/MNNVL", LogTransport::kP2pMnnvl},
      {"P2P/indirect/", LogTransport::kP2pIndirect},    {"SHM/", LogTransport::kShm},
      {"direct shared memory", LogTransport::kShm},
  };
  for (const Wording& wording : kWordings) {
    if (!via.starts_with(wording.text)) continue;
    connection.transport = wording.transport;
    const std::string_view rest = via.substr(wording.text.size());
    connection.read = rest.find("/read") != std::string_view::npos;
    if (wording.transport == LogTransport::kShm && via.starts_with("SHM/")) {
      return rest == "direct/direct" || rest == "CE/CE" || rest == "direct/CE" || rest == "CE/direct" ||
             rest == "CE";
    }
    if (wording.transport == LogTransport::kP2pIndirect) return rest.find(']') != std::string_view::npos;
    return rest.empty() || rest == "/read" || rest == "/CE" || rest == "/read/CE";
  }
  return false;
}

}  // namespace

bool read_connection(const Message& message, std::vector<LogConnection>& connections,
                     std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("Channel ") && !cursor.skip("Ring ")) return false;
  LogConnection connection;
  connection.line = message.line;
  const auto channel = cursor.integer();
  if (!channel || *channel < 0) return false;
  connection.channel = *channel;
  if (cursor.skip("/")) {
    const auto index = cursor.integer();
    if (!index || *index < 0) return false;
    connection.index = *index;
  }
  if (!cursor.skip(" : ")) return false;
  if (!read_end(cursor, connection.from, connection.from_device)) return false;
  if (!cursor.skip(" -> ")) return false;
  bool whole = read_end(cursor, connection.to, connection.to_device);
  if (whole && cursor.skip(" [send]")) connection.send = true;
  if (whole && cursor.skip(" [receive]")) connection.send = false;
  whole = whole && cursor.skip(" via ") && !message.interrupted;
  if (whole) {
    connection.via = std::string(log_text::trimmed(cursor.rest()));
    whole = connection.via.starts_with("NET/") ? read_network(connection.via, connection)
                                               : read_local(connection.via, connection);
    whole = whole || connection.via.starts_with("COLLNET/");
  }
  if (whole) {
    connections.push_back(std::move(connection));
  } else {
    notes.push_back({ImportNote::Kind::kSuspect,
                     message.line,
                     "a connection's line is torn, or worded in a way that isn't known: left out",
                     {}});
  }
  return true;
}

}  // namespace orrery::nccl_log
