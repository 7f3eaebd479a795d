#include "topology/import/nccl_log.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_view.hpp"

namespace orrery {
namespace {

using nccl_log::Message;
using nccl_log::View;

bool starts(const Message& message, std::string_view head) {
  return std::string_view(message.text).starts_with(head);
}

// "comm 0x55… rank" → "55…"; empty for other messages, and for pointers that were blotted out.
std::string pointer_of(const Message& message) {
  log_text::Cursor cursor(message.text);
  if (!cursor.seek("comm 0x")) return {};
  const std::string_view pointer = cursor.word();
  return cursor.rest().starts_with(" rank ") && pointer.find("...") == std::string_view::npos
             ? std::string(pointer)
             : std::string();
}

// The channel of "Channel cc/CC : r r r", −1 for anything else.
std::int32_t ring_channel(const Message& message) {
  log_text::Cursor cursor(message.text);
  if (!cursor.skip("Channel ") || message.text.find('[') != std::string::npos) return -1;
  const auto channel = cursor.integer();
  return channel && cursor.rest().starts_with("/") ? *channel : -1;
}

// The rank that a Trees line speaks for, −1 for anything else.
std::int32_t tree_rank(const Message& message) {
  View probe;
  std::vector<ImportNote> ignored;
  if (!starts(message, "Trees [") || !nccl_log::read_trees(message, probe, ignored)) return -1;
  return probe.trees.empty() ? -1 : probe.trees.front().rank;
}

// True where a thread begins with its next communicator.
bool starts_anew(const Message& message, const View& view) {
  const std::string pointer = pointer_of(message);
  if (!pointer.empty() && !view.pointer.empty()) return pointer != view.pointer;
  if (starts(message, "=== System : "))
    return !view.systems.empty() || !view.rings.empty() || !view.trees.empty();
  if (const std::int32_t channel = ring_channel(message); channel >= 0) {
    const bool again = std::ranges::find(view.rings, channel, &LogRing::channel) != view.rings.end();
    return again && view.closed;
  }
  if (const std::int32_t rank = tree_rank(message); rank >= 0 && !view.trees.empty()) {
    return rank != view.trees.front().rank || view.closed;
  }
  return false;
}

class Reader {
 public:
  explicit Reader(NcclLog& log) : log_(log) {}

  void read(const Message& message) {
    if (read_process_line(message, log_)) return;
    if (const std::string pointer = pointer_of(message); !pointer.empty() && ends_a_comm(message, pointer))
      return;
    if (take_operation(message)) return;
    std::vector<LogConnection> connections;
    if (nccl_log::read_connection(message, connections, log_.notes)) {
      if (!connections.empty()) add_connection(message, connections.front());
      return;
    }
    if (!is_of_a_comm(message)) return;
    View& view = view_of(message);
    if (!read_comm_message(message, view)) note_unread(message);
  }

  // Those that say anything: a line of a subsystem that isn't kept may have opened one.
  std::vector<View> views() {
    std::erase_if(views_, [](const View& view) {
      return view.rank < 0 && view.rings.empty() && view.trees.empty() && view.connections.empty() &&
             view.systems.empty() && view.graphs.graphs.empty() && view.tuning.empty() &&
             view.choices.empty() && view.timings.empty() && !view.last_operation &&
             view.nvls_heads.empty() && !view.channel_counts && view.thread_thresholds.empty();
    });
    return std::move(views_);
  }

 private:
  // Messages that open or fill a view; others (plugins, affinities, memory) say nothing that is kept.
  static bool is_of_a_comm(const Message& message) {
    static constexpr std::string_view kHeads[] = {
        "Channel ", "Ring ", "Trees ", "Tree ", "NVLS Head", "=== System",      "Pattern ",
        "CPU/",     "GPU/",  "NET/",   "GIN/",  "NVS/",      "threadThresholds"};
    const std::string_view text = log_text::trimmed(message.text);
    for (const std::string_view head : kHeads) {
      if (text.starts_with(head))
        return text.find(" : No device") == std::string_view::npos &&
               text.find("Plugin") == std::string_view::npos;
    }
    return text.starts_with("+ ") || text.find(" coll channels") != std::string_view::npos ||
           text.find(" timings") != std::string_view::npos ||
           text.find("comm 0x") != std::string_view::npos ||
           text.find(" Bytes -> Algo ") != std::string_view::npos ||
           text.find('|') != std::string_view::npos || text.starts_with("Connected all rings") ||
           is_graph_channel(text);
  }

