// What context parallelism sends, holds and computes, against counts worked out by hand.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "planner/context_attention.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

// Two sequences of 256 tokens over four ranks: 64 tokens each. Four kv heads of 64, in bf16.
constexpr std::int64_t kBlock = 2 * (2 * 64 * 4 * 64) * 2;  // Keys and values of one rank.

Program lowered(ContextForm form, const TransformerConfig& config = test::small_llama()) {
  PlanShorthand plan = test::shorthand(1, 1, 1, 1);
  plan.settings.context_parallel = 4;
  plan.settings.context_form = form;
  const Graph graph = build_training_graph(config, DType::kBf16);
  Program program = lower(graph, expand(plan, graph, 4), 1);
  const auto faults = verify(program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  REQUIRE(faults.empty());
  return program;
}

// Of layer 2: messages sent, by their label; collectives by kind, with what a rank receives of them.
struct Moved {
  std::map<std::string, std::int64_t> sent;
  std::map<CollectiveKind, std::int64_t> operations, received;
};

Moved moved(const Program& program) {
  Moved found;
  for (const Instruction& instruction : program.roles[0].instructions) {
    if (instruction.purpose != Purpose::kContextParallel || instruction.layer != 2) continue;
    if (const auto* send = std::get_if<Send>(&instruction.work)) {
      found.sent[program.labels[instruction.label.index()]] += send->bytes;
    } else if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
      found.operations[collective->kind] += 1;
      found.received[collective->kind] += collective->bytes * 3 / 4;  // A quarter is there already.
    }
  }
  return found;
}

std::int64_t sum_of(const std::map<std::string, std::int64_t>& sent, const std::string& part) {
  std::int64_t sum = 0;
  for (const auto& [label, bytes] : sent) sum += label.find(part) != std::string::npos ? bytes : 0;
  return sum;
}

double flops_of(const Program& program, KernelKind kind) {
  double sum = 0;
  for (const Instruction& instruction : program.roles[0].instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.work);
    if (compute == nullptr || program.kernels[compute->kernel.index()].kind != kind) continue;
    sum += program.kernels[compute->kernel.index()].flops;
  }
  return sum;
}

}  // namespace

TEST_CASE("gathered keys and values come once in each direction", "[planner][context]") {
  const Moved found = moved(lowered(ContextForm::kAllGather));
  CHECK(found.sent.empty());
  // Keys and values forward, and again backward; then the sums of their gradients.
  CHECK(found.operations.at(CollectiveKind::kAllGather) == 4);
  CHECK(found.operations.at(CollectiveKind::kReduceScatter) == 2);
  CHECK(found.received.at(CollectiveKind::kAllGather) == 2 * 3 * kBlock);
  CHECK(found.received.at(CollectiveKind::kReduceScatter) == 3 * kBlock);
}

