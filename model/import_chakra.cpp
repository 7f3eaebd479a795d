// Nodes of Chakra traces → Program: an order in which they could have been issued, streams, what each node
// becomes.

#include "model/import_chakra.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/units.hpp"
#include "model/import_chakra_trace.hpp"

namespace orrery {
namespace {

constexpr std::int32_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostMembers = std::int64_t{1} << 26;  // Ranks on all axes together.
constexpr std::size_t kMostStreams = 4096;
constexpr std::size_t kLongestName = 200;
constexpr std::int64_t kBarrierBytes = 4;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 55;

// By stream: the last instruction to wait for. An in-order stream makes the others superfluous.
using Waits = std::map<std::int32_t, std::int32_t>;
constexpr std::size_t kMostWaits = 50'000'000;  // Of all nodes together.

void join(Waits& into, const Waits& other) {
  for (const auto& [stream, instruction] : other) {
    std::int32_t& last = into.try_emplace(stream, -1).first->second;
    last = std::max(last, instruction);
  }
}

// What all ranks' traces share: labels, kernels, axes.
class ChakraProgram {
 public:
  ChakraProgram(const ChakraOptions& options, std::int32_t ranks) : options_(options), ranks_(ranks) {}

  LabelId label(const std::string& text);
  KernelId fixed_kernel(std::uint64_t duration_us);
  KernelId work_kernel(double flops, std::int64_t bytes);
  AxisId all_ranks(const std::string& axis);
  // Nothing when nobody has said who is in the group.
  std::optional<AxisId> group(const std::string& name);
  std::int64_t group_size(AxisId axis) const {
    return static_cast<std::int64_t>(program.axes[axis.index()].groups[0].size());
  }
  bool is_member(AxisId axis, std::int32_t rank) const;

  Program program;

 private:
  AxisId add_axis(const std::string& name, std::vector<RankId> members);

  const ChakraOptions& options_;
  std::int32_t ranks_;
  std::int64_t members_ = 0;
  std::unordered_map<std::string, LabelId> labels_;
  std::map<std::uint64_t, KernelId> fixed_;
  std::map<std::pair<double, std::int64_t>, KernelId> work_;
  std::map<std::string, AxisId> axes_;
};

LabelId ChakraProgram::label(const std::string& text) {
  const auto [at, added] =
      labels_.try_emplace(text, LabelId(static_cast<std::int64_t>(program.labels.size())));
  if (added) program.labels.push_back(text);
  return at->second;
}

KernelId ChakraProgram::fixed_kernel(std::uint64_t duration_us) {
  const auto [at, added] =
      fixed_.try_emplace(duration_us, KernelId(static_cast<std::int64_t>(program.kernels.size())));
  if (added) {
    Kernel kernel;
    kernel.kind = KernelKind::kFixed;
    kernel.fixed = SimTime{static_cast<std::int64_t>(duration_us) * 1'000'000};
    kernel.label = label(exact_time(kernel.fixed));  // As "compute 10us" is read.
    program.kernels.push_back(kernel);
  }
  return at->second;
}

KernelId ChakraProgram::work_kernel(double flops, std::int64_t bytes) {
  const auto [at, added] =
      work_.try_emplace({flops, bytes}, KernelId(static_cast<std::int64_t>(program.kernels.size())));
  if (added) {
    Kernel kernel;
    kernel.label = label(fmt::format("work{}", work_.size()));
    kernel.kind = KernelKind::kElementwise;
    kernel.flops = flops;
    kernel.read_bytes = bytes;
    program.kernels.push_back(kernel);
  }
  return at->second;
}

AxisId ChakraProgram::add_axis(const std::string& name, std::vector<RankId> members) {
  members_ += static_cast<std::int64_t>(members.size());
  if (members_ > kMostMembers)
    fail(ErrorKind::kInput, "process groups and tags: more than {} members in all", kMostMembers);
  program.axes.push_back({name, {std::move(members)}});
  return AxisId(static_cast<std::int64_t>(program.axes.size()) - 1);
}

AxisId ChakraProgram::all_ranks(const std::string& axis) {
  const auto found = axes_.find(axis);
  if (found != axes_.end()) return found->second;
  std::vector<RankId> members;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) members.emplace_back(rank);
  return axes_[axis] = add_axis(axis, std::move(members));
}

std::optional<AxisId> ChakraProgram::group(const std::string& name) {
  const std::string axis = "pg_" + name;
  if (const auto found = axes_.find(axis); found != axes_.end()) return found->second;
  const auto given = options_.groups.find(name);
  if (given == options_.groups.end()) {
    if (name.empty() || name == "0") return all_ranks("world");
    return std::nullopt;
  }
  std::vector<RankId> members;
  std::set<std::int32_t> seen;
  for (const std::int32_t rank : given->second) {
    if (rank < 0 || rank >= ranks_ || !seen.insert(rank).second) {
      fail(ErrorKind::kInput, "process group \"{}\": rank {} is not one of 0 to {}, or is there twice", name,
           rank, ranks_ - 1);
    }
    members.emplace_back(rank);
  }
  if (members.empty()) fail(ErrorKind::kInput, "process group \"{}\" has no ranks", name);
  return axes_[axis] = add_axis(axis, std::move(members));
}

bool ChakraProgram::is_member(AxisId axis, std::int32_t rank) const {
  const std::vector<RankId>& members = program.axes[axis.index()].groups[0];
  return std::find(members.begin(), members.end(), RankId(rank)) != members.end();
}

// One trace → one role.
class ChakraRole {
 public:
  ChakraRole(ChakraProgram& shared, const ChakraFile& file, std::int32_t rank, std::int32_t ranks,
             std::set<std::string>& notes)
      : shared_(shared),
        file_(file),
        rank_(rank),
        ranks_(ranks),
        notes_(notes),
        nodes_(read_chakra_nodes(file)) {}