  static bool is_graph_channel(std::string_view text) {
    log_text::Cursor cursor(text);
    return cursor.integer() && cursor.skip(" : ") &&
           (cursor.rest().starts_with("GPU/") || cursor.rest().starts_with("NET/"));
  }

  bool read_comm_message(const Message& message, View& view) {
    using namespace nccl_log;
    if (read_ring_line(message, view, log_.notes) || read_ring_link(message, view, log_.notes) ||
        read_trees(message, view, log_.notes) || read_nvls_head(message, view, log_.notes) ||
        read_comm_line(message, view, log_.notes) || read_counts(message, view, log_.notes) ||
        read_timings(message, view, log_.notes) ||
        read_choice(message.text, message.line, view.choices, log_.notes) || read_machine(message, view))
      return true;
    if (starts(message, "Connected all rings")) {
      view.connected_rings = true;
      return true;
    }
    if (message.text.find('|') == std::string::npos) return false;
    if (view.tuning.empty()) view.tuning.emplace_back();
    return read_tuning_line(message.text, message.line, columns_[&view - views_.data()], view.tuning.front(),
                            log_.notes);
  }

  bool read_machine(const Message& message, View& view) {
    const std::size_t at = static_cast<std::size_t>(&view - views_.data());
    if (starts(message, "=== System : ")) {
      log_text::Cursor cursor(message.text);
      LogSystem system;
      system.host = message.host;
      system.line = message.line;
      if (cursor.seek("maxBw ") || cursor.seek("maxWidth "))
        system.max_gb_per_s = cursor.number().value_or(0);
      if (cursor.seek("totalBw ") || cursor.seek("totalWidth "))
        system.total_gb_per_s = cursor.number().value_or(0);
      view.systems.push_back(std::move(system));
      indents_[at].clear();
      return true;
    }
    const bool tree = log_text::trimmed(message.text).starts_with("+ ");
    const bool table = message.text.find(" :GPU/") != std::string::npos ||
                       message.text.find(" :NVS/") != std::string::npos ||
                       message.text.find(" :CPU/") != std::string::npos ||
                       message.text.find(" :NET/") != std::string::npos;
    if (view.systems.empty() && (tree || table || starts(message, "CPU/"))) begin_midway(message, view);
    if (view.systems.empty()) return read_graph(message, view);
    LogSystem& system = view.systems.back();
    return (table && nccl_log::read_path_line(message.text, message.line, system, log_.notes)) ||
           nccl_log::read_system_line(message.text, message.line, system, indents_[at], log_.notes) ||
           read_graph(message, view);
  }

  void begin_midway(const Message& message, View& view) {
    log_.notes.push_back(
        {ImportNote::Kind::kMissing, message.line,
         "the heading of the machine's tree ('=== System') isn't in the log: the tree may lack its "
         "beginning",
         "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints the whole of it"});
    LogSystem system;
    system.host = message.host;
    system.line = message.line;
    view.systems.push_back(std::move(system));
  }

  bool read_graph(const Message& message, View& view) {
    view.graphs.host = message.host;
    return nccl_log::read_pattern_line(message.text, message.line, view.graphs, log_.notes) ||
           nccl_log::read_graph_channel(message.text, message.line, view.graphs, log_.notes);
  }

  void note_unread(const Message& message) {
    static constexpr std::string_view kHeads[] = {"Channel ",   "Ring ", "Trees ", "Tree ",
                                                  "=== System", "CPU/",  "GPU/",   "+ "};
    const std::string_view text = log_text::trimmed(message.text);
    for (const std::string_view head : kHeads) {
      if (!text.starts_with(head)) continue;
      log_.notes.push_back({ImportNote::Kind::kSuspect,
                            message.line,
                            "a message about rings, trees or the machine is torn: left out",
                            {}});
      return;
    }
  }

