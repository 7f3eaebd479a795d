#include "executor/device/run_device.hpp"

#include <ctime>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "executor/device/floor.hpp"
#include "executor/device/lower_step.hpp"
#include "executor/launch/shared_segment.hpp"
#include "executor/runtime/run_parts.hpp"

namespace orrery::device {
namespace {

using host::BoundRank;
using host::RunCallbacks;
using host::RunOptions;
using host::RunResult;
using host::World;

std::int64_t now_ns() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// Records of every rank on the host, arenas on devices: of the own rank alone this process knows where.
struct Records {
  Records(const Program& program, const host::RecordOptions& record, RankId self, std::byte* arena)
      : by_rank(program.role_of.size(), nullptr), arenas(program.role_of.size(), nullptr) {
    std::size_t bytes = 0;
    const auto arena_begin = [&](RankId rank) {
      return static_cast<std::size_t>(
          host::layout_of(program.roles[program.role_of[rank.index()].index()], record).arena);
    };
    const std::vector<RankId> ranks = host::active_ranks(program);
    for (const RankId rank : ranks) bytes += arena_begin(rank);
    segment = launch::SharedSegment::anonymous(bytes);
    std::byte* at = segment.bytes().data();
    for (const RankId rank : ranks) {
      by_rank[rank.index()] = at;
      new (at) host::RankHeader;
      at += arena_begin(rank);
    }
    arenas[self.index()] = arena;
  }

  launch::SharedSegment segment;
  std::vector<std::byte*> by_rank, arenas;
};

StepScalars scalars_of(const host::AdamWSettings& settings, double clip_norm) {
  const auto step = static_cast<double>(settings.step);
  StepScalars scalars;
  scalars.step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(settings.beta1, step)));
  scalars.decay = static_cast<float>(settings.learning_rate * settings.weight_decay);
  scalars.inverse_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(settings.beta2, step)));
  scalars.beta1 = static_cast<float>(settings.beta1), scalars.beta2 = static_cast<float>(settings.beta2);
  scalars.rest1 = static_cast<float>(1 - settings.beta1),
  scalars.rest2 = static_cast<float>(1 - settings.beta2);
  scalars.epsilon = static_cast<float>(settings.epsilon);
  scalars.gradient_scale = static_cast<float>(settings.gradient_scale);
  scalars.clip_norm = static_cast<float>(clip_norm);
  return scalars;
}

class DeviceRank {
 public:
  DeviceRank(const Graph& graph, const World& world, const RunOptions& options,
             const DeviceRunOptions& device_options, Device& device, RankId self,
             launch::Rendezvous* rendezvous)
      : world_(world), options_(options), device_(device), self_(self), tables_(graph, world) {
    bound_ = host::bind_computes(graph, world, self, [&](std::int64_t bytes) {
      scratch_.begin = device.allocate(bytes, "scratch of launches");
      scratch_.end = scratch_.begin + bytes;
      return const_cast<std::byte*>(scratch_.begin);
    });
    world.header(self).workspace_bytes = bound_.scratch_bytes;
    staging_ = stage_inputs(bound_);
    StepMemory memory;
    memory.staging = device.allocate(staging_.bytes, "a step's tokens");
    memory.results = device.allocate(result_bytes(world, self), "a step's results");
    memory.scratch = scratch_;
    std::vector<std::span<std::byte>> exchanged = {
        {world.arena(self), static_cast<std::size_t>(world.layout(self).arena_bytes)},
        {memory.results, static_cast<std::size_t>(result_bytes(world, self))}};
    for (const std::int64_t bytes : exchange_bytes(tables_, self)) {
      memory.exchange.push_back(bytes > 0 ? device.allocate(bytes, "packing of what ranks exchange")
                                          : nullptr);
      if (bytes > 0) exchanged.emplace_back(memory.exchange.back(), static_cast<std::size_t>(bytes));
    }
    OpLoweringOptions lowering;
    lowering.positions = [this](const std::vector<std::int64_t>& positions) { return constant(positions); };
    lowering.deterministic = device_options.deterministic;
    step_ = lower_step(tables_, bound_, staging_, memory, lowering);
    step_.exchanged = std::move(exchanged);
    RunnerOptions runner;
    runner.capture = device_options.capture;
    runner.algorithm_cache = device_options.algorithm_cache;
    runner.deadline = options.watchdog;
    runner.rank = self.value;
    traces_ = device_options.trace_kernels && self == host::active_ranks(world.program()).front();
    runner.trace_kernels = traces_;
    runner.keep_waiting = launch::keep_waiting;
    if (rendezvous != nullptr) {
      runner.all_gather = [rendezvous](std::string_view own) { return rendezvous->all_gather(own); };
    }
    runner_ = device.prepare(step_, runner);
    device.perform(lower_initial_state(tables_, bound_, options.initial.seed, options.initial.deviation));
  }

