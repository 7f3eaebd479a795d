#include <catch2/catch.hpp>

#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("a small scenario is read", "[scenarios]") {
  const Scenario scenario = parse_small();
  CHECK(scenario.name == "small");
  CHECK(scenario.model.hidden == 1024);
  CHECK(scenario.model.kv_heads == 8);
  CHECK(scenario.model.head_dim == 128);
  CHECK(scenario.plan.settings.sequence == 2048);
  CHECK(scenario.plan.global_batch == 32);
  CHECK(scenario.plan.dp == 2);
  CHECK(scenario.plan.tp == 4);
  CHECK(scenario.plan.pp == 1);
  CHECK(scenario.cluster.gpu_count() == 8);
  CHECK(scenario.fold);
  CHECK(scenario.prices.gpu_hour == 0);
}

TEST_CASE("every key reaches its field", "[scenarios]") {
  const Scenario scenario = parse_scenario(R"(
name: full
description: all there is
model: {name: m, hidden: 512, layers: 6, heads: 8, kv_heads: 2, head_dim: 64, ffn: 1024, vocab: 1000, max_positions: 4096,
        embedding_dim: 256, norm: layer, norm_epsilon: 1e-6, positions: learned, rotary_fraction: 0.5, gated_mlp: false,
        activation: relu, tied_head: true, qkv_bias: true, attention_out_bias: true, mlp_bias: true, head_bias: true,
        qk_norm: true, parallel_residual: true, shared_input_norm: true, residual_dropout: 0.1, embedding_dropout: 0.2}
sequence: 4096
global_batch: 64
cluster:
  name: mine
  gpu: {name: g, peak: {fp32: 60T, tf32: 400 TFLOP/s, bf16: 0.8P, fp16: 8e14, fp8: 1600T}, memory: 80GiB, bandwidth: 3TB/s,
        power: 700, source: me}
  gpus_per_node: 4
  nvlink: 300GB/s
  pcie: 32GB/s
  nics: 2
  nic: 200Gb/s
  nodes: 8
  fabric: {kind: fat-tree, oversubscription: 2.5, nodes_per_leaf: 4, hop_latency: 250ns}
plan: {dp: 2, tp: 2, pp: 3, layers_per_stage: [1, 2, 3], microbatch: 2, schedule: 1f1b, sequence_parallel: true, zero: 1,
       recompute: full, precision: fp16, gradient_type: bf16, clip_gradients: false, bucket: 100MB,
       overlap: {gradient_reduce: false, parameter_gather: false}, vocab_multiple: 64, kernel_set: reference, cuda_graphs: true}
engine: {kind: fast, fold: false}
stragglers: [{rank: 17, slowdown: 1.3}]
profile: {matmul_efficiency: 0.5, attention_efficiency: 0.4, attention_backward_efficiency: 0.3, memory_efficiency: 0.8,
          launch: 5us, graph_node: 600ns, kernel_floor: 3us, compute_interference: 1.1, transfer_interference: 1.4,
          step_latency: 2us, network_step_latency: 6us, collective_base: 7us, nvls: false,
          nccl: 2.20}
prices: {gpu_hour: 2.25 EUR, source: list, date: 2025-06-01}
output: {json: out.json, trace: /tmp/t.json}
)",
                                           "folder/full.yaml");
  const TransformerConfig& model = scenario.model;
  CHECK(std::pair(model.name, scenario.name) == std::pair<std::string, std::string>("m", "full"));
  CHECK(model.kv_heads == 2);
  CHECK(model.ffn == 1024);
  CHECK(model.embedding_dim == 256);
  CHECK(model.norm == NormKind::kLayer);
  CHECK(model.norm_epsilon == 1e-6);
  CHECK(model.positions == PositionKind::kLearned);
  CHECK(model.rotary_fraction == 0.5);
  CHECK_FALSE(model.gated_mlp);
  CHECK(model.activation == Activation::kRelu);
  CHECK((model.tied_head && model.qkv_bias && model.attention_out_bias && model.mlp_bias && model.head_bias));
  CHECK((model.qk_norm && model.parallel_residual && model.shared_input_norm));
  CHECK(model.residual_dropout == 0.1);
  CHECK(model.embedding_dropout == 0.2);

  const Cluster& cluster = scenario.cluster;
  CHECK(cluster.name == "mine");
  CHECK(cluster.gpu_count() == 32);
  CHECK(cluster.node.gpu.peak(DType::kFp32) == 60e12);
  CHECK(cluster.node.gpu.peak(DType::kTf32) == 400e12);
  CHECK(cluster.node.gpu.peak(DType::kBf16) == Approx(8e14));
  CHECK(cluster.node.gpu.peak(DType::kFp16) == 8e14);
  CHECK(cluster.node.gpu.memory_bytes == std::int64_t{80} << 30);
  CHECK(cluster.node.gpu.memory_bytes_per_s == 3e12);
  CHECK(cluster.node.gpu.power_w == 700);
  CHECK(cluster.node.gpu.source == "me");
  CHECK(cluster.node.nics == 2);
  CHECK(cluster.node.nic_bytes_per_s == 25e9);
  CHECK(cluster.fabric.kind == FabricKind::kFatTree);
  CHECK(cluster.fabric.oversubscription == 2.5);
  CHECK(cluster.fabric.nodes_per_leaf == 4);
  CHECK(cluster.fabric.hop_latency_s == Approx(250e-9));

  const PlanShorthand& plan = scenario.plan;
  CHECK((plan.dp == 2 && plan.tp == 2 && plan.pp == 3));
  CHECK(plan.layers_per_stage == std::vector<std::int32_t>{1, 2, 3});
  CHECK(plan.settings.microbatch_size == 2);
  CHECK(plan.settings.sequence_parallel);
  CHECK(plan.settings.zero_stage == 1);
  CHECK(plan.settings.recompute == Recompute::kFull);
  CHECK(plan.settings.compute_dtype == DType::kFp16);
  CHECK(plan.settings.gradient_dtype == DType::kBf16);
  CHECK_FALSE(plan.settings.clip_gradients);
  CHECK(plan.settings.bucket_bytes == 100'000'000);
  CHECK_FALSE(plan.settings.overlap_gradient_reduce);
  CHECK_FALSE(plan.settings.overlap_parameter_gather);
  CHECK(plan.settings.vocab_multiple == 64);
  CHECK(plan.settings.kernel_set == "reference");
  CHECK(plan.settings.cuda_graphs);

  const Profile& profile = scenario.profile;
  CHECK(profile.matmul_efficiency == 0.5);
  CHECK(profile.attention_efficiency == 0.4);
  CHECK(profile.attention_backward_efficiency == 0.3);
  CHECK(profile.memory_efficiency == 0.8);
  CHECK(profile.launch_s == Approx(5e-6));
  CHECK(profile.graph_node_s == Approx(600e-9));
  CHECK(profile.kernel_floor_s == Approx(3e-6));
  CHECK(profile.compute_interference == 1.1);
  CHECK(profile.transfer_interference == 1.4);
  CHECK(profile.step_latency_s == Approx(2e-6));
  CHECK(profile.network_step_latency_s == Approx(6e-6));
  CHECK(profile.collective_base_s == Approx(7e-6));
  CHECK_FALSE(profile.collectives.nvls);
  CHECK(profile.collectives.nccl_minor == 20);  // Not 2.2: a version is no number.

  CHECK_FALSE(scenario.fold);
  CHECK(scenario.stragglers == std::vector<std::pair<RankId, double>>{{RankId(17), 1.3}});
  CHECK(scenario.prices.gpu_hour == 2.25);
  CHECK(scenario.prices.currency == "EUR");
  CHECK(scenario.prices.source == "list");
  CHECK(scenario.prices.date == "2025-06-01");
  CHECK(scenario.output.json == "folder/out.json");
  CHECK(scenario.output.trace == "/tmp/t.json");
}