TEST_CASE("a ring sends each block on until it has been everywhere", "[planner][context]") {
  const Moved found = moved(lowered(ContextForm::kRing));
  CHECK(found.operations.empty());
  // (c − 1) · 2 · (s/c) · b · g · hd · 2 bytes forward.
  CHECK(kBlock == 131'072);
  CHECK(sum_of(found.sent, "attention.kv.send") == 3 * kBlock);
  // Backward again, and the gradients, which have to come home: 2c − 1 blocks in all.
  CHECK(sum_of(found.sent, "grad.kv.send") == 3 * kBlock);
  CHECK(sum_of(found.sent, "grad.dkv.send") == 4 * kBlock);
  CHECK(found.sent.size() == 3 + 3 + 4);
}

TEST_CASE("a ring holds two blocks beside its own", "[planner][context]") {
  const Program program = lowered(ContextForm::kRing);
  const Role& role = program.roles[0];
  std::int64_t forward = 0, backward = 0;
  bool in_backward = false;
  for (const MemoryPoint& point : memory_timeline(role)) {
    if (point.instruction < 0) continue;
    const Purpose purpose = role.instructions[static_cast<std::size_t>(point.instruction)].purpose;
    in_backward = in_backward || purpose == Purpose::kBackward;
    std::int64_t& most = in_backward ? backward : forward;
    most = std::max(most, point.by_category[static_cast<std::size_t>(MemoryCategory::kCommunication)]);
  }
  CHECK(forward == 2 * kBlock);   // One is worked on and sent, the next comes in.
  CHECK(backward == 3 * kBlock);  // And the gradients of the first.
}

TEST_CASE("zigzag order gives every step of a ring half of its pairs", "[planner][context]") {
  OpAttributes attributes;
  attributes.causal = true;
  // 256 tokens over four ranks: pieces of 32. A rank's own block: 32 · 32 pairs whole and two halves of it.
  // Another's: both its pieces see the earlier half of that block, or its later piece sees all of it.
  for (int step = 0; step < 4; ++step) {
    CHECK(ring_step_pairs(attributes, 256, 4, step) == 2 * 32 * 32);
  }
  CHECK(context_pairs(attributes, 256, 4) == 4 * 2 * 32 * 32);
  CHECK(context_pairs(attributes, 256, 4) == attention_pairs(attributes, 256) / 4);
  attributes.causal = false;
  CHECK(ring_step_pairs(attributes, 256, 4, 2) == 64 * 64);
}

TEST_CASE("within a window only neighbouring pieces meet", "[planner][context]") {
  OpAttributes attributes;
  attributes.causal = true;
  attributes.window = 16;
  // A piece of 32 sees 32 · 16 keys, of which 16² / 2 lie in the piece before it. Piece 0 has none before it.
  // Step 0: two pieces of one's own, 2 · (32 · 16 − 128); position 3 has pieces 3 and 4, which are
  // neighbours.
  CHECK(ring_step_pairs(attributes, 256, 4, 0) == 2 * (32 * 16 - 128) + 128);
  CHECK(ring_step_pairs(attributes, 256, 4, 1) == 128);  // Piece p after p − 1.
  CHECK(ring_step_pairs(attributes, 256, 4, 2) == 0);
  CHECK(ring_step_pairs(attributes, 256, 4, 3) == 128);  // Piece 7 − p after 6 − p.
  CHECK(context_pairs(attributes, 256, 4) == 2 * 32 * 16);
  attributes.window = 0;
  attributes.chunk = 32;
  CHECK(ring_step_pairs(attributes, 256, 4, 0) == 2 * 32 * 32 / 2);
  CHECK(ring_step_pairs(attributes, 256, 4, 1) == 0);
}

TEST_CASE("ring and gather do the same attention arithmetic", "[planner][context]") {
  TransformerConfig local = test::small_llama();
  local.local.window = 16;
  local.local.layers = {true, false, true, false};
  const Program ring = lowered(ContextForm::kRing), gather = lowered(ContextForm::kAllGather);
  for (const KernelKind kind : {KernelKind::kAttention, KernelKind::kAttentionBackward}) {
    CHECK(flops_of(ring, kind) == Approx(flops_of(gather, kind)).epsilon(1e-12));
  }
  // 2 · 2 flops · hd · pairs · heads · sequences · layers.
  CHECK(flops_of(ring, KernelKind::kAttention) == 4.0 * 64 * (256 * 256 / 2 / 4) * 8 * 2 * 4);
  // The blocks that no query sees cost no launch: steps 0, 1 and 3, and an addition for each after the first.
  std::map<std::string, int> launches;
  const Program windowed = lowered(ContextForm::kRing, local);
  for (const Instruction& instruction : windowed.roles[0].instructions) {
    if (instruction.layer == 1 && instruction.part >= 0 && instruction.purpose == Purpose::kForward) {
      launches[windowed.labels[instruction.label.index()]] += 1;
    }
  }
  CHECK(launches == std::map<std::string, int>{{"attention.step0", 1},
                                               {"attention.step1", 1},
                                               {"attention.add1", 1},
                                               {"attention.step3", 1},
                                               {"attention.add3", 1}});
}

TEST_CASE("a ring reads back from its text", "[planner][context]") {
  const std::string text = to_text(lowered(ContextForm::kRing));
  CHECK(text.find("zigzag shift 3 in cp") != std::string::npos);
  CHECK(to_text(parse_program(text)) == text);
}

}  // namespace orrery
