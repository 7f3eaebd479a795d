#include "model/import_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace orrery {
namespace {

using Shape = std::vector<DimId>;

bool same_size(const Graph& graph, DimId a, DimId b) {
  return a == b || (graph[a].size > 0 && graph[a].size == graph[b].size);
}

// One rule per kind; `fault` keeps the first thing that is wrong.
class ImportedRules {
 public:
  ImportedRules(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}
  std::string run();

 private:
  const Shape& in(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  std::string text(const Shape& shape) const;
  std::int64_t size(DimId dim) const { return graph_[dim].size; }
  bool arity(std::size_t least_in, std::size_t most_in, std::size_t least_out, std::size_t most_out);
  void check(bool fine, std::string_view what);
  // Whether `part`, with ones in front, can be repeated up to `whole`.
  bool broadcasts(const Shape& part, const Shape& whole) const;
  void elementwise();
  void reduce();
  void transpose();
  void slice();
  void concat();
  void matmul();
  void attention();
  void convolution();
  double count(const Shape& shape) const;
  bool axes_within(std::size_t rank) const;

  const Graph& graph_;
  const Op& op_;
  std::string fault_;
};

std::string ImportedRules::text(const Shape& shape) const {
  std::string result = "[";
  for (const DimId dim : shape) {
    if (result.size() > 1) result += ", ";
    result += graph_[dim].size > 0 ? fmt::format("{}", graph_[dim].size) : graph_[dim].name;
  }
  return result + "]";
}

bool ImportedRules::arity(std::size_t least_in, std::size_t most_in, std::size_t least_out,
                          std::size_t most_out) {
  const std::size_t ins = op_.inputs.size();
  const std::size_t outs = op_.outputs.size();
  if (ins >= least_in && ins <= most_in && outs >= least_out && outs <= most_out) return true;
  const auto shown = [](std::size_t least, std::size_t most) {
    if (least == most) return fmt::format("{}", least);
    return most > 1000 ? fmt::format("at least {}", least) : fmt::format("{} to {}", least, most);
  };
  fault_ = fmt::format("has {} inputs and {} outputs; {} takes {} and makes {}", ins, outs,
                       to_string(op_.kind), shown(least_in, most_in), shown(least_out, most_out));
  return false;
}

void ImportedRules::check(bool fine, std::string_view what) {
  if (!fault_.empty() || fine) return;
  fault_ = fmt::format("{}:", what);
  for (std::size_t i = 0; i < std::min<std::size_t>(op_.inputs.size(), 4); ++i) fault_ += " " + text(in(i));
  if (op_.inputs.size() > 4) fault_ += " …";
  fault_ += " →";
  for (std::size_t i = 0; i < std::min<std::size_t>(op_.outputs.size(), 4); ++i) fault_ += " " + text(out(i));
}

double ImportedRules::count(const Shape& shape) const {
  double product = 1;
  for (const DimId dim : shape) product *= static_cast<double>(size(dim));
  return product;
}

bool ImportedRules::broadcasts(const Shape& part, const Shape& whole) const {
  if (part.size() > whole.size()) return false;
  const std::size_t skipped = whole.size() - part.size();
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (size(part[i]) != 1 && !same_size(graph_, part[i], whole[skipped + i])) return false;
  }
  return true;
}

bool ImportedRules::axes_within(std::size_t rank) const {
  return std::all_of(op_.attributes.axes.begin(), op_.attributes.axes.end(),
                     [&](std::int64_t axis) { return axis >= 0 && axis < static_cast<std::int64_t>(rank); });
}

void ImportedRules::elementwise() {
  if (!arity(1, 10'000, 1, 10'000)) return;
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    check(same_sizes(graph_, out(i), out(0)), "outputs of different shapes");
  }
  // Each dimension is that of some input, so that nothing is repeated that no input asks for.
  for (std::size_t d = 0; d < out(0).size(); ++d) {
    const std::size_t from_last = out(0).size() - d;
    const bool made = std::any_of(op_.inputs.begin(), op_.inputs.end(), [&](TensorId input) {
      const Shape& shape = graph_[input].shape;
      return shape.size() >= from_last && same_size(graph_, shape[shape.size() - from_last], out(0)[d]);
    });
    check(made, "the output isn't what the inputs broadcast to");
  }
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    check(broadcasts(in(i), out(0)), "the inputs don't broadcast to the output");
  }
}

