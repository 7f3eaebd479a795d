// ONNX operators that change shapes and move data; and convolutions.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "model/import_onnx_convert.hpp"

namespace orrery {
namespace {

using Convert = OnnxConverter;

double elements(const ImportSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0, [](double product, std::int64_t size) {
    return product * static_cast<double>(size);
  });
}

ImportSizes reshape_sizes(const Convert& c, const OnnxNode& node, const ImportSizes& from) {
  ImportSizes sizes = c.known_integers(node, 1);
  const bool zero_copies = c.integer(node, "allowzero", 0) == 0;
  std::size_t open = sizes.size();
  double known = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && zero_copies && i < from.size()) sizes[i] = from[i];
    if (sizes[i] == -1)
      open = i;
    else
      known *= static_cast<double>(sizes[i]);
  }
  if (open < sizes.size()) {
    const double rest = known > 0 ? elements(from) / known : 0;
    if (!(rest >= 1 && rest <= 4e12))
      c.wrong(node, fmt::format("Reshape of [{}]: nothing fits for −1", fmt::join(from, ", ")));
    sizes[open] = static_cast<std::int64_t>(rest);
  }
  if (elements(sizes) != elements(from)) {
    c.wrong(node, fmt::format("Reshape of [{}] to [{}]: not as many elements", fmt::join(from, ", "),
                              fmt::join(sizes, ", ")));
  }
  return sizes;
}

ImportSizes squeezed(const Convert& c, const OnnxNode& node, const ImportSizes& from) {
  const std::vector<std::int64_t> axes = onnx_axes(c, node, "axes", from.size());
  ImportSizes sizes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool named = std::binary_search(axes.begin(), axes.end(), static_cast<std::int64_t>(i));
    if (named && from[i] != 1) c.wrong(node, fmt::format("Squeeze of a dimension of size {}", from[i]));
    if (named || (axes.empty() && from[i] == 1)) continue;
    sizes.push_back(from[i]);
  }
  return sizes;
}

ImportSizes unsqueezed(const Convert& c, const OnnxNode& node, const ImportSizes& from) {
  std::vector<std::int64_t> axes = c.integers(node, "axes");
  if (axes.empty()) axes = c.known_integers(node, 1);
  if (axes.size() > 16) c.wrong(node, "Unsqueeze with more than 16 dimensions");
  const std::size_t rank = from.size() + axes.size();
  std::set<std::int64_t> at;
  for (const std::int64_t axis : axes) at.insert(c.axis(node, axis, rank));
  ImportSizes sizes;
  std::size_t next = 0;
  for (std::size_t i = 0; i < from.size() + at.size(); ++i) {
    const bool added = at.contains(static_cast<std::int64_t>(i)) || next >= from.size();
    sizes.push_back(added ? 1 : from[next++]);
  }
  return sizes;
}

ImportSizes flattened(const Convert& c, const OnnxNode& node, const ImportSizes& from) {
  const std::int64_t given = c.integer(node, "axis", 1);
  const auto rank = static_cast<std::int64_t>(from.size());
  if (given < -rank || given > rank) c.wrong(node, "Flatten: the axis is out of range");
  const auto axis = static_cast<std::ptrdiff_t>(given < 0 ? given + rank : given);
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  return {product(from.begin(), from.begin() + axis), product(from.begin() + axis, from.end())};
}

void reshape(Convert& c, const OnnxNode& node) {
  const ImportSizes from = c.sizes(node, 0);
  const ImportSizes to = node.op == "Reshape"     ? reshape_sizes(c, node, from)
                         : node.op == "Squeeze"   ? squeezed(c, node, from)
                         : node.op == "Unsqueeze" ? unsqueezed(c, node, from)
                                                  : flattened(c, node, from);
  c.add_one(node, OpKind::kReshape, {c.tensor(node, 0)}, c.dtype(node, 0), to);
}

void transpose(Convert& c, const OnnxNode& node) {
  const std::size_t rank = c.sizes(node, 0).size();
  std::vector<std::int64_t> axes = c.integers(node, "perm");
  if (axes.empty()) {
    for (std::size_t i = rank; i-- > 0;) axes.push_back(static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < std::max(rank, axes.size()); ++i) {
    if (axes.size() != rank || sorted[i] != static_cast<std::int64_t>(i))
      c.wrong(node, "Transpose: perm isn't a permutation");
  }
  const TensorId y = c.builder.add_transpose(node.outputs[0], c.tensor(node, 0), axes, node.module, false);
  c.set(node, 0, {y, std::nullopt});
}

void concat(Convert& c, const OnnxNode& node) {
  ImportSizes sizes = c.sizes(node, 0);
  OpAttributes attributes;
  attributes.axes = {c.axis(node, c.integer(node, "axis", 0), sizes.size())};
  const auto axis = static_cast<std::size_t>(attributes.axes[0]);
  sizes[axis] = 0;
  std::vector<TensorId> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (c.sizes(node, i).size() != sizes.size())
      c.wrong(node, "Concat of tensors with different numbers of dimensions");
    sizes[axis] += c.sizes(node, i)[axis];
    parts.push_back(c.tensor(node, i));
  }
  c.add_one(node, OpKind::kConcat, std::move(parts), c.dtype(node, 0), sizes, attributes);
}

