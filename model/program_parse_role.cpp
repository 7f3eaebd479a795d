#include <fmt/format.h>

#include <limits>

#include "base/units.hpp"
#include "model/program_parser.hpp"
#include "model/program_ranks.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

std::string display(const Name& name) {
  std::string out = name.label;
  if (name.layer >= 0) out += fmt::format(".l{}", name.layer);
  if (name.microbatch >= 0) out += fmt::format(".m{}", name.microbatch);
  return out;
}

}  // namespace

void ProgramParser::read_role() {
  in_.take();
  const Token token = in_.peek();
  RoleState state;
  state.role.name = in_.expect_plain_name("the role's name");
  if (!role_names_.insert(state.role.name).second) {
    in_.fail_at(token.offset, fmt::format("role '{}' is declared twice; expected one role with all its ranks",
                                          state.role.name));
  }
  in_.expect_punctuation('(');
  read_role_ranks(state.role.name);
  in_.expect_punctuation(')');
  in_.expect_punctuation(':');
  while (true) {
    in_.skip_line_ends();
    const Token& first = in_.peek();
    const bool named =
        in_.peek_second().text == "=" && (first.kind == TokenKind::kWord || first.kind == TokenKind::kQuoted);
    if (named) {
      read_instruction(state);
    } else if (in_.at_word("stream")) {
      read_stream(state);
    } else if (in_.at_word("buffer")) {
      read_buffer(state);
    } else {
      break;
    }
    if (!in_.at_line_end()) in_.fail_expected("the end of the line");
  }
  resolve_pending(state);
  program_.roles.push_back(std::move(state.role));
}

void ProgramParser::read_role_ranks(const std::string& role) {
  const RoleId id(static_cast<std::int64_t>(program_.roles.size()));
  const Token keyword = in_.peek();
  if (!in_.accept_word("ranks") && !in_.accept_word("rank")) in_.fail_expected("'ranks'");
  for (const std::int64_t rank : read_numbers(in_, "a rank", 0)) {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= program_.role_of.size()) program_.role_of.resize(index + 1);
    RoleId& played = program_.role_of[index];
    if (played.valid()) {
      in_.fail_at(keyword.offset,
                  fmt::format("rank {} already plays role '{}'; expected each rank once in one role", rank,
                              played == id ? role : program_.roles[played.index()].name));
    }
    played = id;
  }
}

void ProgramParser::read_stream(RoleState& state) {
  in_.take();
  const Token token = in_.peek();
  const std::string name = in_.expect_plain_name("the stream's name");
  if (state.streams.contains(name)) {
    in_.fail_at(token.offset,
                fmt::format("stream '{}' is declared or used before; expected streams first", name));
  }
  const StreamId id = stream(state, name);
  if (in_.accept_word("priority")) {
    state.role.streams[id.index()].priority =
        static_cast<std::int32_t>(in_.expect_integer("a priority", -kMaxInt32 - 1, kMaxInt32));
  }
}

void ProgramParser::read_buffer(RoleState& state) {
  in_.take();
  const Token token = in_.peek();
  const Name name = in_.expect_name("the buffer's name");
  const NameKey key = new_key(name);
  Buffer buffer;
  buffer.label = key.label;
  buffer.layer = key.layer;
  buffer.microbatch = key.microbatch;
  if (!state.buffers.emplace(key, static_cast<std::int32_t>(state.role.buffers.size())).second) {
    in_.fail_at(token.offset,
                fmt::format("buffer '{}' is declared twice in role '{}'", display(name), state.role.name));
  }
  buffer.category = read_enum<MemoryCategory>("memory category");
  buffer.bytes = read_bytes();
  buffer.persistent = in_.accept_word("persistent");
  if (in_.accept_word("at")) buffer.offset = read_bytes();
  if (in_.accept_word("of")) buffer.tensor = TensorId(in_.expect_integer("a tensor's number", 0, kMaxInt32));
  if (in_.accept_word("placed")) {
    const auto last = static_cast<std::int64_t>(program_.placements.size()) - 1;
    buffer.placement = PlacementId(in_.expect_integer("the number of a placement declared above", 0, last));
  }
  if (in_.accept_word("behind")) buffer.behind = read_declared_buffer(state);
  if (in_.accept_word("in-place-of")) buffer.in_place_of = read_declared_buffer(state);
  state.role.buffers.push_back(buffer);
}