// Dimensions outside `axes` stay; those of `axes` are 1 or gone.
void ImportedRules::reduce() {
  if (!arity(1, 10'000, 1, 10'000)) return;
  check(axes_within(in(0).size()), "an axis is out of range");
  if (!fault_.empty()) return;
  Shape kept;
  for (std::size_t i = 0; i < in(0).size(); ++i) {
    const auto& axes = op_.attributes.axes;
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) {
      kept.push_back(in(0)[i]);
    }
  }
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    if (same_sizes(graph_, out(i), kept)) continue;
    bool fits = out(i).size() == in(0).size();
    for (std::size_t d = 0; fits && d < in(0).size(); ++d) {
      const auto& axes = op_.attributes.axes;
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end();
      fits = reduced ? size(out(i)[d]) == 1 : same_size(graph_, out(i)[d], in(0)[d]);
    }
    check(fits, "the output isn't the input without the reduced dimensions");
  }
}

void ImportedRules::transpose() {
  if (!arity(1, 1, 1, 1)) return;
  const auto& axes = op_.attributes.axes;
  std::vector<std::int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool fits = axes.size() == in(0).size() && out(0).size() == axes.size();
  for (std::size_t i = 0; fits && i < axes.size(); ++i) {
    fits = sorted[i] == static_cast<std::int64_t>(i);
  }
  for (std::size_t i = 0; fits && i < axes.size(); ++i) {
    fits = same_size(graph_, out(0)[i], in(0)[static_cast<std::size_t>(axes[i])]);
  }
  check(fits, "the output isn't the input with its dimensions permuted");
}

void ImportedRules::slice() {
  if (!arity(1, 10'000, 1, 100'000)) return;
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    check(count(out(i)) <= count(in(0)), "a part is larger than the whole");
  }
}

