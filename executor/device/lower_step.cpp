#include "executor/device/lower_step.hpp"

#include <algorithm>
#include <set>

#include "executor/device/join_loss.hpp"
#include "executor/device/lower_exchange.hpp"
#include "executor/device/quantize_products.hpp"
#include "executor/runtime/bind_parts.hpp"
#include "executor/runtime/state.hpp"

namespace orrery::device {
namespace {

using host::TensorView;

template <class... Callables>
struct Overloaded : Callables... {
  using Callables::operator()...;
};

constexpr std::int64_t kAlignment = 64;
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool same_input(const StagedInput& staged, const host::FillInput& fill) {
  return staged.tensor == fill.tensor && staged.microbatch == fill.microbatch && staged.runs == fill.runs;
}

bool exchanges(const Instruction& instruction) {
  return !std::holds_alternative<Compute>(instruction.work) &&
         !std::holds_alternative<Copy>(instruction.work);
}

class StepLowering {
 public:
  StepLowering(host::Tables& tables, const host::BoundRank& rank, const Staging& staging,
               const StepMemory& memory, const OpLoweringOptions& options)
      : tables_(tables),
        rank_(rank),
        staging_(staging),
        memory_(memory),
        options_(options),
        packs_(tables, rank.rank) {}

  DeviceStep lower() {
    DeviceStep step;
    const Role& role = tables_.role(rank_.rank);
    count_touchers(role);
    for (std::size_t i = 0; i < rank_.instructions.size(); ++i) {
      const Instruction& instruction = role.instructions[i];
      if (std::holds_alternative<Copy>(instruction.work)) {
        host::refuse(tables_, rank_.rank, instruction,
                     "copies to the host's memory, which devices don't yet");
      }
      DeviceInstruction& lowered = step.instructions.emplace_back();
      lowered.name = instruction_name(tables_.program(), instruction);
      lowered.stream = instruction.stream.value;
      lowered.after = rank_.instructions[i].after;
      const PackedPlaces places = packs_.places(instruction);
      options_.packed = &places;
      launches_.clear();
      for (const host::Action& action : rank_.instructions[i].actions) lower(action, instruction);
      const std::set<const std::byte*> own = touched_by_it_alone(instruction);
      lowered.launches = join_launches(std::move(launches_), [&](const Array& array) {
        return memory_.scratch.has(array) || own.count(array.data) > 0;
      });
      if (const Kernel* const kernel = fp8_kernel(instruction); kernel != nullptr) {
        lowered.launches = fp8_products_.quantize(lowered.launches, kernel->fp8, fp8_buffers(instruction),
                                                  fp8_operands(rank_.instructions[i], places));
      } else if (const Fp8Buffers buffers = fp8_buffers(instruction); buffers.keeps.valid()) {
        fp8_products_.leave_largest(lowered.launches, buffers.keeps, buffers.kept);
      }
      if (exchanges(instruction)) exchange(static_cast<std::int32_t>(i), lowered, step.groups);
    }
    step.streams = static_cast<std::int32_t>(role.streams.size());
    join_loss(step);
    step.staging = memory_.staging;
    step.staging_bytes = staging_.bytes;
    step.results = memory_.results;
    step.result_bytes = result_bytes(tables_.world(), rank_.rank);
    return step;
  }

 private:
  void exchange(std::int32_t index, DeviceInstruction& lowered, std::vector<Group>& groups) {
    std::byte* const scratch = memory_.exchange[static_cast<std::size_t>(lowered.stream)];
    LoweredExchange exchange = lower_exchange(tables_, rank_.rank, index, groups, scratch, norm_squared());
    lowered.group = exchange.group;
    lowered.calls = std::move(exchange.calls);
    lowered.landing = std::move(exchange.landing);
    std::move(exchange.launches.begin(), exchange.launches.end(), std::back_inserter(lowered.launches));
  }

