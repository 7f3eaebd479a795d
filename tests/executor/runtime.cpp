// The runtime: ranks as threads, at their planned addresses, train as one rank does.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.hpp"
#include "base/random.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/runtime/run.hpp"
#include "planner/lower.hpp"
#include "planner/recompute.hpp"
#include "tests/executor/random_plans.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/training_runs.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

using test::callbacks_of;
using test::check_close;
using test::tokens;

Program placed(const Graph& graph, const Plan& plan) {
  Program program = lower(graph, plan);
  REQUIRE(verify(program).empty());
  place_buffers(program);
  return program;
}

constexpr double kDeviation = 0.3;

host::RunResult train(const Graph& graph, const Plan& plan, const Program& program, std::int64_t steps) {
  host::RunOptions options;
  options.steps = steps;
  options.initial.deviation = kDeviation;
  options.callbacks = [&] { return callbacks_of(graph, plan); };
  return host::run_threads(graph, program, options);
}
host::RunResult train(const Graph& graph, const Plan& plan, std::int64_t steps) {
  return train(graph, plan, placed(graph, plan), steps);
}

// Memory of ranks as a World wants it, with a page behind each that can't be touched.
class GuardedMemory {
 public:
  GuardedMemory(const Program& program, const host::RecordOptions& record) {
    for (const RoleId role : program.role_of) {
      const auto bytes = static_cast<std::size_t>(host::layout_of(program.roles[role.index()], record).bytes);
      void* const memory =
          mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(memory != MAP_FAILED);
      REQUIRE(mprotect(static_cast<std::byte*>(memory) + bytes, kPage, PROT_NONE) == 0);
      ranks_.push_back(static_cast<std::byte*>(memory));
      bytes_.push_back(bytes);
      new (memory) host::RankHeader;
    }
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) munmap(ranks_[r], bytes_[r] + kPage);
  }
  const std::vector<std::byte*>& ranks() const { return ranks_; }
  std::size_t bytes(std::size_t rank) const { return bytes_[rank]; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::vector<std::byte*> ranks_;
  std::vector<std::size_t> bytes_;
};

constexpr std::byte kPattern{0xa5};

// Where a rank's memory, from the arena on, isn't any buffer's.
std::vector<bool> unplanned(const Role& role, const host::RankLayout& layout) {
  std::vector<bool> bytes(static_cast<std::size_t>(layout.bytes - layout.arena), true);
  for (const Buffer& buffer : role.buffers) {
    if (buffer.offset < 0) continue;
    std::fill_n(bytes.begin() + buffer.offset, buffer.bytes, false);
  }
  return bytes;
}

PlanShorthand alone(const PlanShorthand& like) {
  PlanShorthand one;
  one.dp = 1;
  one.global_batch = like.global_batch;
  one.settings.sequence = like.settings.sequence;
  one.settings.microbatch_size = like.settings.microbatch_size;
  one.settings.expert_capacity_factor = like.settings.expert_capacity_factor;
  one.settings.compute_dtype = DType::kFp32;
  return one;
}

PlanShorthand ordered_plan() {
  PlanShorthand plan;
  plan.dp = 1;
  plan.global_batch = 8;
  plan.settings.sequence = 16;
  plan.settings.compute_dtype = DType::kFp32;
  plan.settings.kernel_set = "orrery-host";
  plan.settings.gradient_sum = GradientSum::kOrdered;
  return plan;
}

}  // namespace

