// What ranks exchange by calls of a communication library is what they exchange by reading each other's
// memory.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "executor/device/copy_list.hpp"
#include "executor/device/exchange_writer.hpp"
#include "executor/runtime/bind_parts.hpp"
#include "executor/runtime/reduce.hpp"
#include "planner/lower.hpp"
#include "planner/recompute.hpp"
#include "tests/device/emulated_exchange.hpp"
#include "tests/executor/random_plans.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

using test::Participant;

// Memory of all ranks.
class Memory {
 public:
  explicit Memory(const Program& program) : ranks_(program.role_of.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!program.role_of[r].valid()) continue;
      const Role& role = program.roles[program.role_of[r].index()];
      ranks_[r].resize(static_cast<std::size_t>(host::layout_of(role, record()).bytes) + 64);
    }
  }
  static host::RecordOptions record() { return {1, 1}; }
  std::vector<std::byte*> ranks() {
    std::vector<std::byte*> found;
    for (auto& rank : ranks_) {
      const auto address = reinterpret_cast<std::uintptr_t>(rank.data());
      found.push_back(rank.empty() ? nullptr : rank.data() + (64 - address % 64) % 64);
    }
    return found;
  }

 private:
  std::vector<std::vector<std::byte>> ranks_;
};

// What came out of all exchanges of a Program.
struct Seen {
  std::map<device::CallKind, int> calls;
  int exchanges = 0, direct = 0;
};

class Comparison {
 public:
  // `whole`: values are small whole numbers, whose sums are exact in any order and type.
  Comparison(const Graph& graph, const Program& program, std::uint64_t seed, bool whole, Seen& seen)
      : program_(program),
        by_reading_(program),
        by_calls_(program),
        read_(program, by_reading_.ranks(), Memory::record()),
        called_(program, by_calls_.ranks(), Memory::record()),
        read_tables_(graph, read_),
        called_tables_(graph, called_),
        random_(seed),
        whole_(whole),
        groups_(program.role_of.size()),
        seen_(seen) {}