void split(Convert& c, const OnnxNode& node) {
  const ImportSizes from = c.sizes(node, 0);
  const auto axis = static_cast<std::size_t>(c.axis(node, c.integer(node, "axis", 0), from.size()));
  const auto count = static_cast<std::int64_t>(node.outputs.size());
  std::vector<std::int64_t> lengths = c.integers(node, "split");
  if (lengths.empty() && c.has_input(node, 1)) lengths = c.known_integers(node, 1);
  const std::int64_t part = (from[axis] + count - 1) / count;
  for (std::int64_t i = 0; lengths.empty() || static_cast<std::int64_t>(lengths.size()) < count; ++i) {
    lengths.push_back(std::min(part, from[axis] - i * part));
  }
  OpAttributes attributes;
  attributes.axes = {static_cast<std::int64_t>(axis)};
  std::vector<TensorId> parts;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    ImportSizes sizes = from;
    sizes[axis] = lengths[i];
    parts.push_back(c.output(node, i, c.dtype(node, 0), sizes));
  }
  c.add(node, OpKind::kSlice, {c.tensor(node, 0)}, std::move(parts), attributes);
}

void slice(Convert& c, const OnnxNode& node) {
  ImportSizes sizes = c.sizes(node, 0);
  const bool old = !c.has_input(node, 1);  // Before version 10 the limits were attributes.
  const auto starts = old ? c.integers(node, "starts") : c.known_integers(node, 1);
  const auto ends = old ? c.integers(node, "ends") : c.known_integers(node, 2);
  std::vector<std::int64_t> axes = old                    ? c.integers(node, "axes")
                                   : c.has_input(node, 3) ? c.known_integers(node, 3)
                                                          : std::vector<std::int64_t>{};
  const auto steps =
      c.has_input(node, 4) ? c.known_integers(node, 4) : std::vector<std::int64_t>(starts.size(), 1);
  for (std::size_t i = axes.size(); i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (ends.size() != starts.size() || steps.size() != starts.size() || axes.size() != starts.size()) {
    c.wrong(node, "Slice: starts, ends, axes and steps aren't equally many");
  }
  OpAttributes attributes;
  attributes.word = "slice";
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis = static_cast<std::size_t>(c.axis(node, axes[i], sizes.size()));
    const std::int64_t size = sizes[axis];
    if (steps[i] == 0) c.wrong(node, "Slice with step 0");
    const std::int64_t low = steps[i] < 0 ? -1 : 0;
    const std::int64_t high = steps[i] < 0 ? size - 1 : size;
    const auto place = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? std::max(at, -size - 1) + size : std::min(at, size), low,
                                      high);
    };
    const std::int64_t span = steps[i] < 0 ? place(starts[i]) - (ends[i] < -size ? -1 : place(ends[i]))
                                           : place(ends[i]) - place(starts[i]);
    const std::int64_t step = std::min<std::int64_t>(std::abs(steps[i]), size);
    sizes[axis] = span <= 0 ? 0 : (span + step - 1) / step;
    for (const std::int64_t one : {axes[i], place(starts[i]), steps[i]})
      attributes.constants.push_back(static_cast<double>(one));
  }
  c.add_one(node, OpKind::kSlice, {c.tensor(node, 0)}, c.dtype(node, 0), sizes, attributes);
}

void expand(Convert& c, const OnnxNode& node) {
  const ImportSizes from = c.sizes(node, 0);
  const std::vector<std::int64_t> given = c.known_integers(node, 1);
  ImportSizes sizes;
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  if (node.op == "Tile") {
    if (given.size() != from.size())
      c.wrong(node, "Tile: a number of repeats for each dimension is expected");
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (given[i] < 1 || given[i] > 4'000'000'000'000 / from[i]) c.wrong(node, "Tile: repeats out of range");
      sizes.push_back(from[i] * given[i]);
    }
  } else if (!broadcast_sizes(from, given, sizes)) {
    c.wrong(node, "Expand: the sizes don't broadcast");
  }
  if (sizes == from) return c.set(node, 0, c.value(node, 0));
  c.add_one(node, OpKind::kExpand, {c.tensor(node, 0)}, c.dtype(node, 0), sizes, attributes);
}

void gather(Convert& c, const OnnxNode& node) {
  const ImportSizes from = c.sizes(node, 0);
  const ImportSizes index = c.sizes(node, 1);
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  ImportSizes sizes;
  if (node.op == "GatherElements") {
    sizes = index;
  } else if (node.op == "GatherND") {
    if (index.empty() || index.back() > static_cast<std::int64_t>(from.size()))
      c.wrong(node, "GatherND: indices longer than the shape");
    sizes.assign(index.begin(), index.end() - 1);
    sizes.insert(sizes.end(), from.begin() + static_cast<std::ptrdiff_t>(index.back()), from.end());
  } else {
    const auto axis = static_cast<std::ptrdiff_t>(c.axis(node, c.integer(node, "axis", 0), from.size()));
    attributes.axes = {axis};
    sizes.assign(from.begin(), from.begin() + axis);
    sizes.insert(sizes.end(), index.begin(), index.end());
    sizes.insert(sizes.end(), from.begin() + axis + 1, from.end());
  }
  c.add_one(node, OpKind::kGather, {c.tensor(node, 0), c.tensor(node, 1)}, c.dtype(node, 0), sizes,
            attributes);
}