TEST_CASE("ordered sums give the same bits however dp, zero and pp share the work", "[executor][runtime]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp32);
  constexpr std::int64_t kSteps = 4;
  const host::RunResult wanted = train(graph, expand(ordered_plan(), graph, 1), kSteps);
  std::vector<std::pair<std::string, PlanShorthand>> plans;
  for (const std::int32_t dp : {2, 4, 8}) {
    for (const std::int32_t zero : {0, 1, 2, 3}) {
      PlanShorthand plan = ordered_plan();
      plan.dp = dp;
      plan.settings.zero_stage = zero;
      plans.emplace_back(fmt::format("dp {}, zero {}", dp, zero), plan);
    }
  }
  for (const PipelineSchedule schedule : all_pipeline_schedules()) {
    PlanShorthand plan = ordered_plan();
    plan.pp = 2;
    plan.dp = 2;
    plan.settings.schedule = schedule;
    plans.emplace_back(fmt::format("pp 2, dp 2, {}", to_string(schedule)), plan);
  }
  int ran = 0;
  for (const auto& [name, shorthand] : plans) {
    INFO(name);
    try {
      const host::RunResult found =
          train(graph, expand(shorthand, graph, shorthand.dp * shorthand.pp), kSteps);
      ++ran;
      CHECK(found.losses == wanted.losses);
      CHECK(found.gradient_norms == wanted.gradient_norms);
      CHECK(found.parameter_hash == wanted.parameter_hash);
    } catch (const Error& error) {
      UNSCOPED_INFO(error.what());
      CHECK(name.find("dualpipe") != std::string::npos);  // Sums on two ranks.
    }
  }
  CHECK(ran == std::ssize(plans) - 1);
}

TEST_CASE("logits' gradients in their place have the bits of those apart", "[executor][runtime]") {
  for (const DType type : {DType::kFp32, DType::kBf16}) {
    for (const std::int32_t tp : {1, 2}) {
      INFO(to_string(type) << ", tp " << tp);
      const Graph graph = build_training_graph(test::tiny_llama(), type);
      PlanShorthand shorthand = ordered_plan();
      shorthand.tp = tp;
      shorthand.settings.compute_dtype = type;
      const Plan plan = expand(shorthand, graph, tp);
      const Program program = placed(graph, plan);
      Program apart = program;
      std::int64_t taking = 0;
      for (Buffer& buffer : apart.roles[0].buffers) {
        taking += buffer.in_place_of.valid() ? 1 : 0;
        buffer.in_place_of = {};
      }
      CHECK(taking == plan.global_batch() / plan.microbatch_size);
      place_buffers(apart);
      const host::RunResult found = train(graph, plan, program, 3), wanted = train(graph, plan, apart, 3);
      CHECK(found.losses == wanted.losses);
      CHECK(found.gradient_norms == wanted.gradient_norms);
      CHECK(found.parameter_hash == wanted.parameter_hash);
    }
  }
}