  void run() {
    for (std::int32_t r = 0; r < program_.world_size(); ++r) {
      const RankId rank(r);
      if (!program_.role_of[rank.index()].valid()) continue;
      const auto& instructions = read_.role(rank).instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const auto index = static_cast<std::int32_t>(i);
        if (std::holds_alternative<Collective>(instructions[i].work)) {
          const auto sides = read_tables_.sides(rank, index);
          if (sides.front().first == rank) check(sides);
        } else if (std::holds_alternative<Send>(instructions[i].work)) {
          check({{rank, index}, read_tables_.other_side(rank, index)});
        }
      }
    }
    check_groups();
  }

 private:
  using Sides = std::vector<std::pair<RankId, std::int32_t>>;

  const Instruction& instruction(const std::pair<RankId, std::int32_t>& side) const {
    return read_.role(side.first).instructions[static_cast<std::size_t>(side.second)];
  }

  void check(const Sides& sides) {
    INFO(read_tables_.name(sides.front().first, instruction(sides.front())));
    fill(sides);
    read(sides);
    call(sides);
    ++seen_.exchanges;
    for (const auto& [rank, index] : sides) {
      INFO("rank " << rank.value);
      const auto bytes = static_cast<std::size_t>(read_.layout(rank).arena_bytes);
      if (std::memcmp(read_.arena(rank), called_.arena(rank), bytes) != 0) FAIL("other values");
    }
  }

  void fill(const Sides& sides) {
    host::Workspace workspace;
    for (const auto& side : sides) {
      for (const Operand& operand : read_tables_.operands(side.first, instruction(side))) {
        const host::TensorView view = read_tables_.view(side.first, operand.buffer);
        if (view.dtype == DType::kInt64 || view.dtype == DType::kInt32 || view.dtype == DType::kUint8) {
          for (std::int64_t i = 0; i < view.elements * size_bytes(view.dtype); ++i) {
            view.data[i] = static_cast<std::byte>(random_.between(0, 255));
          }
        } else {
          std::vector<float> values(static_cast<std::size_t>(view.elements));
          for (float& value : values) {
            value = static_cast<float>(whole_ ? static_cast<double>(random_.between(-4, 4))
                                              : random_.uniform() - 0.5);
          }
          host::convert({reinterpret_cast<std::byte*>(values.data()), DType::kFp32, view.elements}, view,
                        workspace);
        }
        std::memcpy(called_tables_.view(side.first, operand.buffer).data, view.data,
                    static_cast<std::size_t>(view.elements * size_bytes(view.dtype)));
      }
    }
  }

  void read(const Sides& sides) {
    host::Workspace workspace;
    std::vector<host::Exchange> exchanges;
    std::size_t phases = 0;
    for (const auto& [rank, index] : sides) {
      exchanges.push_back(host::bind_exchange(read_tables_, rank, index));
      phases = std::max(phases, exchanges.back().phases.size());
    }
    for (std::size_t p = 0; p < phases; ++p) {
      for (const host::Exchange& exchange : exchanges) {
        if (p >= exchange.phases.size()) continue;
        for (const host::Transfer& transfer : exchange.phases[p].work) {
          if (const auto* const copy = std::get_if<host::CopyBytes>(&transfer)) {
            std::memcpy(copy->to, copy->from, static_cast<std::size_t>(copy->bytes));
          } else if (const auto* const sum = std::get_if<host::Reduce>(&transfer)) {
            host::reduce(*sum, workspace);
          }
        }
      }
    }
  }

  void call(const Sides& sides) {
    std::vector<Participant> participants;
    std::vector<std::vector<std::byte>> scratch(sides.size());
    std::vector<double> norms;
    for (std::size_t m = 0; m < sides.size(); ++m) norms.push_back(static_cast<double>(m + 1));
    for (std::size_t m = 0; m < sides.size(); ++m) {
      const auto& [rank, index] = sides[m];
      auto& groups = groups_[rank.index()];
      const auto lower = [&](std::byte* with) {
        return device::lower_exchange(called_tables_, rank, index, groups, with, &norms[m]);
      };
      const std::int64_t wanted = lower(nullptr).scratch_bytes;
      const std::size_t known = groups.size();
      // Ones in all bits are no number: padding may not come into sums.
      scratch[m].assign(static_cast<std::size_t>(wanted), std::byte{0xff});
      participants.push_back({rank, lower(scratch[m].data()), groups});
      CHECK(participants.back().exchange.scratch_bytes == wanted);
      CHECK(groups.size() == known);
      note(participants.back(), instruction(sides[m]));
    }
    CHECK(test::perform(participants) == "");
    if (participants.front().exchange.calls.size() == 1 && participants.front().exchange.calls[0].fp64) {
      const auto n = static_cast<double>(sides.size());
      for (const double norm : norms) CHECK(norm == n * (n + 1) / 2);
    }
  }

  void note(const Participant& participant, const Instruction& of) {
    for (const device::Call& call : participant.exchange.calls) ++seen_.calls[call.kind];
    seen_.direct += participant.exchange.scratch_bytes == 0;
    if (participant.exchange.group < 0) return;
    const device::Group& group = participant.groups[static_cast<std::size_t>(participant.exchange.group)];
    streams_[{participant.rank.value, group.name}].insert(of.stream.value);
  }

  // A communicator used on two streams would bring them into an order.
  void check_groups() {
    for (const auto& [group, streams] : streams_) {
      INFO(group.second);
      CHECK(streams.size() == 1);
    }
  }

  const Program& program_;
  Memory by_reading_, by_calls_;
  host::World read_, called_;
  host::Tables read_tables_, called_tables_;
  Random random_;
  bool whole_;
  std::vector<std::vector<device::Group>> groups_;  // By rank.
  std::map<std::pair<std::int32_t, std::string>, std::set<std::int32_t>> streams_;
  Seen& seen_;
};

void check_plan(const Graph& graph, const PlanShorthand& shorthand, std::int32_t gpus, bool whole,
                Seen& seen) {
  const Plan plan = expand(shorthand, graph, gpus);
  Program program = lower(graph, plan);
  REQUIRE(verify(program).empty());
  place_buffers(program);
  Comparison(graph, program, 20261201, whole, seen).run();
}

