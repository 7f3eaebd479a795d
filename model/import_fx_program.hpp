#pragma once
// What both forms of a torch.fx graph hold, before it becomes a Graph. Part of read_fx_json and read_fx_text.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "model/import_builder.hpp"

namespace orrery {

// An argument of a node.
struct FxValue {
  enum class Kind : std::uint8_t { kNone, kBool, kInteger, kReal, kWord, kNode, kList };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // Of a bool too.
  double real = 0;           // Of an integer too.
  std::string text;          // Of a word (a string, dtype, device …) and a node.
  std::vector<FxValue> items;

  bool number() const { return kind == Kind::kBool || kind == Kind::kInteger || kind == Kind::kReal; }
};

// Type and shape of a tensor. A size is a number or the text of a symbolic one.
struct FxMeta {
  std::string dtype;
  std::vector<std::string> shape;
};

enum class FxRole : std::uint8_t { kInput, kParameter, kBuffer, kTangent };

struct FxNode {
  enum class Kind : std::uint8_t { kPlaceholder, kCall, kGetItem };
  std::string name;
  Kind kind = Kind::kCall;
  std::string
      target;  // "aten.mul.Tensor", "torch.nn.functional.relu", ".repeat" (a method), "*" (an operator).
  std::vector<FxValue> arguments;
  std::map<std::string, FxValue> keywords;
  std::vector<std::optional<FxMeta>> outputs;  // One, or a tuple's; nothing where it isn't said.
  FxRole role = FxRole::kInput;                // Of a placeholder.
  std::string tensor_name;                     // Of a placeholder: "h.0.attn.weight"; "": its own name.
  std::string module;
  bool backward = false;
};

struct FxResult {
  std::string node;         // "": None.
  std::string gradient_of;  // A placeholder's name; "": a plain output.
};

struct FxProgram {
  std::string name;
  std::vector<FxNode> nodes;
  std::vector<FxResult> results;
};

// A nested list of results, each "" for None, flattened.
void flatten_results(const FxValue& value, std::vector<FxResult>& results);

// THROWS Error(kInput) as read_fx_json does.
Graph build_fx_graph(const FxProgram& program, std::string_view place, const ImportOptions& options);

}  // namespace orrery
