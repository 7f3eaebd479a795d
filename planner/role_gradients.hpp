#pragma once
// What becomes of a role's gradients. They add up over the step in persistent buffers and are reduced in
// buckets as they become ready in the last backward; where ZeRO 2 and 3 keep shards alone, every backward
// leaves whole gradients that are scattered and added into the shards. Ordered sums (Plan::gradient_sum) keep
// one partial sum a micro-batch and add them up as a tree.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/pipeline_schedule.hpp"
#include "planner/role_parameters.hpp"
#include "planner/sum_tree.hpp"

namespace orrery {

class RoleGradients {
 public:
  // `microbatches`: of the role's replica.
  RoleGradients(RoleDraft& state, std::int32_t microbatches);

  // Where a launch of the pass adds the parameter's gradient.
  std::int32_t buffer(const Pass& pass, std::size_t parameter);
  // The pass has issued the launch at `position` of its list as `instruction`; `ends`: the list's last.
  // `last`: no pass of the chunk after this one adds to gradients.
  void passed(const Pass& pass, bool last, std::int32_t position, bool ends, std::int32_t instruction);
  // After the last pass: what is left to reduce, first over data, then what ranks on other axes hold in part.
  void finish(AxisId tensor, AxisId embedding);
  // What the optimiser has to wait for: for all gradients, or for those of one bucket.
  const std::vector<std::int32_t>& reduced() const { return reduced_; }
  std::vector<std::int32_t> reduced(std::size_t bucket) const;

 private:
  std::int32_t add_buffer(const Buffer& like, const std::string& suffix, std::int32_t microbatch);
  bool ordered() const { return state_.plan.gradient_sum == GradientSum::kOrdered; }
  Reduction reduction() const { return ordered() ? Reduction::kTreeSum : Reduction::kSum; }
  // Whether the parameter's sum of the pass's micro-batch has a buffer of its own.
  bool is_partial(const RoleParameter& parameter, const Pass& pass) const;
  std::int32_t& partial(const Pass& pass, std::size_t parameter);
  // Ordered: adds up what is complete with this pass. Comes back with the last addition, or `ready`.
  std::int32_t add_up(std::size_t bucket, const GradientUse& use, const Pass& pass, std::int32_t ready);
  std::int32_t add(const Bucket& bucket, const GradientUse& use, const Pass& pass,
                   const SumTree::Merge& merge, std::size_t level);
  std::int32_t scatter(const Bucket& bucket, const GradientUse& use, const Pass& pass, std::int32_t ready);
  void reduce(const Bucket& bucket, const std::vector<std::int32_t>& ready);
  std::int32_t reduce_in_place(const Bucket& bucket, CollectiveKind kind, AxisId axis, std::int64_t elements,
                               const std::vector<std::int32_t>& ready);
  void reduce_more(const std::string& label, LoweredStream stream, AxisId axis, bool RoleParameter::* which);

  RoleDraft& state_;
  std::int32_t microbatches_;
  bool each_pass_;                                // Something happens to gradients after every pass.
  std::vector<std::vector<std::int32_t>> ready_;  // By bucket: the last launches to add to it.
  std::size_t next_ = 0;                          // The first bucket that isn't reduced.
  std::int32_t last_ = -1;                        // The last reduction over data.
  std::vector<std::int32_t> last_of_;             // By bucket: its last reduction.
  std::vector<std::int32_t> more_;                // Sums over other axes.
  std::vector<std::int32_t> reduced_;
  // By chunk, micro-batch and parameter: the whole gradient on its way to the shards.
  std::map<std::tuple<std::int32_t, std::int32_t, std::size_t>, std::int32_t> partial_;
  std::vector<bool> begun_;  // By parameter: its shard has a first part.
  std::map<std::pair<std::size_t, std::int32_t>, SumTree> trees_;  // Ordered: by bucket and chunk.
};

}  // namespace orrery