PlanShorthand small_plan() {
  PlanShorthand plan;
  plan.dp = 1;
  plan.settings.sequence = 16;
  plan.settings.microbatch_size = 2;
  plan.global_batch = 16;
  return plan;
}

}  // namespace

#ifdef ORRERY_SANITIZED
constexpr int kPlans = 10;
#else
constexpr int kPlans = 60;
#endif
TEST_CASE("calls of a communication library exchange what ranks read of each other", "[executor][device]") {
  Random random(20261201);
  const std::array<TransformerConfig, 5> models = {test::tiny_llama(), test::tiny_gpt(), test::tiny_moe(),
                                                   test::tiny_latent(), test::tiny_parallel()};
  Seen seen;
  for (int done = 0; done < kPlans;) {
    const TransformerConfig& config = models[static_cast<std::size_t>(done) % models.size()];
    const DType dtype = done % 3 == 0 ? DType::kFp32 : DType::kBf16;
    const Graph graph = build_training_graph(config, dtype);
    test::Drawn drawn = test::draw(random, config.experts.count > 0, recompute_names(graph));
    drawn.plan.settings.compute_dtype = dtype;
    if (done % 4 == 1) drawn.plan.settings.gradient_dtype = DType::kBf16;
    if (drawn.gpus > 16) continue;
    INFO("plan " << done << ": " << config.name << " " << test::describe(drawn));
    try {
      check_plan(graph, drawn.plan, drawn.gpus, true, seen);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) FAIL(error.what());
      continue;
    }
    ++done;
  }
  for (const device::CallKind kind :
       {device::CallKind::kAllReduce, device::CallKind::kAllGather, device::CallKind::kReduceScatter,
        device::CallKind::kSend, device::CallKind::kReceive}) {
    CHECK(seen.calls[kind] > 100);
  }
  CHECK(seen.exchanges > 1000);
}

TEST_CASE("sums over a tree are exchanged as addends", "[executor][device]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp32);
  Seen seen;
  for (const std::int32_t dp : {2, 4, 8}) {
    for (const std::int32_t zero : {0, 1, 2, 3}) {
      PlanShorthand plan = small_plan();
      plan.dp = dp;
      plan.settings.compute_dtype = DType::kFp32;
      plan.settings.kernel_set = "orrery-host";
      plan.settings.gradient_sum = GradientSum::kOrdered;
      plan.settings.zero_stage = zero;
      INFO("dp " << dp << ", zero " << zero);
      check_plan(graph, plan, dp, false, seen);
    }
  }
  CHECK(seen.exchanges > 100);
}

// Programs written by hand may have what plans of today haven't.
TEST_CASE("what one member has goes to all", "[executor][device]") {
  constexpr std::size_t kMembers = 3;
  // Two stretches of the root's array go to other places of everybody's, or twenty single elements.
  const bool many = GENERATE(false, true);
  const bool agreed = GENERATE(true, false);
  device::Slot slot = {{0, 10, 0, 4}, {0, 20, 6, 3}};
  if (many) {
    slot.clear();
    for (std::int64_t i = 0; i < 20; ++i) slot.push_back({0, 2 * i, 3 * i, 1});
  }
  std::vector<device::Slot> slots(kMembers);
  slots[1] = slot;
  std::vector<std::vector<float>> from(kMembers, std::vector<float>(64)), to = from;
  for (std::size_t i = 0; i < 64; ++i) from[1][i] = static_cast<float>(i + 1);
  std::vector<std::vector<std::byte>> scratch(kMembers, std::vector<std::byte>(1024));
  std::vector<Participant> participants(kMembers);
  const auto array = [](std::vector<float>& of) {
    return device::Arrays{{reinterpret_cast<std::byte*>(of.data()), DType::kFp32, std::ssize(of)}};
  };
  for (std::size_t m = 0; m < kMembers; ++m) {
    participants[m].rank = RankId(static_cast<std::int64_t>(m));
    participants[m].groups = {{"all", {0, 1, 2}, static_cast<std::int32_t>(m)}};
    participants[m].exchange.group = 0;
    device::ExchangeWriter writer(participants[m].exchange, kMembers, m, scratch[m].data());
    writer.gather(slots, array(from[m]), array(to[m]), agreed, false);
    REQUIRE(participants[m].exchange.calls.size() == (agreed && !many ? 2 : 1));
    CHECK(participants[m].exchange.calls.front().kind == device::CallKind::kBroadcast);
    CHECK(participants[m].exchange.scratch_bytes <= 1024);
  }
  CHECK(test::perform(participants) == "");
  std::vector<float> wanted(64);
  for (const device::Stretch& stretch : slot) {
    for (std::int64_t i = 0; i < stretch.count; ++i) {
      wanted[static_cast<std::size_t>(stretch.to + i)] = from[1][static_cast<std::size_t>(stretch.from + i)];
    }
  }
  for (const std::vector<float>& found : to) CHECK(found == wanted);
}

