#pragma once
// What the actions of a bound Program do; for rank_loop.cpp.

#include "executor/runtime/bound.hpp"
#include "executor/runtime/rank_loop.hpp"

namespace orrery::host {

class Performer {
 public:
  Performer(const Graph& graph, const World& world, RankId rank, const RunCallbacks& callbacks)
      : graph_(graph),
        world_(world),
        rank_(rank),
        callbacks_(callbacks),
        workspace_(best_isa(), callbacks.gemm) {}

  void perform(const Action& action, std::int64_t step);
  void perform(const Transfer& transfer, const Exchange& exchange);

 private:
  void fill(const FillInput& input, std::int64_t step);
  void sum_squares(const SumSquares& sum);
  void update(const Update& update, std::int64_t step);

  const Graph& graph_;
  const World& world_;
  RankId rank_;
  const RunCallbacks& callbacks_;
  Workspace workspace_;
  std::vector<std::int64_t> tokens_;
};

}  // namespace orrery::host
