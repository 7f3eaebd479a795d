// The tree under "=== System" and the table of paths.
#include "topology/import/nccl_log_system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "topology/import/log_text.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;

constexpr std::array<std::string_view, 9> kKinds{"GPU", "PCI", "NVS", "CPU", "NIC",
                                                 "NET", "GIN", "RMA", "DEV"};
// XGMI is AMD's NVLink.
constexpr std::array<std::string_view, 7> kLinks{"LOC", "NVL", "C2C", "PCI", "SYS", "NET", "XGMI"};

bool known_kind(std::string_view kind) { return std::ranges::find(kKinds, kind) != kKinds.end(); }

// "CPU/0-1", taken off the cursor.
bool take_node_id(Cursor& cursor, LogNodeId& id) {
  const Cursor before = cursor;
  id.kind = std::string(cursor.until("/ "));
  const auto first = known_kind(id.kind) && cursor.skip("/") ? cursor.hex() : std::nullopt;
  if (!first) {
    cursor = before;
    return false;
  }
  id.system = 0;
  id.id = *first;
  if (cursor.skip("-")) {
    const auto second = cursor.hex();
    if (!second || *first > 0xffff) {
      cursor = before;
      return false;
    }
    id.system = static_cast<std::int32_t>(*first);
    id.id = *second;
  }
  return true;
}

// The last node above that stands further left, the tree being drawn with blanks.
std::int32_t parent_of(std::int32_t indent, const std::vector<std::int32_t>& indents) {
  for (std::size_t i = indents.size(); i-- > 0;) {
    if (indents[i] < indent) return static_cast<std::int32_t>(i);
  }
  return -1;
}

bool take_link(Cursor& cursor, LogSystemNode& node) {
  node.link = std::string(cursor.until("[ "));
  if (std::ranges::find(kLinks, node.link) == kLinks.end() || !cursor.skip("[")) return false;
  const auto rate = cursor.number();
  if (!rate || *rate < 0 || !cursor.skip("] - ")) return false;
  node.gb_per_s = *rate;
  return true;
}

// "GPU/0-806000 (0)", to the end of the line.
bool take_node(Cursor& cursor, LogSystemNode& node) {
  if (!take_node_id(cursor, node.id)) return false;
  if (cursor.skip(" (")) {
    node.detail = std::string(cursor.until(")"));
    if (!cursor.skip(")")) return false;
  }
  cursor.blanks();
  return cursor.empty();
}

// What may hang off what: a tree whose blanks were lost puts everything under the CPU.
bool plausible(const LogSystemNode& node, const LogSystem& system) {
  if (node.parent < 0) return node.id.kind == "CPU";
  const std::string& above = system.nodes[static_cast<std::size_t>(node.parent)].id.kind;
  if (node.link == "NVL") return above == "GPU" || above == "DEV";
  if (node.link == "NET") return above == "NIC";
  return above != "NET" && above != "GIN" && above != "RMA";
}

}  // namespace

bool parse_node_id(std::string_view text, LogNodeId& id) {
  Cursor cursor(text);
  return take_node_id(cursor, id) && cursor.empty();
}

bool read_system_line(std::string_view text, std::int32_t line, LogSystem& system,
                      std::vector<std::int32_t>& indents, std::vector<ImportNote>& notes) {
  Cursor cursor(text);
  cursor.blanks();
  const auto indent = static_cast<std::int32_t>(text.size() - cursor.rest().size());
  LogSystemNode node;
  node.line = line;
  const bool child = cursor.skip("+ ");
  if (!child && !text.starts_with("CPU/")) return false;
  if (!(child ? take_link(cursor, node) && take_node(cursor, node) : take_node(cursor, node))) {
    notes.push_back({ImportNote::Kind::kSuspect,
                     line,
                     "a line of the machine's tree is torn: left out with what hangs off it",
                     {}});
    return true;
  }
  if (child) {
    node.parent = parent_of(indent + 1, indents);
    if (node.parent < 0) {
      notes.push_back(
          {ImportNote::Kind::kAssumed,
           line,
           "the machine's tree begins below its CPU: everything is put under CPU 0 of unknown kind",
           {}});
      LogSystemNode cpu;
      cpu.id = {"CPU", node.id.system, 0};
      cpu.line = line;
      system.nodes.push_back(cpu);
      indents.push_back(0);
      node.parent = 0;
    }
  }
  node.reference = node.link == "NVL" || node.link == "XGMI" || node.link == "C2C" || node.link == "SYS" ||
                   (child && node.id.kind == "CPU");
  if (!plausible(node, system)) {
    notes.push_back(
        {ImportNote::Kind::kSuspect, line,
         fmt::format("{}/{:x} hangs where it can't: lines are missing above, or the indentation was lost",
                     node.id.kind, node.id.id),
         "copy the log without changing its blanks"});
  }
  // A CPU's own links stand in its column, below it.
  indents.push_back(child ? indent + 1 : indent);
  system.nodes.push_back(std::move(node));
  return true;
}

bool read_path_line(std::string_view text, std::int32_t line, LogSystem& system,
                    std::vector<ImportNote>& notes) {
  Cursor cursor(text);
  LogNodeId from;
  if (!take_node_id(cursor, from) || !cursor.skip(" :")) return false;
  for (cursor.blanks(); !cursor.empty(); cursor.blanks()) {
    LogPath path;
    path.from = from;
    bool whole = take_node_id(cursor, path.to) && cursor.skip(" (");
    const auto hops = whole ? cursor.integer() : std::nullopt;
    whole = hops && cursor.skip("/");
    const auto rate = whole ? cursor.number() : std::nullopt;
    whole = rate && cursor.skip("/");
    const auto path_class = whole ? nccl::parse_path_class(cursor.until(")")) : std::nullopt;
    if (!path_class || !cursor.skip(")")) {
      notes.push_back({ImportNote::Kind::kSuspect,
                       line,
                       fmt::format("the paths of {}/{:x} are cut off", from.kind, from.id),
                       {}});
      return true;
    }
    path.hops = *hops;
    path.gb_per_s = *rate;
    path.path = *path_class;
    system.paths.push_back(std::move(path));
  }
  return true;
}

}  // namespace orrery::nccl_log
