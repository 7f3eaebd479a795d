#include "executor/cuda/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "executor/cuda/attention_plan.hpp"
#include "executor/cuda/checks.hpp"
#include "executor/cuda/memory.hpp"
#include "executor/cuda/random_operands.hpp"

namespace orrery::cuda {
namespace {

using device::Attention;
using device::AttentionGrad;
using device::AttentionShape;

constexpr std::int64_t kWidest = 128;
constexpr double kHopeless = 1.3;     // Of the fastest: not timed any further.
constexpr double kWorthwhile = 0.02;  // An engine other than cuDNN's first has to be this much faster.

// As the graphs promise to engines.
bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// Of the operands of a form, in bytes; they are placed one after another in scratch.
std::int64_t bytes_of(AttentionOperand operand, const AttentionForm& form) {
  using enum AttentionOperand;
  const AttentionShape& x = form.shape;
  const std::int64_t rows = x.batch * x.queries, type = size_bytes(form.dtype);
  const auto tokens = [&](std::int64_t stride, std::int64_t dense) {
    return rows * (stride > 0 ? stride : dense) * type;
  };
  switch (operand) {
    case kQ: return tokens(x.strides.q, x.heads * x.d);
    case kDq: return tokens(x.strides.dq, x.heads * x.d);
    case kK: return tokens(x.strides.k, x.kv_heads * x.d);
    case kDk: return tokens(x.strides.dk, x.kv_heads * x.d);
    case kV: return tokens(x.strides.v, x.kv_heads * x.e);
    case kDv: return tokens(x.strides.dv, x.kv_heads * x.e);
    case kO:
    case kDo: return rows * x.heads * x.e * type;
    case kStats: return rows * x.heads * 4;
    default: return 0;
  }
}

std::vector<AttentionOperand> arrays_of(AttentionPass pass) {
  using enum AttentionOperand;
  if (pass == AttentionPass::kForward) return {kQ, kK, kV, kO, kStats};
  return {kQ, kK, kV, kO, kStats, kDo, kDq, kDk, kDv};
}

// Of all of them in scratch, each from a multiple of 256 on.
std::int64_t operand_bytes(const AttentionForm& form) {
  std::int64_t bytes = 0;
  for (const AttentionOperand operand : arrays_of(form.pass))
    bytes += (bytes_of(operand, form) + 255) / 256 * 256;
  return bytes;
}

}  // namespace

bool supports(const AttentionShape& shape, DType dtype) {
  const bool plain = shape.window == 0 && shape.chunk == 0 && shape.softcap == 0 &&
                     shape.positions == nullptr && shape.key_positions == nullptr &&
                     shape.queries == shape.keys;
  const bool typed = dtype == DType::kBf16 || dtype == DType::kFp16;
  const auto width = [](std::int64_t x) { return x > 0 && x <= kWidest && x % 8 == 0; };
  const device::HeadStrides& at = shape.strides;  // The graphs promise multiples of 16 bytes.
  const bool strides = (at.q | at.k | at.v | at.dq | at.dk | at.dv) % 8 == 0;
  const bool heads = shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0;
  return plain && typed && strides && heads && width(shape.d) && width(shape.e) && shape.batch > 0 &&
         shape.queries > 0;
}

bool supports(const Attention& attention) {
  const Attention& x = attention;
  return supports(x.shape, x.q.dtype) && !x.sink && is_aligned(x.q.data) && is_aligned(x.k.data) &&
         is_aligned(x.v.data) && is_aligned(x.o.data) && is_aligned(x.lse);
}

bool supports(const AttentionGrad& attention) {
  const AttentionGrad& x = attention;
  return supports(x.shape, x.q.dtype) && !x.sink && is_aligned(x.q.data) && is_aligned(x.k.data) &&
         is_aligned(x.v.data) && is_aligned(x.o.data) && is_aligned(x.lse) && is_aligned(x.dout.data) &&
         is_aligned(x.dq.data) && is_aligned(x.dk.data) && is_aligned(x.dv.data);
}

AttentionPlans::AttentionPlans(const Cudnn& library, const std::string& gpu_name,
                               const std::string& cache_folder)
    : library_(library), cache_(cache_folder, "cudnn " + to_string(library.library.version), gpu_name) {
  check_cudnn(library_, library_.create(&handle_), "start on this GPU");
}

AttentionPlans::~AttentionPlans() {
  plans_.clear();
  library_.destroy(handle_);
}

std::optional<AttentionId> AttentionPlans::prepare(const AttentionShape& shape, DType dtype,
                                                   AttentionPass pass) {
  const AttentionForm form{shape, dtype, pass};
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i]->form == form) return AttentionId{static_cast<std::int32_t>(i)};
  }
  if (!supports(shape, dtype)) {
    refusal_ = fmt::format("{}: not among what cuDNN is asked for", describe(form));
    return std::nullopt;
  }
  try {
    plans_.push_back(std::make_unique<AttentionPlan>(library_, handle_, form));
  } catch (const Error& error) {
    refusal_ = fmt::format("{}: {}", describe(form), error.what());
    return std::nullopt;
  }
  return AttentionId{static_cast<std::int32_t>(plans_.size() - 1)};
}

