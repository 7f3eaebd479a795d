// Sums of ring attention in double precision.

#include <algorithm>
#include <cmath>

#include "executor/host/step_parts.hpp"

namespace orrery::host {
namespace {

Values sum(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Softmax over both sets of keys (Milakov & Gimelshein 2018): contexts weighted with their share of the sum
// of exponentials. A set without any key that the query sees has a log-sum-exp of −∞.
void merge(Values& context, Values& log_sum, const Values& more, const Values& more_log_sum) {
  const std::size_t width = context.size() / log_sum.size();
  for (std::size_t row = 0; row < log_sum.size(); ++row) {
    const double largest = std::max(log_sum[row], more_log_sum[row]);
    const double a = std::exp(log_sum[row] - largest), b = std::exp(more_log_sum[row] - largest);
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      context[i] = (a * context[i] + b * more[i]) / (a + b);
    }
    log_sum[row] = largest + std::log(a + b);
  }
}

}  // namespace

void add_ring_step(const Op& op, RankState& rank, const std::vector<Operand>& operands) {
  std::vector<Values> values;
  for (const Operand& operand : operands) values.push_back(rank.load(operand.buffer));
  if (op.kind == OpKind::kAttention) {
    merge(values[0], values[1], values[2], values[3]);
    const std::size_t target = operands.size() - (operands[0].writes ? 4 : 2);
    rank.store(operands[target].buffer, values[0]);
    rank.store(operands[target + 1].buffer, values[1]);
    return;
  }
  rank.store(operands[operands[0].writes ? 0 : 6].buffer, sum(values[0], values[1]));
  rank.store(operands[4].buffer, sum(values[4], values[2]));
  rank.store(operands[5].buffer, sum(values[5], values[3]));
}

}  // namespace orrery::host
