#pragma once
// FxProgram → Graph, one rule per operator of PyTorch. Part of build_fx_graph.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/import_builder.hpp"
#include "model/import_fx_program.hpp"

namespace orrery {

// "torch.ops.aten.mul.Tensor", "torch.nn.functional.relu", ".repeat", "*" → "mul", "relu", "repeat", "mul".
std::string fx_operator(std::string_view target);

class FxConverter {
 public:
  FxConverter(const FxProgram& program, std::string_view place, const ImportOptions& options)
      : builder(std::string(place)), program_(program), options_(options) {}

  Graph run();

  // ---- For the operators' rules (import_fx_ops.cpp).
  [[noreturn]] void wrong(const FxNode& node, std::string_view what) const { builder.wrong(node.name, what); }
  // The argument by position or keyword; null when it isn't given or None.
  const FxValue* argument(const FxNode& node, std::size_t position, std::string_view keyword = "") const;
  // THROW when it isn't there or of another kind.
  TensorId tensor(const FxNode& node, std::size_t position, std::string_view keyword = "") const;
  std::optional<TensorId> optional_tensor(const FxNode& node, std::size_t position,
                                          std::string_view keyword = "") const;
  std::vector<TensorId> tensors(const FxNode& node, std::size_t position) const;
  std::int64_t integer(const FxNode& node, std::size_t position, std::string_view keyword,
                       std::int64_t standard) const;
  double number(const FxNode& node, std::size_t position, std::string_view keyword, double standard) const;
  // Whole numbers of a list, or the one number.
  std::vector<std::int64_t> integers(const FxNode& node, std::size_t position,
                                     std::string_view keyword = "") const;
  std::int64_t axis(const FxNode& node, std::int64_t axis, std::size_t rank) const;
  std::vector<std::int64_t> axes(const FxNode& node, std::size_t position, std::string_view keyword,
                                 TensorId x) const;
  // All tensors among the arguments, in their order, and all numbers.
  std::vector<TensorId> all_tensors(const FxNode& node) const;
  std::vector<double> all_numbers(const FxNode& node) const;

  DType dtype(const FxNode& node, std::size_t output) const;
  ImportSizes sizes(const FxNode& node, std::size_t output,
                    std::vector<std::string>* symbols = nullptr) const;
  bool says(const FxNode& node, std::size_t output) const;
  // The tensor that this output of the node is. A name of its own for outputs after the first.
  TensorId result(const FxNode& node, std::size_t output = 0);
  // Every output that the node or its getitems describe.
  std::vector<TensorId> results(const FxNode& node);
  // The node's output is this tensor, made already.
  void stands_for(const FxNode& node, TensorId tensor, std::size_t output = 0);
  void add(const FxNode& node, OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpAttributes attributes = {}, std::string_view suffix = "");

  ImportBuilder builder;

 private:
  void placeholder(const FxNode& node);
  void collect_getitems();
  void get_item(const FxNode& node);
  void apply(const FxNode& node);
  TensorId own_result(TensorId tensor, const FxResult& result);
  bool reads_tangent(const FxNode& node) const;

  const FxProgram& program_;
  const ImportOptions& options_;
  // By node: its outputs; invalid where nobody described one.
  std::map<std::string, std::vector<TensorId>, std::less<>> made_;
  std::map<std::string, std::vector<std::optional<FxMeta>>, std::less<>> described_;
  std::set<TensorId> tangents_;
  bool backward_ = false;
};

// The operators that become kinds of our own: layers, attention, losses, and their gradients. False: none of
// them.
bool apply_fx_layer(FxConverter& convert, const FxNode& node, std::string_view name);

// Adds the ops of one call. THROWS for an operator that isn't allowed, with the reason.
void apply_fx_operator(FxConverter& convert, const FxNode& node);

}  // namespace orrery