std::int64_t AttentionPlans::workspace_bytes(AttentionId id) const {
  return plans_[static_cast<std::size_t>(id.index)]->workspace_bytes();
}

BoundAttention AttentionPlans::bind(const AttentionPlan& plan,
                                    std::vector<std::pair<AttentionOperand, const void*>> operands,
                                    std::byte* workspace) const {
  for (const auto& [operand, data] : operands) {
    if (data != nullptr && is_aligned(data)) continue;
    fail(ErrorKind::kRuntime, "{}: operand {} lies at {}, which isn't a multiple of 16 bytes",
         describe(plan.form), static_cast<int>(operand), data);
  }
  BoundAttention bound;
  bound.plan_ = &plan;
  std::byte* at = workspace;
  if (plan.dq_sum_bytes() > 0) {
    operands.emplace_back(AttentionOperand::kDqSum, at);
    bound.zeros_ = at;
    bound.zero_bytes_ = static_cast<std::size_t>(plan.dq_sum_bytes());
    at += plan.dq_sum_bytes();
  }
  if (plan.row_sum_bytes() > 0) {
    operands.emplace_back(AttentionOperand::kRowSum, at);
    operands.emplace_back(AttentionOperand::kOne, &plan.one);
    at += plan.row_sum_bytes();
  }
  operands.emplace_back(AttentionOperand::kScale, &plan.scale);
  if (plan.form.shape.causal) operands.emplace_back(AttentionOperand::kMinusInfinity, &plan.minus_infinity);

  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const auto& [operand, data] : operands) {
    ids.push_back(static_cast<std::int64_t>(operand));
    addresses.push_back(const_cast<void*>(data));
  }
  bound.pack_ = Descriptor(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  bound.pack_
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.data(), addresses.size())
      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(at))
      .finalize("bind attention's operands");
  return bound;
}

BoundAttention AttentionPlans::bind(AttentionId id, const Attention& attention, std::byte* workspace) const {
  using enum AttentionOperand;
  const AttentionPlan& plan = *plans_[static_cast<std::size_t>(id.index)];
  assert(plan.form == (AttentionForm{attention.shape, attention.q.dtype, AttentionPass::kForward}));
  return bind(plan,
              {{kQ, attention.q.data},
               {kK, attention.k.data},
               {kV, attention.v.data},
               {kO, attention.o.data},
               {kStats, attention.lse}},
              workspace);
}