  // Any thread of the process may enter an operation; one of a communicator that the log hasn't shown says
  // nothing of who its ranks are.
  bool take_operation(const Message& message) {
    std::string pointer;
    std::optional<LogOperation> operation = nccl_log::read_operation(message, pointer);
    if (!operation) return false;
    for (auto view = views_.rbegin(); view != views_.rend(); ++view) {
      if (view->host != message.host || view->pid != message.pid || pointer.empty() ||
          view->pointer != pointer)
        continue;
      if (!view->last_operation || view->last_operation->number <= operation->number)
        view->last_operation = std::move(operation);
      return true;
    }
    return true;
  }

  // "comm … - Destroy COMPLETE" comes from any thread of the process, after all else.
  bool ends_a_comm(const Message& message, const std::string& pointer) {
    if (message.text.find("Destroy COMPLETE") == std::string::npos &&
        message.text.find("Abort COMPLETE") == std::string::npos)
      return false;
    for (View& view : views_) {
      if (view.host != message.host || view.pid != message.pid || view.pointer != pointer) continue;
      view.ended = true;
      return nccl_log::read_comm_line(message, view, log_.notes);
    }
    return false;
  }

  // A connection is said by its sender, or by its receiver; the thread that says it may be a helper of the
  // rank's.
  void add_connection(const Message& message, const LogConnection& connection) {
    const std::int32_t rank = connection.send == false ? connection.to : connection.from;
    View* const owner = thread_of(message, rank);
    View& view = owner != nullptr ? *owner : open_view(message);
    if (view.rank < 0 && message.has_prefix) view.rank = rank;
    view.connections.push_back(connection);
    if (!view.connected_rings) view.ring_connections = view.connections.size();
  }

  View* thread_of(const Message& message, std::int32_t rank) {
    const auto own = threads_.find(key(message));
    if (own != threads_.end()) {
      View& view = views_[own->second];
      if (!message.has_prefix || view.rank < 0 || view.rank == rank) return &view;
    }
    for (auto view = views_.rbegin(); view != views_.rend(); ++view) {
      if (view->has_prefix && view->host == message.host && view->pid == message.pid && view->rank == rank)
        return &*view;
    }
    return nullptr;
  }

  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int32_t>;
  static Key key(const Message& message) { return {message.host, message.pid, message.tid, message.device}; }

  View& view_of(const Message& message) {
    const auto own = threads_.find(key(message));
    if (own != threads_.end() && (!message.has_prefix || !starts_anew(message, views_[own->second])))
      return views_[own->second];
    return open_view(message);
  }

  View& open_view(const Message& message) {
    View view;
    view.host = message.host;
    view.pid = message.pid;
    view.tid = message.tid;
    view.device = message.device;
    view.has_prefix = message.has_prefix;
    view.line = message.line;
    threads_[key(message)] = views_.size();
    views_.push_back(std::move(view));
    indents_.emplace_back();
    columns_.emplace_back();
    return views_.back();
  }

  NcclLog& log_;
  std::vector<View> views_;
  std::vector<std::vector<std::int32_t>> indents_;  // Of each view: the columns of its tree's lines.
  std::vector<nccl_log::TuningColumns> columns_;    // Of each view: its table's present block.
  std::map<Key, std::size_t> threads_;
};

}  // namespace

NcclLog read_nccl_log(std::string_view text, const std::string& file) {
  NcclLog log;
  log.file = file;
  const std::vector<Message> messages = nccl_log::messages(text, log.notes);
  if (messages.empty()) {
    fail(ErrorKind::kInput,
         "{}: no line of NCCL's debug log ('host:process:thread [0] NCCL INFO …'); run the job with "
         "NCCL_DEBUG=INFO and "
         "NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING and give its output",
         file);
  }
  Reader reader(log);
  for (const Message& message : messages) reader.read(message);
  for (std::vector<View>& group : nccl_log::group_views(reader.views(), log.notes)) {
    log.comms.push_back(nccl_log::join_views(std::move(group), log.notes));
  }
  if (log.version.empty()) {
    log.notes.push_back(
        {ImportNote::Kind::kMissing, 0, "the log doesn't say NCCL's version",
         "NCCL_DEBUG=VERSION prints it; python -c 'import torch; print(torch.cuda.nccl.version())' too"});
  }
  std::ranges::stable_sort(log.notes, {}, &ImportNote::line);
  return log;
}

}  // namespace orrery
