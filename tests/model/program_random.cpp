#include "tests/model/program_random.hpp"

#include <fmt/format.h>

#include <set>
#include <tuple>

#include "base/random.hpp"
#include "base/units.hpp"

namespace orrery {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Program make() {
    program_.name = chance(2) ? pick_label() : "";
    program_.captured = chance(2);
    while (chance(8) == false && program_.labels.size() < 20) add_label();
    if (program_.labels.empty()) add_label();
    make_ranks();
    make_axes();
    make_kernels();
    const std::int64_t roles = random_.between(role_count_ > 0 ? role_count_ : 0, role_count_ + 1);
    for (std::int64_t role = 0; role < roles; ++role) make_role(role);
    return std::move(program_);
  }

 private:
  bool chance(std::int64_t one_in) { return random_.between(1, one_in) == 1; }
  std::int64_t up_to(std::size_t size) { return random_.between(0, static_cast<std::int64_t>(size) - 1); }

  std::string pick_label() {
    static const std::vector<std::string> kAwkward = {
        "qkv", "a.l3",  "a.m0", "10us",   "1",   "",      "role",       "buffer", "after",
        "a b", "\"q\"", "\\",   "line\n", "x~2", "Größe", "all-reduce", "=",      "#x"};
    if (chance(3)) return kAwkward[static_cast<std::size_t>(up_to(kAwkward.size()))];
    return fmt::format("op{}", random_.between(0, 30));
  }

  void add_label() { program_.intern(pick_label()); }
  LabelId label() { return LabelId(up_to(program_.labels.size())); }

  void make_ranks() {
    const std::int64_t world = random_.between(0, 40);
    role_count_ = world == 0 ? 0 : random_.between(1, 4);
    for (std::int64_t rank = 0; rank < world; ++rank) {
      program_.role_of.push_back(chance(10) ? RoleId() : RoleId(random_.between(0, role_count_ - 1)));
      program_.device_of.push_back(static_cast<std::int32_t>(rank));
    }
    if (chance(2)) return;
    for (std::size_t rank = 0; rank < program_.device_of.size(); ++rank) {
      const bool none = !program_.role_of[rank].valid() && chance(2);
      program_.device_of[rank] = none ? -1 : static_cast<std::int32_t>(random_.between(0, 1000));
    }
  }

  void make_axes() {
    const std::int64_t world = program_.world_size();
    const std::int64_t axes = random_.between(0, 3);
    for (std::int64_t i = 0; i < axes; ++i) {
      Axis axis;
      axis.name = i == 0 && chance(3) ? "world" : fmt::format("{}{}", i, pick_label());
      const std::int64_t stride = random_.between(1, 4);
      const std::int64_t groups = world == 0 ? random_.between(0, 1) : random_.between(1, stride);
      for (std::int64_t g = 0; g < groups; ++g) {
        std::vector<RankId>& group = axis.groups.emplace_back();
        for (std::int64_t rank = g; rank < world; rank += groups) group.emplace_back(rank);
        if (group.size() > 1 && chance(4)) std::swap(group.front(), group.back());
      }
      program_.axes.push_back(std::move(axis));
    }
  }

