#include "planner/collective_scribe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery::collective {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

std::int32_t wrapped(std::int32_t i, std::int32_t size) { return ((i % size) + size) % size; }

}  // namespace

Part Part::cut(DataCut next) const {
  Part part = *this;
  part.cuts.push_back(next);
  return part;
}

Pipeline pipeline(std::int64_t bytes, std::int64_t chunk_bytes, std::int32_t slots) {
  const std::int64_t unit = std::max<std::int64_t>(1, chunk_bytes / slots);
  Pipeline pipe;
  pipe.units = static_cast<std::int32_t>(std::max<std::int64_t>(1, (bytes + unit - 1) / unit));
  for (std::int32_t first = 0; first < pipe.units;) {
    const auto wanted = std::min(slots, static_cast<std::int32_t>(pipe.messages.size()) + 1);
    const std::int32_t count = std::min(wanted, pipe.units - first);
    pipe.messages.emplace_back(first, count);
    first += count;
  }
  return pipe;
}

// ---- Hazards.

std::int32_t Hazards::child(std::int32_t node, const DataCut& cut) {
  const std::tuple key(cut.axis.value, cut.of, wrapped(cut.index, cut.of), cut.count);
  const auto fresh = static_cast<std::int32_t>(nodes_.size());
  const auto [at, added] = nodes_[index(node)].children.try_emplace(key, fresh);
  const std::int32_t found = at->second;
  if (added) nodes_.emplace_back();
  return found;
}

void Hazards::collect(std::int32_t node, Access access, std::vector<std::int32_t>& waits,
                      std::vector<std::int32_t>& filled) const {
  const Node& at = nodes_[index(node)];
  if (at.store >= 0) waits.push_back(at.store);
  if (access != Access::kAdd) waits.insert(waits.end(), at.adds.begin(), at.adds.end());
  if (access != Access::kRead) {
    waits.insert(waits.end(), at.readers.begin(), at.readers.end());
    return;
  }
  if (at.store >= 0) filled.push_back(at.store);
  filled.insert(filled.end(), at.adds.begin(), at.adds.end());
}

void Hazards::collect_below(std::int32_t node, Access access, std::vector<std::int32_t>& waits,
                            std::vector<std::int32_t>& filled) const {
  for (const auto& [key, next] : nodes_[index(node)].children) {
    collect(next, access, waits, filled);
    collect_below(next, access, waits, filled);
  }
}

// Cuts of another kind may overlap; of one kind only the same part does.
void Hazards::collect_other_cuts(std::int32_t node, const DataCut& cut, Access access,
                                 std::vector<std::int32_t>& waits, std::vector<std::int32_t>& filled) const {
  const auto& children = nodes_[index(node)].children;
  const auto same = [&](const auto& entry) {
    return std::get<0>(entry.first) == cut.axis.value && std::get<1>(entry.first) == cut.of;
  };
  if (children.empty() || (same(*children.begin()) && same(*children.rbegin()))) return;  // They are sorted.
  for (const auto& entry : children) {
    if (same(entry)) continue;
    collect(entry.second, access, waits, filled);
    collect_below(entry.second, access, waits, filled);
  }
}

void Hazards::forget_below(std::int32_t node) {
  for (const auto& [key, next] : nodes_[index(node)].children) {
    Node& below = nodes_[index(next)];
    below.store = -1;
    below.adds.clear();
    below.readers.clear();
    forget_below(next);
  }
}

void Hazards::touch(const Part& part, Access access, std::int32_t instruction,
                    std::vector<std::int32_t>& waits, std::vector<std::int32_t>& filled) {
  auto node = static_cast<std::int32_t>(part.buffer);
  collect(node, access, waits, filled);
  // Numbers first: which cut comes first doesn't matter for what overlaps, and channels share no member cut.
  std::vector<DataCut> cuts = part.cuts;
  std::ranges::stable_partition(cuts, [](const DataCut& cut) { return !cut.axis.valid(); });
  for (const DataCut& cut : cuts) {
    collect_other_cuts(node, cut, access, waits, filled);
    node = child(node, cut);
    collect(node, access, waits, filled);
  }
  collect_below(node, access, waits, filled);
  Node& at = nodes_[index(node)];
  if (access == Access::kRead) {
    at.readers.push_back(instruction);
  } else if (access == Access::kAdd) {
    at.adds.push_back(instruction);
  } else {
    at.store = instruction;
    at.adds.clear();
    at.readers.clear();
    forget_below(node);
  }
}

// ---- Scribe.

AxisId Scribe::add_axis(std::string name, std::vector<std::vector<RankId>> groups) {
  out_.program.axes.push_back({std::move(name), std::move(groups)});
  return AxisId(static_cast<std::int64_t>(out_.program.axes.size()) - 1);
}

