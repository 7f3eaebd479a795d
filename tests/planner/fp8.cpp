#include "planner/fp8.hpp"

#include <catch2/catch.hpp>

#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

struct Lowered {
  Graph graph;
  Program program;
};

Lowered lowered(Fp8 fp8, PlanShorthand plan = shorthand(1, 1, 1, 1),
                const TransformerConfig& config = small_llama()) {
  plan.settings.fp8 = fp8;
  INFO("fp8: " << to_string(fp8));
  Lowered made;
  made.graph = build_training_graph(config, DType::kBf16);
  made.program = lower(made.graph, expand(plan, made.graph, plan.tp * plan.pp * plan.dp));
  const std::vector<std::string> faults = verify(made.program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  CHECK(faults.empty());
  return made;
}

const Kernel& kernel_of(const Program& program, const Instruction& instruction) {
  return program.kernels[std::get<Compute>(instruction.work).kernel.index()];
}

const Instruction& find(const Program& program, const std::string& name) {
  for (const Instruction& instruction : program.roles[0].instructions) {
    if (instruction_name(program, instruction) == name) return instruction;
  }
  FAIL("no instruction " << name);
  return program.roles[0].instructions.front();
}

// Bytes of the instruction's operands that hold no tensor: its own, and by what they are called.
std::int64_t bytes_of(const Program& program, const Instruction& instruction, const std::string& ending) {
  std::int64_t bytes = 0;
  const Role& role = program.roles[0];
  for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
    const Operand& operand = role.operands[static_cast<std::size_t>(o)];
    const Buffer& buffer = role.buffers[operand.buffer.index()];
    if (!buffer.tensor.valid() && program.labels[buffer.label.index()].ends_with(ending))
      bytes += buffer.bytes;
  }
  return bytes;
}

constexpr std::int64_t kLargest = 256, kScale = 256;

}  // namespace

TEST_CASE("products of layers run in FP8, forward and for both gradients", "[planner][fp8]") {
  const Lowered of = lowered(Fp8::kTensor);
  int products = 0;
  for (const Instruction& instruction : of.program.roles[0].instructions) {
    const Kernel& kernel = kernel_of(of.program, instruction);
    if (kernel.kind != KernelKind::kMatmul) {
      CHECK(kernel.dtype != DType::kFp8);
      continue;
    }
    const bool in_layer = instruction.layer > 0 && instruction.layer < of.graph.block_count() - 1;
    INFO(instruction_name(of.program, instruction));
    CHECK(kernel.dtype == (in_layer ? DType::kFp8 : DType::kBf16));
    CHECK((bytes_of(of.program, instruction, ".fp8") > 0) == in_layer);
    products += in_layer ? 1 : 0;
  }
  CHECK(products == 4 * 4 * 3);
}

TEST_CASE("FP8 products' kernels and memory have their operands' copies", "[planner][fp8]") {
  const Lowered plain = lowered(Fp8::kNone), of = lowered(Fp8::kTensor);
  // 512 tokens of 512; heads of 64: eight of queries, four each of keys and values.
  const std::int64_t input = 512 * 512, weights = 512 * (512 + 256 + 256),
                     gradients = 512 * (512 + 256 + 256);
  const auto check = [&](const std::string& name, std::int64_t read, std::int64_t written) {
    INFO(name);
    const Kernel& without = kernel_of(plain.program, find(plain.program, name));
    const Kernel& with = kernel_of(of.program, find(of.program, name));
    CHECK(with.flops == without.flops);
    CHECK((with.m == without.m && with.n == without.n && with.k == without.k));
    CHECK(with.read_bytes - without.read_bytes == read);
    CHECK(with.written_bytes - without.written_bytes == written);
  };
  const auto bytes = [&](const std::string& name, const std::string& ending) {
    return bytes_of(of.program, find(of.program, name), ending);
  };
  // Twice bf16 instead of once, then the copies; the norm has left its largest element.
  check("qkv.l1.m0", input + 3 * weights, input + weights);
  CHECK(bytes("norm1.l1.m0", ".fp8_largest") == kLargest);
  CHECK(bytes("qkv.l1.m0", ".fp8") == input + weights + 4 * kScale);
  CHECK(bytes("qkv.l1.m0", ".fp8_largest") == 2 * kLargest);  // The norm's, and its own for the gradient.
  // The gradients' second copies are for the weights' gradients.
  check("qkv.grad_input.l1.m0", 3 * gradients + weights, 2 * gradients + weights);
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8") == gradients + weights + 6 * kScale);
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8_kept") == kLargest + gradients + 3 * kScale);
  // The input once, then copies: of gradients those alone.
  check("qkv.grad_weight.l1.m0", input + gradients - 2 * gradients, input);
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8") == input + gradients + 4 * kScale);
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8_kept") == kLargest + gradients + 3 * kScale);
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8_largest") == kLargest);
}