BufferId ProgramParser::read_declared_buffer(const RoleState& state) {
  const Token token = in_.peek();
  const Name name = in_.expect_name("a buffer declared above");
  const std::optional<NameKey> key = known_key(name);
  const auto found = key ? state.buffers.find(*key) : state.buffers.end();
  if (found == state.buffers.end()) fail_name(state, token, name, state.buffers, "buffer");
  return BufferId(found->second);
}

void ProgramParser::read_instruction(RoleState& state) {
  const Token token = in_.peek();
  const Name name = in_.expect_name("the instruction's name");
  const NameKey key = new_key(name);
  const auto index = static_cast<std::int32_t>(state.role.instructions.size());
  if (!state.instructions.emplace(key, index).second) {
    in_.fail_at(token.offset,
                fmt::format("instruction '{}' appears twice in role '{}'; expected another label, "
                            "or a suffix such as .l3 or .m0",
                            display(name), state.role.name));
  }
  in_.expect_punctuation('=');
  Instruction instruction;
  instruction.label = key.label;
  instruction.layer = key.layer;
  instruction.microbatch = key.microbatch;
  instruction.work = read_work();
  read_clauses(state, instruction);
  if (!instruction.stream.valid()) {
    instruction.stream = stream(state, std::string(default_stream(instruction.work)));
  }
  state.role.instructions.push_back(instruction);
}

Work ProgramParser::read_work() {
  static const std::vector<std::string> kWorks = [] {
    std::vector<std::string> works = {"compute", "send", "recv", "copy"};
    works.insert(works.end(), words<CollectiveKind>().begin(), words<CollectiveKind>().end());
    return works;
  }();
  const Token word = in_.peek();
  if (word.kind != TokenKind::kWord) in_.fail_expected("work such as 'compute' or 'send'");
  const std::optional<CollectiveKind> kind = find_word<CollectiveKind>(word.text);
  const bool known =
      kind || word.text == "compute" || word.text == "send" || word.text == "recv" || word.text == "copy";
  if (!known) in_.fail_unknown(word, "work", word.text, kWorks);
  in_.take();
  if (word.text == "compute") return read_compute();
  const std::int64_t bytes = read_bytes();
  if (word.text == "copy") {
    in_.expect_word("to");
    if (in_.accept_word("host")) return Copy{true, bytes};
    if (!in_.accept_word("device")) in_.fail_expected("'host' or 'device'");
    return Copy{false, bytes};
  }
  if (kind) {
    Collective collective{*kind, {}, bytes, DType::kBf16};
    if (in_.peek().kind == TokenKind::kWord && find_word<DType>(in_.peek().text)) {
      collective.dtype = read_enum<DType>("number format");
    }
    if (in_.accept_word("max")) collective.reduction = Reduction::kMax;
    if (in_.accept_word("tree")) collective.reduction = Reduction::kTreeSum;
    collective.axis = read_axis_reference();
    return collective;
  }
  in_.expect_word(word.text == "send" ? "to" : "from");
  const std::int32_t offset = read_peer();
  const AxisId axis = read_axis_reference();
  if (word.text == "send") return Send{axis, offset, bytes};
  return Recv{axis, offset, bytes};
}

Work ProgramParser::read_compute() {
  if (in_.peek().kind == TokenKind::kNumber) return Compute{plain_kernel(read_time())};
  const Token token = in_.peek();
  const std::string name = in_.expect_plain_name("a kernel's name or a time such as 10us");
  const std::int64_t copy = in_.accept_punctuation('~') ? in_.expect_integer("a number", 2, kMaxInt32) : 1;
  const auto found = kernels_.find(name);
  if (found != kernels_.end() && static_cast<std::size_t>(copy) <= found->second.size()) {
    return Compute{found->second[static_cast<std::size_t>(copy) - 1]};
  }
  std::vector<std::string> known;
  for (const Kernel& kernel : program_.kernels) known.push_back(program_.labels[kernel.label.index()]);
  in_.fail_unknown(token, "kernel", copy == 1 ? name : fmt::format("{}~{}", name, copy), known);
}

