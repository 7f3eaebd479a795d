#pragma once
// Builds one StageTemplate: walks the ops of the stage's blocks, puts each launch on its list, and between
// ops whatever moves a tensor from where one leaves it to where the next needs it.

#include <array>
#include <deque>
#include <initializer_list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/fp8.hpp"
#include "planner/launch.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

class StageBuilder {
 public:
  StageBuilder(const StageInput& input, SymbolTable& symbols);
  StageTemplate build();

 private:
  // Where a tensor is while a list is being built.
  struct Place {
    std::int32_t buffer = -1;
    bool persistent = false;
  };

  // ---- Buffers.
  void add_parameters();
  void add_parameter(TensorId parameter, std::int32_t block);
  void pack_weights(const Op& op);
  bool is_tied(TensorId parameter) const;
  std::int32_t add_buffer(const std::string& name, std::int32_t layer, MemoryCategory category,
                          TensorId tensor, PlacementId placement);
  Place& place_of(TensorId tensor);

  // ---- Instructions.
  std::vector<TemplateInstruction>& list() { return stage_.lists[static_cast<std::size_t>(pass_)]; }
  void start_list(PassKind pass);
  std::int32_t append(TemplateInstruction instruction);
  static void touch(TemplateInstruction& instruction, TemplateOperand operand);
  void read(TemplateInstruction& instruction, TensorId tensor);
  void emit(const Launch& launch, Purpose purpose);
  void emit_any(const Launch& launch, Purpose purpose);
  void read_inputs(OpId op, const Launch& launch, TemplateInstruction& compute);
  void write_outputs(OpId op, TemplateInstruction& compute,
                     std::vector<std::pair<OpId, TensorId>>& elsewhere);
  void pack_outputs(const Launch& launch, const TemplateInstruction& compute);
  void chain(const std::vector<TensorId>& tensors, const TemplateInstruction& compute);
  void note_new_block(TensorId parameter, TemplateInstruction& compute);
  std::int32_t add_output(TensorId output, std::int32_t block);
  void emit_parallel_loss(OpId op);
  void widen_logits(OpId loss);
  std::int64_t widening(OpId op) const;

  // ---- FP8 products (stage_fp8.cpp).
  // What an instruction leaves of its matrices: their largest elements, and `copies` of them turned.
  struct Fp8Kept {
    PassKind pass = PassKind::kForward;
    std::int32_t instruction = -1;  // Of the pass's list.
    std::int32_t buffer = -1;       // Negative: nobody has asked for it yet.
    bool copies = false;
  };
  using Fp8Sources = std::vector<std::int32_t>;  // The buffers that matrices lie in.
  void note_fp8_maker(const Launch& launch);
  std::int32_t fp8_largest(Fp8Kept& of);
  void add_fp8_copies(OpId op, TemplateInstruction& compute, Kernel& kernel);
  std::int32_t add_fp8_buffer(const TemplateInstruction& writer, const char* what, std::int64_t bytes);
  std::int64_t fp8_search_bytes(const std::vector<Fp8Operand>& operands) const;
  Fp8Sources fp8_sources(OpId op, const std::vector<Fp8Operand>& operands);
  bool weight_gradient_follows(OpId op, const std::vector<Fp8Operand>& gradients);
  void keep_fp8(OpId op, const std::vector<Fp8Operand>& operands, TemplateInstruction& compute,
                Kernel& kernel);
  void take_fp8_kept(OpId op, const std::vector<Fp8Operand>& operands, TemplateInstruction& compute,
                     Kernel& kernel);

  // ---- Collectives (stage_collectives.cpp).
  TemplateInstruction collective(const std::string& name, std::int32_t layer, CollectiveKind kind,
                                 AxisId axis, std::int64_t bytes, DType dtype);
  Place rearranged(TensorId tensor, PlacementId placement, std::int32_t block);
  void rearrange_inputs(OpId op);
  void settle(OpId op, TensorId output, std::int32_t made);

  // ---- Ring attention (ring_attention.cpp).
  struct Ring;
  // Keys and values of one position, or their gradients.
  using Block = std::array<Place, 2>;
  void emit_ring(OpId op, Purpose purpose);
  void ring_forward(const Ring& ring);
  void ring_backward(const Ring& ring);
  Block pass_on(const Ring& ring, const char* what, const std::array<TensorId, 2>& tensors,
                const Block& block, std::int32_t positions);
  void ring_attend(const Ring& ring, std::int32_t step, const Block& block,
                   const std::vector<std::int32_t>& results);
  void ring_add(const Ring& ring, std::int32_t step, const std::vector<std::int32_t>& reads,
                const std::vector<std::int32_t>& writes);
  std::int32_t ring_part(const Ring& ring, std::int32_t step, TensorId tensor, std::int32_t positions);
  std::int32_t ring_sum(const Ring& ring, TensorId tensor);

  // ---- Lists.
  void emit_all(const std::vector<Launch>& launches, Purpose purpose);
  void build_forward();
  void build_backward(PassKind pass);  // kBackwardInput makes the list of kBackwardWeight too.
  void note_forward_output(TensorId tensor);
  void note_backward_output(TensorId tensor);
  void note_sent(TensorId tensor);

  // ---- Recompute (stage_recompute.cpp).
  bool recomputes(std::int32_t block) const;
  bool drops_tensors() const { return in_.recomputed != nullptr && !in_.recomputed->empty(); }
  void drop_tensors();
  bool kept(TensorId tensor) const;
  void recompute(std::int32_t block);
  void remake_inputs(const Launch& launch);
  void add_missing(OpId op, std::vector<OpId>& again) const;

  const StageInput& in_;
  const Graph& graph_;
  const Sharding& sharding_;
  SymbolTable& symbols_;

  StageTemplate stage_;
  PassKind pass_ = PassKind::kForward;
  std::string prefix_;                              // "recompute." while something is recomputed.
  std::unordered_map<std::int32_t, Place> places_;  // By tensor, as stored.
  // What a backward begins with: places after the forward, and what neighbours have sent since.
  std::unordered_map<std::int32_t, Place> before_backward_;
  // Tensors brought to another placement for the launch that is being emitted.
  std::map<std::pair<TensorId, PlacementId>, Place> rearranged_;
  // What products that copy these matrices leave of them, and what launches do that make them.
  std::map<Fp8Sources, Fp8Kept*> fp8_kept_, fp8_makers_;
  std::map<TensorId, Fp8Kept*> fp8_weights_;  // By an op's first weight: what its forward leaves.
  std::deque<Fp8Kept> fp8_leavers_;
  std::int32_t region_ = 0;  // Negative while tensors of it are recomputed.
  std::map<std::pair<std::string, std::int32_t>, std::int32_t> moves_;  // By name and layer: so many so far.
  std::unordered_map<std::int32_t, std::size_t> parameter_of_;  // Tensor → index into stage_.parameters.
  std::vector<bool> seen_blocks_;
};

// "layer3.qkv" → "qkv", "d_layer3.qkv" → "d_qkv": the layer is a field of the instruction.
std::string without_layer(const std::string& name);

}  // namespace orrery