void Scribe::begin_role(std::string name) {
  role_ = {};
  role_.name = std::move(name);
  moves_.clear();
  hazards_ = {};
  passed_on_.clear();
  lanes_.clear();
  streams_.clear();
  last_of_stream_.clear();
  call_ = -1;
  if (spec_.call.picoseconds == 0) return;
  if (out_.program.kernels.empty()) {
    Kernel kernel;
    kernel.label = out_.program.intern("call");
    kernel.kind = KernelKind::kFixed;
    kernel.fixed = spec_.call;
    out_.program.kernels.push_back(kernel);
  }
  role_.streams.push_back({"compute", 0});
  last_of_stream_.push_back(0);
  Instruction call;
  call.label = out_.program.kernels.front().label;
  call.stream = StreamId(0);
  call.work = Compute{KernelId(0)};
  role_.instructions.push_back(call);
  moves_.emplace_back();
  passed_on_.emplace_back();
  call_ = 0;
}

void Scribe::end_role() {
  out_.program.roles.push_back(std::move(role_));
  out_.moves_of.push_back(std::move(moves_));
}

std::int64_t Scribe::bytes(const Part& part) const {
  std::int64_t bytes = spec_.bytes;
  for (const DataCut& cut : part.cuts) bytes = (bytes * cut.count + cut.of - 1) / cut.of;
  return bytes;
}

StreamId Scribe::stream(const Connection& with, bool sends, std::int32_t lane) {
  const auto fresh = StreamId(static_cast<std::int64_t>(role_.streams.size()));
  const bool shared = with.shared_stream >= 0;
  const auto [at, added] =
      streams_.try_emplace(shared ? std::tuple(-1, -1, -1, sends, with.shared_stream)
                                  : std::tuple(with.channel, with.axis.value, with.offset, sends, lane),
                           fresh);
  if (added) {
    const char* verb = sends ? "send" : "recv";
    role_.streams.push_back({shared
                                 ? fmt::format("{}.{}", verb, with.shared_stream)
                                 : fmt::format("{}{}.{}{:+}.{}", verb, with.channel,
                                               out_.program.axes[with.axis.index()].name, with.offset, lane),
                             0});
    last_of_stream_.push_back(-1);
  }
  return at->second;
}

void Scribe::send(const Connection& to, const std::vector<Part>& parts) { message(to, parts, true, false); }

void Scribe::recv(const Connection& from, const std::vector<Part>& parts, bool adds) {
  message(from, parts, false, adds);
}

void Scribe::message(const Connection& with, const std::vector<Part>& parts, bool sends, bool adds) {
  const auto number = static_cast<std::int32_t>(role_.instructions.size());
  Lane& lane = lanes_[{with.channel, with.axis.value, with.offset, sends}];
  if (!lane.label.valid())
    lane.label = out_.program.intern(fmt::format("{}{}.{}{:+}", sends ? "send" : "recv", with.channel,
                                                 out_.program.axes[with.axis.index()].name, with.offset));
  const StreamId on = stream(with, sends, lane.messages % with.lanes);

  std::vector<std::int32_t> waits, filled;
  std::int64_t payload = 0;
  const auto first_move = static_cast<std::int32_t>(out_.moves.size());
  const auto access = sends ? Hazards::Access::kRead : adds ? Hazards::Access::kAdd : Hazards::Access::kStore;
  for (const Part& part : parts) {
    payload += bytes(part);
    // What an all-to-all ends with is written once, and never sent on.
    if (part.buffer != DataBuffer::kResult) hazards_.touch(part, access, number, waits, filled);
    const auto first_cut = static_cast<std::int32_t>(out_.cuts.size());
    out_.cuts.insert(out_.cuts.end(), part.cuts.begin(), part.cuts.end());
    out_.moves.push_back({part.buffer, {first_cut, static_cast<std::int32_t>(out_.cuts.size())}, adds});
  }
  moves_.push_back({first_move, static_cast<std::int32_t>(out_.moves.size())});
  passed_on_.emplace_back();
  // What goes on in another phase is read from the payload, not from the slot it came in.
  for (const std::int32_t received : filled)
    if (std::get<Recv>(role_.instructions[index(received)].work).axis == with.axis)
      passed_on_[index(received)].push_back(number);
  if (!sends) {
    // The slot of the message `slots` before: free once that one has been passed on.
    const auto before = std::ssize(lane.received) - spec_.slots;
    if (before >= 0)
      for (const std::int32_t reader : passed_on_[index(lane.received[static_cast<std::size_t>(before)])])
        waits.push_back(reader);
    lane.received.push_back(number);
  }
  std::int32_t& last = last_of_stream_[on.index()];
  if (waits.empty() && last < 0 && call_ >= 0) waits.push_back(call_);
  std::ranges::sort(waits);
  const auto repeated = std::ranges::unique(waits);
  waits.erase(repeated.begin(), repeated.end());

  Instruction instruction;
  instruction.label = lane.label;
  instruction.layer = lane.messages++;
  instruction.stream = on;
  const auto wire = static_cast<std::int64_t>(
      std::ceil(static_cast<double>(payload) * spec_.wire_factor * with.wire_factor));
  if (sends)
    instruction.work = Send{with.axis, with.offset, wire};
  else
    instruction.work = Recv{with.axis, with.offset, wire};
  instruction.after.begin = static_cast<std::int32_t>(role_.edges.size());
  for (const std::int32_t wait : waits)
    if (role_.instructions[index(wait)].stream != on) role_.edges.push_back({wait, false});
  instruction.after.end = static_cast<std::int32_t>(role_.edges.size());
  last = number;
  role_.instructions.push_back(instruction);
}

}  // namespace orrery::collective
