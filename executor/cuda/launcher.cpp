#include "executor/cuda/launcher.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "executor/cuda/checks.hpp"
#include "executor/cuda/generic.hpp"
#include "executor/cuda/kernels.hpp"

namespace orrery::cuda {
namespace {

using device::Launch;

// What cuBLAS takes to sum parts of a long product and to keep its pipelines full: 32 MiB on Hopper, by its
// own default; more lets it cut along k further.
constexpr std::int64_t kProductWorkspace = std::int64_t{64} << 20;
// Operands of products are timed in at most so much memory.
constexpr std::int64_t kTimingScratch = std::int64_t{6} << 30;

AttentionPass pass_of(const device::Attention&) { return AttentionPass::kForward; }
AttentionPass pass_of(const device::AttentionGrad& attention) {
  return attention.deterministic ? AttentionPass::kBackwardDeterministic : AttentionPass::kBackward;
}

std::int64_t generic_bytes(const device::Attention&) { return 0; }
std::int64_t generic_bytes(const device::AttentionGrad& attention) {
  return generic_workspace_bytes(attention);
}

// Memory to time in: what is left, less a reserve.
Memory timing_memory() {
  constexpr std::int64_t kReserve = std::int64_t{1} << 30;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading how much memory is free");
  return Memory(std::clamp<std::int64_t>(static_cast<std::int64_t>(free) - kReserve, 0, kTimingScratch),
                "timing kernels");
}

std::span<std::byte> bytes_of(const Memory& memory) {
  return {memory.data(), static_cast<std::size_t>(memory.size())};
}

bool is_product(const Launch& launch) { return std::holds_alternative<device::Gemm>(launch); }

}  // namespace

struct Launcher::Prepared {
  const Launch* launch = nullptr;
  std::size_t stream = 0;
  ProductId product;
  std::optional<AttentionId> plan;  // None: a kernel of our own.
  std::size_t bound = 0;            // Into bound_.
  std::int64_t table_at = -1;
  const std::byte* table = nullptr;
  std::int64_t workspace_bytes = 0;
};

Launcher::Launcher(const std::string& gpu, const std::string& algorithm_cache)
    : gpu_(gpu), algorithm_cache_(algorithm_cache) {}
Launcher::~Launcher() = default;

// Attention that cuDNN has an engine for; the rest is done by kernels of our own.
template <class Kind>
void Launcher::prepare_attention(Prepared& prepared, const Kind& launch) {
  if (supports(launch)) {
    if (!attention_) attention_ = std::make_unique<AttentionPlans>(cudnn(), gpu_, algorithm_cache_);
    prepared.plan = attention_->prepare(launch.shape, launch.q.dtype, pass_of(launch));
    if (!prepared.plan) warnings_.push_back(attention_->refusal());
  }
  if (!prepared.plan) prepared.workspace_bytes = generic_bytes(launch);
}

std::size_t Launcher::add(const Launch& launch, std::int32_t stream) {
  Prepared prepared;
  prepared.launch = &launch;
  prepared.stream = static_cast<std::size_t>(stream);
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, device::Gemm>) {
          if (!products_) products_ = std::make_unique<Products>(cublaslt(), gpu_, algorithm_cache_);
          prepared.product = products_->prepare(kind);
          prepared.workspace_bytes = kProductWorkspace;
        } else if constexpr (std::is_same_v<Kind, device::Attention> ||
                             std::is_same_v<Kind, device::AttentionGrad>) {
          prepare_attention(prepared, kind);
        } else {
          prepared.workspace_bytes = cuda::workspace_bytes(kind);
          take_table(prepared, kind);
        }
      },
      launch);
  prepared_.push_back(prepared);
  return prepared_.size() - 1;
}

template <class Kind>
void Launcher::take_table(Prepared& prepared, const Kind& launch) {
  const std::int64_t bytes = table_bytes(launch);
  if (bytes == 0) return;
  for (const Prepared& other : prepared_) {
    const auto* const like = std::get_if<Kind>(other.launch);
    if (like == nullptr || other.table_at < 0 || !same_table(*like, launch)) continue;
    prepared.table_at = other.table_at;
    return;
  }
  prepared.table_at = std::ssize(table_bytes_);
  table_bytes_.resize(table_bytes_.size() + static_cast<std::size_t>(align_part(bytes)));
  write_table(launch, table_bytes_.data() + prepared.table_at);
}

