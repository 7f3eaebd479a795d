#pragma once
// Builds a Graph from a file of another tool. Readers add tensors with plain sizes and ops of the kind that
// says most; finish() works out which sizes are one dimension, and makes ops that the strict kinds can't say
// (a square weight between two residuals, a broadcast sum) ops of the imported kinds.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

// What a user may say about an imported file.
struct ImportOptions {
  std::map<std::string, std::int64_t> dims;  // Sizes of the file's symbolic dimensions by name.
};

using ImportSizes = std::vector<std::int64_t>;

struct ImportOp {
  std::string name;
  OpKind kind = OpKind::kElementwise;
  std::vector<TensorId> inputs, outputs;
  OpAttributes attributes = {};
  std::string module;  // Dotted path of the layer it belongs to, "h.3.mlp"; "" when the file doesn't say.
};

class ImportBuilder {
 public:
  // `place` stands for the file in messages.
  explicit ImportBuilder(std::string place) : place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  // THROWS Error(kInput) "place: node NAME: …".
  [[noreturn]] void wrong(std::string_view node, std::string_view what) const;

  // Sizes of at least 1, at most 16 of them. THROWS for others, for a name that is taken, and for more
  // elements or tensors than any graph has. `symbols` names sizes that were symbolic; "" for the others.
  TensorId add_tensor(const std::string& name, TensorKind kind, DType dtype, const ImportSizes& sizes,
                      const std::vector<std::string>& symbols = {});
  // Made by the next ops: an activation.
  TensorId add_result(const std::string& name, DType dtype, const ImportSizes& sizes) {
    return add_tensor(name, TensorKind::kActivation, dtype, sizes);
  }
  // After the ops that make its inputs.
  void add(ImportOp op);
  // y of a view of `x` with its dimensions permuted; x itself where that is what comes out.
  TensorId add_transpose(const std::string& name, TensorId x, const std::vector<std::int64_t>& axes,
                         const std::string& module, bool view);
  // The tensor whose transposed view `x` is, when the last two dimensions and no others were swapped.
  TensorId untransposed(TensorId x) const;

  const Tensor& operator[](TensorId id) const { return graph_[id]; }
  const ImportSizes& sizes(TensorId id) const { return sizes_[id.index()]; }
  // From here on ops belong to the backward phase.
  void begin_backward() { phase_ = Phase::kBackward; }
  // `gradient` is what the graph returns as the gradient of `of`, an input or a parameter.
  void set_gradient(TensorId gradient, TensorId of);

  // `outputs`: what the file says the graph returns.
  Graph finish(std::string name, const std::vector<TensorId>& outputs);

 private:
  void check_sizes(const std::string& name, DType dtype, const ImportSizes& sizes);
  void drop_unread();
  void merge_dims();
  void use_strict_kinds_only_where_they_fit();
  void set_blocks();
  void set_forward_of();

  std::string place_;
  Graph graph_;  // Until merge_dims each dimension of each tensor is one of its own.
  std::vector<ImportSizes> sizes_;
  std::vector<std::string> module_;  // By op.
  std::map<std::string, TensorId, std::less<>> by_name_;
  std::map<std::string, std::int32_t, std::less<>> op_names_;
  Phase phase_ = Phase::kForward;
  double bytes_ = 0;
};

// The sizes of a result of `a` and `b` under NumPy's broadcasting. False where they don't broadcast.
bool broadcast_sizes(const ImportSizes& a, const ImportSizes& b, ImportSizes& result);

}  // namespace orrery