  // Of an instruction that runs in FP8; else null.
  const Kernel* fp8_kernel(const Instruction& instruction) const {
    const auto* const compute = std::get_if<Compute>(&instruction.work);
    if (compute == nullptr) return nullptr;
    const Kernel& kernel = tables_.program().kernels[compute->kernel.index()];
    return kernel.kind == KernelKind::kMatmul && kernel.dtype == DType::kFp8 ? &kernel : nullptr;
  }
  // Its operands that hold no tensor of the Graph. What some instruction only reads is kept for it.
  Fp8Buffers fp8_buffers(const Instruction& instruction) {
    const Role& role = tables_.role(rank_.rank);
    Fp8Buffers found;
    for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
      const Operand& operand = role.operands[static_cast<std::size_t>(o)];
      const Buffer& buffer = role.buffers[operand.buffer.index()];
      if (buffer.tensor.valid() || buffer.persistent) continue;
      const Fp8Memory memory = {tables_.view(rank_.rank, operand.buffer).data, buffer.bytes};
      if (!operand.writes) {
        found.earlier.push_back(operand.buffer);
      } else if (kept_[operand.buffer.index()]) {
        found.keeps = operand.buffer;
        found.kept = memory;
      } else {
        found.own = memory;
      }
    }
    return found;
  }
  Fp8Operands fp8_operands(const host::BoundInstruction& instruction, const PackedPlaces& places) const {
    Fp8Operands found;
    for (const host::Action& action : instruction.actions) {
      const auto* const run = std::get_if<host::RunOp>(&action);
      if (run == nullptr) continue;
      const Op& op = tables_.graph()[run->op];
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const TensorKind kind = tables_.graph()[op.inputs[i]].kind;
        if (kind == TensorKind::kParameter) continue;
        const auto packed = places.find(run->inputs[i].data);
        const std::byte* const at = packed != places.end() ? packed->second.data : run->inputs[i].data;
        found.inputs.insert(at);
        if (kind == TensorKind::kGradient) found.gradients.insert(at);
      }
    }
    return found;
  }

  void count_touchers(const Role& role) {
    touchers_.assign(role.buffers.size(), 0);
    kept_.assign(role.buffers.size(), false);
    for (const Operand& operand : role.operands) {
      if (!operand.writes) kept_[operand.buffer.index()] = true;
    }
    for (const Instruction& instruction : role.instructions) {
      std::set<BufferId> touched;
      for (const Operand& operand : tables_.operands(rank_.rank, instruction)) touched.insert(operand.buffer);
      for (const BufferId buffer : touched) ++touchers_[buffer.index()];
    }
  }
  std::set<const std::byte*> touched_by_it_alone(const Instruction& instruction) {
    std::set<const std::byte*> addresses;
    for (const Operand& operand : tables_.operands(rank_.rank, instruction)) {
      const bool persistent = tables_.role(rank_.rank).buffers[operand.buffer.index()].persistent;
      if (persistent || touchers_[operand.buffer.index()] > 1) continue;
      addresses.insert(tables_.view(rank_.rank, operand.buffer).data);
    }
    return addresses;
  }

  template <class Kind>
  void emit(Kind launch) {
    launches_.emplace_back(std::move(launch));
  }
  void emit_all(std::vector<Launch> launches) {
    std::move(launches.begin(), launches.end(), std::back_inserter(launches_));
  }

