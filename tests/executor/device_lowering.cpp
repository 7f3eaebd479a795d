// Steps as launches of a device, without one: addresses are never looked at.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <map>

#include "executor/device/describe.hpp"
#include "executor/device/lower_step.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "tests/executor/tiny_models.hpp"

namespace orrery {
namespace {

// Memory that nobody may touch.
std::byte* address(std::int64_t at) { return reinterpret_cast<std::byte*>(at << 40); }

struct Lowered {
  device::Staging staging;
  device::DeviceStep step;
  std::int64_t initial = 0;  // Elements that begin with a value.
};

Lowered lower_tiny(const TransformerConfig& config, std::int64_t microbatches, bool clip = true,
                   Fp8 fp8 = Fp8::kNone) {
  PlanShorthand shorthand;
  shorthand.dp = 1;
  shorthand.global_batch = 2 * microbatches;
  shorthand.settings.sequence = 16;
  shorthand.settings.microbatch_size = 2;
  shorthand.settings.clip_gradients = clip;
  shorthand.settings.fp8 = fp8;
  const Graph graph = build_training_graph(config, DType::kBf16);
  Program program = lower(graph, expand(shorthand, graph, 1));
  place_buffers(program);
  const host::RecordOptions record;
  std::vector<std::byte> memory(static_cast<std::size_t>(host::layout_of(program.roles[0], record).arena) +
                                64);
  std::byte* const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  const host::World world(program, {aligned}, record, {address(1)});
  host::Tables tables(graph, world);
  device::StepMemory of{address(2), address(3), {}, {}};
  const host::BoundRank bound = host::bind_computes(graph, world, RankId(0), [&](std::int64_t bytes) {
    of.scratch = {address(4), address(4) + bytes};
    return address(4);
  });
  Lowered lowered;
  lowered.staging = device::stage_inputs(bound);
  device::OpLoweringOptions options;
  options.positions = [](const std::vector<std::int64_t>&) {
    return reinterpret_cast<const std::int64_t*>(address(5));
  };
  lowered.step = device::lower_step(tables, bound, lowered.staging, of, options);
  for (const device::Launch& launch : device::lower_initial_state(tables, bound, 1, 0.02)) {
    if (const auto* const values = std::get_if<device::InitialValues>(&launch))
      lowered.initial += values->elements;
  }
  return lowered;
}

// By their first word or two: how many launches.
std::map<std::string, int> counts(const device::DeviceStep& step) {
  std::map<std::string, int> found;
  for (const device::DeviceInstruction& instruction : step.instructions) {
    for (const device::Launch& launch : instruction.launches) {
      const std::string words = device::describe(launch);
      std::string name;
      for (const char c : words) {
        if (c >= '0' && c <= '9') break;
        name += c;
      }
      const std::size_t residual = words.find(" + residual");
      ++found[name.substr(0, name.size() - 1) + (residual != std::string::npos ? " + residual" : "")];
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a decoder's step becomes fused launches", "[executor][device]") {
  const std::map<std::string, int> found = counts(lower_tiny(test::tiny_llama(), 1).step);
  // Eight layers: two norms each and the last one; all but the first read a sum that they make themselves.
  CHECK(found.at("norm") == 1);
  CHECK(found.at("norm + residual") == 16);
  CHECK(found.at("norm gradient + residual") == 16);
  CHECK(found.at("norm gradient") == 1);
  CHECK(found.count("add") == 0);
  // q, k, v, o, gate, up, down and the head: forward, and two gradients each.
  CHECK(found.at("gemm") == 3 * (7 * 8 + 1));
  CHECK(found.at("attention") == 8);
  CHECK(found.at("attention gradient") == 8);
  CHECK(found.at("rope") == 16);
  CHECK(found.at("rope back") == 16);
  CHECK(found.at("gated") == 8);
  CHECK(found.at("gated gradient") == 8);
  CHECK(found.at("adamw") == 1);
}

TEST_CASE("a step's first sums replace what stands there, later ones add", "[executor][device]") {
  const auto accumulating = [](const device::DeviceStep& step) {
    int sums = 0;
    for (const device::DeviceInstruction& instruction : step.instructions) {
      for (const device::Launch& launch : instruction.launches) {
        const auto* const gemm = std::get_if<device::Gemm>(&launch);
        sums += gemm != nullptr && gemm->accumulate && gemm->d.array.dtype == DType::kFp32 ? 1 : 0;
      }
    }
    return sums;
  };
  CHECK(accumulating(lower_tiny(test::tiny_llama(), 1).step) == 0);
  CHECK(accumulating(lower_tiny(test::tiny_llama(), 3).step) == 2 * (7 * 8 + 1));
}

TEST_CASE("a step's tokens are staged once for each micro-batch", "[executor][device]") {
  const Lowered lowered = lower_tiny(test::tiny_llama(), 3);
  CHECK(lowered.staging.inputs.size() == 6);  // Ids and labels.
  CHECK(lowered.staging.bytes == 64 + 6 * 2 * 16 * 8);
  CHECK(lowered.initial == parameter_count(build_training_graph(test::tiny_llama(), DType::kBf16)));
}

TEST_CASE("the norm that clips is read where it was summed", "[executor][device]") {
  for (const bool clip : {true, false}) {
    const Lowered lowered = lower_tiny(test::tiny_gpt(), 1, clip);
    for (const device::DeviceInstruction& instruction : lowered.step.instructions) {
      for (const device::Launch& launch : instruction.launches) {
        const auto* const update = std::get_if<device::AdamW>(&launch);
        if (update == nullptr) continue;
        CHECK((update->norm_squared != nullptr) == clip);
        CHECK(reinterpret_cast<const std::byte*>(update->scalars) == lowered.step.staging);
      }
    }
  }
}

TEST_CASE("FP8 products read copies that are made before them, each once", "[executor][device]") {
  TransformerConfig config = test::tiny_llama();
  config.hidden = 64, config.head_dim = 16, config.ffn = 96, config.layers = 2;
  const Lowered lowered = lower_tiny(config, 1, true, Fp8::kTensor);
  int products = 0, copies = 0;
  for (const device::DeviceInstruction& instruction : lowered.step.instructions) {
    std::map<const std::byte*, const device::Quantize*> made;
    for (const device::Launch& launch : instruction.launches) {
      if (const auto* const copy = std::get_if<device::Quantize>(&launch)) {
        CHECK(made.emplace(copy->to, copy).second);
        ++copies;
      }
      const auto* const gemm = std::get_if<device::Gemm>(&launch);
      if (gemm == nullptr || gemm->a.array.dtype != DType::kFp8) continue;
      ++products;
      INFO(instruction.name);
      CHECK_FALSE(gemm->a.turned);
      CHECK(gemm->b.turned);
      CHECK((gemm->a.stride == gemm->k && gemm->b.stride == gemm->k));
      CHECK(gemm->d.array.dtype == DType::kBf16);
      REQUIRE((made.count(gemm->a.array.data) == 1 && made.count(gemm->b.array.data) == 1));
      const device::Quantize &a = *made[gemm->a.array.data], &b = *made[gemm->b.array.data];
      CHECK((gemm->a_scale == a.scale && gemm->b_scale == b.scale));
      CHECK((a.rows == gemm->m && a.width == gemm->k && !a.turned));
      // A forward's weights [k, n] are turned; the gradient's [n, k] aren't, and its input alone is E5M2.
      const bool backward = instruction.name.find("grad_input") != std::string::npos;
      CHECK((b.turned ? b.width : b.rows) == gemm->n);
      CHECK((b.turned ? b.rows : b.width) == gemm->k);
      CHECK(b.turned == !backward);
      CHECK(a.e5m2 == backward);
      CHECK((gemm->a_e5m2 == backward && !gemm->b_e5m2 && !b.e5m2));
    }
  }
  CHECK(products == 2 * 7 * 2);
  // Forward: four inputs and seven weights a layer; backward: as many gradients as weights.
  CHECK(copies == 2 * (4 + 7 + 7 + 7));
}

}  // namespace orrery
