// ONNX files: what the small ones become, by hand, and what is refused.

#include "model/import_onnx.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/model/import_files.hpp"

using namespace orrery;
using namespace orrery::import_test;
using Catch::Matchers::Contains;

namespace {

ImportOptions sizes_of(std::map<std::string, std::int64_t> dims) {
  ImportOptions options;
  options.dims = std::move(dims);
  return options;
}

std::string corpus(const std::string& name) {
  return read_file(std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/fuzz/corpus/onnx_fuzz" / name);
}

}  // namespace

TEST_CASE("an ONNX layer becomes ops of our own kinds", "[import][onnx]") {
  const Graph graph = read_onnx(test_data("tiny.onnx"), "tiny.onnx", sizes_of({{"batch", 2}, {"seq", 3}}));
  CHECK(verify(graph).empty());
  // Table 12·8, norm 16, up 8·32 (stored elsewhere), down 32·8, head 12·8 + 12.
  CHECK(parameter_count(graph) == 96 + 16 + 256 + 256 + 96 + 12);
  CHECK(graph.layers == 1);
  CHECK(count(graph, OpKind::kEmbedding) == 1);
  CHECK(count(graph, OpKind::kNorm) == 1);
  CHECK(count(graph, OpKind::kMatmul) == 3);
  CHECK(count(graph, OpKind::kReshape) == 1);  // To sizes that six nodes work out of the shape: [2·3, 8].
  const Sizes sizes = bind(graph, 1, 1);
  CHECK(flops(graph, named(graph, "/layers.0/up/MatMul"), sizes) == 2.0 * 6 * 8 * 32);
  CHECK(named(graph, "/layers.0/up/MatMul").block == 1);
  CHECK(named(graph, "/head/Gemm").block == 2);
  bool batch = false;
  for (const Dim& dim : graph.dims)
    batch = batch || (dim.name == "batch" && dim.role == DimRole::kBatch && dim.size == 2);
  CHECK(batch);
}

TEST_CASE("attention with a past and a mask, as ONNX Runtime writes it", "[import][onnx]") {
  const Graph graph = read_onnx(test_data("attention.onnx"), "a.onnx",
                                sizes_of({{"batch", 2}, {"seq", 3}, {"past", 4}, {"total", 7}}));
  CHECK(verify(graph).empty());
  CHECK(count(graph, OpKind::kMaskedAttention) == 2);
  const Sizes sizes = bind(graph, 1, 1);
  // 2 heads of 4: q and o have 2·3·8 elements each, 7 keys, the causal half.
  CHECK(flops(graph, named(graph, "att.attention"), sizes) == 2.0 * (48 + 48) * 7 * 0.5);
  CHECK(flops(graph, named(graph, "att.qkv"), sizes) == 2.0 * 6 * 8 * 24);
  CHECK(graph.outputs.size() == 2);
  CHECK_THROWS_WITH(
      read_onnx(test_data("attention.onnx"), "a.onnx", sizes_of({{"batch", 2}, {"seq", 3}})),
      Contains("--dim \"total=SIZE\"") && Contains("--dim \"past=SIZE\"") && !Contains("batch"));
}

TEST_CASE("operators that move data keep their shapes", "[import][onnx]") {
  const Graph graph = read_onnx(corpus("mixed.onnx"), "mixed.onnx");
  CHECK(verify(graph).empty());
  CHECK(count(graph, OpKind::kSoftmax) == 1);
  CHECK(count(graph, OpKind::kConcat) == 1);
  CHECK(total_flops(graph) == 5 * 30 + 30 + 6);  // Softmax of 2·3·5, a mean over as many, and Where of 3·2.
}

TEST_CASE("what isn't a static graph of known operators is refused by the node", "[import][onnx]") {
  const auto refused = [](const std::string& bytes) -> std::string {
    try {
      read_onnx(bytes, "m.onnx");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.what();
    }
    return "not refused";
  };
  CHECK_THAT(refused(corpus("control.onnx")), Contains("node choice") && Contains("control flow"));
  CHECK_THAT(refused(corpus("unknown.onnx")), Contains("node odd") && Contains("Einsumm"));
  CHECK_THAT(refused(corpus("norank.onnx")), Contains("x: the input has no rank"));
  CHECK_THAT(refused(corpus("data.onnx")), Contains("node to_data") && Contains("depends on data"));
  CHECK_THAT(refused("no model"), Contains("not an ONNX model"));
  CHECK_THAT(refused(test_data("tiny.onnx").substr(0, 500)), Contains("not an ONNX model"));
}
