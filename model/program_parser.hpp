#pragma once
// The reader of Program text, in two source files: program_parse.cpp reads statements, program_parse_role.cpp
// what stands inside a role.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/random.hpp"
#include "model/program.hpp"
#include "model/program_lexer.hpp"
#include "model/program_words.hpp"

namespace orrery {

struct NameKey {
  LabelId label;
  std::int32_t layer = -1;
  std::int32_t microbatch = -1;
  bool operator==(const NameKey&) const = default;
};

struct NameKeyHash {
  std::size_t operator()(const NameKey& key) const noexcept {
    const auto low = static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.label.value));
    const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.layer)) << 32U;
    return mix64(mix64(low | high) + static_cast<std::uint32_t>(key.microbatch));
  }
};

using NameTable = std::unordered_map<NameKey, std::int32_t, NameKeyHash>;

// A dependency whose name hasn't been seen yet: fine with @prev, else an error told at the end of the role.
struct PendingEdge {
  std::size_t edge = 0;
  Name name;
  Token token;
};

// What reading one role needs beside the role itself.
struct RoleState {
  Role role;
  NameTable instructions;
  NameTable buffers;
  std::unordered_map<std::string, StreamId> streams;
  std::vector<PendingEdge> pending;
};

class ProgramParser {
 public:
  ProgramParser(std::string_view text, std::string_view place) : in_(text, place) {}

  Program parse();

 private:
  // Statements outside roles.
  void read_statement();
  void read_program_name();
  void read_labels();
  void read_world();
  void read_devices();
  void read_axis();
  void read_sizes();
  void read_first_microbatch();
  void read_placement();
  void read_kernel();
  bool read_fp8_word(Fp8Arithmetic& arithmetic);
  void read_kernel_field(Kernel& kernel);
  void read_role();
  void read_role_ranks(const std::string& role);
  void finish();

  // Statements inside a role.
  void read_stream(RoleState& state);
  void read_buffer(RoleState& state);
  BufferId read_declared_buffer(const RoleState& state);
  void read_instruction(RoleState& state);
  Work read_work();
  Work read_compute();
  AxisId read_axis_reference();
  std::int32_t read_peer();
  void read_clauses(RoleState& state, Instruction& instruction);
  void read_ops(RoleState& state);
  void read_piece(Piece& piece);
  void read_after(RoleState& state);
  void read_operands(RoleState& state, bool writes);
  void resolve_pending(RoleState& state);

  // Parts.
  std::int64_t read_bytes();
  SimTime read_time();
  double read_flops();
  KernelId plain_kernel(SimTime time);
  KernelId add_kernel(const Kernel& kernel);
  LabelId intern(const std::string& label);
  std::optional<NameKey> known_key(const Name& name) const;
  NameKey new_key(const Name& name);
  StreamId stream(RoleState& state, const std::string& name);
  [[noreturn]] void fail_name(const RoleState& state, const Token& token, const Name& name,
                              const NameTable& table, std::string_view what) const;

  template <class E>
  E read_enum(std::string_view what) {
    const Token word = in_.peek();
    if (word.kind != TokenKind::kWord) in_.fail_expected(what);
    const std::optional<E> value = find_word<E>(word.text);
    if (!value) in_.fail_unknown(word, what, word.text, words<E>());
    in_.take();
    return *value;
  }

  Lexer in_;
  Program program_;
  std::unordered_map<std::string, LabelId> labels_;
  std::unordered_map<std::string, std::vector<KernelId>> kernels_;  // By label: "qkv", "qkv~2", …
  std::unordered_map<std::int64_t, KernelId> plain_kernels_;        // By picoseconds.
  std::unordered_map<std::string, AxisId> axes_;
  std::vector<std::size_t> axis_offsets_;
  std::int64_t members_ = 0;
  bool implicit_world_ = false;
  std::optional<std::int64_t> world_;
  std::size_t world_offset_ = 0;
  std::unordered_set<std::string> role_names_;
  std::optional<std::vector<std::int64_t>> devices_;
  std::size_t devices_offset_ = 0;
  std::size_t first_microbatch_offset_ = 0;
};

}  // namespace orrery