BoundAttention AttentionPlans::bind(AttentionId id, const AttentionGrad& attention,
                                    std::byte* workspace) const {
  using enum AttentionOperand;
  const AttentionPlan& plan = *plans_[static_cast<std::size_t>(id.index)];
  assert(plan.form.shape == attention.shape && plan.form.dtype == attention.q.dtype);
  assert(plan.form.pass ==
         (attention.deterministic ? AttentionPass::kBackwardDeterministic : AttentionPass::kBackward));
  return bind(plan,
              {{kQ, attention.q.data},
               {kK, attention.k.data},
               {kV, attention.v.data},
               {kO, attention.o.data},
               {kStats, attention.lse},
               {kDo, attention.dout.data},
               {kDq, attention.dq.data},
               {kDk, attention.dk.data},
               {kDv, attention.dv.data}},
              workspace);
}

void AttentionPlans::run(const BoundAttention& bound, cudaStream_t stream) {
  if (!stream_set_ || stream != stream_) {
    check_cudnn(library_, library_.set_stream(handle_, stream), "take a stream");
    stream_ = stream;
    stream_set_ = true;
  }
  if (bound.zero_bytes_ > 0) {
    check(cudaMemsetAsync(bound.zeros_, 0, bound.zero_bytes_, stream),
          "zeroing the sum of queries' gradients");
  }
  check_cudnn(library_, library_.execute(handle_, bound.plan_->raw(), bound.pack_.raw()), "run attention");
}

std::vector<AttentionTime> AttentionPlans::times() const {
  std::vector<AttentionTime> times;
  for (const auto& plan : plans_) {
    times.push_back({describe(plan->form), plan->engine_id(), plan->workspace_bytes(), plan->microseconds});
  }
  return times;
}

// ---- Choosing an engine.

// No binding where the operands and the workspace don't fit. `scratch` begins at a multiple of 256.
BoundAttention AttentionPlans::bind_scratch(const AttentionPlan& plan, std::span<std::byte> scratch) const {
  std::vector<std::pair<AttentionOperand, const void*>> operands;
  const std::int64_t needed = operand_bytes(plan.form) + plan.workspace_bytes();
  if (needed > static_cast<std::int64_t>(scratch.size())) return {};
  std::int64_t at = 0;
  for (const AttentionOperand operand : arrays_of(plan.form.pass)) {
    operands.emplace_back(operand, scratch.data() + at);
    at += (bytes_of(operand, plan.form) + 255) / 256 * 256;
  }
  return bind(plan, std::move(operands), scratch.data() + at);
}

std::vector<std::string> AttentionPlans::tune(cudaStream_t stream, std::span<std::byte> scratch,
                                              const TuneOptions& options) {
  std::vector<std::string> warnings;
  const auto note = [&warnings](std::string warning) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  };
  note(cache_.load());
  const std::size_t skipped = std::min(
      scratch.size(), static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(scratch.data()) & 255));
  scratch = scratch.subspan(skipped);
  std::vector<AttentionPlan*> open;
  for (const auto& plan : plans_) {
    const bool fits = operand_bytes(plan->form) <= static_cast<std::int64_t>(scratch.size());
    if (plan->microseconds == 0 && fits && !take_kept(*plan, options.tuning)) open.push_back(plan.get());
  }
  if (open.empty()) return warnings;
  const RandomOperands random;
  BusyStream busy(stream);
  for (std::size_t i = 0; i < open.size(); ++i) {
    options.say(fmt::format("timing attention {} of {}", i + 1, open.size()));
    random.fill(scratch.first(static_cast<std::size_t>(operand_bytes(open[i]->form))), stream);
    tune(*open[i], busy, stream, scratch, options);
  }
  check(cudaStreamSynchronize(stream), "timing attention");
  note(cache_.save());
  return warnings;
}

