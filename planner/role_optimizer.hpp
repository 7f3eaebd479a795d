#pragma once
// A role's optimiser: its state, the gradients' norm, the update, and with ZeRO 1 and 2 the gathers that
// bring the updated parameters back under the next forward.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/role_parameters.hpp"

namespace orrery {

class RoleOptimizer {
 public:
  explicit RoleOptimizer(RoleState& state) : state_(state), gathers_(state.buckets.size(), -1) {}

  // The open instruction is the first of the step to read these blocks (and the first of its chunk at all):
  // it waits for what the last step gathers.
  void await_parameters(const std::vector<std::int32_t>& blocks, bool first_of_chunk);
  // The open instruction reads parameters that the last step has updated here.
  void await_update() { await(kUpdate); }
  // `world`: over whom the norm is summed. `after`: when all gradients are there.
  void finish(AxisId world, const std::vector<std::int32_t>& after);

 private:
  static constexpr std::size_t kUpdate = static_cast<std::size_t>(-1);

  bool gathers_after_update(const Bucket& bucket) const;
  void await(std::size_t bucket);
  std::int64_t own_elements() const;
  void add_state_buffers();
  std::int32_t compute(const std::string& label, KernelKind kind, std::int64_t read, std::int64_t written,
                       const std::vector<std::int32_t>& dependencies);
  std::int32_t update(AxisId world, const std::vector<std::int32_t>& after);
  std::int32_t gather(const Bucket& bucket, std::int32_t updated);

  RoleState& state_;
  std::vector<std::int32_t> gathers_;  // By bucket.
  std::vector<std::pair<std::size_t, std::size_t>>
      awaited_;  // Edge; the bucket whose gather it waits for, or kUpdate.
};

}  // namespace orrery