  void lower(const host::Action& action, const Instruction& instruction) {
    std::visit(
        Overloaded{
            [&](const host::Zero& zero) {
              emit(Zero{zero.to.data, zero.to.elements * size_bytes(zero.to.dtype)});
            },
            [&](const host::CopyBytes& copy) { copy_bytes(copy); },
            [&](const host::FillInput& fill) { fill_input(fill); },
            [&](const host::RunOp& run) { emit_all(lower_op(tables_.graph(), run, options_)); },
            [&](const host::RunLossPart& run) { emit_all(lower_loss_part(run)); },
            [&](const host::RunRingStep& run) {
              const auto first = static_cast<std::size_t>(instruction.ops.begin);
              const Op& op = tables_.graph()[tables_.role(rank_.rank).ops[first]];
              emit_all(lower_ring_step(tables_.graph(), op, run));
            },
            [&](const host::Add& add) { emit(Accumulate{add.to.elements, array(add.from), array(add.to)}); },
            [&](const host::Convert& copy) {
              emit(Convert{copy.to.elements, array(copy.from), array(copy.to)});
            },
            [&](const host::SumSquares& sum) { sum_squares(sum); },
            [&](const host::Update& update) { this->update(update); },
            [&](const host::NoteLoss& loss) { note_loss(loss); },
        },
        action);
  }

  // Rows at equal distances become one launch.
  void copy_bytes(const host::CopyBytes& copy) {
    if (!launches_.empty()) {
      if (auto* const rows = std::get_if<CopyRows>(&launches_.back());
          rows != nullptr && joins(*rows, copy)) {
        ++rows->rows;
        return;
      }
      if (const auto* const one = std::get_if<CopyBytes>(&launches_.back());
          one != nullptr && follows(*one, copy)) {
        launches_.back() =
            CopyRows{one->to, one->from, copy.bytes, 2, copy.to - one->to, copy.from - one->from};
        return;
      }
    }
    emit(CopyBytes{copy.to, copy.from, copy.bytes});
  }
  static bool follows(const CopyBytes& first, const host::CopyBytes& next) {
    return first.bytes == next.bytes && next.to - first.to >= next.bytes &&
           next.from - first.from >= next.bytes;
  }
  static bool joins(const CopyRows& rows, const host::CopyBytes& next) {
    return rows.row_bytes == next.bytes && next.to == rows.to + rows.rows * rows.to_stride &&
           next.from == rows.from + rows.rows * rows.from_stride;
  }

  // A buffer that has been filled stays so until its last reader.
  void fill_input(const host::FillInput& fill) {
    if (!filled_.insert({fill.to.data, fill.tensor, fill.microbatch}).second) return;
    const auto staged = std::find_if(staging_.inputs.begin(), staging_.inputs.end(),
                                     [&](const StagedInput& input) { return same_input(input, fill); });
    emit(CopyBytes{fill.to.data, memory_.staging + staged->offset,
                   fill.to.elements * size_bytes(DType::kInt64)});
  }

  void sum_squares(const host::SumSquares& sum) {
    SumSquares launch;
    for (const TensorView& part : sum.parts) launch.parts.push_back({array(part), part.elements});
    launch.to = norm_squared();
    sums_norm_ = true;
    emit(std::move(launch));
  }

  void update(const host::Update& update) {
    AdamW launch;
    for (const host::UpdateSlice& slice : update.slices) {
      launch.segments.push_back({array(slice.gradient), array(slice.weights), slice.master,
                                 slice.first_moment, slice.second_moment, slice.gradient.elements,
                                 slice.decays});
    }
    launch.scalars = reinterpret_cast<const StepScalars*>(memory_.staging);
    launch.norm_squared = sums_norm_ ? norm_squared() : nullptr;
    emit(std::move(launch));
  }

  void note_loss(const host::NoteLoss& loss) {
    std::byte* const to = memory_.results + kFirstLossOffset + loss.microbatch * size_bytes(DType::kFp32);
    if (loss.from.dtype == DType::kFp32) return emit(CopyBytes{to, loss.from.data, size_bytes(DType::kFp32)});
    emit(Convert{1, array(loss.from), {to, DType::kFp32}});
  }

  double* norm_squared() const { return reinterpret_cast<double*>(memory_.results); }

