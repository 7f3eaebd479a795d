#pragma once
// A role's optimiser: its state, the gradients' norm, the update (of all at once, or with the pass
// split-optimizer bucket by bucket), and with ZeRO 1 and 2 the gathers that bring the updated parameters back
// under the next forward.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/role_gradients.hpp"
#include "planner/role_parameters.hpp"

namespace orrery {

class RoleOptimizer {
 public:
  explicit RoleOptimizer(RoleDraft& state) : state_(state), gathers_(state.buckets.size(), -1) {}

  // The open instruction is the first of the step to read these blocks (and the first of its chunk at all):
  // it waits for what the last step gathers.
  void await_parameters(const std::vector<std::int32_t>& blocks, bool first_of_chunk);
  // The open instruction reads parameters that the last step has updated here.
  void await_update() { await(kUpdate); }
  // `world`: over whom the norm is summed.
  void finish(AxisId world, const RoleGradients& gradients);

 private:
  static constexpr std::size_t kUpdate = static_cast<std::size_t>(-1);

  using Parameters = std::vector<std::size_t>;

  bool gathers_after_update(const Bucket& bucket) const;
  void await(std::size_t bucket);
  Parameters all_parameters() const;
  Parameters unbucketed() const;
  std::int64_t own_elements(const Parameters& of) const;
  void add_state_buffers();
  Instruction& open(const std::string& label, Kernel kernel, const std::vector<std::int32_t>& after);
  std::int32_t norm(AxisId world, const std::vector<std::int32_t>& after);
  std::int32_t update(const std::string& label, std::int32_t layer, const Parameters& of,
                      const std::vector<std::int32_t>& after);
  std::int32_t gather(const Bucket& bucket, std::int32_t updated);

  RoleDraft& state_;
  std::vector<std::int32_t> states_;   // By parameter: the buffer of its optimiser state.
  std::vector<std::int32_t> gathers_;  // By bucket.
  std::vector<std::pair<std::size_t, std::size_t>>
      awaited_;  // Edge; the bucket whose gather it waits for, or kUpdate.
};

}  // namespace orrery
