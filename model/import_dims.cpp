#include "model/import_dims.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

namespace orrery {
namespace {

using Shape = std::vector<DimId>;

// Classes of dimensions, some of which must stay apart.
class DimClasses {
 public:
  explicit DimClasses(const Graph& graph)
      : graph_(graph), parent_(graph.dims.size()), apart_(graph.dims.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  std::int32_t root(std::int32_t dim) {
    while (parent_[at(dim)] != dim) {
      parent_[at(dim)] = parent_[at(parent_[at(dim)])];
      dim = parent_[at(dim)];
    }
    return dim;
  }

  void keep_apart(DimId x, DimId y) {
    const std::int32_t a = root(x.value);
    const std::int32_t b = root(y.value);
    if (a == b) return;
    apart_[at(a)].insert(b);
    apart_[at(b)].insert(a);
  }

  void merge(DimId x, DimId y) {
    std::int32_t a = root(x.value);
    std::int32_t b = root(y.value);
    if (a == b || graph_[x].size != graph_[y].size || apart_[at(a)].contains(b)) return;
    // The one with more to stay apart from takes the other in; a tie keeps the earlier one.
    if (apart_[at(a)].size() < apart_[at(b)].size() ||
        (apart_[at(a)].size() == apart_[at(b)].size() && b < a)) {
      std::swap(a, b);
    }
    for (const std::int32_t other : apart_[at(b)]) {
      apart_[at(other)].erase(b);
      apart_[at(other)].insert(a);
      apart_[at(a)].insert(other);
    }
    apart_[at(b)].clear();
    parent_[at(b)] = a;
  }

  // Equal sizes, aligned at the last dimension.
  void merge_from_last(const Shape& a, const Shape& b) {
    for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) merge(a[a.size() - i], b[b.size() - i]);
  }
  // Of the first `count` dimensions.
  void merge_from_first(const Shape& a, const Shape& b, std::size_t count) {
    for (std::size_t i = 0; i < std::min({a.size(), b.size(), count}); ++i) merge(a[i], b[i]);
  }

 private:
  static std::size_t at(std::int32_t dim) { return static_cast<std::size_t>(dim); }

  const Graph& graph_;
  std::vector<std::int32_t> parent_;
  std::vector<std::set<std::int32_t>> apart_;  // By root.
};

void keep_all_apart(DimClasses& classes, const Shape& shape) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) classes.keep_apart(shape[i], shape[j]);
  }
}

// x[…,K], w[K,N] (or [N,K]) → y[…,N].
struct Product {
  const Shape& x;
  const Shape& w;
  const Shape& y;
  DimId k, n;
};

Product product(const Graph& graph, const Op& op) {
  const Shape& w = graph[op.inputs[1]].shape;
  const bool nt = op.attributes.word == "nt";
  return {graph[op.inputs[0]].shape, w, graph[op.outputs[0]].shape, w[nt ? 1 : 0], w[nt ? 0 : 1]};
}

void keep_product_apart(const Graph& graph, const Op& op, DimClasses& classes) {
  const Product p = product(graph, op);
  keep_all_apart(classes, p.x);
  keep_all_apart(classes, p.w);
  keep_all_apart(classes, p.y);
  for (std::size_t i = 0; i + 1 < p.x.size(); ++i) {  // Rows stand in neither side of w.
    classes.keep_apart(p.x[i], p.k);
    classes.keep_apart(p.x[i], p.n);
  }
  classes.keep_apart(p.x.back(), p.n);
}

void merge_product(const Graph& graph, const Op& op, DimClasses& classes) {
  const Product p = product(graph, op);
  classes.merge(p.x.back(), p.k);
  classes.merge(p.y.back(), p.n);
  classes.merge_from_first(p.x, p.y, p.x.size() - 1);
  if (op.inputs.size() > 2) classes.merge_from_last(graph[op.inputs[2]].shape, p.y);
}

void merge_attention(const Graph& graph, const Op& op, DimClasses& classes) {
  const Shape& q = graph[op.inputs[0]].shape;
  const Shape& k = graph[op.inputs[1]].shape;
  if (q.size() != 4 || k.size() != 4) return;
  for (const std::size_t i : {0, 1, 3}) classes.merge(q[i], k[i]);
  classes.merge_from_first(k, graph[op.inputs[2]].shape, 4);
  classes.merge_from_first(q, graph[op.outputs[0]].shape, 4);
  if (op.outputs.size() > 1) classes.merge_from_first(q, graph[op.outputs[1]].shape, 3);
}