  host::Tables& tables_;
  const host::BoundRank& rank_;
  const Staging& staging_;
  const StepMemory& memory_;
  OpLoweringOptions options_;
  const Packs packs_;
  std::vector<Launch> launches_;  // Of the instruction.
  std::set<std::tuple<const std::byte*, TensorId, std::int32_t>> filled_;
  std::vector<int> touchers_;  // By buffer: instructions that touch it.
  std::vector<bool> kept_;     // By buffer: whether an instruction only reads it.
  Fp8Products fp8_products_;
  bool sums_norm_ = false;
};

}  // namespace

Staging stage_inputs(const host::BoundRank& rank) {
  Staging staging;
  staging.bytes = aligned(sizeof(StepScalars));
  for (const host::BoundInstruction& instruction : rank.instructions) {
    for (const host::Action& action : instruction.actions) {
      const auto* const fill = std::get_if<host::FillInput>(&action);
      if (fill == nullptr) continue;
      const bool known = std::any_of(staging.inputs.begin(), staging.inputs.end(),
                                     [&](const StagedInput& input) { return same_input(input, *fill); });
      if (known) continue;
      staging.inputs.push_back({fill->tensor, fill->microbatch, fill->runs, staging.bytes});
      staging.bytes += aligned(fill->to.elements * size_bytes(DType::kInt64));
    }
  }
  return staging;
}

std::int64_t result_bytes(const host::World& world, RankId rank) {
  const std::int64_t losses =
      world.layout(rank).row_size - static_cast<std::int64_t>(host::World::kFirstLoss);
  return kFirstLossOffset + losses * size_bytes(DType::kFp32);
}

std::vector<std::int64_t> exchange_bytes(host::Tables& tables, RankId rank) {
  const Role& role = tables.role(rank);
  std::vector<std::int64_t> bytes(role.streams.size(), 0);
  std::vector<Group> groups;
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    if (!exchanges(role.instructions[i])) continue;
    std::int64_t& of_stream = bytes[role.instructions[i].stream.index()];
    of_stream = std::max(
        of_stream,
        lower_exchange(tables, rank, static_cast<std::int32_t>(i), groups, nullptr, nullptr).scratch_bytes);
  }
  return bytes;
}

DeviceStep lower_step(host::Tables& tables, const host::BoundRank& rank, const Staging& staging,
                      const StepMemory& memory, const OpLoweringOptions& options) {
  return StepLowering(tables, rank, staging, memory, options).lower();
}

std::vector<Launch> lower_initial_state(host::Tables& tables, const host::BoundRank& rank, std::uint64_t seed,
                                        double deviation) {
  std::vector<Launch> launches;
  const Packs packs(tables, rank.rank);
  for (const host::ParameterRun& run : host::parameter_runs(tables, rank.rank, false)) {
    for (const Stretch& part : packs.stretches(run.view)) {
      launches.emplace_back(InitialValues{
          part.elements, run.first + part.skipped, host::initial_key(seed, run.name),
          run.drawn ? host::initial_scale(deviation) : 0, run.constant, part.array, part.width, part.stride});
    }
  }
  for (const host::BoundInstruction& instruction : rank.instructions) {
    for (const host::Action& action : instruction.actions) {
      const auto* const update = std::get_if<host::Update>(&action);
      if (update == nullptr) continue;
      for (const host::UpdateSlice& slice : update->slices) {
        if (slice.weights.dtype == DType::kFp32) continue;
        launches.emplace_back(Convert{slice.weights.elements,
                                      array(slice.weights),
                                      {reinterpret_cast<std::byte*>(slice.master), DType::kFp32}});
      }
    }
  }
  return launches;
}

std::vector<Launch> lower_hash(host::Tables& tables, RankId rank, std::uint64_t* hash) {
  std::vector<Launch> launches;
  const Packs packs(tables, rank);
  for (const host::ParameterRun& run : host::parameter_runs(tables, rank, true)) {
    for (const Stretch& part : packs.stretches(run.view)) {
      launches.emplace_back(HashElements{part.elements, run.first + part.skipped, run.name, part.array, hash,
                                         part.width, part.stride});
    }
  }
  return launches;
}

}  // namespace orrery::device
