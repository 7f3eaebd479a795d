#include "model/graph_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery {
namespace {

// Bytes to be hashed, the same on every machine.
class Bytes {
 public:
  Bytes& add(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift & 0xff));
    return *this;
  }
  Bytes& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
  Bytes& add(std::int32_t value) { return add(static_cast<std::int64_t>(value)); }
  Bytes& add(bool value) { return add(std::uint64_t{value}); }
  Bytes& add(double value) {
    return add(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
  }  // −0 is 0.
  Bytes& add(std::string_view text) {
    add(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  Bytes& add(std::vector<std::uint64_t> values, bool ordered) {
    if (!ordered) std::sort(values.begin(), values.end());
    add(std::uint64_t{values.size()});
    for (const std::uint64_t value : values) add(value);
    return *this;
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  Bytes& add(Enum value) {
    return add(static_cast<std::uint64_t>(value));
  }

  std::uint64_t hash() const { return XXH3_64bits(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

void add(Bytes& bytes, const OpAttributes& attributes) {
  // Every field by name: one more doesn't compile until it is added here, too.
  const auto& [norm, epsilon, activation, limit, bias, weight, causal, window, chunk, softcap, score_scale,
               rotary_fraction, rope_theta, rate, scale, score, normalized, groups, top_groups, word, axes,
               constants, view] = attributes;
  bytes.add(norm)
      .add(epsilon)
      .add(activation)
      .add(limit)
      .add(bias)
      .add(weight)
      .add(causal)
      .add(window)
      .add(chunk);
  bytes.add(softcap).add(score_scale).add(rotary_fraction).add(rope_theta).add(rate).add(scale).add(score);
  bytes.add(normalized).add(groups).add(top_groups).add(word).add(view);
  bytes.add(std::uint64_t{axes.size()});
  for (const std::int64_t axis : axes) bytes.add(axis);
  bytes.add(std::uint64_t{constants.size()});
  for (const double constant : constants) bytes.add(constant);
}

class Hasher {
 public:
  explicit Hasher(const Graph& graph)
      : graph_(graph),
        above_(graph.tensors.size(), 0),
        op_above_(graph.ops.size(), 0),
        below_(graph.tensors.size(), 0) {}
  std::uint64_t run();

 private:
  std::uint64_t own(const Tensor& tensor) const;
  std::uint64_t own(const Op& op) const;
  void hash_what_leads_to_ops();
  void hash_what_ops_lead_to();

  const Graph& graph_;
  std::vector<std::uint64_t> above_;     // By tensor: all that it was made of.
  std::vector<std::uint64_t> op_above_;  // By op.
  std::vector<std::uint64_t> below_;     // By tensor: all that is made of it.
};

std::uint64_t Hasher::own(const Tensor& tensor) const {
  Bytes bytes;
  bytes.add(tensor.kind).add(tensor.dtype).add(std::uint64_t{tensor.shape.size()});
  for (const DimId dim : tensor.shape) bytes.add(graph_[dim].size).add(graph_[dim].role);
  return bytes.hash();
}

// With which of its dimensions are the same one.
std::uint64_t Hasher::own(const Op& op) const {
  Bytes bytes;
  bytes.add(op.kind).add(op.phase);
  add(bytes, op.attributes);
  std::unordered_map<DimId, std::uint64_t> number;
  for (const auto* list : {&op.inputs, &op.outputs}) {
    bytes.add(std::uint64_t{list->size()});
    for (const TensorId tensor : *list) {
      for (const DimId dim : graph_[tensor].shape)
        bytes.add(number.try_emplace(dim, number.size()).first->second);
    }
  }
  return bytes.hash();
}

void Hasher::hash_what_leads_to_ops() {
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) above_[i] = own(graph_.tensors[i]);
  std::vector<std::vector<std::uint64_t>> sums(
      graph_.tensors.size());  // Parameter gradients have several writers.
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    Bytes bytes;
    bytes.add(own(op));
    for (const TensorId input : op.inputs) bytes.add(above_[input.index()]);
    if (op.forward_of.valid()) bytes.add(op_above_[op.forward_of.index()]);
    op_above_[i] = bytes.hash();
    for (std::size_t o = 0; o < op.outputs.size(); ++o) {
      const std::size_t output = op.outputs[o].index();
      sums[output].push_back(Bytes().add(op_above_[i]).add(std::uint64_t{o}).hash());
      above_[output] = Bytes().add(own(graph_.tensors[output])).add(sums[output], false).hash();
    }
  }
}

// Tells a tensor that two ops read from two tensors of one shape.
void Hasher::hash_what_ops_lead_to() {
  std::vector<std::vector<std::uint64_t>> readers(graph_.tensors.size());
  for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
    readers[graph_.outputs[o].index()].push_back(
        Bytes().add(std::string_view("output")).add(std::uint64_t{o}).hash());
  }
  for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (!graph_.tensors[i].gradient_of.valid()) continue;
    readers[i].push_back(
        Bytes().add(std::string_view("gradient")).add(above_[graph_.tensors[i].gradient_of.index()]).hash());
  }
  const auto below = [&](std::size_t tensor) {
    return Bytes().add(above_[tensor]).add(readers[tensor], false).hash();
  };
  for (std::size_t i = graph_.ops.size(); i-- > 0;) {
    const Op& op = graph_.ops[i];
    Bytes bytes;
    bytes.add(op_above_[i]);
    for (const TensorId output : op.outputs) bytes.add(below(output.index()));
    const std::uint64_t made = bytes.hash();
    for (std::size_t n = 0; n < op.inputs.size(); ++n) {
      readers[op.inputs[n].index()].push_back(Bytes().add(made).add(std::uint64_t{n}).hash());
    }
  }
  for (std::size_t i = 0; i < below_.size(); ++i) below_[i] = below(i);
}

std::uint64_t Hasher::run() {
  hash_what_leads_to_ops();
  hash_what_ops_lead_to();
  return Bytes().add(op_above_, false).add(below_, false).hash();
}

}  // namespace

std::uint64_t graph_hash(const Graph& graph) { return Hasher(graph).run(); }

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace orrery
