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

Lowered lower_tiny(
    const TransformerConfig& config, std::int64_t microbatches, bool clip = true,
    const char* kernel_set = "orrery-cuda", const std::function<void(Plan&)>& set = [](Plan&) {}) {
  PlanShorthand shorthand;
  shorthand.dp = 1;
  shorthand.global_batch = 2 * microbatches;
  shorthand.settings.sequence = 16;
  shorthand.settings.microbatch_size = 2;
  shorthand.settings.clip_gradients = clip;
  shorthand.settings.kernel_set = kernel_set;
  set(shorthand.settings);
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
  CHECK(found.count("cross entropy gradient") == 0);  // In the loss's own launch.
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

namespace {

// With dimensions that FP8 takes.
Lowered lower_fp8(const char* kernel_set, Fp8 fp8, Fp8Format format) {
  TransformerConfig config = test::tiny_llama();
  config.hidden = 64, config.head_dim = 16, config.ffn = 96, config.layers = 2;
  return lower_tiny(config, 1, true, kernel_set, [&](Plan& plan) {
    plan.fp8 = fp8;
    plan.fp8_format = format;
  });
}

}  // namespace

TEST_CASE("FP8 products read copies that are made before them, each once", "[executor][device]") {
  const Lowered lowered = lower_fp8("orrery-cuda", Fp8::kTensor, Fp8Format::kHybrid);
  int products = 0, copies = 0, both = 0, searches = 0;
  std::map<const std::byte*, device::Quantize> made;  // The latest at each address.
  for (const device::DeviceInstruction& instruction : lowered.step.instructions) {
    const bool to_input = instruction.name.find("grad_input") != std::string::npos;
    const bool to_weight = instruction.name.find("grad_weight") != std::string::npos;
    for (const device::Launch& launch : instruction.launches) {
      if (const auto* const copy = std::get_if<device::Quantize>(&launch)) {
        for (const std::byte* const to : {copy->to, copy->turned}) {
          if (to != nullptr) made[to] = *copy;
        }
        ++copies;
        both += copy->to != nullptr && copy->turned != nullptr ? 1 : 0;
        searches += copy->known_largest == nullptr ? 1 : 0;
      }
      const auto* const gemm = std::get_if<device::Gemm>(&launch);
      if (gemm == nullptr || gemm->a.array.dtype != DType::kFp8) continue;
      ++products;
      INFO(instruction.name);
      CHECK_FALSE(gemm->a.turned);
      CHECK(gemm->b.turned);
      CHECK((gemm->a.stride == gemm->k && gemm->b.stride == gemm->k));
      CHECK(gemm->d.array.dtype == (to_weight ? DType::kFp32 : DType::kBf16));
      REQUIRE((made.count(gemm->a.array.data) == 1 && made.count(gemm->b.array.data) == 1));
      const device::Quantize &a = made[gemm->a.array.data], &b = made[gemm->b.array.data];
      CHECK((gemm->a_scale == a.scale && gemm->b_scale == b.scale));
      // [m, k] as it lies or from [k, m], and [n, k]. Forward weights are [k, n], those of gradients [n, k].
      const bool a_turned = gemm->a.array.data == a.turned, b_turned = gemm->b.array.data == b.turned;
      CHECK((a_turned ? a.width : a.rows) == gemm->m);
      CHECK((a_turned ? a.rows : a.width) == gemm->k);
      CHECK((b_turned ? b.width : b.rows) == gemm->n);
      CHECK((b_turned ? b.rows : b.width) == gemm->k);
      CHECK(a_turned == to_weight);
      CHECK(b_turned == !to_input);
      CHECK((gemm->a_e5m2 == a.e5m2 && gemm->b_e5m2 == b.e5m2));
      CHECK((a.e5m2 == to_input && b.e5m2 == to_weight));
      CHECK(gemm->fast_sums == !(to_input || to_weight));
    }
  }
  CHECK(products == 2 * 7 * 3);
  // Forward: four inputs and seven weights a layer; backward: as many gradients as weights, which the
  // weights' gradients find, and the inputs again, whose largest elements are known. Norms and gates leave
  // those of three inputs of four, gradients of norms those of two gradients, forwards those of weights.
  CHECK(copies == 2 * (4 + 7 + 7 + 7 + 4));
  CHECK(both == 2 * 7);
  CHECK(searches == copies - 2 * (4 + 3 + 2 + 7));
}

TEST_CASE("FP8 products of packed projections copy each matrix once", "[executor][device]") {
  const Lowered lowered = lower_fp8("orrery-cuda-packed", Fp8::kTensor, Fp8Format::kHybrid);
  int products = 0, copies = 0, of_gradients = 0, searches = 0;
  for (const device::DeviceInstruction& instruction : lowered.step.instructions) {
    for (const device::Launch& launch : instruction.launches) {
      const auto* const gemm = std::get_if<device::Gemm>(&launch);
      products += gemm != nullptr && gemm->a.array.dtype == DType::kFp8 ? 1 : 0;
      const auto* const copy = std::get_if<device::Quantize>(&launch);
      copies += copy != nullptr ? 1 : 0;
      of_gradients += copy != nullptr && copy->e5m2 ? 1 : 0;
      searches += copy != nullptr && copy->known_largest == nullptr ? 1 : 0;
    }
  }
  // Four products each way: of two matrices, and the weights' gradients of one more.
  CHECK(products == 2 * 4 * 3);
  CHECK(copies == 2 * 4 * (2 + 2 + 1));
  CHECK(of_gradients == 2 * 4);
  // Weights', once; one input's of four, and one gradient's: gates' and norms' leave their own.
  CHECK(searches == 2 * (4 + 1 + 1));
}

TEST_CASE("FP8 products by blocks have scales by rows, and weights by squares", "[executor][device]") {
  const Lowered lowered = lower_fp8("orrery-cuda-packed", Fp8::kBlock, Fp8Format::kE4m3);
  std::map<const std::byte*, device::Quantize> made;
  int products = 0, copies = 0, both = 0;
  for (const device::DeviceInstruction& instruction : lowered.step.instructions) {
    const bool to_weight = instruction.name.find("grad_weight") != std::string::npos;
    for (const device::Launch& launch : instruction.launches) {
      if (const auto* const copy = std::get_if<device::Quantize>(&launch)) {
        for (const std::byte* const to : {copy->to, copy->turned}) {
          if (to != nullptr) made[to] = *copy;
        }
        ++copies;
        both += copy->to != nullptr && copy->turned != nullptr ? 1 : 0;
        CHECK((copy->largest == nullptr && copy->known_largest == nullptr && !copy->e5m2));
      }
      const auto* const gemm = std::get_if<device::Gemm>(&launch);
      if (gemm == nullptr || gemm->a.array.dtype != DType::kFp8) continue;
      ++products;
      INFO(instruction.name);
      REQUIRE((made.count(gemm->a.array.data) == 1 && made.count(gemm->b.array.data) == 1));
      const device::Quantize &a = made[gemm->a.array.data], &b = made[gemm->b.array.data];
      CHECK(gemm->a_scale == (gemm->a.array.data == a.turned ? a.turned_scale : a.scale));
      CHECK(gemm->b_scale == (gemm->b.array.data == b.turned ? b.turned_scale : b.scale));
      CHECK(gemm->a_scales == Fp8Scales::kRows);
      CHECK(gemm->b_scales == (to_weight ? Fp8Scales::kRows : Fp8Scales::kSquares));
      CHECK((a.scales == gemm->a_scales && b.scales == gemm->b_scales));
      CHECK_FALSE(gemm->fast_sums);
    }
  }
  CHECK(products == 2 * 4 * 3);
  CHECK(copies == 2 * 4 * (2 + 2 + 1));
  CHECK(both == 2 * 4);  // Gradients.
}

namespace {

// Whose parts are multiples of what memory plans align to.
TransformerConfig wide_llama() {
  TransformerConfig config = test::tiny_llama();
  config.hidden = 32;
  config.ffn = 16;
  return config;
}

template <class Kind>
std::vector<Kind> all_of(const device::DeviceStep& step) {
  std::vector<Kind> found;
  for (const device::DeviceInstruction& instruction : step.instructions) {
    for (const device::Launch& launch : instruction.launches) {
      if (const auto* const kind = std::get_if<Kind>(&launch)) found.push_back(*kind);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("packed projections are one product each way", "[executor][device]") {
  const Lowered lowered = lower_tiny(wide_llama(), 1, true, "orrery-cuda-packed");
  const std::map<std::string, int> found = counts(lowered.step);
  // q with k and v, o, gate with up, down, and the head.
  CHECK(found.at("gemm") == 3 * (4 * 8 + 1));
  CHECK(found.at("rope") == 8);
  CHECK(found.at("rope back") == 8);
  const auto zeroes = [](const std::map<std::string, int>& launches) {
    return launches.count("zero") > 0 ? launches.at("zero") : 0;
  };
  CHECK(zeroes(found) == zeroes(counts(lower_tiny(wide_llama(), 1).step)));
  CHECK(lowered.initial == parameter_count(build_training_graph(wide_llama(), DType::kBf16)));

  constexpr std::int64_t kQ = 16, kKv = 8, kAll = kQ + 2 * kKv, kFfn = 16, kHidden = 32, kRows = 32;
  int qkv = 0, qkv_input = 0, qkv_weight = 0, gate_up = 0;
  for (const device::Gemm& gemm : all_of<device::Gemm>(lowered.step)) {
    qkv += gemm.m == kRows && gemm.n == kAll && gemm.k == kHidden && gemm.d.stride == kAll &&
                   gemm.b.stride == kAll && !gemm.b.turned && gemm.a.stride == kHidden
               ? 1
               : 0;
    qkv_input += gemm.m == kRows && gemm.n == kHidden && gemm.k == kAll && gemm.a.stride == kAll &&
                         gemm.b.stride == kAll && gemm.b.turned
                     ? 1
                     : 0;
    qkv_weight += gemm.m == kHidden && gemm.n == kAll && gemm.k == kRows && gemm.a.turned &&
                          gemm.b.stride == kAll && gemm.d.stride == kAll && gemm.d.array.dtype == DType::kFp32
                      ? 1
                      : 0;
    gate_up += gemm.m == kRows && gemm.n == 2 * kFfn && gemm.d.stride == 2 * kFfn ? 1 : 0;
    CHECK(!gemm.accumulate);
  }
  CHECK(qkv >= 8);  // kAll, kHidden and 2 · kFfn are one number here.
  CHECK(qkv_input >= 8);
  CHECK(qkv_weight >= 8);
  CHECK(gate_up >= 8);
  for (const device::Rope& rope : all_of<device::Rope>(lowered.step)) {
    CHECK(rope.heads == 6);
    CHECK(rope.x.data == rope.y.data);
    CHECK(rope.x_stride == kAll);
    CHECK(rope.y_stride == kAll);
  }
  for (const device::Attention& attention : all_of<device::Attention>(lowered.step)) {
    CHECK(attention.shape.strides == device::HeadStrides{kAll, kAll, kAll});
    CHECK(attention.k.data == attention.q.data + kQ * 2);
    CHECK(attention.v.data == attention.k.data + kKv * 2);
  }
  for (const device::AttentionGrad& attention : all_of<device::AttentionGrad>(lowered.step)) {
    CHECK(attention.shape.strides == device::HeadStrides{kAll, kAll, kAll, kAll, kAll, kAll});
    CHECK(attention.dk.data == attention.dq.data + kQ * 2);
    CHECK(attention.dv.data == attention.dk.data + kKv * 2);
  }
  for (const device::Gated& gated : all_of<device::Gated>(lowered.step)) {
    CHECK(gated.width == kFfn);
    CHECK(gated.stride == 2 * kFfn);
    CHECK(gated.up.data == gated.gate.data + kFfn * 2);
  }
  for (const device::GatedGrad& gated : all_of<device::GatedGrad>(lowered.step)) {
    CHECK(gated.width == kFfn);
    CHECK(gated.gradient_stride == 2 * kFfn);
    CHECK(gated.dup.data == gated.dgate.data + kFfn * 2);
  }
}

TEST_CASE("packed sums go on over micro-batches", "[executor][device]") {
  const Lowered lowered = lower_tiny(wide_llama(), 3, true, "orrery-cuda-packed");
  int sums = 0;
  for (const device::Gemm& gemm : all_of<device::Gemm>(lowered.step)) sums += gemm.accumulate ? 1 : 0;
  CHECK(sums == 2 * (4 * 8 + 1));
}

TEST_CASE("biases of packed projections are summed by their rows", "[executor][device]") {
  TransformerConfig config = test::tiny_gpt();
  config.hidden = 32;
  config.head_dim = 16;
  const Lowered lowered = lower_tiny(config, 1, true, "orrery-cuda-packed");
  int packed = 0;
  for (const device::ColumnSum& sum : all_of<device::ColumnSum>(lowered.step)) {
    if (sum.x_stride == 0) continue;
    CHECK(sum.x_stride == 3 * 32);
    CHECK(sum.width == 32);
    ++packed;
  }
  CHECK(packed == 3 * 8);
}

TEST_CASE("what isn't aligned is not packed", "[executor][device]") {
  const std::map<std::string, int> found =
      counts(lower_tiny(test::tiny_latent(), 1, true, "orrery-cuda-packed").step);
  CHECK(found.at("rope") > 0);
}

}  // namespace orrery