void ImportedRules::concat() {
  if (!arity(1, 100'000, 1, 1)) return;
  check(op_.attributes.axes.size() == 1 && axes_within(out(0).size()), "the axis is out of range");
  if (!fault_.empty()) return;
  const auto axis = static_cast<std::size_t>(op_.attributes.axes[0]);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < op_.inputs.size() && fault_.empty(); ++i) {
    bool fits = in(i).size() == out(0).size();
    for (std::size_t d = 0; fits && d < in(i).size(); ++d) {
      fits = d == axis || same_size(graph_, in(i)[d], out(0)[d]);
    }
    check(fits, "the parts differ in more than the joined dimension");
    if (fits) sum += size(in(i)[axis]);
  }
  check(sum == size(out(0)[axis]), "the joined dimension isn't the sum of the parts");
}

void ImportedRules::matmul() {
  if (!arity(2, 3, 1, 1)) return;
  const Shape& a = in(0);
  const Shape& b = in(1);
  const Shape& y = out(0);
  bool fits = a.size() >= 2 && b.size() >= 2 && y.size() == std::max(a.size(), b.size());
  if (fits) {
    const bool nt = op_.attributes.word == "nt";
    const DimId k = b[b.size() - (nt ? 1 : 2)];
    const DimId n = b[b.size() - (nt ? 2 : 1)];
    fits = same_size(graph_, a.back(), k) && same_size(graph_, y.back(), n) &&
           same_size(graph_, a[a.size() - 2], y[y.size() - 2]) &&
           broadcasts(Shape(a.begin(), a.end() - 2), Shape(y.begin(), y.end() - 2)) &&
           broadcasts(Shape(b.begin(), b.end() - 2), Shape(y.begin(), y.end() - 2)) &&
           (op_.inputs.size() == 2 || broadcasts(in(2), y));
  }
  check(fits, "not a matrix product");
}

void ImportedRules::attention() {
  if (op_.attributes.word == "backward") {
    if (!arity(3, 10, 1, 5)) return;
    for (std::size_t i = 0; i < std::min<std::size_t>(op_.outputs.size(), 3); ++i) {
      check(same_sizes(graph_, in(i), out(i)), "gradients that aren't shaped like q, k and v");
    }
    return;
  }
  if (!arity(3, 4, 1, 5)) return;
  const Shape& q = in(0);
  const Shape& k = in(1);
  const Shape& v = in(2);
  const Shape& o = out(0);
  bool fits = q.size() >= 2 && k.size() == q.size() && v.size() == q.size() && o.size() == q.size();
  if (fits) {
    const std::size_t last = q.size() - 1;
    fits = same_size(graph_, q[last], k[last]) && same_size(graph_, k[last - 1], v[last - 1]) &&
           same_size(graph_, o[last], v[last]) && same_size(graph_, o[last - 1], q[last - 1]);
    // Query heads in front may share kv heads.
    for (std::size_t i = 0; fits && i + 2 < q.size(); ++i) {
      fits = same_size(graph_, o[i], q[i]) && same_size(graph_, k[i], v[i]) && size(k[i]) > 0 &&
             size(q[i]) % size(k[i]) == 0;
    }
  }
  check(fits, "not q[…,s,d], k[…,t,d], v[…,t,e] → o[…,s,e]");
}

void ImportedRules::convolution() {
  if (!arity(2, 3, 1, 1)) return;
  const Shape& x = in(0);
  const Shape& w = in(1);
  const Shape& y = out(0);
  const bool fits = x.size() >= 3 && w.size() == x.size() && y.size() == x.size() &&
                    same_size(graph_, x[0], y[0]) && same_size(graph_, w[0], y[1]) && size(w[1]) > 0 &&
                    size(x[1]) % size(w[1]) == 0;
  check(fits, "not x[n,c,…], w[o,c/groups,…] → y[n,o,…]");
}

std::string ImportedRules::run() {
  switch (op_.kind) {
    case OpKind::kElementwise: elementwise(); break;
    case OpKind::kReduce: reduce(); break;
    case OpKind::kSoftmax:
      if (!arity(1, 1, 1, 1)) break;
      check(same_sizes(graph_, in(0), out(0)) && axes_within(in(0).size()), "a softmax keeps its shape");
      break;
    case OpKind::kReshape:
      if (arity(1, 1, 1, 1)) check(count(in(0)) == count(out(0)), "a reshape keeps the number of elements");
      break;
    case OpKind::kTranspose: transpose(); break;
    case OpKind::kExpand:
      if (arity(1, 1, 1, 1)) check(count(out(0)) >= count(in(0)), "an expansion doesn't shrink");
      break;
    case OpKind::kSlice: slice(); break;
    case OpKind::kConcat: concat(); break;
    case OpKind::kGather: arity(2, 10'000, 1, 1); break;
    case OpKind::kScatter:
      if (arity(1, 10'000, 1, 1)) check(same_sizes(graph_, in(0), out(0)), "a scatter keeps its shape");
      break;
    case OpKind::kFill: arity(0, 10'000, 1, 10'000); break;
    case OpKind::kBatchMatmul: matmul(); break;
    case OpKind::kMaskedAttention: attention(); break;
    case OpKind::kConvolution: convolution(); break;
    default: fault_ = "isn't a kind of imported graphs";
  }
  return std::move(fault_);
}

double elements(const Graph& graph, TensorId tensor, const Sizes& sizes) {
  return static_cast<double>(element_count(graph, tensor, sizes));
}

double size_of(const Graph& graph, TensorId tensor, std::size_t from_last, const Sizes& sizes) {
  const Shape& shape = graph[tensor].shape;
  return shape.size() < from_last ? 1.0 : static_cast<double>(sizes[shape[shape.size() - from_last].index()]);
}

// By output: the inputs that lead to it, as a bit each, 64 inputs at a time.
std::vector<std::uint64_t> reached_from(const Graph& graph, const std::vector<TensorId>& inputs,
                                        std::size_t first) {
  std::vector<std::uint64_t> from(graph.tensors.size(), 0);
  for (std::size_t i = first; i < std::min(first + 64, inputs.size()); ++i) {
    from[inputs[i].index()] = std::uint64_t{1} << (i - first);
  }
  for (const Op& op : graph.ops) {
    std::uint64_t all = 0;
    for (const TensorId input : op.inputs) all |= from[input.index()];
    for (const TensorId output : op.outputs) from[output.index()] |= all;
  }
  std::vector<std::uint64_t> result;
  for (const TensorId output : graph.outputs) result.push_back(from[output.index()]);
  return result;
}

std::string listed(const Graph& graph, const std::vector<TensorId>& tensors) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, tensors.size()); ++i) {
    text += (i == 0 ? "" : ", ") + graph[tensors[i]].name;
  }
  if (tensors.size() > kShown) text += fmt::format(" and {} more", tensors.size() - kShown);
  return text;
}

// Inputs that only backward ops read are gradients of the outputs: what they have to reach are gradients.
std::vector<TensorId> inputs_of_outputs(const Graph& graph) {
  std::vector<char> forward(graph.tensors.size(), 0);
  std::vector<char> backward(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    for (const TensorId input : op.inputs)
      (op.phase == Phase::kForward ? forward : backward)[input.index()] = 1;
  }
  std::vector<TensorId> inputs;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const bool tangent = backward[i] && !forward[i];
    if (graph.tensors[i].kind == TensorKind::kInput && !tangent)
      inputs.emplace_back(static_cast<std::int64_t>(i));
  }
  return inputs;
}

}  // namespace