bool AttentionPlans::take_kept(AttentionPlan& plan, device::Tuning tuning) const {
  const std::string form = describe(plan.form);
  const device::CachedAlgorithm* kept = cache_.find(device::kept_key(form, device::Tuning::kSustained));
  if (kept == nullptr) kept = cache_.find(device::kept_key(form, tuning));
  if (kept == nullptr || kept->words[0] >= plan.engines()) return false;
  const std::size_t engine = plan.engine();
  if (plan.use_engine(kept->words[0]) && static_cast<std::uint64_t>(plan.engine_id()) == kept->words[1]) {
    plan.microseconds = kept->microseconds;
    return true;
  }
  plan.use_engine(engine);
  return false;
}

// Engines that run, each bound to scratch, with about what they take; those that are far behind are left out.
std::vector<AttentionPlans::Engine> AttentionPlans::engines_of(AttentionPlan& plan, BusyStream& busy,
                                                               cudaStream_t stream,
                                                               std::span<std::byte> scratch) {
  // Engines that add in order may differ in which order; cuDNN's first is the one that is known to repeat.
  const std::size_t first = plan.engine();
  const std::size_t end =
      plan.form.pass == AttentionPass::kBackwardDeterministic ? first + 1 : plan.engines();
  std::vector<Engine> engines;
  double best_ms = 0;
  for (std::size_t engine = first; engine < end; ++engine) {
    if (!plan.use_engine(engine)) continue;
    auto bound = std::make_shared<BoundAttention>(bind_scratch(plan, scratch));
    if (bound->plan_ == nullptr) continue;
    Engine made{engine, {}};
    made.work.launch = [this, &plan, engine, bound, stream] {
      plan.use_engine(engine);  // A binding runs by whichever engine its plan has.
      run(*bound, stream);
    };
    busy.time(made.work, 1);  // May load kernels.
    made.work.ms = std::max(busy.time(made.work, 3), 1e-3);
    if (best_ms == 0 || made.work.ms < best_ms) best_ms = made.work.ms;
    engines.push_back(std::move(made));
  }
  std::erase_if(engines, [&](const Engine& x) { return x.work.ms > best_ms * kHopeless; });
  return engines;
}

void AttentionPlans::tune(AttentionPlan& plan, BusyStream& busy, cudaStream_t stream,
                          std::span<std::byte> scratch, const TuneOptions& options) {
  const std::size_t first = plan.engine();
  const std::vector<Engine> engines = engines_of(plan, busy, stream, scratch);
  if (!engines.empty()) {
    std::vector<Work> works;
    for (const Engine& engine : engines) works.push_back(engine.work);
    // Engines take seconds to compile, in which the GPU rests: it is warmed up for each form.
    busy.fill_with(works.front());
    if (works.size() > 1) busy.keep_busy(options.warm_up_ms);
    const std::vector<TurnTime> turns = busy.compete(works, options.turn_ms, options.rounds);
    busy.fill_with({});
    check(cudaStreamSynchronize(stream), "timing attention");
    std::size_t best = 0;
    for (std::size_t i = 1; i < turns.size(); ++i) {
      const double worthwhile = best == 0 && engines[0].index == first ? 1 - kWorthwhile : 1;
      if (turns[i].ms < turns[best].ms * worthwhile) best = i;
    }
    if (!plan.use_engine(engines[best].index))
      fail(ErrorKind::kRuntime, "cuDNN can't compile {} a second time", describe(plan.form));
    plan.microseconds = turns[best].ms * 1000;
    device::CachedAlgorithm kept;
    kept.words[0] = engines[best].index;
    kept.words[1] = static_cast<std::uint64_t>(plan.engine_id());
    kept.microseconds = plan.microseconds;
    if (engines[0].index == first) kept.first_microseconds = turns[0].ms * 1000;
    cache_.put(device::kept_key(describe(plan.form), options.tuning), kept);
    return;
  }
  if (!plan.use_engine(first))
    fail(ErrorKind::kRuntime, "cuDNN can't compile {} a second time", describe(plan.form));
}

}  // namespace orrery::cuda