TEST_CASE("ranks write where the memory plan has a buffer, and nowhere else", "[executor][runtime]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp32);
  PlanShorthand shorthand = ordered_plan();
  shorthand.dp = 2;
  SECTION("pipeline") { shorthand.pp = 2; }
  SECTION("ZeRO-3") { shorthand.settings.zero_stage = 3; }
  SECTION("ZeRO-1, recompute") {
    shorthand.settings.zero_stage = 1;
    shorthand.settings.recompute = Recompute::kFull;
  }
  SECTION("tensor parallelism") { shorthand.tp = 2; }
  const Plan plan = expand(shorthand, graph, shorthand.dp * shorthand.pp * shorthand.tp);
  const Program program = placed(graph, plan);
  const host::RecordOptions record = {2, 2};
  const GuardedMemory memory(program, record);
  const host::World world(program, memory.ranks(), record);
  std::vector<host::BoundRank> bound;
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    const RankId rank(r);
    const std::vector<bool> empty = unplanned(world.role(rank), world.layout(rank));
    for (std::size_t i = 0; i < empty.size(); ++i) {
      if (empty[i]) world.arena(rank)[i] = kPattern;
    }
    host::Tables tables(graph, world);
    bound.push_back(host::bind_rank(graph, world, rank));
    host::initialize(tables, bound.back(), {1, kDeviation});
  }
  const host::RunCallbacks callbacks = callbacks_of(graph, plan);
  std::vector<std::thread> threads;
  for (host::BoundRank& rank : bound) {
    threads.emplace_back([&] { host::run_steps(graph, world, rank, callbacks, 0, record.steps); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    INFO("rank " << r);
    const RankId rank(r);
    const std::vector<bool> empty = unplanned(world.role(rank), world.layout(rank));
    std::int64_t written = 0;
    for (std::size_t i = 0; i < empty.size(); ++i) written += empty[i] && world.arena(rank)[i] != kPattern;
    CHECK(written == 0);
    CHECK(std::count(empty.begin(), empty.end(), true) > 0);
    CHECK(world.row(rank, record.steps - 1)[host::World::kStepEnd] > 0);
  }
}

TEST_CASE("a rank that hangs in a thread is named and ends the run", "[executor][runtime]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp32);
  PlanShorthand shorthand = ordered_plan();
  shorthand.dp = 2;
  const Plan plan = expand(shorthand, graph, 2);
  const Program program = placed(graph, plan);
  host::RunOptions options;
  options.steps = 3;
  options.watchdog = std::chrono::milliseconds(1000);
  options.callbacks = [&] {
    host::RunCallbacks callbacks = callbacks_of(graph, plan);
    callbacks.inputs = [fill = callbacks.inputs](std::int64_t step, std::int32_t microbatch, TensorId input,
                                                 std::span<std::int64_t> to) {
      fill(step, microbatch, input, to);
      // The second rank has the second half of eight micro-batches.
      while (step == 1 && microbatch == 4 && !launch::aborted()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    return callbacks;
  };
  CHECK_THROWS_WITH(
      host::run_threads(graph, program, options),
      Catch::Contains("rank 1 is stuck during step 1") && Catch::Contains("the limit is 1.0 s"));
}

// Sanitizers make a plan ten times as slow, and some dozens of threads on two cores are slow without them.
#ifdef ORRERY_SANITIZED
constexpr int kPlans = 10;
#else
constexpr int kPlans = 30;
#endif
constexpr int kMostRanks = 8;
TEST_CASE("bf16 weights and activations train beside fp32 masters", "[executor][runtime]") {
  constexpr std::int64_t kSteps = 4;
  const auto trained = [&](DType precision, std::int32_t dp, std::int32_t pp) {
    const Graph graph = build_training_graph(test::tiny_llama(), precision);
    PlanShorthand plan = ordered_plan();
    plan.dp = dp;
    plan.pp = pp;
    plan.settings.compute_dtype = precision;
    return train(graph, expand(plan, graph, dp * pp), kSteps);
  };
  const host::RunResult alone = trained(DType::kBf16, 1, 1);
  const host::RunResult divided = trained(DType::kBf16, 2, 2);
  CHECK(divided.losses == alone.losses);
  CHECK(divided.parameter_hash == alone.parameter_hash);
  const host::RunResult exact = trained(DType::kFp32, 1, 1);
  check_close(alone.losses, exact.losses, 0.02);  // 8 bits of mantissa.
  CHECK(alone.losses != exact.losses);
}

TEST_CASE("random plans train as one rank does", "[executor][runtime]") {
  Random random(20261201);
  const std::array<TransformerConfig, 5> models = {test::tiny_llama(), test::tiny_gpt(), test::tiny_moe(),
                                                   test::tiny_latent(), test::tiny_parallel()};
  constexpr std::int64_t kSteps = 3;
  int done = 0;
  while (done < kPlans) {
    TransformerConfig config = models[static_cast<std::size_t>(done) % models.size()];
    const Graph graph = build_training_graph(config, DType::kFp32);
    const std::vector<std::string> names = recompute_names(graph);
    test::Drawn drawn = test::draw(random, config.experts.count > 0, names);
    if (drawn.gpus > kMostRanks) continue;
    Plan& settings = drawn.plan.settings;
    settings.compute_dtype = DType::kFp32;
    INFO("plan " << done << ": " << config.name << " " << test::describe(drawn));
    try {
      const Plan plan = expand(drawn.plan, graph, drawn.gpus);
      const host::RunResult found = train(graph, plan, kSteps);
      const host::RunResult wanted = train(graph, expand(alone(drawn.plan), graph, 1), kSteps);
      check_close(found.losses, wanted.losses, 1e-5);
      check_close(found.gradient_norms, wanted.gradient_norms, 1e-4);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) FAIL(error.what());
      continue;
    }
    ++done;
  }
}

}  // namespace orrery
