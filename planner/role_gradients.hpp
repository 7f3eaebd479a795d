#pragma once
// What becomes of a role's gradients: reduction in buckets as they become ready, the optimiser, and with
// ZeRO the gathers that bring the updated parameters back.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/role_builder.hpp"
#include "planner/role_writer.hpp"

namespace orrery {

// A trained tensor of the role. A tied one may belong to two chunks.
struct RoleParameter {
  TensorId tensor;
  std::int32_t block = 0;
  std::int32_t last_block = 0;  // Another one where two chunks of the role use it.
  std::int64_t elements = 0;
  AxisId axis;
  std::int32_t degree = 1;                   // Ranks of a group of the axis.
  std::int32_t weights = -1, gradient = -1;  // Buffers of the role.
  bool partial = false, tied = false, of_expert = false;
  // The chunks that add into its gradient, each with the instruction of its last pass that does so last.
  std::vector<std::pair<std::int32_t, std::int32_t>> ready;
};

class RoleGradients {
 public:
  RoleGradients(const Plan& plan, const RoleShape& shape, RoleWriter& writer,
                std::vector<RoleParameter> parameters);

  // The chunk's last pass has issued the instruction at `position` of its list as `instruction`.
  void passed(std::int32_t chunk, std::int32_t position, std::int32_t instruction);
  // The open instruction is the first of the step to read these blocks (and the first of its chunk at all):
  // it waits for what the last step gathers.
  void await_parameters(const std::vector<std::int32_t>& blocks, bool first_of_chunk);
  // After the last pass: what is left to reduce, the optimiser, the gathers.
  void finish();

 private:
  // Parameters whose gradients travel together.
  struct Bucket {
    AxisId axis;
    std::int32_t degree = 1;
    std::int64_t elements = 0;
    std::vector<std::size_t> parameters;
    std::vector<std::pair<std::int32_t, std::int32_t>> waits;  // As RoleParameter::ready, by chunk.
    std::vector<std::int32_t> ready;                           // Instructions, of the waits that are over.
    std::int32_t gather = -1;
  };
  bool shards(std::int32_t degree) const { return plan_.zero_stage >= 1 && degree > 1; }
  // Elements of a parameter (of all of them) whose optimiser state this rank keeps.
  std::int64_t own_elements(const RoleParameter& parameter) const;
  std::int64_t own_elements() const;
  void make_buckets();
  bool stands_alone(const RoleParameter& parameter) const;
  bool joins(const Bucket& bucket, const RoleParameter& parameter) const;
  std::string kind(const Bucket& bucket) const;
  void reduce(const Bucket& bucket, const std::vector<std::int32_t>& ready);
  void reduce_more(const std::string& label, LoweredStream stream, AxisId axis, bool RoleParameter::* which);
  void add_state_buffers();
  void add_state_buffer(const std::string& label, std::int32_t layer, std::int64_t elements);
  std::int32_t optimizer_compute(const std::string& label, KernelKind kind, std::int64_t read,
                                 std::int64_t written, const std::vector<std::int32_t>& dependencies);
  void optimize();
  std::int32_t reduce_norm(std::int32_t norm);
  void gather(Bucket& bucket);

  const Plan& plan_;
  const RoleShape& shape_;
  RoleWriter& out_;
  std::vector<RoleParameter> parameters_;
  std::vector<Bucket> buckets_;  // From the last block to the first, as they become ready on most ranks.
  std::size_t reduced_ = 0;      // So many of them are.
  void await(const Bucket& bucket);
  std::vector<std::pair<std::int32_t, const Bucket*>> awaited_;  // Edge, whose gather it waits for.
  std::int32_t last_reduce_ = -1;
  std::vector<std::int32_t> last_extra_;
  std::int32_t updated_ = -1;
};

}  // namespace orrery