TEST_CASE("each element comes from the first member that has it", "[executor][device]") {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    // Random indices in two dimensions, so that members have some in common.
    const auto indices = [&](double kept) {
      std::vector<std::int64_t> found;
      for (std::int64_t i = 0; i < 9; ++i) {
        if (random.uniform() < kept) found.push_back(i);
      }
      return found;
    };
    host::Shard wanted = {{indices(0.8), indices(0.8)}};
    std::vector<host::Shard> shards;
    for (int m = 0; m < 4; ++m) shards.push_back({{indices(0.5), indices(0.7)}});
    std::vector<const host::Shard*> sources;
    for (const host::Shard& shard : shards) sources.push_back(&shard);
    const auto found = device::first_sources(wanted, sources);
    REQUIRE(found.size() == shards.size());
    std::vector<int> owner(wanted.size(), -1);
    std::vector<std::int64_t> place(wanted.size(), -1);
    for (std::size_t m = 0; m < shards.size(); ++m) {
      const std::vector<std::int64_t> has = host::positions_in(wanted, shards[m]);
      for (std::size_t i = 0; i < owner.size(); ++i) {
        if (owner[i] < 0 && has[i] >= 0) owner[i] = static_cast<int>(m), place[i] = has[i];
      }
    }
    for (std::size_t m = 0; m < shards.size(); ++m) {
      for (const host::Run& run : found[m]) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          const auto at = static_cast<std::size_t>(run.to + i);
          CHECK(owner[at] == static_cast<int>(m));
          CHECK(place[at] == run.from + i);
          owner[at] = -1;
        }
      }
    }
    CHECK(std::count(owner.begin(), owner.end(), -1) == std::ssize(owner));
  }
}

TEST_CASE("many small copies become rows", "[executor][device]") {
  std::vector<std::byte> to(100'000), from(100'000);
  device::CopyList copies;
  SECTION("neighbours are one copy") {
    for (int i = 0; i < 100; ++i) copies.add(to.data() + 8 * i, from.data() + 40 + 8 * i, 8);
    const auto launches = copies.launches();
    REQUIRE(launches.size() == 1);
    CHECK(std::get<device::CopyBytes>(launches[0]).bytes == 800);
  }
  SECTION("equal distances are rows") {
    for (int i = 0; i < 4000; ++i) copies.add(to.data() + 8 * i, from.data() + 24 * i, 8);
    const auto launches = copies.launches();
    REQUIRE(launches.size() == 1);
    const auto& rows = std::get<device::CopyRows>(launches[0]);
    CHECK(rows.rows == 4000);
    CHECK(rows.row_bytes == 8);
    CHECK(rows.to_stride == 8);
    CHECK(rows.from_stride == 24);
  }
  SECTION("two that take turns are two sequences of rows, and the rest is copied singly") {
    for (int i = 0; i < 1000; ++i) {
      copies.add(to.data() + 24 * i, from.data() + 50 * i, 8);
      copies.add(to.data() + 24 * i + 8, from.data() + 50 * i + 20, 16);
    }
    copies.add(to.data() + 99'000, from.data() + 7, 3);
    const auto launches = copies.launches();
    REQUIRE(launches.size() == 3);
    CHECK(std::get<device::CopyRows>(launches[0]).rows == 1000);
    CHECK(std::get<device::CopyRows>(launches[1]).row_bytes == 16);
    CHECK(std::get<device::CopyBytes>(launches[2]).bytes == 3);
  }
}

}  // namespace orrery