AxisId ProgramParser::read_axis_reference() {
  const std::size_t offset = in_.peek().offset;
  if (in_.accept_word("in")) {
    const Token token = in_.peek();
    const std::string name = in_.expect_plain_name("an axis");
    const auto found = axes_.find(name);
    if (found != axes_.end()) return found->second;
    std::vector<std::string> known;
    for (const Axis& axis : program_.axes) known.push_back(axis.name);
    if (!known.empty() || name != "world") in_.fail_unknown(token, "axis", name, known);
  } else if (program_.axes.size() > 1) {
    in_.fail_at(offset, fmt::format("there are {} axes; expected 'in' and one of them: in {}",
                                    program_.axes.size(), program_.axes.front().name));
  } else if (program_.axes.size() == 1) {
    return AxisId(0);
  }
  implicit_world_ = true;
  axes_.emplace("world", AxisId(0));
  program_.axes.push_back({"world", {}});
  axis_offsets_.push_back(offset);
  return AxisId(0);
}

std::int32_t ProgramParser::read_peer() {
  if (in_.accept_word("next")) return 1;
  if (in_.accept_word("previous")) return -1;
  const bool forward = in_.accept_punctuation('+');
  if (!forward && !in_.at_punctuation('-')) in_.fail_expected("a peer: 'next', 'previous', +2 or -2");
  return static_cast<std::int32_t>(in_.expect_integer("an offset", forward ? 0 : -kMaxInt32 - 1, kMaxInt32));
}

void ProgramParser::read_clauses(RoleState& state, Instruction& instruction) {
  static const std::vector<std::string> kClauses = {"on",     "for", "after", "reads",
                                                    "writes", "ops", "part",  "piece"};
  instruction.after.begin = static_cast<std::int32_t>(state.role.edges.size());
  instruction.operands.begin = static_cast<std::int32_t>(state.role.operands.size());
  instruction.ops.begin = static_cast<std::int32_t>(state.role.ops.size());
  while (!in_.at_line_end()) {
    const Token word = in_.peek();
    if (word.kind != TokenKind::kWord) in_.fail_expected("a clause such as 'after', or the end of the line");
    if (word.text == "on") {
      in_.take();
      if (instruction.stream.valid())
        in_.fail_at(word.offset, "the instruction has two streams; expected one");
      instruction.stream = stream(state, in_.expect_plain_name("a stream"));
    } else if (word.text == "for") {
      in_.take();
      instruction.purpose = read_enum<Purpose>("purpose");
    } else if (word.text == "after") {
      read_after(state);
    } else if (word.text == "reads" || word.text == "writes") {
      read_operands(state, word.text == "writes");
    } else if (word.text == "ops") {
      read_ops(state);
    } else if (word.text == "part") {
      in_.take();
      instruction.part = static_cast<std::int32_t>(in_.expect_integer("a part", 0, kMaxInt32));
    } else if (word.text == "piece") {
      read_piece(instruction.piece);
    } else {
      in_.fail_unknown(word, "clause", word.text, kClauses);
    }
  }
  instruction.after.end = static_cast<std::int32_t>(state.role.edges.size());
  instruction.operands.end = static_cast<std::int32_t>(state.role.operands.size());
  instruction.ops.end = static_cast<std::int32_t>(state.role.ops.size());
}

void ProgramParser::read_piece(Piece& piece) {
  in_.take();
  piece.index = static_cast<std::int32_t>(in_.expect_integer("a piece", 0, kMaxInt32));
  in_.expect_punctuation(',');
  piece.of =
      static_cast<std::int32_t>(in_.expect_integer("how many pieces there are", piece.index + 1, kMaxInt32));
  in_.expect_punctuation(',');
  piece.segments = static_cast<std::int32_t>(in_.expect_integer("how many segments there are", 1, kMaxInt32));
}

void ProgramParser::read_ops(RoleState& state) {
  in_.take();
  do {
    state.role.ops.emplace_back(in_.expect_integer("an op's number", 0, kMaxInt32));
  } while (in_.accept_punctuation(','));
}

