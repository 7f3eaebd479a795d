// Rings, trees and NVLS heads in NCCL's log, in the wording of every version since 2.4.
#include <fmt/format.h>

#include <algorithm>

#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_view.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::Cursor;

// More ranks and channels than any job has; a damaged number beyond them is no rank.
constexpr std::int32_t kMostRanks = 1 << 20;
constexpr std::int32_t kMostChannels = 1024;

bool is_rank(std::int32_t value) { return value >= 0 && value < kMostRanks; }
bool is_peer(std::int32_t value) { return value == -1 || is_rank(value); }
bool is_channel(std::int32_t value) { return value >= 0 && value < kMostChannels; }

void suspect(std::vector<ImportNote>& notes, std::int32_t line, std::string text) {
  notes.push_back({ImportNote::Kind::kSuspect, line, std::move(text), {}});
}

// Ranks up to the end of a line. `cut`: dots, or anything that is no rank, end it early.
std::vector<std::int32_t> read_ranks(Cursor& cursor, bool& cut) {
  std::vector<std::int32_t> ranks;
  for (cursor.blanks(); !cursor.empty(); cursor.blanks()) {
    const auto rank = cursor.integer();
    const bool ends = cursor.empty() || cursor.rest().front() == ' ' || cursor.rest().front() == '\t';
    if (!rank || !ends || !is_rank(*rank)) {
      cut = true;
      // A number that runs into something else may have lost digits.
      return ranks;
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

bool read_down(Cursor& cursor, std::array<std::int32_t, 3>& down) {
  for (std::size_t i = 0; i < down.size(); ++i) {
    if (i > 0 && !cursor.skip("/")) return i == 2;  // Two children up to 2.4.
    const auto rank = cursor.integer();
    if (!rank || !is_peer(*rank)) return false;
    down[i] = *rank;
  }
  return true;
}

bool read_peer(Cursor& cursor, std::int32_t& peer) {
  const auto rank = cursor.integer();
  if (!rank || !is_peer(*rank)) return false;
  peer = *rank;
  return true;
}

// d0/d1/d2->me->up, or up to 2.4 up->me->d0/d1/d2: the children are the part with slashes.
bool read_tree_shape(Cursor& cursor, LogTree& tree) {
  const Cursor before = cursor;
  if (read_down(cursor, tree.down) && cursor.skip("->")) {
    return read_peer(cursor, tree.rank) && cursor.skip("->") && read_peer(cursor, tree.up);
  }
  cursor = before;
  return read_peer(cursor, tree.up) && cursor.skip("->") && read_peer(cursor, tree.rank) &&
         cursor.skip("->") && read_down(cursor, tree.down);
}

// The second tree of "d0/d1/d2->me->up|up->me->d0/d1/d2": data goes down what it came up by.
bool read_down_tree(Cursor& cursor, const LogTree& up_tree, bool& same) {
  LogTree tree;
  if (!read_tree_shape(cursor, tree)) return false;
  same = tree.rank == up_tree.rank && tree.up == up_tree.up && tree.down == up_tree.down;
  return true;
}

bool ends_entry(const Cursor& cursor) {
  return cursor.empty() || cursor.rest().front() == ' ' || cursor.rest().front() == '\t';
}

void add_tree(const LogTree& tree, std::int32_t line, View& view, std::vector<ImportNote>& notes) {
  for (const LogTree& old : view.trees) {
    if (old.channel != tree.channel || old.rank != tree.rank) continue;
    if (old.up != tree.up || old.down != tree.down) {
      suspect(notes, line,
              fmt::format("rank {} has two different trees on channel {}: the first one is kept", tree.rank,
                          tree.channel));
    }
    return;
  }
  view.trees.push_back(tree);
}

// "Tree c : up -> me -> d0/d1/d2" (GRAPH): says what the rank's Trees line says too.
bool read_single_tree(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("Tree ")) return false;
  LogTree tree;
  const auto channel = cursor.integer();
  if (!channel) return false;
  tree.channel = *channel;
  if (is_channel(*channel) && cursor.skip(" : ") && read_peer(cursor, tree.up) && cursor.skip(" -> ") &&
      read_peer(cursor, tree.rank) && cursor.skip(" -> ") && read_down(cursor, tree.down) &&
      ends_entry(cursor) && tree.rank >= 0 && !message.interrupted) {
    // Trees of channels beyond those in use are the second halves of the double tree: Trees lines decide.
    add_tree(tree, message.line, view, notes);
    if (view.rank < 0 && message.has_prefix) view.rank = tree.rank;
  } else {
    suspect(notes, message.line, "a tree's line is torn: left out");
  }
  return true;
}

}  // namespace

bool read_ring_line(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("Channel ")) return false;
  const auto channel = cursor.integer();
  if (!channel || !cursor.skip("/")) return false;
  const auto count = cursor.integer();
  if (!count || !cursor.skip(" :")) return false;
  // "Channel 00/1 : 3[3] -> 4[4] via …" is a connection.
  if (message.text.find('[') != std::string::npos || message.text.find("->") != std::string::npos)
    return false;
  if (!is_channel(*channel) || *count <= *channel || !is_channel(*count - 1)) {
    suspect(notes, message.line, "a ring's line with an impossible channel: left out");
    return true;
  }
  LogRing ring;
  ring.channel = *channel;
  ring.line = message.line;
  bool cut = false;
  ring.ranks = read_ranks(cursor, cut);
  ring.complete = !cut && !message.interrupted && !ring.ranks.empty();
  // Only rank 0 prints rings.
  if (view.rank < 0 && message.has_prefix && !ring.ranks.empty() && ring.ranks.front() == 0) view.rank = 0;
  if (view.ring_count != 0 && view.ring_count != *count) {
    suspect(notes, message.line,
            fmt::format("channel {} of {}, where earlier lines say {} channels", *channel, *count,
                        view.ring_count));
  }
  view.ring_count = std::max(view.ring_count, *count);
  const auto same = std::ranges::find(view.rings, *channel, &LogRing::channel);
  if (same == view.rings.end()) {
    view.rings.push_back(ring);
  } else if (same->ranks != ring.ranks) {
    suspect(notes, message.line,
            fmt::format("channel {} has another ring in line {}: that one is kept as incomplete", *channel,
                        same->line));
    same->complete = false;
  }
  return true;
}