void Launcher::ready(const std::vector<cudaStream_t>& streams, const TuneOptions* tune) {
  streams_ = streams;
  if (tune != nullptr) tune_attention(*tune);
  for (Prepared& prepared : prepared_) {
    if (prepared.plan) prepared.workspace_bytes = attention_->workspace_bytes(*prepared.plan);
  }
  std::vector<std::int64_t> bytes(streams.size(), 0);
  for (const Prepared& prepared : prepared_) {
    bytes[prepared.stream] = std::max(bytes[prepared.stream], prepared.workspace_bytes);
  }
  for (const std::int64_t of_stream : bytes) workspaces_.emplace_back(of_stream, "workspace of kernels");
  if (!table_bytes_.empty()) {
    tables_ = Memory(std::ssize(table_bytes_), "tables of kernels");
    check(cudaMemcpy(tables_.data(), table_bytes_.data(), table_bytes_.size(), cudaMemcpyHostToDevice),
          "bringing tables of kernels");
  }
  for (Prepared& prepared : prepared_) {
    if (prepared.table_at >= 0) prepared.table = tables_.data() + prepared.table_at;
  }
  choose_algorithms(tune);
  for (Prepared& prepared : prepared_) bind_attention(prepared);
}

void Launcher::tune_attention(const TuneOptions& options) {
  if (!attention_) return;
  const Memory scratch = timing_memory();
  note(attention_->tune(streams_.front(), bytes_of(scratch), options));
}

void Launcher::note(std::vector<std::string> warnings) {
  std::move(warnings.begin(), warnings.end(), std::back_inserter(warnings_));
}

void Launcher::choose_algorithms(const TuneOptions* tune) {
  if (!products_) return;
  const auto product = std::find_if(prepared_.begin(), prepared_.end(),
                                    [](const Prepared& prepared) { return is_product(*prepared.launch); });
  if (tune == nullptr) return products_->settle(static_cast<std::size_t>(kProductWorkspace));
  const Memory operands = timing_memory();
  note(products_->tune(streams_[product->stream], bytes_of(operands), workspaces_[product->stream].data(),
                       static_cast<std::size_t>(kProductWorkspace), *tune));
}

void Launcher::bind_attention(Prepared& prepared) {
  if (!prepared.plan) return;
  std::byte* const workspace = workspaces_[prepared.stream].data();
  prepared.bound = bound_.size();
  if (const auto* const forward = std::get_if<device::Attention>(prepared.launch)) {
    bound_.push_back(attention_->bind(*prepared.plan, *forward, workspace));
  } else {
    bound_.push_back(
        attention_->bind(*prepared.plan, std::get<device::AttentionGrad>(*prepared.launch), workspace));
  }
}

void Launcher::perform(std::size_t index) {
  Prepared& prepared = prepared_[index];
  const cudaStream_t stream = streams_[prepared.stream];
  std::byte* const workspace = workspaces_[prepared.stream].data();
  std::visit(
      [&](const auto& kind) {
        using Kind = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<Kind, device::Gemm>) {
          products_->run(prepared.product, kind, workspace, static_cast<std::size_t>(kProductWorkspace),
                         stream);
        } else if constexpr (std::is_same_v<Kind, device::Attention> ||
                             std::is_same_v<Kind, device::AttentionGrad>) {
          if (!prepared.plan) return launch_generic(kind, workspace, stream);
          attention_->run(bound_[prepared.bound], stream);
        } else {
          launch(kind, prepared.table, workspace, stream);
        }
      },
      *prepared.launch);
}

std::int64_t Launcher::workspace_bytes() const {
  std::int64_t bytes = tables_.size();
  for (const Memory& workspace : workspaces_) bytes += workspace.size();
  return bytes;
}

std::vector<std::string> Launcher::warnings() const { return warnings_; }

std::vector<device::ProductTime> Launcher::products() const {
  return products_ ? products_->times() : std::vector<device::ProductTime>();
}

}  // namespace orrery::cuda