void ProgramParser::read_after(RoleState& state) {
  in_.take();
  do {
    while (in_.peek().kind == TokenKind::kNewline) in_.take();
    Edge edge;
    if (in_.accept_punctuation('@')) {
      in_.expect_word("prev");
      edge.previous_step = true;
    }
    const Token token = in_.peek();
    Name name = in_.expect_name("an instruction");
    const std::optional<NameKey> key = known_key(name);
    const auto found = key ? state.instructions.find(*key) : state.instructions.end();
    // The instruction being read is in the table already, but only its own previous step lies before it.
    const auto own = static_cast<std::int32_t>(state.role.instructions.size());
    if (found != state.instructions.end() && (edge.previous_step || found->second < own)) {
      edge.instruction = found->second;
    } else {
      state.pending.push_back({state.role.edges.size(), std::move(name), token});
    }
    state.role.edges.push_back(edge);
  } while (in_.accept_punctuation(','));
}

void ProgramParser::read_operands(RoleState& state, bool writes) {
  in_.take();
  do {
    while (in_.peek().kind == TokenKind::kNewline) in_.take();
    state.role.operands.push_back({read_declared_buffer(state), writes});
  } while (in_.accept_punctuation(','));
}

void ProgramParser::resolve_pending(RoleState& state) {
  for (const PendingEdge& pending : state.pending) {
    const std::optional<NameKey> key = known_key(pending.name);
    const auto found = key ? state.instructions.find(*key) : state.instructions.end();
    if (found == state.instructions.end()) {
      fail_name(state, pending.token, pending.name, state.instructions, "instruction");
    }
    Edge& edge = state.role.edges[pending.edge];
    if (!edge.previous_step) {
      in_.fail_at(
          pending.token.offset,
          fmt::format(
              "'{}' comes no earlier than the instruction that waits for it; expected an earlier one, "
              "or '@prev {}' for the step before",
              display(pending.name), display(pending.name)));
    }
    edge.instruction = found->second;
  }
}

std::int64_t ProgramParser::read_bytes() {
  const Token token = in_.peek();
  if (token.kind != TokenKind::kNumber) in_.fail_expected("a size such as 4096, 1MB or 4KiB");
  const std::optional<std::int64_t> bytes = parse_bytes(token.text);
  if (!bytes) {
    in_.fail_at(token.offset,
                fmt::format("'{}' isn't a size; expected bytes such as 4096, 1MB or 4KiB", token.text));
  }
  in_.take();
  return *bytes;
}

KernelId ProgramParser::plain_kernel(SimTime time) {
  const auto found = plain_kernels_.find(time.picoseconds);
  if (found != plain_kernels_.end()) return found->second;
  const std::string label = exact_time(time);
  Kernel kernel;
  kernel.label = intern(label);
  kernel.kind = KernelKind::kFixed;
  kernel.fixed = time;
  return add_kernel(kernel);
}

std::optional<NameKey> ProgramParser::known_key(const Name& name) const {
  const auto found = labels_.find(name.label);
  if (found == labels_.end()) return std::nullopt;
  return NameKey{found->second, name.layer, name.microbatch};
}

NameKey ProgramParser::new_key(const Name& name) { return {intern(name.label), name.layer, name.microbatch}; }

StreamId ProgramParser::stream(RoleState& state, const std::string& name) {
  const auto [entry, added] =
      state.streams.try_emplace(name, StreamId(static_cast<std::int64_t>(state.role.streams.size())));
  if (added) state.role.streams.push_back({name, 0});
  return entry->second;
}

void ProgramParser::fail_name(const RoleState& state, const Token& token, const Name& name,
                              const NameTable& table, std::string_view what) const {
  // In order of declaration: the table's own order means nothing.
  std::vector<std::string> known(table.size());
  for (const auto& [key, index] : table) {
    known[static_cast<std::size_t>(index)] =
        display({program_.labels[key.label.index()], key.layer, key.microbatch});
  }
  in_.fail_unknown(token, fmt::format("{} of role '{}'", what, state.role.name), display(name), known);
}

}  // namespace orrery
