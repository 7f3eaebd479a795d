// The printer of Program text. It leaves out whatever the reader would assume, so that small programs read
// as one would write them.

#include <fmt/format.h>

#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "base/units.hpp"
#include "model/program.hpp"
#include "model/program_lexer.hpp"
#include "model/program_ranks.hpp"
#include "model/program_words.hpp"

namespace orrery {
namespace {

std::string plain_name(std::string_view name) {
  return needs_quotes(name) ? quoted(name) : std::string(name);
}

// The order in which reading the text meets kernels and labels. Where the program's own order is the same,
// nothing has to be said about it.
struct NaturalOrder {
  bool plain_kernels_implied = false;
  bool labels_implied = false;
};

class Marker {
 public:
  explicit Marker(std::size_t size) : seen_(size) {}
  // True at the first call for this index.
  bool first(std::size_t index) {
    if (seen_[index]) return false;
    seen_[index] = true;
    in_order_ = in_order_ && index == count_;
    ++count_;
    return true;
  }
  // All indices came, smallest first.
  bool complete_in_order() const { return in_order_ && count_ == seen_.size(); }

 private:
  std::vector<bool> seen_;
  std::size_t count_ = 0;
  bool in_order_ = true;
};

bool plain_kernels_implied(const Program& program, const std::vector<bool>& plain) {
  Marker kernels(program.kernels.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (!plain[i]) kernels.first(i);
  }
  std::unordered_map<std::int64_t, std::size_t> by_time;  // Two of one time have to be told apart.
  for (const Role& role : program.roles) {
    for (const Instruction& instruction : role.instructions) {
      const auto* const compute = std::get_if<Compute>(&instruction.work);
      if (compute == nullptr || !plain[compute->kernel.index()]) continue;
      const std::size_t index = compute->kernel.index();
      const std::int64_t time = program.kernels[index].fixed.picoseconds;
      if (by_time.try_emplace(time, index).first->second != index) return false;
      kernels.first(index);
    }
  }
  return kernels.complete_in_order();
}

bool labels_implied(const Program& program, const std::vector<bool>& plain, bool kernels_implied) {
  Marker labels(program.labels.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (!plain[i] || !kernels_implied) labels.first(program.kernels[i].label.index());
  }
  for (const Role& role : program.roles) {
    for (const Buffer& buffer : role.buffers) labels.first(buffer.label.index());
    for (const Instruction& instruction : role.instructions) {
      labels.first(instruction.label.index());
      const auto* const compute = std::get_if<Compute>(&instruction.work);
      if (compute != nullptr) labels.first(program.kernels[compute->kernel.index()].label.index());
    }
  }
  return labels.complete_in_order();
}

class Printer {
 public:
  explicit Printer(const Program& program);
  std::string print();

 private:
  void print_header();
  void print_graph_facts();
  void print_kernel(std::size_t index);
  void print_role(std::size_t index, std::span<const RankId> ranks);
  void print_streams(const Role& role);
  void print_buffer(const Role& role, const Buffer& buffer);
  void print_instruction(const Role& role, const Instruction& instruction);
  void print_work(const Work& work);
  void print_peer(std::int32_t offset);
  void print_axis(AxisId axis);
  void print_edges(const Role& role, Range after);
  void print_operands(const Role& role, Range operands);
  void print_name(LabelId label, std::int32_t layer, std::int32_t microbatch);

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void add_text(std::string_view text) { out_.append(text.data(), text.data() + text.size()); }

