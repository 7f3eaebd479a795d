#pragma once
// ONNX nodes → ops. Part of read_onnx; shows nothing of the protobuf classes, so that the operators' rules
// are plain code.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/import_builder.hpp"

namespace orrery {

// A small tensor whose values are known when the graph is read: sizes, axes, scalars.
struct OnnxConstant {
  DType dtype = DType::kInt64;
  ImportSizes sizes;  // Empty: a scalar.
  std::vector<double> values;

  std::vector<std::int64_t> integers() const;
};

// What a name stands for: a tensor, a constant (which becomes a tensor once an op reads it as data), or both.
struct OnnxValue {
  TensorId tensor;
  std::optional<OnnxConstant> constant;
};

struct OnnxAttribute {
  double number = 0;
  std::int64_t integer = 0;
  std::string text;
  std::vector<std::int64_t> integers;
  std::optional<OnnxConstant> tensor;
};

struct OnnxNode {
  std::string name;  // Unique: the node's own, or that of its first output.
  std::string op;    // "MatMul", "com.microsoft.Attention".
  std::vector<std::string> inputs, outputs;
  std::map<std::string, OnnxAttribute> attributes;
  std::string module;
};

// Largest number of elements that is kept as a constant.
inline constexpr std::int64_t kOnnxMostConstant = 4096;

class OnnxConverter {
 public:
  explicit OnnxConverter(std::string_view place) : builder(std::string(place)) {}

  [[noreturn]] void wrong(const OnnxNode& node, std::string_view what) const;
  bool has_input(const OnnxNode& node, std::size_t i) const;
  // Whether anything reads the output.
  bool wanted(const OnnxNode& node, std::size_t i) const;
  const OnnxValue& value(const OnnxNode& node, std::size_t i) const;  // THROWS when there is none.
  TensorId tensor(const OnnxNode& node, std::size_t i);
  const ImportSizes& sizes(const OnnxNode& node, std::size_t i) const;
  DType dtype(const OnnxNode& node, std::size_t i) const;
  // Null when the input isn't there or isn't known yet.
  const OnnxConstant* constant(const OnnxNode& node, std::size_t i) const;
  // THROWS, saying that a shape depends on data.
  std::vector<std::int64_t> known_integers(const OnnxNode& node, std::size_t i) const;
  std::int64_t integer(const OnnxNode& node, const char* attribute, std::int64_t standard) const;
  double number(const OnnxNode& node, const char* attribute, double standard) const;
  std::vector<std::int64_t> integers(const OnnxNode& node, const char* attribute) const;
  std::int64_t axis(const OnnxNode& node, std::int64_t axis, std::size_t rank) const;

  // A new tensor for output `i`; with a suffix, one inside the node.
  TensorId output(const OnnxNode& node, std::size_t i, DType dtype, const ImportSizes& sizes);
  TensorId inner(const OnnxNode& node, std::string_view suffix, DType dtype, const ImportSizes& sizes);
  void set(const OnnxNode& node, std::size_t i, OnnxValue value);
  void add(const OnnxNode& node, OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpAttributes attributes = {}, std::string_view suffix = "");
  // One op with one output.
  void add_one(const OnnxNode& node, OpKind kind, std::vector<TensorId> inputs, DType dtype,
               const ImportSizes& sizes, OpAttributes attributes = {});

  std::map<std::string, OnnxValue, std::less<>> values;
  std::set<std::string, std::less<>> read;  // Names that a node or the graph's output list reads.
  ImportBuilder builder;
};

// Whether all inputs were constants and the outputs are now, too.
bool fold_onnx(OnnxConverter& convert, const OnnxNode& node);
// The operators that are layers: products, attention, norms, embeddings, activations. False: none of them.
bool apply_onnx_layer(OnnxConverter& convert, const OnnxNode& node);
// Those that change shapes and move data, and convolutions.
bool apply_onnx_move(OnnxConverter& convert, const OnnxNode& node);
std::vector<std::string> onnx_move_names();
// "com.microsoft.QuickGelu" → "quickgelu".
std::string onnx_word(std::string_view op);
// The axes of a reduction or a squeeze, sorted: an attribute in older files, input 1 in newer ones.
std::vector<std::int64_t> onnx_axes(const OnnxConverter& convert, const OnnxNode& node, const char* attribute,
                                    std::size_t rank);
// Any operator. THROWS for one that isn't allowed.
void apply_onnx_operator(OnnxConverter& convert, const OnnxNode& node);

}  // namespace orrery
