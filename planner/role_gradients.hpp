#pragma once
// What becomes of a role's gradients. They add up over the step in persistent buffers and are reduced in
// buckets as they become ready in the last backward; where ZeRO 2 and 3 keep shards alone, every backward
// leaves whole gradients that are scattered and added into the shards.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/pipeline_schedule.hpp"
#include "planner/role_parameters.hpp"

namespace orrery {

class RoleGradients {
 public:
  explicit RoleGradients(RoleDraft& state);

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
  std::int32_t scatter(const Bucket& bucket, const GradientUse& use, const Pass& pass, std::int32_t ready);
  void reduce(const Bucket& bucket, const std::vector<std::int32_t>& ready);
  std::int32_t reduce_in_place(const Bucket& bucket, CollectiveKind kind, AxisId axis, std::int64_t elements,
                               const std::vector<std::int32_t>& ready);
  void reduce_more(const std::string& label, LoweredStream stream, AxisId axis, bool RoleParameter::* which);

  RoleDraft& state_;
  bool each_pass_;                                // Some gradients are scattered after every pass.
  std::vector<std::vector<std::int32_t>> ready_;  // By bucket: the last launches to add to it.
  std::size_t next_ = 0;                          // The first bucket that isn't reduced.
  std::int32_t last_ = -1;                        // The last reduction over data.
  std::vector<std::int32_t> last_of_;             // By bucket: its last reduction.
  std::vector<std::int32_t> more_;                // Sums over other axes.
  std::vector<std::int32_t> reduced_;
  // By chunk, micro-batch and parameter: the whole gradient on its way to the shards.
  std::map<std::tuple<std::int32_t, std::int32_t, std::size_t>, std::int32_t> partial_;
  std::vector<bool> begun_;  // By parameter: its shard has a first part.
};

}  // namespace orrery
