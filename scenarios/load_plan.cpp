#include "base/error.hpp"
#include "planner/kernel_set.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

void read_degrees(const Section& section, PlanShorthand& plan) {
  section.integer("dp", plan.dp, 1, kMaxGpus);
  section.integer("tp", plan.tp, 1, kMaxGpus);
  section.integer("cp", plan.settings.context_parallel, 1, kMaxGpus);
  section.choice<ContextForm>("context_parallel_form", plan.settings.context_form,
                              {{"all_gather", ContextForm::kAllGather}, {"ring", ContextForm::kRing}});
  section.integer("ep", plan.settings.expert_parallel, 1, kMaxGpus);
  section.integer("expert_tensor_parallel", plan.settings.expert_tensor, 1, kMaxGpus);
  section.integer("pp", plan.pp, 1, kMaxGpus);
  section.integer("virtual_stages", plan.virtual_stages, 1, 1024);
  for (const YamlNode* item : section.items("layers_per_stage")) {
    const auto layers = item->kind == YamlNode::Kind::kScalar ? parse_integer(item->text) : std::nullopt;
    if (!layers || *layers < 0 || *layers > 100'000) {
      section.faults().add(*item, section.path("layers_per_stage"),
                           "is " + describe(*item) + "; expected a whole number of layers");
      continue;
    }
    plan.layers_per_stage.push_back(static_cast<std::int32_t>(*layers));
  }
}

// Megatron-LM's string; its prediction layers aren't in the Graph.
void read_layout(const Section& section, Scenario& scenario) {
  std::string text;
  section.text("layout", text);
  if (text.empty()) return;
  PlanShorthand& plan = scenario.plan;
  if (!plan.layers_per_stage.empty()) {
    section.fault("layout", "says the same as layers_per_stage; give one of them");
  }
  try {
    plan.layout = parse_layout(text);
  } catch (const Error& error) {
    section.fault("layout", fmt::format("is {}: {}", quote(text), error.what()));
    return;
  }
  std::int64_t prediction = 0;
  for (const StageContent& stage : plan.layout) prediction += stage.prediction;
  if (prediction > 0) {
    scenario.notes.push_back(
        fmt::format("plan.layout: {} multi-token prediction {} left out, which the model doesn't have",
                    prediction, prediction == 1 ? "layer (m) is" : "layers (m) are"));
  }
}

void read_overlap(const Section& section, Plan& settings) {
  const YamlNode* node = section.node("overlap");
  if (node == nullptr) return;
  if (node->kind == YamlNode::Kind::kScalar) {
    section.boolean("overlap", settings.overlap_gradient_reduce);
    settings.overlap_parameter_gather = settings.overlap_gradient_reduce;
    return;
  }
  const Section overlap(*node, section.path("overlap"), "overlap", section.faults());
  overlap.boolean("gradient_reduce", settings.overlap_gradient_reduce);
  overlap.boolean("parameter_gather", settings.overlap_parameter_gather);
}

void read_passes(const Section& section, Plan& settings) {
  std::string text, fault;
  section.text("passes", text);
  if (text.empty()) return;
  if (const auto passes = parse_lowering_passes(text, fault)) {
    settings.passes = *passes;
  } else {
    section.fault("passes", fault);
  }
}

}  // namespace

void read_plan(const Section& file, Scenario& scenario) {
  if (!file.require("plan", "how the work is divided, e.g. {dp: 8}")) return;
  const Section section(*file.node("plan"), "plan", "plan", file.faults());
  read_degrees(section, scenario.plan);
  read_layout(section, scenario);
  Plan& settings = scenario.plan.settings;
  section.integer("microbatch", settings.microbatch_size, 1, 1'000'000);
  section.integer("zero", settings.zero_stage, 0, 3);
  section.integer("zero_group", settings.zero_group, 1, kMaxGpus);
  section.integer("zero_prefetch", settings.zero_prefetch, 0, 1'000);
  section.boolean("zero_reshard", settings.zero_reshard);
  section.boolean("sequence_parallel", settings.sequence_parallel);
  Choices<PipelineSchedule> schedules;
  for (const PipelineSchedule kind : all_pipeline_schedules()) schedules.emplace_back(to_string(kind), kind);
  section.choice("schedule", settings.schedule, schedules);
  section.number("expert_capacity_factor", settings.expert_capacity_factor, 0.01, 10'000);
  section.number("expert_imbalance", settings.expert_imbalance, 1, 10'000);
  section.integer("interleave_group", settings.interleave_group, 1, 1'000'000);
  read_recompute(section, settings);
  section.choice<DType>("precision", settings.compute_dtype,
                        {{"bf16", DType::kBf16}, {"fp16", DType::kFp16}, {"fp32", DType::kFp32}});
  section.choice<Fp8>("fp8", settings.fp8,
                      {{"none", Fp8::kNone}, {"tensor", Fp8::kTensor}, {"block", Fp8::kBlock}});
  section.choice<Fp8Format>("fp8_format", settings.fp8_format,
                            {{"e4m3", Fp8Format::kE4m3}, {"hybrid", Fp8Format::kHybrid}});
  section.choice<Fp8FastSums>(
      "fp8_fast_sums", settings.fp8_fast_sums,
      {{"none", Fp8FastSums::kNone}, {"forward", Fp8FastSums::kForward}, {"all", Fp8FastSums::kAll}});
  section.choice<DType>("gradient_type", settings.gradient_dtype,
                        {{"fp32", DType::kFp32}, {"bf16", DType::kBf16}, {"fp16", DType::kFp16}});
  section.choice<GradientSum>("reduction", settings.gradient_sum,
                              {{"native", GradientSum::kNative}, {"ordered", GradientSum::kOrdered}});
  section.boolean("clip_gradients", settings.clip_gradients);
  section.bytes("bucket", settings.bucket_bytes, 1024, std::int64_t{1} << 50);
  read_overlap(section, settings);
  section.integer("vocab_multiple", settings.vocab_multiple, 1, 65536);
  Choices<std::string> kernel_sets;
  for (const std::string& name : kernel_set_names()) kernel_sets.emplace_back(name, name);
  section.choice("kernel_set", settings.kernel_set, kernel_sets);
  section.boolean("cuda_graphs", settings.cuda_graphs);
  read_passes(section, settings);
  read_placement(section, scenario);
}

}  // namespace orrery
