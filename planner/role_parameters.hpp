#pragma once
// The trained tensors of a role, and which of them travel together.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/groups.hpp"
#include "planner/plan.hpp"
#include "planner/role_writer.hpp"
#include "planner/stage_template.hpp"
#include "planner/state_shards.hpp"

namespace orrery {

// Where a chunk's lists add into a gradient.
struct GradientUse {
  std::int32_t chunk = 0;
  std::int32_t block = 0;  // That of the chunk which uses it first.
  // By PassKind: the position of the last launch that adds. What a list doesn't add to is there before it
  // begins.
  std::array<std::int32_t, kPassKindCount> position = {};
};

// A tied table may belong to two chunks.
struct RoleParameter {
  TensorId tensor;
  std::int32_t block = 0;
  std::int32_t last_block = 0;  // Another one where two chunks of the role use it.
  std::int64_t elements = 0;    // Of the whole tensor as it is used on a rank.
  ReductionAxes axes;
  StateShard shard;                          // ZeRO 2 and 3: this rank's part of what is divided.
  std::int32_t weights = -1, gradient = -1;  // Persistent buffers of the role: of the shard, where it is one.
  Buffer whole_weights, whole_gradient;      // As launches use them.
  bool partial = false, tied = false, of_expert = false;
  std::vector<GradientUse> uses;
};

// Whether ranks divide the parameter's optimiser state, its gradient, the parameter itself.
bool shards_state(const Plan& plan, const ReductionAxes& axes);
bool shards_gradients(const Plan& plan, const ReductionAxes& axes);
bool shards_parameters(const Plan& plan, const ReductionAxes& axes);

// Parameters that are gathered and whose gradients are reduced in one collective.
struct Bucket {
  ReductionAxes axes;
  std::vector<std::size_t> parameters;
  std::int64_t elements = 0;      // Of the whole tensors, padded to what the group divides.
  std::vector<GradientUse> uses;  // By chunk: when the last gradient is there.
  std::string kind;               // "", "expert_" or "tied_": tells buckets of one block apart.
  std::int32_t layer = 0;         // The lowest block.
};

// Buckets hold whole blocks, as many as fit into Plan::bucket_bytes, and are ordered from the last block to
// the first, as they become ready on most ranks. What no other rank has a gradient of is in none, unless sums
// are ordered.
std::vector<Bucket> make_buckets(const Plan& plan, const std::vector<RoleParameter>& parameters);

// What the parts of a role's construction share.
struct RoleDraft {
  const Plan& plan;
  RoleWriter& out;
  std::vector<RoleParameter> parameters;
  std::vector<Bucket> buckets;
};

// The parameter's part that this rank keeps optimiser state of.
std::int64_t own_elements(const Plan& plan, const RoleParameter& parameter);

}  // namespace orrery