void merge_reduced(const Graph& graph, const Op& op, DimClasses& classes) {
  const Shape& x = graph[op.inputs[0]].shape;
  for (const TensorId output : op.outputs) {
    const Shape& y = graph[output].shape;
    if (y.size() == x.size()) classes.merge_from_last(x, y);
    if (y.size() >= x.size()) continue;
    std::size_t next = 0;
    for (std::size_t i = 0; i < x.size() && next < y.size(); ++i) {
      const auto& axes = op.attributes.axes;
      if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end()) continue;
      classes.merge(x[i], y[next++]);
    }
  }
}

// Leading and trailing dimensions that a reshape leaves alone.
void merge_reshaped(const Graph& graph, const Op& op, DimClasses& classes) {
  const Shape& x = graph[op.inputs[0]].shape;
  const Shape& y = graph[op.outputs[0]].shape;
  const auto same = [&](DimId a, DimId b) { return graph[a].size == graph[b].size; };
  std::size_t first = 0;
  while (first < std::min(x.size(), y.size()) && same(x[first], y[first])) {
    classes.merge(x[first], y[first]);
    ++first;
  }
  for (std::size_t i = 1; i + first <= std::min(x.size(), y.size()); ++i) {
    if (!same(x[x.size() - i], y[y.size() - i])) break;
    classes.merge(x[x.size() - i], y[y.size() - i]);
  }
}

void merge_other(const Graph& graph, const Op& op, DimClasses& classes) {
  if (op.outputs.empty()) return;
  const Shape& y = graph[op.outputs[0]].shape;
  const auto input = [&](std::size_t i) -> const Shape& { return graph[op.inputs[i]].shape; };
  switch (op.kind) {
    case OpKind::kMatmul: return;  // Done before.
    case OpKind::kEmbedding:
      if (input(1).empty()) return;
      classes.merge_from_first(input(0), y, input(0).size());
      return classes.merge_from_last({input(1).back()}, y);
    case OpKind::kCrossEntropy:
      classes.merge_from_first(input(0), input(1), input(1).size());
      return classes.merge_from_first(input(1), graph[op.outputs[1]].shape, input(1).size());
    case OpKind::kAttention: return merge_attention(graph, op, classes);
    case OpKind::kReduce: return merge_reduced(graph, op, classes);
    case OpKind::kReshape: return merge_reshaped(graph, op, classes);
    case OpKind::kTranspose:
      for (std::size_t i = 0; i < y.size(); ++i) {
        classes.merge(y[i], input(0)[static_cast<std::size_t>(op.attributes.axes[i])]);
      }
      return;
    case OpKind::kGather:
    case OpKind::kFill:
    case OpKind::kConvolution: return;
    case OpKind::kBatchMatmul:
      classes.merge_from_first(input(0), y, y.size() < 2 ? 0 : y.size() - 1);
      if (op.attributes.word != "nt") classes.merge_from_last({input(1).back()}, y);
      return;
    case OpKind::kMaskedAttention: return classes.merge_from_first(input(0), y, y.size() - 1);
    default:
      for (const TensorId output : op.outputs) {
        classes.merge_from_last(graph[output].shape, y);
        for (const TensorId one : op.inputs) classes.merge_from_last(graph[one].shape, graph[output].shape);
      }
  }
}

bool is_named(const std::string& name) { return !name.empty() && !name.starts_with("~"); }

// One dimension for each class that a tensor has, in the order of the tensors; a symbolic name is kept.
void compress(Graph& graph, DimClasses& classes) {
  std::vector<DimId> of_root(graph.dims.size());
  std::vector<Dim> dims;
  std::set<std::string> names;
  for (Tensor& tensor : graph.tensors) {
    for (DimId& id : tensor.shape) {
      const Dim& before = graph.dims[id.index()];
      DimId& now = of_root[static_cast<std::size_t>(classes.root(id.value))];
      if (!now.valid()) {
        now = DimId(static_cast<std::int64_t>(dims.size()));
        dims.push_back({"", DimRole::kOther, before.size});
      }
      Dim& dim = dims[now.index()];
      if (dim.name.empty() && is_named(before.name) && names.insert(before.name).second) {
        dim.name = before.name;
        dim.role = before.role;
      }
      id = now;
    }
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name.empty()) dims[i].name = "~" + std::to_string(i) + "=" + std::to_string(dims[i].size);
  }
  graph.dims = std::move(dims);
}

}  // namespace

void merge_imported_dims(Graph& graph) {
  DimClasses classes(graph);
  const auto products = [&](auto&& what) {
    for (const Op& op : graph.ops) {
      if (op.kind == OpKind::kMatmul) what(graph, op, classes);
    }
  };
  products(keep_product_apart);
  products(merge_product);
  for (const Op& op : graph.ops) merge_other(graph, op, classes);
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.gradient_of.valid()) classes.merge_from_last(tensor.shape, graph[tensor.gradient_of].shape);
  }
  compress(graph, classes);
}

}  // namespace orrery