  void train(const RunCallbacks& callbacks) {
    constexpr std::int64_t kAhead = 2;  // Steps under way: the device never waits for the host.
    std::int64_t ended = 0;
    const auto end_before = [&](std::int64_t step) {
      while (ended < step) end_step(ended++, callbacks);
    };
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      end_before(step - kAhead + 1);
      stage(step, callbacks);
      if (traces_ && step == options_.steps - 1) {
        end_before(step);
        runner_->start_tracing();
      }
      if (step == 0) begin_ns_ = now_ns();
      runner_->launch(step, records(step));
    }
    end_before(options_.steps);
    if (traces_) kernels_ = runner_->kernels();
    hash();
  }

  // Of the last step, where they were traced.
  std::vector<KernelSpan> kernels() && { return std::move(kernels_); }

  RunnerCounters counters() const { return runner_->counters(); }

  // Of the last step. What the rank has in memory is lost.
  std::vector<FloorRow> time_launches(std::chrono::milliseconds each) {
    return floor_rows(world_.program(), world_.role(self_), step_, runner_->time_launches(each), spans_);
  }

 private:
  // Spans are noted in the last steps, one after another, so that the steps before go without what noting
  // costs.
  bool records(std::int64_t step) const { return step >= options_.steps - world_.record().stamps; }

  const std::int64_t* constant(const std::vector<std::int64_t>& values) {
    const auto [known, inserted] = constants_.try_emplace(values, nullptr);
    if (inserted) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
      std::byte* const memory = device_.allocate(std::ssize(bytes), "positions");
      device_.write(memory, bytes);
      known->second = reinterpret_cast<const std::int64_t*>(memory);
    }
    return known->second;
  }

  void stage(std::int64_t step, const RunCallbacks& callbacks) {
    const std::span<std::byte> to = runner_->stage(step);
    const StepScalars scalars = scalars_of(callbacks.optimizer(step), callbacks.clip_norm);
    std::memcpy(to.data(), &scalars, sizeof scalars);
    for (const StagedInput& input : staging_.inputs) {
      std::int64_t end = 0;
      for (const host::Run& run : input.runs) end = std::max(end, run.from + run.count);
      tokens_.resize(static_cast<std::size_t>(end));
      callbacks.inputs(step, input.microbatch, input.tensor, tokens_);
      auto* const staged = reinterpret_cast<std::int64_t*>(to.data() + input.offset);
      for (const host::Run& run : input.runs) {
        std::copy_n(tokens_.begin() + run.from, run.count, staged + run.to);
      }
    }
  }

  void end_step(std::int64_t step, const RunCallbacks& callbacks) {
    constexpr std::chrono::milliseconds kLook{20};
    const auto give_up = std::chrono::steady_clock::now() + options_.watchdog;
    launch::now_at(step, 0);
    while (!runner_->wait(step, kLook)) {
      launch::keep_waiting();
      if (std::chrono::steady_clock::now() < give_up) continue;
      launch::await_run_end(launch::kVerdict);  // The watchdog may know which rank it is.
      fail(ErrorKind::kRuntime,
           "rank {}: step {} hasn't ended within {} s: the device hangs, or a peer doesn't answer",
           self_.value, step, options_.watchdog.count() / 1000);
    }
    const std::span<double> row = world_.row(self_, step);
    std::fill(row.begin(), row.end(), std::nan(""));
    const std::span<const std::byte> results = runner_->results(step);
    double norm_squared = 0;
    std::memcpy(&norm_squared, results.data(), sizeof norm_squared);
    row[World::kNorm] = sums_norm() ? std::sqrt(norm_squared) : -1;
    for (std::size_t m = World::kFirstLoss; m < row.size(); ++m) {
      float loss = 0;
      std::memcpy(&loss, results.data() + kFirstLossOffset + (m - World::kFirstLoss) * sizeof loss,
                  sizeof loss);
      if (has_loss(static_cast<std::int32_t>(m - World::kFirstLoss))) row[m] = static_cast<double>(loss);
    }
    row[World::kStepEnd] = static_cast<double>(begin_ns_ + runner_->end_ns(step));
    if (records(step)) note_spans(step);
    if (callbacks.ended) callbacks.ended(self_, step);
  }

  void note_spans(std::int64_t step) {
    spans_ = runner_->spans(step);
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      host::Stamp& stamp = world_.stamp(self_, step, static_cast<std::int32_t>(i));
      stamp.start_ns = stamp.ready_ns = begin_ns_ + spans_[i].start_ns;
      stamp.end_ns = begin_ns_ + spans_[i].end_ns;
    }
  }

  bool sums_norm() const {
    return any_action<host::SumSquares>([](const host::SumSquares&) { return true; });
  }
  bool has_loss(std::int32_t microbatch) const {
    return any_action<host::NoteLoss>(
        [&](const host::NoteLoss& loss) { return loss.microbatch == microbatch; });
  }
  template <class Kind, class Test>
  bool any_action(Test test) const {
    for (const host::BoundInstruction& instruction : bound_.instructions) {
      for (const host::Action& action : instruction.actions) {
        const auto* const found = std::get_if<Kind>(&action);
        if (found != nullptr && test(*found)) return true;
      }
    }
    return false;
  }

  void hash() {
    auto& hash = world_.header(self_).parameter_hash;
    std::byte* const memory = device_.allocate(sizeof hash, "the parameters' hash");
    device_.perform(lower_hash(tables_, self_, reinterpret_cast<std::uint64_t*>(memory)));
    device_.read(std::as_writable_bytes(std::span(hash)), memory);
  }

  const World& world_;
  const RunOptions& options_;
  Device& device_;
  RankId self_;
  host::Tables tables_;
  BoundRank bound_;
  ScratchRange scratch_;
  Staging staging_;
  DeviceStep step_;
  std::map<std::vector<std::int64_t>, const std::int64_t*> constants_;
  std::unique_ptr<Runner> runner_;
  std::vector<Span> spans_;
  std::vector<std::int64_t> tokens_;
  bool traces_ = false;
  std::vector<KernelSpan> kernels_;
  std::int64_t begin_ns_ = 0;
};

}  // namespace

