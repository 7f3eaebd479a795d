// The shape rules of what routes tokens to experts and back.

#include <fmt/format.h>

#include <utility>

#include "model/graph_shape_rules.hpp"

namespace orrery {
namespace {

class ExpertRules : private ShapeRules {
 public:
  using ShapeRules::ShapeRules;

  std::string run();

 private:
  void route();
  void route_grad();
  void dispatch();
  void dispatch_grad();
  void combine();
  void combine_grad();
  bool arity_or_one_more(std::size_t inputs, std::size_t outputs);
  void picks(const Shape& of_tokens, const Shape& picks);
  void rows(const Shape& rows, const Shape& of_tokens);
};

bool ExpertRules::arity_or_one_more(std::size_t inputs, std::size_t outputs) {
  return op_.inputs.size() == inputs + 1 ? arity(inputs + 1, outputs) : arity(inputs, outputs);
}

// `picks` are [tokens…, k] where `of_tokens` is [tokens…, anything].
void ExpertRules::picks(const Shape& of_tokens, const Shape& picks) {
  if (!fault_.empty()) return;
  Shape expected = of_tokens;
  if (!expected.empty() && !picks.empty()) expected.back() = picks.back();
  same("the picks", picks, expected);
  if (fault_.empty() && (picks.empty() || graph_[picks.back()].role != DimRole::kTopK)) {
    fault_ = fmt::format("the picks have shape {}; expected a last dimension of role top-k", text(picks));
  }
}

void ExpertRules::rows(const Shape& rows, const Shape& of_tokens) {
  const bool fits = rows.size() == 3 && graph_[rows[0]].role == DimRole::kExperts &&
                    graph_[rows[1]].role == DimRole::kSlots && !of_tokens.empty() &&
                    rows[2] == of_tokens.back();
  if (fault_.empty() && !fits) {
    fault_ = fmt::format("the rows have shape {}; expected [experts, slots, the last dimension of {}]",
                         text(rows), text(of_tokens));
  }
}

void ExpertRules::route() {
  if (!arity_or_one_more(1, 2)) return;
  picks(in(0), out(0));
  same("the picks", out(1), out(0));
  if (!fault_.empty()) return;
  const Dim& experts = graph_[in(0).back()];
  if (experts.role != DimRole::kExperts) {
    fault_ = fmt::format("the logits have shape {}; expected a last dimension of role experts", text(in(0)));
    return;
  }
  if (op_.inputs.size() == 2) same("the bias", in(1), {in(0).back()});
  const std::int64_t k = graph_[out(0).back()].size;
  const std::int64_t groups = op_.attributes.groups, top_groups = op_.attributes.top_groups;
  if (!fault_.empty()) return;
  if (k > experts.size) {
    fault_ = fmt::format("picks {} of {} experts", k, experts.size);
  } else if (groups < 1 || top_groups < 1 || top_groups > groups || experts.size % groups != 0 ||
             k > top_groups * (experts.size / groups)) {
    fault_ =
        fmt::format("{} picks out of {} of {} groups of {} experts", k, top_groups, groups, experts.size);
  }
}

void ExpertRules::route_grad() {
  if (!arity(3, 1)) return;
  picks(in(0), in(1));
  same("dweights", in(2), in(1));
  same("dlogits", out(0), in(0));
}

void ExpertRules::dispatch() {
  if (!arity_or_one_more(2, 2)) return;
  picks(in(0), in(1));
  rows(out(0), in(0));
  same("the places", out(1), in(1));
  if (op_.inputs.size() == 3) same("the weights", in(2), in(1));
}

void ExpertRules::dispatch_grad() {
  const bool weighted = op_.inputs.size() == 4;
  if (!arity(weighted ? 4 : 2, weighted ? 2 : 1)) return;
  picks(out(0), in(1));
  rows(in(0), out(0));
  if (!weighted) return;
  same("x", in(2), out(0));
  same("the weights", in(3), in(1));
  same("dweights", out(1), in(1));
}

void ExpertRules::combine() {
  if (!arity_or_one_more(2, 1)) return;
  picks(out(0), in(1));
  rows(in(0), out(0));
  if (op_.inputs.size() == 3) same("the weights", in(2), in(1));
}

void ExpertRules::combine_grad() {
  const bool weighted = op_.inputs.size() == 4;
  if (!arity(weighted ? 4 : 2, weighted ? 2 : 1)) return;
  picks(in(0), in(1));
  rows(out(0), in(0));
  if (!weighted) return;
  same("the rows", in(2), out(0));
  same("the weights", in(3), in(1));
  same("dweights", out(1), in(1));
}

std::string ExpertRules::run() {
  switch (op_.kind) {
    case OpKind::kRoute: route(); break;
    case OpKind::kRouteGrad: route_grad(); break;
    case OpKind::kDispatch: dispatch(); break;
    case OpKind::kDispatchGrad: dispatch_grad(); break;
    case OpKind::kCombine: combine(); break;
    case OpKind::kCombineGrad: combine_grad(); break;
    default: fault_ = "has no known kind";
  }
  return std::move(fault_);
}

}  // namespace

std::string expert_shape_fault(const Graph& graph, const Op& op) { return ExpertRules(graph, op).run(); }

}  // namespace orrery