  Role build();

 private:
  [[noreturn]] void wrong(const ChakraNode& node, std::string_view what) const {
    fail(ErrorKind::kInput, "{}: node {} \"{}\": {}", file_.place, node.id, node.name.substr(0, kLongestName),
         what);
  }
  std::vector<std::size_t> order();
  bool left_out(const ChakraNode& node) const;
  StreamId stream(const std::string& name);
  LabelId name_of(const ChakraNode& node);
  std::int32_t offset_to(const ChakraNode& node, std::optional<std::int64_t> peer) const;
  void add(const ChakraNode& node, const std::string& stream_name, Work work, const Waits& waits);
  void transfer(const ChakraNode& node, bool sends, const Waits& waits);
  void collective(const ChakraNode& node, const Waits& waits);
  void compute(const ChakraNode& node, const std::string& stream_name, const Waits& waits);
  void load_or_store(const ChakraNode& node, const Waits& waits);

  ChakraProgram& shared_;
  const ChakraFile& file_;
  std::int32_t rank_, ranks_;
  std::set<std::string>& notes_;
  std::vector<ChakraNode> nodes_;
  bool keep_host_ = false;
  Role role_;
  std::map<std::string, StreamId> streams_;
  std::unordered_map<std::string, std::int32_t> named_;
  std::unordered_set<std::string> taken_;
};

// Kahn's algorithm, the node that stands first in the file first.
std::vector<std::size_t> ChakraRole::order() {
  std::unordered_map<std::uint64_t, std::size_t> at;
  for (std::size_t i = 0; i < nodes_.size(); ++i) at.emplace(nodes_[i].id, i);
  std::vector<std::size_t> open(nodes_.size(), 0);
  std::vector<std::vector<std::size_t>> followers(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const std::uint64_t before : nodes_[i].after) {
      const auto found = at.find(before);
      if (found == at.end())
        wrong(nodes_[i], fmt::format("waits for node {}, which the trace doesn't have", before));
      followers[found->second].push_back(i);
      ++open[i];
    }
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (open[i] == 0) ready.push(i);
  }
  std::vector<std::size_t> result;
  while (!ready.empty()) {
    const std::size_t next = ready.top();
    ready.pop();
    result.push_back(next);
    for (const std::size_t follower : followers[next]) {
      if (--open[follower] == 0) ready.push(follower);
    }
  }
  if (result.size() < nodes_.size()) {
    const auto stuck = std::find_if(open.begin(), open.end(), [](std::size_t count) { return count > 0; });
    wrong(nodes_[static_cast<std::size_t>(stuck - open.begin())],
          "waits, directly or through others, for itself");
  }
  return result;
}

bool ChakraRole::left_out(const ChakraNode& node) const {
  return node.type == ChakraType::kMetadata || (node.host && !keep_host_);
}

StreamId ChakraRole::stream(const std::string& name) {
  const auto found = streams_.find(name);
  if (found != streams_.end()) return found->second;
  if (streams_.size() >= kMostStreams)
    fail(ErrorKind::kInput, "{}: more than {} peers and tags of one rank", file_.place, kMostStreams);
  const StreamId id(static_cast<std::int64_t>(role_.streams.size()));
  role_.streams.push_back({name, 0});
  return streams_[name] = id;
}

// The node's name, with a number behind it from its second time on.
LabelId ChakraRole::name_of(const ChakraNode& node) {
  std::string name = node.name.substr(0, kLongestName);
  for (char& c : name) {
    const bool plain = c >= ' ' && c <= '~';  // Names may come cut within a character.
    if (!plain) c = '?';
  }
  if (name.empty()) name = "node";
  std::int32_t& times = named_[name];
  std::string unique = ++times == 1 ? name : fmt::format("{}#{}", name, times);
  while (!taken_.insert(unique).second) unique = fmt::format("{}#{}", name, ++times);
  return shared_.label(unique);
}

