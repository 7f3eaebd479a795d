#include "calibration/training_kernels.hpp"

#include <optional>

#include "simulator/cost.hpp"

namespace orrery {
namespace {

class UnfusedAttention {
 public:
  UnfusedAttention(const Kernel& kernel, const GpuType& gpu, const Profile& profile)
      : kernel_(kernel), gpu_(gpu), profile_(profile) {}

  // Scores, softmax, dropout, context. The softmax reads and writes the scores; dropout does too, and writes
  // a byte of mask.
  SimTime forward() const {
    const std::int64_t type = size_bytes(kernel_.dtype);
    return product(kernel_.m, kernel_.n, kernel_.k) + pass(type, type) + pass(type, type + 1) +
           product(kernel_.m, kernel_.k, kernel_.n);
  }

  // Gradients of values, probabilities, queries and keys; dropout reads its mask, softmax its result.
  SimTime backward() const {
    const std::int64_t type = size_bytes(kernel_.dtype);
    return product(kernel_.n, kernel_.k, kernel_.m) + product(kernel_.m, kernel_.n, kernel_.k) +
           pass(type + 1, type) + pass(2 * type, type) + product(kernel_.m, kernel_.k, kernel_.n) +
           product(kernel_.n, kernel_.k, kernel_.m);
  }

 private:
  SimTime product(std::int64_t m, std::int64_t n, std::int64_t k) const {
    Kernel kernel;
    kernel.kind = KernelKind::kMatmul;
    kernel.dtype = kernel_.dtype;
    kernel.m = m;
    kernel.n = n;
    kernel.k = k;
    kernel.batch = kernel_.batch;
    const std::int64_t type = size_bytes(kernel_.dtype);
    kernel.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
                   static_cast<double>(kernel_.batch);
    kernel.read_bytes = kernel_.batch * (m * k + k * n) * type;
    kernel.written_bytes = kernel_.batch * m * n * type;
    return kernel_time(kernel, gpu_, profile_);
  }

  // One pass over all scores, with bytes read and written for each.
  SimTime pass(std::int64_t read, std::int64_t written) const {
    Kernel kernel;
    kernel.kind = KernelKind::kElementwise;
    kernel.dtype = kernel_.dtype;
    const std::int64_t scores = kernel_.batch * kernel_.m * kernel_.n;
    kernel.read_bytes = scores * read;
    kernel.written_bytes = scores * written;
    return kernel_time(kernel, gpu_, profile_);
  }

  const Kernel& kernel_;
  const GpuType& gpu_;
  const Profile& profile_;
};

}  // namespace

void unfuse_attention(Job& job, const TrainingCase& row, const Profile& profile) {
  const Program& program = *job.program;
  // By kernel; most launches share a few.
  std::vector<std::optional<SimTime>> times(program.kernels.size());
  const auto time_of = [&](KernelId id) {
    std::optional<SimTime>& time = times[id.index()];
    if (time) return *time;
    const Kernel& kernel = program.kernels[id.index()];
    const UnfusedAttention attention(kernel, row.cluster.node.gpu, profile);
    const bool backward = kernel.kind == KernelKind::kAttentionBackward;
    time = backward ? attention.backward() : attention.forward();
    if (backward && row.recompute_attention) *time += attention.forward();
    return *time;
  };
  for (JobClass& rank_class : job.classes) {
    const Role& role = program.roles[rank_class.ranks.role.index()];
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      const auto* compute = std::get_if<Compute>(&role.instructions[i].work);
      if (compute == nullptr) continue;
      const KernelKind kind = program.kernels[compute->kernel.index()].kind;
      if (kind == KernelKind::kAttention || kind == KernelKind::kAttentionBackward)
        rank_class.work[i] = time_of(compute->kernel);
    }
  }
}

}  // namespace orrery