bool read_ring_link(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("Ring ") || message.text.find('[') != std::string::npos) return false;
  const auto channel = cursor.integer();
  if (!channel || !cursor.skip(" : ")) return false;
  RingLink link;
  link.channel = *channel;
  link.line = message.line;
  const auto previous = cursor.integer();
  const bool first = previous && cursor.skip(" -> ");
  const auto rank = first ? cursor.integer() : std::nullopt;
  const bool second = rank && cursor.skip(" -> ");
  const auto next = second ? cursor.integer() : std::nullopt;
  if (!next || !ends_entry(cursor) || message.interrupted || !is_rank(*previous) || !is_rank(*rank) ||
      !is_rank(*next) || !is_channel(*channel)) {
    suspect(notes, message.line, "a rank's ring line is torn: left out");
    return true;
  }
  link.previous = *previous;
  link.rank = *rank;
  link.next = *next;
  view.ring_links.push_back(link);
  if (view.rank < 0 && message.has_prefix) view.rank = link.rank;
  return true;
}

bool read_trees(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("Trees [")) return read_single_tree(message, view, notes);
  cursor = Cursor(std::string_view(message.text).substr(6));
  cursor.blanks();
  while (!cursor.empty()) {
    LogTree tree;
    const bool opens = cursor.skip("[");
    const auto channel = opens ? cursor.integer() : std::nullopt;
    bool same = true;
    const bool read = channel && is_channel(*channel) && cursor.skip("] ") && read_tree_shape(cursor, tree) &&
                      (!cursor.skip("|") || read_down_tree(cursor, tree, same)) && ends_entry(cursor) &&
                      tree.rank >= 0;
    cursor.blanks();
    if (!read || (cursor.empty() && message.interrupted)) {
      suspect(notes, message.line,
              fmt::format("a rank's trees are cut off behind {} channels", view.trees.size()));
      return true;
    }
    if (!same)
      suspect(notes, message.line, fmt::format("channel {}: the tree down isn't the tree up", *channel));
    tree.channel = *channel;
    add_tree(tree, message.line, view, notes);
    if (view.rank < 0 && message.has_prefix) view.rank = tree.rank;
  }
  return true;
}

bool read_nvls_head(const Message& message, View& view, std::vector<ImportNote>& notes) {
  Cursor cursor(message.text);
  if (!cursor.skip("NVLS Head ")) return false;
  const auto head = cursor.integer();
  bool cut = !head || !is_channel(*head) || !cursor.skip(":");
  std::vector<std::int32_t> ranks;
  if (!cut) ranks = read_ranks(cursor, cut);
  if (cut || message.interrupted || ranks.empty()) {
    suspect(notes, message.line, "an NVLS head's line is torn: left out");
    return true;
  }
  if (view.nvls_heads.size() <= static_cast<std::size_t>(*head)) view.nvls_heads.resize(*head + 1);
  std::vector<std::int32_t>& old = view.nvls_heads[static_cast<std::size_t>(*head)];
  if (!old.empty() && old != ranks)
    suspect(notes, message.line, fmt::format("two different NVLS heads {}", *head));
  if (old.empty()) old = std::move(ranks);
  return true;
}

}  // namespace orrery::nccl_log