// Positions wrap around: the nearer way, so that ranks in a ring say the same.
std::int32_t ChakraRole::offset_to(const ChakraNode& node, std::optional<std::int64_t> peer) const {
  if (!peer) wrong(node, "has no comm_src or comm_dst; expected the peer's rank");
  if (*peer < 0 || *peer >= ranks_ || *peer == rank_) {
    wrong(node,
          fmt::format(
              "its peer is rank {} of {}, seen from rank {}: give the traces of all ranks in order, or with "
              "--ranks how many do the same",
              *peer, ranks_, rank_));
  }
  const std::int32_t forward = (static_cast<std::int32_t>(*peer) - rank_ + ranks_) % ranks_;
  return forward > ranks_ / 2 ? forward - ranks_ : forward;
}

void ChakraRole::add(const ChakraNode& node, const std::string& stream_name, Work work, const Waits& waits) {
  Instruction instruction;
  instruction.label = name_of(node);
  instruction.stream = stream(stream_name);
  instruction.work = work;
  instruction.after.begin = static_cast<std::int32_t>(role_.edges.size());
  for (const auto& [stream_waited_for, last] : waits) {
    // The own stream is in order anyway.
    if (stream_waited_for != instruction.stream.value) role_.edges.push_back({last, false});
  }
  instruction.after.end = static_cast<std::int32_t>(role_.edges.size());
  if (role_.edges.size() > 500'000'000) wrong(node, "the trace has more than 500 million dependencies");
  role_.instructions.push_back(instruction);
}

// A tag is an axis of its own, so that messages of two tags can't meet. A Chakra send doesn't wait for its
// receive, a Program's does: so receives are posted at once, and what follows waits for what they waited for,
// too.
void ChakraRole::transfer(const ChakraNode& node, bool sends, const Waits& waits) {
  const std::int32_t offset = offset_to(node, sends ? node.destination : node.source);
  const std::int64_t tag = node.tag.value_or(0);
  const std::string axis_name = tag == 0 ? "world" : fmt::format("tag{}", tag);
  const AxisId axis = shared_.all_ranks(axis_name);
  const std::string stream_name =
      fmt::format("{}{:+}{}", sends ? "send" : "recv", offset, tag == 0 ? "" : "." + axis_name);
  const std::int64_t bytes = node.comm_size.value_or(0);
  if (sends) return add(node, stream_name, Send{axis, offset, bytes}, waits);
  add(node, stream_name, Recv{axis, offset, bytes}, {});
}

// comm_size is what one rank puts in; a Collective counts the whole buffer.
void ChakraRole::collective(const ChakraNode& node, const Waits& waits) {
  static constexpr std::array<const char*, 10> kNames = {
      "all-reduce", "reduce",     "all-gather",     "gather",         "scatter",
      "broadcast",  "all-to-all", "reduce-scatter", "reduce-scatter", "barrier"};
  if (!node.comm_type || *node.comm_type < 0 || *node.comm_type >= static_cast<std::int64_t>(kNames.size())) {
    wrong(node, "a collective whose comm_type isn't one of 0 to 9, and whose name doesn't tell it");
  }
  const std::int64_t type = *node.comm_type;
  if (!node.comm_size && type != 9) {
    notes_.insert("collectives without a size (comm_size) take the time that was measured, on the device");
    return compute(node, "comm", waits);
  }
  const std::optional<AxisId> axis = shared_.group(node.group);
  if (!axis) {
    wrong(node, fmt::format("is of process group \"{}\", whose ranks aren't known: give them with --groups",
                            node.group));
  }
  if (!shared_.is_member(*axis, rank_))
    wrong(node, fmt::format("process group \"{}\" doesn't have rank {}", node.group, rank_));
  Collective work;
  work.axis = *axis;
  work.dtype = DType::kFp32;
  work.bytes = type == 9 ? kBarrierBytes : *node.comm_size;
  switch (type) {
    case 0:
    case 9: work.kind = CollectiveKind::kAllReduce; break;
    case 2:
      work.kind = CollectiveKind::kAllGather;
      if (work.bytes > kMostBytes / shared_.group_size(*axis)) wrong(node, "an all-gather of too many bytes");
      work.bytes *= shared_.group_size(*axis);
      break;
    case 5: work.kind = CollectiveKind::kBroadcast; break;
    case 6: work.kind = CollectiveKind::kAllToAll; break;
    case 7:
    case 8: work.kind = CollectiveKind::kReduceScatter; break;
    default:
      wrong(node, fmt::format(
                      "a {}, which a Program doesn't have; expected all-reduce, all-gather, reduce-scatter, "
                      "all-to-all or broadcast",
                      kNames[static_cast<std::size_t>(type)]));
  }
  if (type == 9) notes_.insert("barriers are all-reduces of 4 bytes");
  if (work.bytes == 0) wrong(node, "a collective of no bytes");
  const std::string& axis_name = shared_.program.axes[axis->index()].name;
  add(node, axis_name == "world" ? "comm" : "comm." + axis_name, work, waits);
}

