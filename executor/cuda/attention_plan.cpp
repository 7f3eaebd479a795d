#include "executor/cuda/attention_plan.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace orrery::cuda {
namespace {

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

AttentionPlan::AttentionPlan(const Cudnn& library, cudnnHandle_t handle, const AttentionForm& of)
    : form(of),
      scale(of.shape.scale),
      library_(library),
      handle_(handle),
      graph_(attention_graph(library, handle, of)),
      engines_(attention_engines(library, graph_, nullptr)) {
  compiled_.resize(engines_.size());
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (use_engine(i)) return;
  }
  fail(ErrorKind::kRuntime, "none of cuDNN's {} engines for {} can be made to run on this GPU: {}",
       engines_.size(), describe(form), refusal_);
}

bool AttentionPlan::use_engine(std::size_t engine) {
  Compiled& compiled = compiled_[engine];
  if (!compiled.tried) compile(engine);
  if (compiled.plan.raw() == nullptr) return false;
  engine_ = engine;
  return true;
}

void AttentionPlan::compile(std::size_t engine) {
  Compiled& compiled = compiled_[engine];
  compiled.tried = true;
  try {
    Descriptor plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engines_[engine].raw())
        .finalize("compile attention");
    const auto bytes = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
    compiled.plan = std::move(plan);
    compiled.workspace_bytes =
        std::max<std::int64_t>(rounded(bytes), 256);  // Never none, whose address may be null.
  } catch (const Error& error) {
    refusal_ = error.what();
  }
}

std::int64_t AttentionPlan::dq_sum_bytes() const {
  const device::AttentionShape& x = form.shape;
  return form.pass == AttentionPass::kBackward ? rounded(x.batch * x.heads * x.queries * x.d * 4) : 0;
}

std::int64_t AttentionPlan::row_sum_bytes() const {
  const device::AttentionShape& x = form.shape;
  return form.pass == AttentionPass::kForward ? 0 : rounded(x.batch * x.heads * x.queries * 4);
}

}  // namespace orrery::cuda
