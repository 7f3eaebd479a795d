#include "report/summary.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

#include "model/transformer.hpp"

namespace orrery {
namespace {

using namespace time_literals;
using Json = nlohmann::json;

TransformerConfig tiny() {
  TransformerConfig config;
  config.name = "tiny";
  config.hidden = 64;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 128;
  config.vocab = 256;
  config.max_positions = 32;
  return config;
}

// Two ranks of one role, micro-batches of one sequence of 32 tokens, 4 sequences a step.
Plan two_replicas() {
  Plan plan;
  for (const std::int64_t rank : {0, 1}) plan.replicas.push_back({{{0, 4, {RankId(rank)}}}, 2});
  plan.sequence = 32;
  return plan;
}

Scenario scenario_of_two() {
  Scenario scenario;
  scenario.name = "demo";
  scenario.model = tiny();
  scenario.cluster.name = "desk";
  scenario.cluster.node.gpus = 2;
  scenario.cluster.node.gpu.name = "toy";
  scenario.cluster.node.gpu.memory_bytes = std::int64_t{1} << 30;
  scenario.cluster.node.gpu.peak_flops_per_s[static_cast<std::size_t>(DType::kBf16)] = 1e12;
  scenario.prices.gpu_hour = 3.6;
  scenario.notes = {"something assumed"};
  return scenario;
}

Program program_of_two() {
  return parse_program(
      "role only (ranks 0-1):\n"
      "  buffer w parameters 256MiB persistent\n"
      "  f = compute 60us for forward reads w\n"
      "  c = all-reduce 1MB for gradient-reduce after f\n");
}

// f 0..60, c waits 60..65 and moves 65..85, and 15 us of nothing.
Timeline timeline_of_two() {
  Timeline timeline;
  timeline.classes = {{RoleId(0), {RankId(0), RankId(1)}}};
  timeline.spans = {{0, StreamId(0), 0, 0, 0_us, 0_us, 60_us}, {0, StreamId(1), 1, 1, 60_us, 65_us, 85_us}};
  timeline.step_time = 100_us;
  timeline.makespan = 110_us;
  timeline.steps = 3;
  return timeline;
}

Summary summary_of_two() {
  return summarize(scenario_of_two(), build_training_graph(tiny(), DType::kBf16), two_replicas(),
                   program_of_two(), timeline_of_two());
}

TEST_CASE("model flops are 6 N tokens plus the causal half of attention", "[summary]") {
  // Per layer: q 64·64, k and v 64·32 each, o 64·64, three of 64·128; and the head 64·256.
  const double parameters = 2 * (2 * 64.0 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 64 * 256;
  const double tokens = 4 * 32;
  // Forward: two products of s·s·d multiply-adds per head, half of them under the causal mask.
  const double attention = 2 /*layers*/ * 4 /*sequences*/ * 4 /*heads*/ * (2 * 2.0 * 32 * 32 * 16 / 2);
  const double expected = 6 * parameters * tokens + 3 * attention;
  // Half of the mask is s·s/2, or s·(s+1)/2 with the diagonal: 3 % of attention at 32 tokens.
  const Graph forward = build_forward(tiny(), DType::kBf16);
  CHECK(model_flops(forward, 4, 32) == Approx(expected).epsilon(0.002));
  // Backward and optimiser ops don't count a second time.
  CHECK(model_flops(build_training_graph(tiny(), DType::kBf16), 4, 32) == model_flops(forward, 4, 32));
  // Linear in the batch; quadratic in the sequence through attention only.
  CHECK(model_flops(forward, 8, 32) == Approx(2 * model_flops(forward, 4, 32)));
  CHECK(model_flops(forward, 2, 64) > model_flops(forward, 4, 32));
  // A tied table multiplies as the head all the same.
  TransformerConfig tied = tiny();
  tied.tied_head = true;
  CHECK(model_flops(build_forward(tied, DType::kBf16), 4, 32) == model_flops(forward, 4, 32));
}

TEST_CASE("the figures of a run", "[summary]") {
  const Summary summary = summary_of_two();
  CHECK(summary.step_time_s == Approx(100e-6));
  CHECK(summary.makespan_s == Approx(110e-6));
  CHECK(summary.gpus == 2);
  CHECK(summary.tokens == 128);
  CHECK(summary.tokens_per_s_per_gpu == Approx(128 / 100e-6 / 2));
  const double flops = model_flops(build_forward(tiny(), DType::kBf16), 4, 32);
  CHECK(summary.tflops_per_gpu == Approx(flops / 2 / 100e-6 / 1e12));
  CHECK(summary.mfu == Approx(flops / 2 / 100e-6 / 1e12));  // The peak is 1 TFLOP/s.
  CHECK(summary.compute_fraction == Approx(0.60));
  CHECK(summary.exposed_comm_fraction == Approx(0.25));
  CHECK(summary.bubble_fraction == Approx(0.15));
  REQUIRE(summary.exposed_s.size() == 1);
  CHECK(summary.exposed_s[0].first == Purpose::kGradientReduce);
  CHECK(summary.exposed_s[0].second == Approx(25e-6));
  CHECK(summary.exposed_waiting_s[0].second == Approx(5e-6));
  CHECK(summary.peak_memory_bytes == 256 * 1024 * 1024);
  // 3.6 an hour is 0.001 a second and GPU: two GPUs for 100 us and 128 tokens.
  CHECK(summary.cost_per_million_tokens == Approx(0.001 * 2 * 100e-6 / 128 * 1e6));
  CHECK(summary.plan == "tp 1, pp 1, dp 2; batch 4 (micro 1), sequence 32; bf16, 1f1b, ZeRO-0");
}

TEST_CASE("what is not known is zero, what is wrong is a warning", "[summary]") {
  Scenario scenario = scenario_of_two();
  scenario.prices.gpu_hour = 0;
  scenario.cluster.node.gpu.peak_flops_per_s = {};
  scenario.cluster.node.gpu.memory_bytes = 1 << 20;
  Timeline timeline = timeline_of_two();
  timeline.settled = false;
  const Graph graph = build_forward(tiny(), DType::kBf16);
  const Summary summary = summarize(scenario, graph, two_replicas(), program_of_two(), timeline);
  CHECK(summary.mfu == 0);
  CHECK(summary.cost_per_million_tokens == 0);
  REQUIRE(summary.warnings.size() >= 2);
  CHECK(summary.warnings[summary.warnings.size() - 2] ==
        "the step time still changed after 3 steps; it is the last one's");
  CHECK(summary.warnings.back() == "out of memory: 256.0 MiB needed, the GPU has 1.0 MiB");
  const Summary nothing = summarize(scenario, graph, two_replicas(), program_of_two(), Timeline{});
  CHECK(nothing.tokens_per_s_per_gpu == 0);
  CHECK(nothing.bubble_fraction == 0);
}

TEST_CASE("the JSON has the figures under their names", "[summary]") {
  Summary summary = summary_of_two();
  summary.warnings = {"one", "two"};
  const Json json = Json::parse(to_json(summary, scenario_of_two(), program_of_two()));
  for (const char* const key :
       {"step_time_s", "makespan_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_memory_bytes",
        "bubble_fraction", "exposed_comm_fraction", "cost_per_million_tokens", "gpus", "steps"}) {
    INFO(key);
    REQUIRE(json.contains(key));
    CHECK(json.at(key).is_number());
  }
  CHECK(json.at("step_time_s").get<double>() == summary.step_time_s);
  CHECK(json.at("scenario") == "demo");
  CHECK(json.at("engine") == "fast");
  CHECK(json.at("settled") == true);
  CHECK(json.at("exposed_s").at("gradient-reduce").get<double>() == Approx(25e-6));
  CHECK(json.at("warnings") == Json({"one", "two"}));
  CHECK(json.at("notes") == Json::array({"something assumed"}));
  REQUIRE(json.at("memory").size() == 1);
  CHECK(json.at("memory")[0].at("role") == "only");
  CHECK(json.at("memory")[0].at("ranks") == 2);
  CHECK(json.at("memory")[0].at("by_category").at("parameters") == 256 * 1024 * 1024);
  CHECK(json.at("program") == Json({{"roles", 1},
                                    {"instructions", 2},
                                    {"ranks", 2},
                                    {"rank_classes", 1},
                                    {"collectives", {{"all-reduce", 1}}}}));
}

// Characters, where a continuation byte of UTF-8 is none.
std::size_t width(const std::string& line) {
  std::size_t characters = 0;
  for (const char c : line) characters += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return characters;
}

std::vector<std::string> lines_of(const std::string& table) {
  std::vector<std::string> lines;
  std::istringstream in(table);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("the table fits one screen", "[summary]") {
  Summary summary = summary_of_two();
  Scenario scenario = scenario_of_two();
  Program program = program_of_two();
  const std::vector<std::string> small = lines_of(to_table(summary, scenario, program));
  CHECK(small[0] == "demo: tiny on 2 x toy (desk)");
  CHECK(small.size() <= 24);

  scenario.name = std::string(300, 'x') + "é";
  scenario.faults.resize(1);
  summary.step_time_high_s = 1;
  summary.step_times_s.assign(16, 12.3456789);
  for (int i = 0; i < 40; ++i) {
    summary.warnings.push_back("a warning with é that is long: " + std::string(200, 'w') +
                               "\nand a second line");
  }
  for (int i = 0; i < kPurposeCount; ++i) summary.exposed_s.emplace_back(static_cast<Purpose>(i), 1e-5);
  for (const std::size_t stages : {1, 7, 8, 9, 64}) {
    program.roles.resize(stages);
    summary.peak_by_role.resize(stages);
    for (std::size_t i = 0; i < stages; ++i) {
      program.roles[i].name = "stage" + std::to_string(i) + std::string(40, '_');
      summary.peak_by_role[i].bytes = static_cast<std::int64_t>(1 + (i * 5) % stages) << 40;
    }
    const std::vector<std::string> lines = lines_of(to_table(summary, scenario, program));
    INFO(stages);
    CHECK(lines.size() <= 24);
    for (const std::string& line : lines) CHECK(width(line) <= 100);
  }
}

TEST_CASE("what each step took stands in the figures, and in the table where there are faults", "[summary]") {
  Summary summary = summary_of_two();
  Scenario scenario = scenario_of_two();
  const Program program = program_of_two();
  // Ends at 180, 300 and 400 us: steps of 180, 120 and 100 us, 80 + 20 us more than three of 100.
  const std::vector<SimTime> ends{180_us, 300_us, 400_us};
  add_step_times(ends, summary);
  REQUIRE(summary.step_times_s.size() == 3);
  CHECK(summary.step_times_s[1] == Approx(120e-6));
  const Json json = Json::parse(to_json(summary, scenario, program));
  CHECK(json.at("step_times_s").get<std::vector<double>>() == summary.step_times_s);
  CHECK(to_table(summary, scenario, program).find("steps with faults") == std::string::npos);
  scenario.faults.push_back({RankId(0), Fault::What::kGpu, 0.5, {}, 200_us});
  CHECK(to_table(summary, scenario, program)
            .find("  steps with faults   180.000 us, 120.000 us, 100.000 us; 100.000 us lost\n") !=
        std::string::npos);
}

TEST_CASE("more stages than fit show the fullest and the emptiest", "[summary]") {
  Summary summary = summary_of_two();
  Program program;
  program.roles.resize(16);
  summary.peak_by_role.assign(16, {});
  for (std::size_t i = 0; i < 16; ++i) {
    program.roles[i].name = "stage" + std::to_string(i);
    summary.peak_by_role[i].bytes = (i == 3 ? 900 : i == 5 ? 100 : 500) * (std::int64_t{1} << 20);
  }
  const std::string table = to_table(summary, scenario_of_two(), program);
  CHECK(table.find("most: stage3") != std::string::npos);
  CHECK(table.find("least: stage5") != std::string::npos);
  CHECK(table.find("87.9 %") != std::string::npos);  // 900 of 1024 MiB.
  CHECK(table.find("stage4") == std::string::npos);
}

TEST_CASE("ranks that share cores have the peak of those", "[report]") {
  Scenario scenario = scenario_of_two();
  const auto summary = [&] {
    return summarize(scenario, build_training_graph(tiny(), DType::kBf16), two_replicas(), program_of_two(),
                     timeline_of_two());
  };
  const double own = summary().mfu;
  scenario.cluster.node.cores = 2;  // One for each.
  CHECK(summary().mfu == own);
  scenario.cluster.node.cores = 1;
  CHECK(summary().mfu == Approx(2 * own));
  // Compute that spans a transfer of its own thread hides nothing.
  const auto text = [&] { return to_table(summary(), scenario, program_of_two()); };
  CHECK(text().find("of the communication interrupts it") == std::string::npos);
  scenario.profile.communication_on_core = true;
  CHECK(text().find("of the communication interrupts it") != std::string::npos);
}

}  // namespace
}  // namespace orrery