  void make_kernels() {
    const std::int64_t kernels = random_.between(0, 8);
    for (std::int64_t i = 0; i < kernels; ++i) {
      Kernel kernel;
      kernel.label = label();
      kernel.kind = static_cast<KernelKind>(random_.between(0, 8));
      kernel.dtype = static_cast<DType>(random_.between(0, kDTypeCount - 1));
      if (chance(2)) kernel.m = random_.between(0, 1 << 20);
      if (chance(2)) kernel.n = static_cast<std::int64_t>(random_.next() >> 1);
      if (chance(2)) kernel.k = random_.between(0, 9);
      if (chance(2)) kernel.batch = random_.between(0, 3);
      if (chance(2)) kernel.flops = random_.uniform() * (chance(2) ? 1e30 : 1e-9);
      if (chance(2)) kernel.read_bytes = bytes();
      if (chance(2)) kernel.written_bytes = bytes();
      if (chance(2)) kernel.fixed = {random_.between(0, 1'000'000'000)};
      program_.kernels.push_back(kernel);
    }
    for (std::int64_t i = random_.between(0, 3); i > 0; --i) {
      Kernel plain;  // What "compute 3us" makes.
      plain.kind = KernelKind::kFixed;
      plain.fixed = {random_.between(0, 4) * 1'000'000};
      plain.label = program_.intern(exact_time(plain.fixed));
      program_.kernels.push_back(plain);
    }
  }

  std::int64_t bytes() {
    return chance(2) ? random_.between(0, 5000) * (chance(2) ? 1024 : 1000)
                     : static_cast<std::int64_t>(random_.next() >> random_.between(1, 60));
  }

  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

  // A name that `taken` doesn't have yet.
  Key name(std::set<Key>& taken) {
    while (true) {
      const Key key{label().value, chance(2) ? -1 : static_cast<std::int32_t>(random_.between(0, 9)),
                    chance(2) ? -1 : static_cast<std::int32_t>(random_.between(0, 1 << 30))};
      if (taken.insert(key).second) return key;
    }
  }

  void make_role(std::int64_t index) {
    Role& role = program_.roles.emplace_back();
    role.name = fmt::format("{}{}", chance(3) ? pick_label() : "stage", index);
    const std::vector<std::string> names = {"compute", "comm", "send", "side stream", "x.l1"};
    for (const std::string& stream : names) {
      if (chance(2))
        role.streams.push_back({stream, chance(3) ? static_cast<std::int32_t>(random_.next()) : 0});
    }
    if (role.streams.empty()) role.streams.push_back({"compute", 0});
    std::set<Key> taken;
    for (std::int64_t i = random_.between(0, 6); i > 0; --i) {
      const auto [label_id, layer, microbatch] = name(taken);
      const auto category = static_cast<MemoryCategory>(random_.between(0, kMemoryCategoryCount - 1));
      role.buffers.push_back(
          {LabelId(label_id), layer, microbatch, category, bytes(), chance(2), chance(2) ? -1 : bytes()});
      const std::size_t own = role.buffers.size() - 1;
      if (own > 0 && chance(3)) role.buffers[own].in_place_of = BufferId(up_to(own));
      if (own == 0 || chance(2)) continue;
      const Buffer& before = role.buffers[own - 1];
      Buffer& buffer = role.buffers[own];
      if (before.category != buffer.category || before.persistent != buffer.persistent) continue;
      buffer.behind = BufferId(static_cast<std::int64_t>(own) - 1);
    }
    taken.clear();
    const std::int64_t count = random_.between(0, 25);
    for (std::int64_t i = 0; i < count; ++i) {
      Instruction instruction;
      const auto [label_id, layer, microbatch] = name(taken);
      instruction.label = LabelId(label_id);
      instruction.layer = layer;
      instruction.microbatch = microbatch;
      instruction.stream = StreamId(up_to(role.streams.size()));
      instruction.purpose = static_cast<Purpose>(random_.between(0, kPurposeCount - 1));
      instruction.work = work();
      instruction.after = edges(role, i, count);
      instruction.operands = operands(role);
      if (chance(4)) instruction.piece = {1, 4, 2};
      role.instructions.push_back(instruction);
    }
  }

  Work work() {
    const AxisId axis(program_.axes.empty() ? -1 : up_to(program_.axes.size()));
    const auto offset = chance(3) ? static_cast<std::int32_t>(random_.next()) : (chance(2) ? 1 : -1);
    const std::int64_t kind = random_.between(0, 4);
    if (kind == 0 && axis.valid()) return Send{axis, offset, bytes()};
    if (kind == 1 && axis.valid()) return Recv{axis, offset, bytes()};
    if (kind == 2 && axis.valid()) {
      return Collective{static_cast<CollectiveKind>(random_.between(0, 4)), axis, bytes(),
                        static_cast<DType>(random_.between(0, kDTypeCount - 1))};
    }
    if (kind == 3 || program_.kernels.empty()) return Copy{chance(2), bytes()};
    return Compute{KernelId(up_to(program_.kernels.size()))};
  }

  // Sometimes the same stretch of the edge array as another instruction's.
  Range edges(Role& role, std::int64_t own, std::int64_t count) {
    if (own > 0 && chance(4)) return role.instructions.back().after;
    Range range;
    range.begin = static_cast<std::int32_t>(role.edges.size());
    for (std::int64_t i = random_.between(0, 3); i > 0; --i) {
      const bool previous = own == 0 || chance(3);
      role.edges.push_back(
          {static_cast<std::int32_t>(random_.between(0, (previous ? count : own) - 1)), previous});
    }
    range.end = static_cast<std::int32_t>(role.edges.size());
    return range;
  }

  Range operands(Role& role) {
    if (role.buffers.empty()) return {};
    if (chance(3)) role.operands.push_back({});  // Nobody's: arrays may have gaps.
    Range range;
    range.begin = static_cast<std::int32_t>(role.operands.size());
    for (std::int64_t i = random_.between(0, 4); i > 0; --i) {
      role.operands.push_back({BufferId(up_to(role.buffers.size())), chance(2)});
    }
    range.end = static_cast<std::int32_t>(role.operands.size());
    return range;
  }

  Random random_;
  Program program_;
  std::int64_t role_count_ = 0;
};

}  // namespace

Program random_program(std::uint64_t seed) { return Generator(seed).make(); }

}  // namespace orrery