  const Program& program_;
  std::vector<std::string> label_text_;
  std::vector<std::string> kernel_names_;  // As declared.
  std::vector<std::string> kernel_uses_;   // As an instruction says it: a plain kernel is used by its time.
  std::vector<bool> plain_;                // By kernel.
  bool kernels_implied_ = false;
  bool world_axis_implied_ = false;
  fmt::memory_buffer out_;
};

// The one axis that reading adds by itself: "world", all ranks in order, where somebody communicates.
bool world_axis_implied(const Program& program) {
  if (program.axes.size() != 1 || program.axes[0].name != "world" || program.axes[0].groups.size() != 1) {
    return false;
  }
  const std::vector<RankId>& group = program.axes[0].groups[0];
  if (group.size() != program.role_of.size()) return false;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    if (group[rank].index() != rank) return false;
  }
  for (const Role& role : program.roles) {
    for (const Instruction& instruction : role.instructions) {
      const Work& work = instruction.work;
      if (!std::holds_alternative<Compute>(work) && !std::holds_alternative<Copy>(work)) return true;
    }
  }
  return false;
}

Printer::Printer(const Program& program) : program_(program) {
  for (const std::string& label : program.labels) label_text_.push_back(plain_name(label));
  std::unordered_map<std::int32_t, int> copies;
  std::unordered_set<std::int64_t> timed;
  for (const Kernel& kernel : program.kernels) {
    plain_.push_back(is_plain(program, kernel));
    std::string text = label_text_[kernel.label.index()];
    const int copy = ++copies[kernel.label.value];
    if (copy > 1) text += fmt::format("~{}", copy);
    kernel_names_.push_back(text);
    // A time stands for the first plain kernel that takes so long.
    if (plain_.back() && timed.insert(kernel.fixed.picoseconds).second) text = exact_time(kernel.fixed);
    kernel_uses_.push_back(std::move(text));
  }
  kernels_implied_ = plain_kernels_implied(program, plain_);
  world_axis_implied_ = world_axis_implied(program);
}

std::string Printer::print() {
  print_header();
  std::vector<std::vector<RankId>> ranks(program_.roles.size());
  for (std::size_t rank = 0; rank < program_.role_of.size(); ++rank) {
    const RoleId role = program_.role_of[rank];
    if (role.valid()) ranks[role.index()].emplace_back(static_cast<std::int64_t>(rank));
  }
  for (std::size_t role = 0; role < program_.roles.size(); ++role) print_role(role, ranks[role]);
  return fmt::to_string(out_);
}

void Printer::print_header() {
  if (!program_.name.empty()) add("program {}\n", plain_name(program_.name));
  if (program_.captured) add("captured\n");
  const std::size_t world = program_.role_of.size();
  std::size_t natural = world;
  while (natural > 0 && !program_.role_of[natural - 1].valid()) --natural;
  if (natural != world) add("world {}\n", world);
  std::vector<std::int64_t> devices(program_.device_of.begin(), program_.device_of.end());
  bool identity = devices.size() == world;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    identity = identity && devices[rank] == static_cast<std::int64_t>(rank);
  }
  if (!identity) add("devices {}\n", format_numbers(devices));
  if (!labels_implied(program_, plain_, kernels_implied_)) add("labels {}\n", fmt::join(label_text_, ", "));
  if (!world_axis_implied_) {
    for (const Axis& axis : program_.axes) {
      add("axis {}", plain_name(axis.name));
      if (!axis.groups.empty()) add(" {}", format_groups(axis.groups));
      add("\n");
    }
  }
  print_graph_facts();
  for (std::size_t i = 0; i < program_.kernels.size(); ++i) {
    if (!plain_[i] || !kernels_implied_) print_kernel(i);
  }
}

// What binds the program to a Graph.
void Printer::print_graph_facts() {
  if (!program_.sizes.empty()) add("sizes {}\n", fmt::join(program_.sizes, ","));
  if (!program_.first_microbatch.empty()) {
    const std::vector<std::int64_t> first(program_.first_microbatch.begin(), program_.first_microbatch.end());
    add("first-microbatch {}\n", format_numbers(first));
  }
  for (const Placement& placement : program_.placements) {
    add_text("placement ");
    if (placement.splits.empty()) add_text("whole");
    for (std::size_t i = 0; i < placement.splits.size(); ++i) {
      const Split& split = placement.splits[i];
      add("{}split {}{}", i == 0 ? "" : ", ", split.dim.value, split.zigzag ? " zigzag" : "");
      if (split.shift != 0) add(" shift {}", split.shift);
      print_axis(split.axis);
    }
    add_text("\n");
  }
}

void Printer::print_kernel(std::size_t index) {
  const Kernel& kernel = program_.kernels[index];
  const Kernel standard;
  add("kernel {} {}", kernel_names_[index], to_string(kernel.kind));
  if (kernel.kind != KernelKind::kFixed || kernel.dtype != standard.dtype)
    add(" {}", to_string(kernel.dtype));
  if (kernel.fp8.scaling == Fp8Scaling::kSquares) add_text(" squares");
  if (kernel.fp8.scaling == Fp8Scaling::kRows) add_text(" rows");
  if (kernel.fp8.e5m2) add_text(" e5m2");
  if (kernel.fp8.fast) add_text(" fast");
  if (kernel.m != standard.m) add(" m={}", kernel.m);
  if (kernel.n != standard.n) add(" n={}", kernel.n);
  if (kernel.k != standard.k) add(" k={}", kernel.k);
  if (kernel.batch != standard.batch) add(" batch={}", kernel.batch);
  if (kernel.flops != standard.flops) add(" flops={}", kernel.flops);
  if (kernel.read_bytes != standard.read_bytes) add(" read={}", exact_bytes(kernel.read_bytes));
  if (kernel.written_bytes != standard.written_bytes) add(" written={}", exact_bytes(kernel.written_bytes));
  if (kernel.fixed != standard.fixed) add(" fixed={}", exact_time(kernel.fixed));
  add("\n");
}

void Printer::print_role(std::size_t index, std::span<const RankId> ranks) {
  const Role& role = program_.roles[index];
  if (out_.size() > 0) add("\n");
  add("role {} (ranks {}):\n", plain_name(role.name), format_ranks(ranks));
  print_streams(role);
  for (const Buffer& buffer : role.buffers) print_buffer(role, buffer);
  for (const Instruction& instruction : role.instructions) print_instruction(role, instruction);
}

void Printer::print_streams(const Role& role) {
  Marker streams(role.streams.size());
  for (const Instruction& instruction : role.instructions) streams.first(instruction.stream.index());
  bool implied = streams.complete_in_order();
  for (const Stream& stream : role.streams) implied = implied && stream.priority == 0;
  if (implied) return;
  for (const Stream& stream : role.streams) {
    add("  stream {}", plain_name(stream.name));
    if (stream.priority != 0) add(" priority {}", stream.priority);
    add("\n");
  }
}

