#pragma once
// ZeRO-3: parameters are gathered bucket by bucket for each use, on a stream of their own, and dropped after
// it (Rajbhandari et al. 2020, §7.2; PyTorch's fully_shard). A use is all that one pass does with a bucket.
// When one begins, the gathers of the next `zero_prefetch` uses are posted; a bucket that is still there from
// a use as shortly before is kept. So that many gathered buckets are there besides the one in use.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/pipeline_schedule.hpp"
#include "planner/role_optimizer.hpp"
#include "planner/role_parameters.hpp"

namespace orrery {

class RoleGathers {
 public:
  RoleGathers(RoleDraft& state, RoleOptimizer& optimizer);

  bool holds(std::size_t parameter) const { return bucket_of_[parameter] >= 0; }

  // First, for all passes: what their launches read, in the order of issue. `pass` numbers the rank's passes.
  void expect(std::size_t pass, const Pass& kind, std::size_t parameter, std::int32_t layer);
  // Then, before each launch that reads the parameter is opened: posts gathers. Comes back with the gather
  // that the launch waits for; −1: one before it on its stream has.
  std::int32_t enter(std::size_t pass, std::size_t parameter);
  // Where it was gathered.
  std::int32_t buffer(std::size_t pass, std::size_t parameter) const;

 private:
  // A bucket gathered for one use, or for several.
  struct Gathered {
    std::size_t bucket = 0;
    std::int32_t layer = 0, microbatch = -1;
    const char* suffix = "";            // Tells gathers of one micro-batch's passes apart.
    std::int32_t gather = -1;           // Instruction, once it is posted.
    std::vector<std::int32_t> buffers;  // By parameter of the bucket.
  };
  struct Use {
    std::size_t gathered = 0;
    bool begun = false;
  };
  std::size_t use_of(std::size_t pass, std::size_t bucket) const;
  void post(Gathered& gathered, bool first);

  RoleDraft& state_;
  RoleOptimizer& optimizer_;
  std::vector<std::int32_t> bucket_of_;  // By parameter; −1: it isn't divided.
  std::vector<Gathered> gathered_;
  std::vector<Use> uses_;  // In the order of their first launches.
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> use_of_;  // By pass and bucket.
  std::size_t posted_ = 0;  // So many of gathered_ have their gather.
};

}  // namespace orrery