TEST_CASE("a fault names file, line, column, field, the expectation and the likely word", "[scenarios]") {
  CHECK(message_of(small_with("dp: 2", "pd: 2")) ==
        "small.yaml:6:8: plan: unknown key \"pd\"; did you mean \"dp\"?");
  CHECK(message_of(small_with("tp: 4", "tp: four")) ==
        "small.yaml:6:19: plan.tp: is \"four\"; expected a whole number from 1 to 1,048,576");
  CHECK_THAT(
      message_of(small_with("tp: 4", "tp: 4, recompute: ful")),
      Contains(
          "plan.recompute: is \"ful\"; expected one of none, full, selective, auto; did you mean \"full\"?"));
  CHECK_THAT(message_of(small_with("dgx-h100", "dgx-h10")), Contains("did you mean \"dgx-h100\"?"));
  CHECK_THAT(message_of(small_with("sequence: 2048\n", "")),
             Contains("small.yaml:1:1: sequence: missing; expected tokens per sequence"));
}

TEST_CASE("recompute is a word, a list or a mapping", "[scenarios]") {
  const auto plan = [](const std::string& recompute) {
    return parse_small({"plan.recompute=" + recompute}).plan.settings;
  };
  using Names = std::vector<std::string>;
  CHECK(plan("none").recompute == Recompute::kNone);
  CHECK(plan("auto").recompute == Recompute::kAuto);
  CHECK(plan("selective").recompute == Recompute::kTensors);
  CHECK(plan("selective").recompute_tensors == Names{"core_attention"});
  CHECK(plan("[norm1, mlp.gated]").recompute_tensors == Names{"norm1", "mlp.gated"});
  const Plan some = plan("{what: [norms], layers: 3}");
  CHECK(some.recompute_tensors == Names{"norms"});
  CHECK(some.recompute_layers == 3);
  const Plan capped = plan("{what: auto, memory: 70GB}");
  CHECK(capped.recompute == Recompute::kAuto);
  CHECK(capped.recompute_memory == 70'000'000'000);
  const auto fault = [](const std::string& recompute) {
    return message_of(kSmall, {"plan.recompute=" + recompute});
  };
  CHECK_THAT(fault("[]"), Contains("plan.recompute: is an empty list; expected names"));
  CHECK_THAT(fault("[[a]]"), Contains("plan.recompute: is a list; expected a tensor's name"));
  CHECK_THAT(fault("{layers: 3}"), Contains("plan.recompute.what: missing"));
  CHECK_THAT(fault("{what: full, memory: 1GB}"), Contains("is for what: auto alone"));
  CHECK_THAT(fault("{what: auto, layers: 2}"), Contains("is not for what: auto"));
  CHECK_THAT(fault("{what: full, layer: 2}"), Contains("did you mean \"layers\"?"));
}

TEST_CASE("products in FP8 are asked for by a word", "[scenarios]") {
  CHECK(parse_small().plan.settings.fp8 == Fp8::kNone);
  CHECK(parse_small({"plan.fp8=tensor"}).plan.settings.fp8 == Fp8::kTensor);
  CHECK(parse_small({"plan.fp8=block"}).plan.settings.fp8 == Fp8::kBlock);
  CHECK_THAT(message_of(kSmall, {"plan.fp8=rows"}), Contains("plan.fp8"));
}

TEST_CASE("all faults are told at once, by line", "[scenarios]") {
  const std::string message = message_of(
      small_with("sequence: 2048\nglobal_batch: 32", "sequence: 0\nglobal_batch: x") + "zzzz: 1\n");
  CHECK(message.find(":3:11: sequence") < message.find(":4:15: global_batch"));
  CHECK(message.find(":4:15: global_batch") < message.find(":7:1: unknown key \"zzzz\""));
}

TEST_CASE("numbers out of range and of the wrong kind are faults", "[scenarios]") {
  const std::vector<std::pair<std::string, std::string>> cases = {{"sequence", "0"},
                                                                  {"sequence", "-1"},
                                                                  {"sequence", "1.5"},
                                                                  {"sequence", "1e3"},
                                                                  {"sequence", "99999999999999999999"},
                                                                  {"sequence", "\"2048\""},
                                                                  {"sequence", ".nan"},
                                                                  {"sequence", "010"},
                                                                  {"sequence", "[1]"},
                                                                  {"sequence", ""},
                                                                  {"global_batch", "9223372036854775807"},
                                                                  {"cluster.nodes", "1000001"},
                                                                  {"cluster.nodes", "0"},
                                                                  {"plan.zero", "4"},
                                                                  {"plan.bucket", "10 parsecs"},
                                                                  {"plan.bucket", "-1MB"},
                                                                  {"plan.sequence_parallel", "yes"},
                                                                  {"profile.launch", "4"},
                                                                  {"profile.launch", "-4us"},
                                                                  {"profile.matmul_efficiency", "nan"},
                                                                  {"profile.matmul_efficiency", "1.01"},
                                                                  {"profile.compute_interference", "inf"},
                                                                  {"profile.nvls", "maybe"},
                                                                  {"profile.nccl", "3.1"},
                                                                  {"profile.nccl", "2.x"},
                                                                  {"profile.nccl", "2.18.beta"},
                                                                  {"cluster.fabric.hop_latency", "1s"},
                                                                  {"prices.gpu_hour", "free"},
                                                                  {"prices.gpu_hour", "-1 USD"},
                                                                  {"prices.gpu_hour", "1 dollars"},
                                                                  {"name", "''"}};
  for (const auto& [key, value] : cases) {
    CAPTURE(key, value);
    const std::string message = message_of(kSmall, {key + "=" + value});
    CHECK_THAT(message, Contains(key + ": "));
    CHECK_THAT(message, Contains("expected"));
  }
}

TEST_CASE("an override takes the place of a value, and is named in faults", "[scenarios]") {
  CHECK(parse_small({"plan.tp=2", "plan.dp=4"}).plan.tp == 2);
  CHECK(parse_small({"profile.launch=9us"}).profile.launch_s == Approx(9e-6));
  CHECK(parse_small({"stragglers=[{rank: 3, slowdown: 1.5}]"}).stragglers.size() == 1);
  CHECK(message_of(kSmall, {"plan.tp=0"}) ==
        "\"--set plan.tp=0\": plan.tp: is \"0\"; expected a whole number from 1 to 1,048,576");
  CHECK_THAT(message_of(kSmall, {"plan.tpp=2"}), Contains("did you mean \"tp\"?"));
  CHECK_THAT(message_of(kSmall, {"plan"}), Contains("expected path.to.key=value"));
  CHECK_THAT(message_of(kSmall, {"plan..tp=1"}), Contains("single dots"));
  CHECK_THAT(message_of(kSmall, {"name.tp=1"}), Contains("name is not a mapping"));
  CHECK_THAT(message_of(kSmall, {"plan.tp=[1"}), Contains("--set"));
}

TEST_CASE("the parts have to fit together", "[scenarios]") {
  CHECK_THAT(
      message_of(small_with("vocab: 32000", "vocab: 32000, positions: learned, max_positions: 1024")),
      Contains("small.yaml:3:11: sequence: is 2048; the model has learned positions for 1024 tokens only"));
  CHECK_THAT(message_of(kSmall, {"stragglers=[{rank: 8, slowdown: 2}]"}),
             Contains("rank 8 doesn't exist; the cluster's ranks are 0 to 7"));
  CHECK_THAT(message_of(kSmall, {"stragglers=[{rank: 1, slowdown: 2}, {rank: 1, slowdown: 3}]"}),
             Contains("listed twice"));
  CHECK_THAT(message_of(kSmall, {"cluster.node=dgx-a100", "profile={nvls: true}"}),
             Contains("profile.nvls: is true; A100-SXM4-80GB in DGX-A100 has no NVSwitch that multicasts"));
  CHECK_THAT(message_of(kSmall, {"profile={nvls: true, nccl: 2.16.5}"}), Contains("2.17 and later have"));
  CHECK(parse_small({"profile={nvls: true, nccl: 2.17}"}).profile.collectives.nvls);
  CHECK_FALSE(parse_small({"cluster.node=dgx-a100", "profile={nvls: false}"}).profile.collectives.nvls);
  CHECK_THAT(message_of(kSmall, {"cluster.nodes=1000000"}), Contains("8,000,000 GPUs"));
  CHECK_THAT(message_of(kSmall, {"cluster.nodes=2", "cluster.fabric=none"}),
             Contains("cluster.fabric: is none"));
  CHECK_THAT(message_of(kSmall, {"cluster.gpu=h100-sxm"}), Contains("drop one of the two"));
  CHECK_THAT(message_of(kSmall, {"cluster={nodes: 1}"}), Contains("cluster.gpu: missing"));
  CHECK_THAT(message_of(kSmall, {"cluster={gpu: h100-sxm, nics: 0, nodes: 2}"}), Contains("cluster.nics"));
  CHECK_THAT(message_of(kSmall, {"cluster={gpu: {peak: {bf16: 1P}, memory: 80GiB, bandwidth: 3TB/s}}",
                                 "plan.precision=fp16"}),
             Contains("has no peak rate"));
  const Scenario longer = parse_small({"model.max_positions=1024"});
  REQUIRE(longer.notes.size() == 1);
  CHECK_THAT(longer.notes.front(), Contains("longer than the model's 1024 positions"));
}

TEST_CASE("model files are found from the scenario's folder", "[scenarios]") {
  const std::string yaml =
      small_with(kSmall.substr(kSmall.find("model:"), kSmall.find("sequence") - kSmall.find("model:")),
                 "model: models/llama-3-8b.json\n");
  const std::filesystem::path folder = std::filesystem::path(ORRERY_SOURCE_DIR) / "scenarios";
  CHECK(parse_scenario(yaml, folder / "new.yaml").model.hidden == 4096);
  CHECK_THAT(message_of(yaml),
             Contains("small.yaml:2:8: model: there is no file \"models/llama-3-8b.json\""));
  CHECK_THAT(message_of(yaml, {"model=/dev/zero"}), Contains("there is no file"));
  CHECK_THAT(message_of(yaml, {"model=" + (folder / "scenario.schema.json").string()}), Contains("model: "));
}

TEST_CASE("files that aren't scenario files are refused", "[scenarios]") {
  const auto message = [](const std::filesystem::path& file) -> std::string {
    try {
      load_scenario(file);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message("no/such.yaml"), Contains("no/such.yaml: no such file"));
  CHECK_THAT(message(ORRERY_SOURCE_DIR), Contains("is a folder"));
  CHECK_THAT(message("/dev/zero"), Contains("larger than 1 MiB"));
  CHECK_THAT(message("/dev/null"), Contains("empty"));
}