void Printer::print_buffer(const Role& role, const Buffer& buffer) {
  add_text("  buffer ");
  print_name(buffer.label, buffer.layer, buffer.microbatch);
  add(" {} {}", to_string(buffer.category), exact_bytes(buffer.bytes));
  if (buffer.persistent) add_text(" persistent");
  if (buffer.offset >= 0) add(" at {}", exact_bytes(buffer.offset));
  if (buffer.tensor.valid()) add(" of {}", buffer.tensor.value);
  if (buffer.placement.valid()) add(" placed {}", buffer.placement.value);
  const auto print_other = [&](std::string_view what, BufferId id) {
    if (!id.valid()) return;
    const Buffer& other = role.buffers[id.index()];
    add_text(what);
    print_name(other.label, other.layer, other.microbatch);
  };
  print_other(" behind ", buffer.behind);
  print_other(" in-place-of ", buffer.in_place_of);
  add_text("\n");
}

void Printer::print_instruction(const Role& role, const Instruction& instruction) {
  add_text("  ");
  print_name(instruction.label, instruction.layer, instruction.microbatch);
  add_text(" = ");
  print_work(instruction.work);
  const std::string& stream = role.streams[instruction.stream.index()].name;
  if (stream != default_stream(instruction.work)) add(" on {}", plain_name(stream));
  if (instruction.purpose != Purpose::kOther) add(" for {}", to_string(instruction.purpose));
  print_edges(role, instruction.after);
  print_operands(role, instruction.operands);
  for (std::int32_t i = instruction.ops.begin; i < instruction.ops.end; ++i) {
    add("{}{}", i == instruction.ops.begin ? " ops " : ",", role.ops[static_cast<std::size_t>(i)].value);
  }
  if (instruction.part >= 0) add(" part {}", instruction.part);
  const Piece& piece = instruction.piece;
  if (piece.of > 1) add(" piece {},{},{}", piece.index, piece.of, piece.segments);
  add_text("\n");
}

void Printer::print_work(const Work& work) {
  if (const auto* const compute = std::get_if<Compute>(&work)) {
    add("compute {}", kernel_uses_[compute->kernel.index()]);
  } else if (const auto* const send = std::get_if<Send>(&work)) {
    add("send {} to ", exact_bytes(send->bytes));
    print_peer(send->offset);
    print_axis(send->axis);
  } else if (const auto* const recv = std::get_if<Recv>(&work)) {
    add("recv {} from ", exact_bytes(recv->bytes));
    print_peer(recv->offset);
    print_axis(recv->axis);
  } else if (const auto* const collective = std::get_if<Collective>(&work)) {
    add("{} {}", to_string(collective->kind), exact_bytes(collective->bytes));
    if (collective->dtype != DType::kBf16) add(" {}", to_string(collective->dtype));
    if (collective->reduction == Reduction::kMax) add_text(" max");
    if (collective->reduction == Reduction::kTreeSum) add_text(" tree");
    print_axis(collective->axis);
  } else {
    const Copy& copy = std::get<Copy>(work);
    add("copy {} to {}", exact_bytes(copy.bytes), copy.to_host ? "host" : "device");
  }
}

void Printer::print_peer(std::int32_t offset) {
  if (offset == 1) return add_text("next");
  if (offset == -1) return add_text("previous");
  add("{:+}", offset);
}

void Printer::print_axis(AxisId axis) {
  if (!world_axis_implied_) add(" in {}", plain_name(program_.axes[axis.index()].name));
}

void Printer::print_edges(const Role& role, Range after) {
  for (std::int32_t i = after.begin; i < after.end; ++i) {
    const Edge& edge = role.edges[static_cast<std::size_t>(i)];
    add_text(i == after.begin ? " after " : ", ");
    if (edge.previous_step) add_text("@prev ");
    const Instruction& earlier = role.instructions[static_cast<std::size_t>(edge.instruction)];
    print_name(earlier.label, earlier.layer, earlier.microbatch);
  }
}

void Printer::print_operands(const Role& role, Range operands) {
  for (std::int32_t i = operands.begin; i < operands.end; ++i) {
    const Operand& operand = role.operands[static_cast<std::size_t>(i)];
    const bool continues =
        i > operands.begin && role.operands[static_cast<std::size_t>(i - 1)].writes == operand.writes;
    add_text(continues ? ", " : operand.writes ? " writes " : " reads ");
    const Buffer& buffer = role.buffers[operand.buffer.index()];
    print_name(buffer.label, buffer.layer, buffer.microbatch);
  }
}

void Printer::print_name(LabelId label, std::int32_t layer, std::int32_t microbatch) {
  add_text(label_text_[label.index()]);
  if (layer >= 0) add(".l{}", layer);
  if (microbatch >= 0) add(".m{}", microbatch);
}

}  // namespace

std::string to_text(const Program& program) { return Printer(program).print(); }

}  // namespace orrery