RunResult run_on_device(const Graph& graph, const Program& program, const RunOptions& options,
                        const DeviceRunOptions& device_options, Device& device, RankId self,
                        launch::Rendezvous* rendezvous) {
  const host::RecordOptions record = host::record_options(options);
  const DeviceInfo info = device.info();
  const Role& role = program.roles[program.role_of[self.index()].index()];
  const std::int64_t arena_bytes = host::layout_of(role, record).arena_bytes;
  const Records records(program, record, self, device.allocate(arena_bytes, "the memory plan"));
  const World world(program, records.by_rank, record, records.arenas);
  const int size = program.world_size();
  const launch::StatusPage page(launch::SharedSegment::anonymous(launch::StatusPage::bytes(size)), size);
  const launch::Watchdog watchdog(
      page, self.value, host::watchdog_options(program, options),
      rendezvous != nullptr ? rendezvous->take_watch_connections() : std::vector<launch::Connection>());
  launch::join_page(page, self.value);
  RunnerCounters counters;
  std::vector<FloorRow> floor;
  std::vector<KernelSpan> kernels;
  std::int64_t used_bytes = 0;
  // Outlives the failure's handler: the others, and the watchdog that ends what hangs, hear of it before this
  // rank's device is waited for.
  std::optional<DeviceRank> rank;
  try {
    rank.emplace(graph, world, options, device_options, device, self, rendezvous);
    if (rendezvous != nullptr) rendezvous->barrier();
    rank->train(options.callbacks());
    counters = rank->counters();
    kernels = std::move(*rank).kernels();
    used_bytes = info.free_bytes - device.info().free_bytes;
    if (device_options.time_launches_ms > 0) {
      floor = rank->time_launches(std::chrono::milliseconds(device_options.time_launches_ms));
    }
    if (rendezvous != nullptr) {
      std::vector<RankId> others = host::active_ranks(program);
      std::erase(others, self);
      rendezvous->barrier();
      host::gather_records(world, self, others, *rendezvous);
    }
    rank.reset();
  } catch (const std::exception& failure) {
    launch::end_run(page, {self.value, failure.what()});
    launch::leave_page();
    throw;
  }
  launch::leave_page();
  RunResult result = host::collect(world, options);
  result.device = {info.name,
                   info.libraries,
                   counters.library_workspace_bytes,
                   used_bytes,
                   counters.graph_launches,
                   counters.plain_steps,
                   counters.registered_buffers,
                   counters.capture_failure,
                   {},
                   std::move(counters.warnings),
                   {}};
  for (KernelSpan& kernel : kernels) {
    result.device.traced.push_back(
        {std::move(kernel.kernel), kernel.instruction, kernel.stream, kernel.start_ns, kernel.end_ns});
  }
  for (FloorRow& row : floor) {
    result.device.kernels.push_back(
        {std::move(row.label), row.instructions, row.step_us, row.alone_us, row.floor_us});
  }
  return result;
}

}  // namespace orrery::device