TEST_CASE("formats and sums of FP8 products are the plan's", "[planner][fp8]") {
  const auto arithmetic = [](const Plan& settings, const std::string& name) {
    PlanShorthand plan = shorthand(1, 1, 1, 1);
    const Fp8 fp8 = settings.fp8;
    plan.settings.fp8_format = settings.fp8_format;
    plan.settings.fp8_fast_sums = settings.fp8_fast_sums;
    const Lowered of = lowered(fp8, plan);
    return kernel_of(of.program, find(of.program, name)).fp8;
  };
  const std::string forward = "qkv.l1.m0", to_input = "qkv.grad_input.l1.m0",
                    to_weight = "qkv.grad_weight.l1.m0";
  Plan settings;
  settings.fp8 = Fp8::kTensor;
  CHECK(arithmetic(settings, forward) == Fp8Arithmetic{.fast = true});
  CHECK(arithmetic(settings, to_input) == Fp8Arithmetic{});
  CHECK(arithmetic(settings, to_weight) == Fp8Arithmetic{});
  settings.fp8_format = Fp8Format::kHybrid;
  settings.fp8_fast_sums = Fp8FastSums::kAll;
  CHECK(arithmetic(settings, forward) == Fp8Arithmetic{.fast = true});
  CHECK(arithmetic(settings, to_input) == Fp8Arithmetic{.e5m2 = true, .fast = true});
  CHECK(arithmetic(settings, to_weight) == Fp8Arithmetic{.e5m2 = true, .fast = true});
  settings.fp8_fast_sums = Fp8FastSums::kNone;
  CHECK(arithmetic(settings, forward) == Fp8Arithmetic{});
  settings.fp8 = Fp8::kBlock;
  settings.fp8_format = Fp8Format::kE4m3;
  CHECK(arithmetic(settings, forward) == Fp8Arithmetic{.scaling = Fp8Scaling::kSquares});
  CHECK(arithmetic(settings, to_input) == Fp8Arithmetic{.scaling = Fp8Scaling::kSquares});
  CHECK(arithmetic(settings, to_weight) == Fp8Arithmetic{.scaling = Fp8Scaling::kRows});
}

TEST_CASE("block scales are found as copies are made, and kept with them", "[planner][fp8]") {
  const Lowered plain = lowered(Fp8::kNone), of = lowered(Fp8::kBlock);
  const std::int64_t input = 512 * 512, weights = 512 * (512 + 256 + 256),
                     gradients = 512 * (512 + 256 + 256);
  const auto check = [&](const std::string& name, std::int64_t read, std::int64_t written) {
    INFO(name);
    const Kernel& without = kernel_of(plain.program, find(plain.program, name));
    const Kernel& with = kernel_of(of.program, find(of.program, name));
    CHECK(with.read_bytes - without.read_bytes == read);
    CHECK(with.written_bytes - without.written_bytes == written);
  };
  const auto bytes = [&](const std::string& name, const std::string& ending) {
    return bytes_of(of.program, find(of.program, name), ending);
  };
  // bf16 once, as without, to make copies, which the product reads.
  check("qkv.l1.m0", input + weights, input + weights);
  check("qkv.grad_input.l1.m0", gradients + weights, 2 * gradients + weights);
  check("qkv.grad_weight.l1.m0", input + gradients - 2 * gradients, input);
  for (const Buffer& buffer : of.program.roles[0].buffers)
    CHECK_FALSE(of.program.labels[buffer.label.index()].ends_with(".fp8_largest"));
  // Of a row four; of 128 × 128 one, padded to four a line, and aligned to 256 bytes.
  const std::int64_t input_scales = 4 * 512 * 4, weight_scales = 256 + 3 * 256 - 256,
                     gradient_scales = 4 * 512 * (4 + 2 + 2);
  CHECK(bytes("qkv.l1.m0", ".fp8") == input + weights + input_scales + weight_scales);
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8") == gradients + weights + gradient_scales + weight_scales);
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8_kept") >= gradients + gradient_scales);
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8_kept") == bytes("qkv.grad_input.l1.m0", ".fp8_kept"));
}

