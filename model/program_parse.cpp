#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "base/units.hpp"
#include "model/program_parser.hpp"
#include "model/program_ranks.hpp"

namespace orrery {
namespace {

// What all axes may hold together, so that many axes of kMaxRanks don't fill the memory.
constexpr std::int64_t kMaxMembers = 16 * kMaxRanks;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

}  // namespace

Program ProgramParser::parse() {
  while (true) {
    in_.skip_line_ends();
    if (in_.peek().kind == TokenKind::kEnd) break;
    const bool role = in_.at_word("role");
    read_statement();
    // A role ends where the next statement begins; its own lines are checked as they are read.
    if (!role && !in_.at_line_end()) in_.fail_expected("the end of the line");
  }
  finish();
  return std::move(program_);
}

void ProgramParser::read_statement() {
  static const std::vector<std::string> kStatements = {
      "program", "captured", "world", "devices",          "labels",   "axis",
      "kernel",  "role",     "sizes", "first-microbatch", "placement"};
  const Token word = in_.peek();
  if (word.kind != TokenKind::kWord) in_.fail_expected("a statement such as 'role' or 'kernel'");
  if (word.text == "program") return read_program_name();
  if (word.text == "world") return read_world();
  if (word.text == "devices") return read_devices();
  if (word.text == "labels") return read_labels();
  if (word.text == "axis") return read_axis();
  if (word.text == "sizes") return read_sizes();
  if (word.text == "first-microbatch") return read_first_microbatch();
  if (word.text == "placement") return read_placement();
  if (word.text == "kernel") return read_kernel();
  if (word.text == "role") return read_role();
  if (word.text != "captured") {
    const bool in_role = !program_.roles.empty();
    in_.fail_unknown(word, in_role ? "statement, and no instruction as '=' doesn't follow:" : "statement",
                     word.text, kStatements);
  }
  in_.take();
  program_.captured = true;
}

void ProgramParser::read_program_name() {
  const Token keyword = in_.take();
  if (!program_.name.empty()) in_.fail_at(keyword.offset, "the program has two names; expected one");
  program_.name = in_.expect_plain_name("the program's name");
}

void ProgramParser::read_labels() {
  const Token keyword = in_.take();
  if (!program_.labels.empty()) {
    in_.fail_at(keyword.offset,
                "'labels' fixes the order of all labels; expected it before kernels and roles");
  }
  do {
    while (in_.peek().kind == TokenKind::kNewline) in_.take();
    const Token token = in_.peek();
    const std::string label = in_.expect_plain_name("a label");
    if (labels_.contains(label)) in_.fail_at(token.offset, fmt::format("label '{}' is repeated", label));
    intern(label);
  } while (in_.accept_punctuation(','));
}

void ProgramParser::read_world() {
  world_offset_ = in_.take().offset;
  if (world_) in_.fail_at(world_offset_, "the world size is given twice");
  world_ = in_.expect_integer("a number of ranks", 0, kMaxRanks);
}

void ProgramParser::read_devices() {
  devices_offset_ = in_.take().offset;
  if (devices_) in_.fail_at(devices_offset_, "the devices are given twice");
  devices_ = read_numbers(in_, "a device", -1);
}

void ProgramParser::read_axis() {
  const Token keyword = in_.take();
  const Token token = in_.peek();
  std::string name = in_.expect_plain_name("the axis' name");
  if (implicit_world_) {
    in_.fail_at(
        keyword.offset,
        "axes are declared after a role has used the default axis 'world'; expected them before the roles");
  }
  if (!axes_.emplace(name, AxisId(static_cast<std::int64_t>(program_.axes.size()))).second) {
    in_.fail_at(token.offset, fmt::format("axis '{}' is declared twice", name));
  }
  program_.axes.push_back({std::move(name), read_groups(in_)});
  axis_offsets_.push_back(keyword.offset);
  for (const std::vector<RankId>& group : program_.axes.back().groups) {
    members_ += 1 + static_cast<std::int64_t>(group.size());
  }
  if (members_ > kMaxMembers) {
    in_.fail_at(keyword.offset, fmt::format("all axes together have more than {} members", kMaxMembers));
  }
}

void ProgramParser::read_sizes() {
  const Token keyword = in_.take();
  if (!program_.sizes.empty()) in_.fail_at(keyword.offset, "the sizes are given twice; expected them once");
  do {
    program_.sizes.push_back(in_.expect_integer("the size of a dimension", 1, kMaxInt64));
  } while (in_.accept_punctuation(','));
}

void ProgramParser::read_first_microbatch() {
  first_microbatch_offset_ = in_.take().offset;
  if (!program_.first_microbatch.empty()) {
    in_.fail_at(first_microbatch_offset_, "the first micro-batches are given twice; expected them once");
  }
  for (const std::int64_t first : read_numbers(in_, "a micro-batch", 0)) {
    program_.first_microbatch.push_back(static_cast<std::int32_t>(first));
  }
}

void ProgramParser::read_placement() {
  in_.take();
  Placement& placement = program_.placements.emplace_back();
  if (in_.accept_word("whole")) return;
  do {
    in_.expect_word("split");
    Split split;
    split.dim = DimId(in_.expect_integer("a dimension", 0, kMaxInt32));
    split.zigzag = in_.accept_word("zigzag");
    if (in_.accept_word("shift")) {
      split.shift = static_cast<std::int32_t>(in_.expect_integer("a number of positions", 1, kMaxInt32));
    }
    split.axis = read_axis_reference();
    placement.splits.push_back(split);
  } while (in_.accept_punctuation(','));
}

void ProgramParser::read_kernel() {
  in_.take();
  const Token token = in_.peek();
  const std::string name = in_.expect_plain_name("the kernel's name");
  const std::int64_t copy = in_.accept_punctuation('~') ? in_.expect_integer("a number", 2, kMaxInt32) : 1;
  const auto expected = static_cast<std::int64_t>(kernels_[name].size()) + 1;
  if (copy != expected) {
    in_.fail_at(token.offset,
                expected == 1
                    ? fmt::format("expected the first kernel of this name as '{}'", name)
                    : fmt::format("kernel '{}' is declared already; expected another name, or '{}~{}' for "
                                  "another shape under this name",
                                  name, name, expected));
  }
  Kernel kernel;
  kernel.label = intern(name);
  kernel.kind = read_enum<KernelKind>("kernel kind");
  if (in_.peek().kind == TokenKind::kNumber && kernel.kind == KernelKind::kFixed) kernel.fixed = read_time();
  while (in_.peek().kind == TokenKind::kWord) {
    if (in_.peek_second().text == "=") {
      read_kernel_field(kernel);
    } else if (kernel.dtype != DType::kFp8 || !read_fp8_word(kernel.fp8)) {
      kernel.dtype = read_enum<DType>("number format");
    }
  }
  add_kernel(kernel);
}

// false: it is another word.
bool ProgramParser::read_fp8_word(Fp8Arithmetic& arithmetic) {
  if (in_.accept_word("squares")) {
    arithmetic.scaling = Fp8Scaling::kSquares;
  } else if (in_.accept_word("rows")) {
    arithmetic.scaling = Fp8Scaling::kRows;
  } else if (in_.accept_word("e5m2")) {
    arithmetic.e5m2 = true;
  } else if (in_.accept_word("fast")) {
    arithmetic.fast = true;
  } else {
    return false;
  }
  return true;
}

void ProgramParser::read_kernel_field(Kernel& kernel) {
  static const std::vector<std::string> kFields = {"m",     "n",    "k",       "batch",
                                                   "flops", "read", "written", "fixed"};
  const Token key = in_.take();
  in_.expect_punctuation('=');
  if (key.text == "m") {
    kernel.m = in_.expect_integer("a size", 0, kMaxInt64);
  } else if (key.text == "n") {
    kernel.n = in_.expect_integer("a size", 0, kMaxInt64);
  } else if (key.text == "k") {
    kernel.k = in_.expect_integer("a size", 0, kMaxInt64);
  } else if (key.text == "batch") {
    kernel.batch = in_.expect_integer("a size", 0, kMaxInt64);
  } else if (key.text == "flops") {
    kernel.flops = read_flops();
  } else if (key.text == "read") {
    kernel.read_bytes = read_bytes();
  } else if (key.text == "written") {
    kernel.written_bytes = read_bytes();
  } else if (key.text == "fixed") {
    kernel.fixed = read_time();
  } else {
    in_.fail_unknown(key, "field of a kernel", key.text, kFields);
  }
}

void ProgramParser::finish() {
  const std::size_t natural = program_.role_of.size();
  if (world_) {
    if (static_cast<std::size_t>(*world_) < natural) {
      in_.fail_at(world_offset_,
                  fmt::format("the world has {} ranks, but a role names rank {}; expected 'world {}' or more",
                              *world_, natural - 1, natural));
    }
    program_.role_of.resize(static_cast<std::size_t>(*world_));
  }
  const std::size_t world = program_.role_of.size();
  for (std::size_t axis = 0; axis < program_.axes.size(); ++axis) {
    for (const std::vector<RankId>& group : program_.axes[axis].groups) {
      for (const RankId rank : group) {
        if (rank.index() < world) continue;
        in_.fail_at(
            axis_offsets_[axis],
            fmt::format(
                "axis '{}' names rank {}, but the world has {} ranks; give the rank a role or say 'world {}'",
                program_.axes[axis].name, rank.value, world, rank.value + 1));
      }
    }
  }
  if (implicit_world_) {
    std::vector<RankId>& everybody = program_.axes.front().groups.emplace_back();
    for (std::size_t rank = 0; rank < world; ++rank) everybody.emplace_back(static_cast<std::int64_t>(rank));
  }
  if (!program_.first_microbatch.empty() && program_.first_microbatch.size() != world) {
    in_.fail_at(first_microbatch_offset_,
                fmt::format("{} first micro-batches for {} ranks; expected one per rank",
                            program_.first_microbatch.size(), world));
  }
  program_.device_of.resize(world);
  for (std::size_t rank = 0; rank < world; ++rank) program_.device_of[rank] = static_cast<std::int32_t>(rank);
  if (!devices_) return;
  if (devices_->size() != world) {
    in_.fail_at(devices_offset_,
                fmt::format("{} devices for {} ranks; expected one per rank", devices_->size(), world));
  }
  for (std::size_t rank = 0; rank < world; ++rank)
    program_.device_of[rank] = static_cast<std::int32_t>((*devices_)[rank]);
}

SimTime ProgramParser::read_time() {
  const Token token = in_.peek();
  if (token.kind != TokenKind::kNumber) in_.fail_expected("a time such as 10us");
  const std::optional<SimTime> time = parse_time(token.text);
  if (!time)
    in_.fail_at(token.offset,
                fmt::format("'{}' isn't a time; expected one such as 10us or 1.5ms", token.text));
  in_.take();
  return *time;
}

double ProgramParser::read_flops() {
  const Token token = in_.peek();
  if (token.kind != TokenKind::kNumber) in_.fail_expected("a number such as 1e12");
  double value = 0;
  const auto [stop, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
  if (error != std::errc() || stop != token.text.data() + token.text.size() || !std::isfinite(value)) {
    in_.fail_at(token.offset, fmt::format("'{}' isn't a number; expected one such as 1e12", token.text));
  }
  in_.take();
  return value;
}

KernelId ProgramParser::add_kernel(const Kernel& kernel) {
  const KernelId id(static_cast<std::int64_t>(program_.kernels.size()));
  program_.kernels.push_back(kernel);
  kernels_[program_.labels[kernel.label.index()]].push_back(id);
  if (is_plain(program_, kernel)) plain_kernels_.try_emplace(kernel.fixed.picoseconds, id);
  return id;
}

LabelId ProgramParser::intern(const std::string& label) {
  const auto [entry, added] =
      labels_.try_emplace(label, LabelId(static_cast<std::int64_t>(program_.labels.size())));
  if (added) program_.labels.push_back(label);
  return entry->second;
}

Program parse_program(std::string_view text, std::string_view place) {
  return ProgramParser(text, place).parse();
}

}  // namespace orrery
