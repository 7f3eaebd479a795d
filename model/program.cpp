#include "model/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace orrery {
namespace {

template <class T>
std::span<const T> slice(const std::vector<T>& all, Range range) {
  return std::span<const T>(all).subspan(static_cast<std::size_t>(range.begin),
                                         static_cast<std::size_t>(range.size()));
}

bool same_instruction(const Role& a, const Instruction& x, const Role& b, const Instruction& y) {
  return x.label == y.label && x.layer == y.layer && x.microbatch == y.microbatch && x.stream == y.stream &&
         x.purpose == y.purpose && x.work == y.work &&
         std::ranges::equal(slice(a.edges, x.after), slice(b.edges, y.after)) &&
         std::ranges::equal(slice(a.operands, x.operands), slice(b.operands, y.operands)) &&
         std::ranges::equal(slice(a.ops, x.ops), slice(b.ops, y.ops)) && x.part == y.part &&
         x.piece == y.piece;
}

template <class Named>
std::string full_name(const Program& program, const Named& named) {
  std::string name = program.labels[named.label.index()];
  if (named.layer >= 0) name += fmt::format(".l{}", named.layer);
  if (named.microbatch >= 0) name += fmt::format(".m{}", named.microbatch);
  return name;
}

}  // namespace

std::string_view to_string(KernelKind kind) {
  switch (kind) {
    case KernelKind::kFixed: return "fixed";
    case KernelKind::kMatmul: return "matmul";
    case KernelKind::kAttention: return "attention";
    case KernelKind::kAttentionBackward: return "attention-backward";
    case KernelKind::kElementwise: return "elementwise";
    case KernelKind::kEmbedding: return "embedding";
    case KernelKind::kCrossEntropy: return "cross-entropy";
    case KernelKind::kOptimizer: return "optimizer";
    case KernelKind::kAccumulate: return "accumulate";
  }
  return "?";
}

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all-reduce";
    case CollectiveKind::kAllGather: return "all-gather";
    case CollectiveKind::kReduceScatter: return "reduce-scatter";
    case CollectiveKind::kAllToAll: return "all-to-all";
    case CollectiveKind::kBroadcast: return "broadcast";
  }
  return "?";
}

std::string_view to_string(Purpose purpose) {
  switch (purpose) {
    case Purpose::kForward: return "forward";
    case Purpose::kBackward: return "backward";
    case Purpose::kRecompute: return "recompute";
    case Purpose::kOptimizer: return "optimizer";
    case Purpose::kTensorParallel: return "tensor-parallel";
    case Purpose::kSequenceParallel: return "sequence-parallel";
    case Purpose::kContextParallel: return "context-parallel";
    case Purpose::kExpertParallel: return "expert-parallel";
    case Purpose::kPipeline: return "pipeline";
    case Purpose::kGradientReduce: return "gradient-reduce";
    case Purpose::kParameterGather: return "parameter-gather";
    case Purpose::kOther: return "other";
  }
  return "?";
}

std::string_view to_string(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters: return "parameters";
    case MemoryCategory::kGradients: return "gradients";
    case MemoryCategory::kOptimizer: return "optimizer";
    case MemoryCategory::kActivations: return "activations";
    case MemoryCategory::kWorkspace: return "workspace";
    case MemoryCategory::kCommunication: return "communication";
  }
  return "?";
}

bool Role::operator==(const Role& other) const {
  return name == other.name && streams == other.streams && buffers == other.buffers &&
         std::ranges::equal(instructions, other.instructions,
                            [&](const Instruction& x, const Instruction& y) {
                              return same_instruction(*this, x, other, y);
                            });
}

LabelId Program::intern(std::string_view label) {
  const auto found = std::ranges::find(labels, label);
  if (found != labels.end()) return LabelId(found - labels.begin());
  labels.emplace_back(label);
  return LabelId(static_cast<std::int64_t>(labels.size()) - 1);
}

std::vector<std::vector<Coordinate>> coordinates(const Program& program) {
  std::vector<std::vector<Coordinate>> result;
  result.reserve(program.axes.size());
  for (const Axis& axis : program.axes) {
    std::vector<Coordinate>& of_rank = result.emplace_back(program.role_of.size());
    for (std::size_t group = 0; group < axis.groups.size(); ++group) {
      for (std::size_t position = 0; position < axis.groups[group].size(); ++position) {
        of_rank[axis.groups[group][position].index()] = {static_cast<std::int32_t>(group),
                                                         static_cast<std::int32_t>(position)};
      }
    }
  }
  return result;
}

std::string instruction_name(const Program& program, const Instruction& instruction) {
  return full_name(program, instruction);
}

std::string buffer_name(const Program& program, const Buffer& buffer) { return full_name(program, buffer); }

}  // namespace orrery