TEST_CASE("weights' gradients that are put off copy gradients again, by their largest elements",
          "[planner][fp8]") {
  PlanShorthand plan = shorthand(1, 2, 1, 4);
  plan.settings.schedule = PipelineSchedule::kZeroBubbleH1;
  const Lowered of = lowered(Fp8::kTensor, plan);
  const std::int64_t input = 512 * 512, gradients = 512 * (512 + 256 + 256);
  const auto bytes = [&](const std::string& name, const std::string& ending) {
    return bytes_of(of.program, find(of.program, name), ending);
  };
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8_kept") == 0);
  CHECK(bytes("qkv.grad_input.l1.m0", ".fp8_largest") == 2 * kLargest);  // Its own, and the forward's.
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8_largest") == 2 * kLargest);
  CHECK(bytes("qkv.grad_weight.l1.m0", ".fp8") == input + gradients + 4 * kScale);
}

TEST_CASE("what may come in pieces keeps nothing", "[planner][fp8]") {
  PlanShorthand plan = shorthand(1, 1, 1, 1);
  plan.settings.passes.set(LoweringPass::kSplitCollectives, true);
  const Lowered of = lowered(Fp8::kTensor, plan);
  for (const Buffer& buffer : of.program.roles[0].buffers) {
    if (!buffer.persistent && !buffer.tensor.valid())
      CHECK(of.program.labels[buffer.label.index()].ends_with(".fp8"));
  }
}

TEST_CASE("plans without FP8 are what they were", "[planner][fp8]") {
  const Lowered of = lowered(Fp8::kNone);
  for (const Kernel& kernel : of.program.kernels) CHECK(kernel.dtype != DType::kFp8);
  for (const Buffer& buffer : of.program.roles[0].buffers) {
    if (!buffer.persistent) CHECK(buffer.tensor.valid());
  }
}

TEST_CASE("sizes that are no multiples of 16, experts and routers keep their type", "[planner][fp8]") {
  TransformerConfig config = small_llama(2);
  config.ffn = 1544;
  const Lowered odd = lowered(Fp8::kTensor, shorthand(1, 1, 1, 1), config);
  CHECK(kernel_of(odd.program, find(odd.program, "down.l1.m0")).dtype == DType::kBf16);
  CHECK(kernel_of(odd.program, find(odd.program, "qkv.l1.m0")).dtype == DType::kFp8);
  config = small_llama(2);
  config.experts.count = 16, config.experts.per_token = 2, config.experts.ffn = 256;
  const Lowered experts = lowered(Fp8::kTensor, shorthand(1, 1, 1, 1), config);
  int products = 0;
  for (const Instruction& instruction : experts.program.roles[0].instructions) {
    products += kernel_of(experts.program, instruction).dtype == DType::kFp8 ? 1 : 0;
  }
  CHECK(products == 2 * 2 * 3);  // qkv and attention_out alone.
}

TEST_CASE("FP8 with other degrees, recompute and pieces makes valid programs", "[planner][fp8]") {
  const Fp8 fp8 = GENERATE(Fp8::kTensor, Fp8::kBlock);
  PlanShorthand plan = shorthand(2, 1, 1, 2);
  plan.settings.sequence_parallel = true;
  plan.settings.recompute = Recompute::kFull;
  lowered(fp8, plan);
  plan.settings.passes.set(LoweringPass::kSplitCollectives, true);
  lowered(fp8, plan);
  PlanShorthand sharded = shorthand(1, 2, 2, 2);
  lowered(fp8, sharded);
  sharded.pp = 1;
  sharded.settings.zero_stage = 3;
  lowered(fp8, sharded);
}

TEST_CASE("FP8 needs bf16", "[planner][fp8]") {
  PlanShorthand plan = shorthand(1, 1, 1, 1);
  plan.settings.fp8 = Fp8::kTensor;
  plan.settings.compute_dtype = DType::kFp32;
  const Graph graph = build_training_graph(small_llama(), DType::kFp32);
  CHECK_THROWS_WITH(expand(plan, graph, 1), Catch::Contains("plan.fp8: tensor makes copies of bf16"));
}

TEST_CASE("blocks have one format", "[planner][fp8]") {
  PlanShorthand plan = shorthand(1, 1, 1, 1);
  plan.settings.fp8 = Fp8::kBlock;
  plan.settings.fp8_format = Fp8Format::kHybrid;
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  CHECK_THROWS_WITH(expand(plan, graph, 1), Catch::Contains("plan.fp8_format: hybrid has one scale"));
}

}  // namespace orrery