void scatter(Convert& c, const OnnxNode& node) {
  std::vector<TensorId> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(c.tensor(node, i));
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  const ImportSizes sizes = c.sizes(node, 0);
  c.add_one(node, OpKind::kScatter, std::move(inputs), c.dtype(node, 0), sizes, attributes);
}

void fill(Convert& c, const OnnxNode& node) {
  const bool shaped = node.op == "ConstantOfShape";
  ImportSizes sizes;
  if (shaped) {
    sizes = c.known_integers(node, 0);
  } else {
    const auto limit = [&](std::size_t i) {
      const std::vector<std::int64_t> values = c.known_integers(node, i);
      if (values.size() != 1) c.wrong(node, "Range: a limit that isn't one number");
      return static_cast<double>(values[0]);
    };
    const double first = limit(0);
    const double last = limit(1);
    const double step = limit(2);
    const double count = step == 0 ? 0 : (last - first) / step;
    if (!(count >= 1 && count <= 4e12)) c.wrong(node, "Range without elements");
    sizes = {static_cast<std::int64_t>(count)};
  }
  OpAttributes attributes;
  attributes.word = onnx_word(node.op);
  c.add_one(node, OpKind::kFill, {}, shaped ? DType::kFp32 : c.dtype(node, 0), sizes, attributes);
}

void convolution(Convert& c, const OnnxNode& node) {
  const ImportSizes x = c.sizes(node, 0);
  const ImportSizes w = c.sizes(node, 1);
  if (x.size() < 3 || w.size() != x.size()) c.wrong(node, "Conv: expected x[n,c,…] and w[o,c/groups,…]");
  const std::size_t rank = x.size() - 2;
  const auto setting = [&](const char* name, std::size_t count, std::int64_t standard) {
    std::vector<std::int64_t> values = c.integers(node, name);
    if (values.empty()) values.assign(count, standard);
    const bool fits = values.size() == count && std::all_of(values.begin(), values.end(), [](std::int64_t v) {
                        return v >= 0 && v < 1'000'000;
                      });
    if (!fits) c.wrong(node, fmt::format("Conv: {} isn't a number from 0 for each dimension", name));
    return values;
  };
  const auto pads = setting("pads", 2 * rank, 0);
  const auto strides = setting("strides", rank, 1);
  const auto dilations = setting("dilations", rank, 1);
  ImportSizes sizes = {x[0], w[0]};
  const auto pad = node.attributes.find("auto_pad");
  const bool same = pad != node.attributes.end() && pad->second.text.starts_with("SAME");
  OpAttributes attributes;
  attributes.word = "convolution";
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = std::max<std::int64_t>(1, strides[i]);
    if (w[i + 2] > 1'000'000) c.wrong(node, "Conv: a filter of more than a million rows");
    const std::int64_t window = dilations[i] * (w[i + 2] - 1) + 1;
    const std::int64_t span = x[i + 2] + pads[i] + pads[rank + i] - window;
    sizes.push_back(same ? (x[i + 2] + stride - 1) / stride : span < 0 ? 0 : span / stride + 1);
    for (const std::int64_t one : {strides[i], dilations[i], pads[i]})
      attributes.constants.push_back(static_cast<double>(one));
  }
  std::vector<TensorId> inputs = {c.tensor(node, 0), c.tensor(node, 1)};
  attributes.bias = c.has_input(node, 2);
  if (attributes.bias) inputs.push_back(c.tensor(node, 2));
  c.add_one(node, OpKind::kConvolution, std::move(inputs), c.dtype(node, 0), sizes, attributes);
}

using Rule = void (*)(Convert&, const OnnxNode&);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> kRules = {
      {"Reshape", reshape},      {"Squeeze", reshape},     {"Unsqueeze", reshape},
      {"Flatten", reshape},      {"Transpose", transpose}, {"Concat", concat},
      {"Split", split},          {"Slice", slice},         {"Expand", expand},
      {"Tile", expand},          {"Gather", gather},       {"GatherElements", gather},
      {"GatherND", gather},      {"ScatterND", scatter},   {"ScatterElements", scatter},
      {"ConstantOfShape", fill}, {"Range", fill},          {"Conv", convolution}};
  return kRules;
}

}  // namespace

bool apply_onnx_move(OnnxConverter& convert, const OnnxNode& node) {
  const auto rule = rules().find(node.op);
  if (rule == rules().end()) return false;
  rule->second(convert, node);
  return true;
}

std::vector<std::string> onnx_move_names() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : rules()) names.emplace_back(name);
  return names;
}

}  // namespace orrery