void ChakraRole::compute(const ChakraNode& node, const std::string& stream_name, const Waits& waits) {
  const bool measured = node.duration_us > 0 || (node.operations == 0 && node.tensor_bytes == 0);
  const KernelId kernel = measured
                              ? shared_.fixed_kernel(node.duration_us)
                              : shared_.work_kernel(static_cast<double>(node.operations), node.tensor_bytes);
  add(node, stream_name, Compute{kernel}, waits);
}

void ChakraRole::load_or_store(const ChakraNode& node, const Waits& waits) {
  if (node.tensor_bytes == 0) return compute(node, "copy", waits);
  add(node, "copy", Copy{node.type == ChakraType::kStore, node.tensor_bytes}, waits);
}

Role ChakraRole::build() {
  role_.name = fmt::format("rank{}", rank_);
  const auto is_host = [](const ChakraNode& node) { return node.host || node.type == ChakraType::kMetadata; };
  keep_host_ = std::all_of(nodes_.begin(), nodes_.end(), is_host);
  std::unordered_map<std::uint64_t, Waits> waits_of;  // What waiting for a node comes to.
  std::size_t host_ops = 0;
  std::size_t kept = 0;
  for (const std::size_t i : order()) {
    const ChakraNode& node = nodes_[i];
    Waits waits;
    for (const std::uint64_t before : node.after) join(waits, waits_of[before]);
    if (left_out(node)) {
      host_ops += node.host ? 1 : 0;
      kept += waits.size();
      waits_of[node.id] = std::move(waits);
      continue;
    }
    switch (node.type) {
      case ChakraType::kSend: transfer(node, true, waits); break;
      case ChakraType::kReceive: transfer(node, false, waits); break;
      case ChakraType::kCollective: collective(node, waits); break;
      case ChakraType::kLoad:
      case ChakraType::kStore: load_or_store(node, waits); break;
      default: compute(node, "compute", waits);
    }
    const bool receives = node.type == ChakraType::kReceive;
    Waits& now = waits_of[node.id];
    now = receives ? std::move(waits) : Waits{};
    now[role_.instructions.back().stream.value] = static_cast<std::int32_t>(role_.instructions.size()) - 1;
    kept += now.size();
    if (kept > kMostWaits) wrong(node, "the trace has too many dependencies");
  }
  if (host_ops > 0)
    notes_.insert(
        fmt::format("{}: {} ops of the host are left out; their time isn't counted", file_.place, host_ops));
  if (keep_host_)
    notes_.insert(
        fmt::format("{}: all ops are the host's; they are taken for those of a device", file_.place));
  if (role_.instructions.empty())
    fail(ErrorKind::kInput, "{}: the trace has no work, only metadata", file_.place);
  return std::move(role_);
}

}  // namespace

ChakraImport read_chakra(const std::vector<ChakraFile>& files, const ChakraOptions& options) {
  const auto given = static_cast<std::int32_t>(std::min<std::size_t>(files.size(), kMostRanks + 1));
  const std::int32_t ranks = options.ranks == 0 ? given : options.ranks;
  if (given == 0 || ranks < 1 || ranks > kMostRanks || (given > 1 && given != ranks)) {
    fail(ErrorKind::kInput,
         "{} traces for {} ranks; expected one of each rank, or one that every rank follows", files.size(),
         ranks);
  }
  ChakraProgram shared(options, ranks);
  std::set<std::string> notes;
  std::vector<Role> roles;
  std::vector<RoleId> role_of;
  for (std::int32_t rank = 0; rank < given; ++rank) {
    Role role = ChakraRole(shared, files[static_cast<std::size_t>(rank)], rank, ranks, notes).build();
    const std::string name = role.name;
    const auto same = std::find_if(roles.begin(), roles.end(), [&](const Role& other) {
      role.name = other.name;
      return other == role;
    });
    role_of.emplace_back(same - roles.begin());
    role.name = name;
    if (same == roles.end()) roles.push_back(std::move(role));
  }
  Program& program = shared.program;
  program.name = "chakra";
  program.roles = std::move(roles);
  program.role_of = std::move(role_of);
  program.role_of.resize(static_cast<std::size_t>(ranks), RoleId(0));
  program.device_of.resize(static_cast<std::size_t>(ranks));
  std::iota(program.device_of.begin(), program.device_of.end(), 0);
  return {std::move(program), {notes.begin(), notes.end()}};
}

}  // namespace orrery