bool same_sizes(const Graph& graph, const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_size(graph, a[i], b[i])) return false;
  }
  return true;
}

std::string imported_shape_fault(const Graph& graph, const Op& op) { return ImportedRules(graph, op).run(); }

double imported_flops(const Graph& graph, const Op& op, const Sizes& sizes) {
  switch (op.kind) {
    case OpKind::kElementwise:
      return op.attributes.word == "cast" || op.attributes.word == "copy"
                 ? 0
                 : elements(graph, op.outputs[0], sizes);
    case OpKind::kReduce: return elements(graph, op.inputs[0], sizes);
    case OpKind::kSoftmax: return 5 * elements(graph, op.inputs[0], sizes);
    case OpKind::kBatchMatmul:
      return 2 * elements(graph, op.outputs[0], sizes) * size_of(graph, op.inputs[0], 1, sizes);
    case OpKind::kMaskedAttention: {
      const double keys = size_of(graph, op.inputs[1], 2, sizes);
      const bool backward = op.attributes.word == "backward";
      const double queries = elements(graph, op.inputs[0], sizes) + elements(graph, op.outputs[0], sizes);
      return 2 * queries * keys * (op.attributes.causal ? 0.5 : 1.0) * (backward ? 2.5 : 1.0);
    }
    case OpKind::kConvolution: {  // Every output element sums one filter.
      const double filters = size_of(graph, op.outputs[0], graph[op.outputs[0]].shape.size() - 1, sizes);
      return 2 * elements(graph, op.outputs[0], sizes) * elements(graph, op.inputs[1], sizes) / filters;
    }
    default: return 0;
  }
}

Traffic imported_traffic(const Graph& graph, const Op& op, const Sizes& sizes) {
  Traffic total;
  if (op.attributes.view || op.kind == OpKind::kReshape) return total;
  for (const TensorId input : op.inputs) total.read_bytes += size_bytes(graph, input, sizes);
  for (const TensorId output : op.outputs) total.written_bytes += size_bytes(graph, output, sizes);
  const bool picks = op.kind == OpKind::kSlice || op.kind == OpKind::kGather;
  if (picks && !op.inputs.empty()) {
    const std::int64_t whole = size_bytes(graph, op.inputs[0], sizes);
    total.read_bytes += std::min(whole, total.written_bytes) - whole;
  }
  return total;
}

std::vector<std::string> output_faults(const Graph& graph) {
  const std::vector<TensorId> inputs = inputs_of_outputs(graph);
  std::vector<TensorId> nowhere;                                     // Inputs that reach no output.
  std::vector<std::vector<TensorId>> missing(graph.outputs.size());  // By output: inputs that don't.
  for (std::size_t first = 0; first < inputs.size(); first += 64) {
    const std::vector<std::uint64_t> reached = reached_from(graph, inputs, first);
    for (std::size_t i = first; i < std::min(first + 64, inputs.size()); ++i) {
      bool any = false;
      for (std::size_t o = 0; o < reached.size(); ++o) {
        const bool leads = (reached[o] >> (i - first) & 1) != 0;
        any = any || leads;
        if (!leads) missing[o].push_back(inputs[i]);
      }
      if (!any) nowhere.push_back(inputs[i]);
    }
  }
  std::vector<std::string> faults;
  std::map<TensorId, std::int32_t> gradients;
  for (const Tensor& tensor : graph.tensors) {
    const bool of_input = tensor.gradient_of.valid() && graph[tensor.gradient_of].kind == TensorKind::kInput;
    if (of_input && ++gradients[tensor.gradient_of] == 2) {
      faults.push_back(fmt::format("tensor {}: the input has two gradients, {} is the second; expected one",
                                   graph[tensor.gradient_of].name, tensor.name));
    }
  }
  for (const TensorId input : nowhere) {
    faults.push_back(fmt::format("tensor {}: the input doesn't reach any output", graph[input].name));
  }
  const auto best = std::min_element(missing.begin(), missing.end(),
                                     [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (nowhere.empty() && best != missing.end() && !best->empty()) {
    const TensorId output = graph.outputs[static_cast<std::size_t>(best - missing.begin())];
    faults.push_back(
        fmt::format("no output is reached from every input: {}, which is reached from most, isn't from {}",
                    graph[output].name, listed(graph, *best)));
  }
  return faults;
}

}  // namespace orrery
