// Graphs of PyTorch: what the small files become, by hand, and what is refused.

#include "model/import_fx.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "model/import_ops.hpp"
#include "model/transformer.hpp"
#include "tests/model/import_files.hpp"

using namespace orrery;
using namespace orrery::import_test;
using Catch::Matchers::Contains;

namespace {

// The text of a module with these arguments and lines.
std::string module_text(const std::string& arguments, const std::string& lines) {
  return "class M(torch.nn.Module):\n  def forward(self, " + arguments + "):\n" + lines;
}

std::string refusal(const std::string& text, const ImportOptions& options = {}) {
  try {
    read_fx_text(text, "m.txt", options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("an exported GPT layer becomes ops of our own kinds", "[import][fx]") {
  const Graph graph = read_fx_json(test_data("fx-tiny-gpt.json"), "tiny.json");
  CHECK(verify(graph).empty());
  // Tokens 64·16, positions 8·16, head 64·16, a final norm of 2·16; the layer: two norms 4·16, qkv 16·48 +
  // 48, out 16·16 + 16, up 16·64 + 64, down 64·16 + 16.
  CHECK(parameter_count(graph) == 1024 + 128 + 1024 + 32 + 64 + 816 + 272 + 1088 + 1040);
  CHECK(graph.layers == 1);
  CHECK(count(graph, OpKind::kMatmul) == 5);
  CHECK(count(graph, OpKind::kNorm) == 3);
  CHECK(count(graph, OpKind::kAttention) == 1);
  CHECK(count(graph, OpKind::kEmbedding) == 1);
  CHECK(count(graph, OpKind::kUnary) == 1);
  CHECK(count(graph, OpKind::kCrossEntropy) == 1);
  CHECK(count(graph, OpKind::kTranspose) == 0);  // The heads are in our order already.
  const Op& qkv = named(graph, "linear");
  CHECK(qkv.block == 1);
  CHECK(named(graph, "linear_4").block == 2);
  const Sizes sizes = bind(graph, 1, 1);
  // Rows 2·8, 16 wide, 48 columns; a causal half of 2·2·(2·8·16)·8.
  CHECK(flops(graph, qkv, sizes) == 2.0 * 16 * 16 * 48);
  CHECK(flops(graph, named(graph, "scaled_dot_product_attention.attention"), sizes) ==
        2.0 * 2 * 256 * 8 * 0.5);
}

TEST_CASE("a joint graph has its gradients one to one", "[import][fx]") {
  const Graph graph = read_fx_json(test_data("fx-joint.json"), "joint.json");
  CHECK(verify(graph).empty());
  CHECK(parameter_count(graph) == 30);
  int gradients = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameterGradient) continue;
    ++gradients;
    CHECK(same_sizes(graph, tensor.shape, graph[tensor.gradient_of].shape));
  }
  CHECK(gradients == 2);
  const Op& back = named(graph, "threshold_backward");
  CHECK(back.kind == OpKind::kUnaryGrad);
  CHECK(back.phase == Phase::kBackward);
  CHECK(graph[back.forward_of].name == "relu");

  SECTION("a gradient that is missing is named") {
    std::string text = test_data("fx-joint.json");
    text.replace(text.rfind("\"primals_2\""), 11, "null");
    const std::vector<std::string> faults = verify(read_fx_json(text, "joint.json"));
    REQUIRE(faults.size() == 1);
    CHECK_THAT(faults[0], Contains("fc.bias") && Contains("0 gradients"));
  }
}

TEST_CASE("the text of a graph says the same as its JSON would", "[import][fx]") {
  const Graph graph = read_fx_text(test_data("fx-linear.txt"), "m.txt");
  CHECK(verify(graph).empty());
  CHECK(parameter_count(graph) == 24);
  CHECK(total_flops(graph) == 2 * 3 * 4 * 6 + 18 + 18);
}

TEST_CASE("a square layer between residuals stays a product", "[import][fx]") {
  // x + W·x: the sum wants both sides of W to be one dimension, the product wants them apart.
  const Graph graph = read_fx_text(module_text("x: \"f32[2, 8]\", p_w: \"f32[8, 8]\"",
                                               "    y: \"f32[2, 8]\" = torch._C._nn.linear(x, p_w)\n"
                                               "    z: \"f32[2, 8]\" = x + y\n    return (z,)\n"),
                                   "m.txt");
  CHECK(verify(graph).empty());
  CHECK(count(graph, OpKind::kMatmul) == 1);
  CHECK(count(graph, OpKind::kElementwise) == 1);
  CHECK(total_flops(graph) == 2 * 2 * 8 * 8 + 16);
}

TEST_CASE("views move no bytes, copies do", "[import][fx]") {
  const Graph graph =
      read_fx_text(module_text("x: \"f32[4, 6]\"",
                               "    a: \"f32[2, 12]\" = x.view(2, 12)\n    b: \"f32[2, 6]\" = "
                               "torch.ops.aten.slice.Tensor(a, 1, 0, 6)\n"
                               "    c: \"f32[2, 6]\" = torch.ops.aten.clone.default(b)\n"
                               "    d: \"f32[4, 6]\" = torch.cat([c, b], 0)\n    return (d,)\n"),
                   "m.txt");
  CHECK(verify(graph).empty());
  const Sizes sizes = bind(graph, 1, 1);
  for (const char* view : {"a", "b"}) CHECK(traffic(graph, named(graph, view), sizes).read_bytes == 0);
  CHECK(traffic(graph, named(graph, "c"), sizes).written_bytes == 2 * 6 * 4);
  CHECK(traffic(graph, named(graph, "d"), sizes).read_bytes == 2 * 2 * 6 * 4);
}

TEST_CASE("what a static graph can't be is refused with the node and a way out", "[import][fx]") {
  const std::string x = "x: \"f32[2, 4]\"";
  const auto line = [&](const std::string& call) {
    return refusal(module_text(x, "    y: \"f32[2, 4]\" = " + call + "\n    return (y,)\n"));
  };
  CHECK_THAT(line("torch.ops.test.baz(x)"),
             Contains("m.txt: node y") && Contains("torch.ops.test.baz") && Contains("decompose"));
  CHECK_THAT(line("torch.reluu(x)"), Contains("torch.reluu"));
  CHECK_THAT(line("torch.ops._c10d_functional.all_reduce.default(x, 'sum', '0')"),
             Contains("collective") && Contains("without parallel"));
  CHECK_THAT(line("torch.ops.higher_order.cond(x)"), Contains("control flow"));
  CHECK_THAT(line("torch.ops.aten.item.default(x)"), Contains("out of data"));
  CHECK_THAT(line("torch.relu(z)"), Contains("argument 0 isn't a tensor"));
  CHECK_THAT(refusal(module_text("x: \"f64[2]\"", "    return (x,)\n")),
             Contains("f64") && Contains("node x"));
  CHECK_THAT(refusal(module_text("x: \"f32[s0]\"", "    return (x,)\n")), Contains("--dim \"s0=SIZE\""));
  CHECK_THAT(refusal(module_text("x: \"f32[9999999999999]\"", "    return (x,)\n")),
             Contains("more than any machine"));
  CHECK_THAT(refusal("def backward(x)"), Contains("not the text of a torch.fx graph"));
  CHECK_THAT(refusal(module_text(x, "    y: \"f32[2, 4]\" = torch.relu(x)\n")), Contains("no return"));
  CHECK_THROWS_WITH(read_fx_json("{\"format\": \"orrery-fx\", \"version\": 2}", "g.json"),
                    Contains("version 2"));
  CHECK_THROWS_WITH(read_fx_json("{\"format\": ", "g.json"), Contains("g.json:1:"));
}

TEST_CASE("a symbolic size can be given", "[import][fx]") {
  ImportOptions options;
  options.dims["s0"] = 8;
  const Graph graph = read_fx_text(
      module_text("x: \"f32[s0, 4]\"", "    y: \"f32[s0, 4]\" = torch.relu(x)\n    return (y,)\n"), "m.txt",
      options);
  CHECK(verify(graph).empty());
  CHECK(total_flops(graph) == 32);
}

TEST_CASE("shapes that an operator can't have are faults that name it", "[import][fx]") {
  const auto faults = [](const std::string& arguments, const std::string& lines) {
    return verify(read_fx_text(module_text(arguments, lines), "m.txt"));
  };
  const auto one = [&](const std::string& result, const std::string& call) {
    return faults("x: \"f32[2, 4]\", w: \"f32[4, 3]\"",
                  "    y: \"" + result + "\" = " + call + "\n    return (y,)\n");
  };
  CHECK(one("f32[2, 3]", "torch.mm(x, w)").empty());
  CHECK_THAT(one("f32[2, 5]", "torch.mm(x, w)").at(0),
             Contains("op y") && Contains("[2, 4] [4, 3] → [2, 5]"));
  CHECK_THAT(one("f32[2, 5]", "x * w").at(0), Contains("op y"));
  // The sum of two tensors that don't meet again: x reaches one output, w the other.
  CHECK_THAT(
      faults("x: \"f32[2]\", w: \"f32[3]\"",
             "    a: \"f32[2]\" = torch.relu(x)\n    b: \"f32[3]\" = torch.relu(w)\n    return (a, b)\n")
          .at(0),
      Contains("no output is reached from every input") && Contains("isn't from w"));
  CHECK_THAT(
      faults("x: \"f32[2]\", w: \"f32[3]\"", "    a: \"f32[2]\" = torch.relu(x)\n    return (a,)\n").at(0),
      Contains("tensor w: the input doesn't reach any output"));
}

TEST_CASE("autodiff names the imported op that it has no rule for", "[import][fx]") {
  const Graph graph = read_fx_text(
      module_text("p_t: \"f32[9, 4]\", ids: \"i64[6]\", labels: \"i64[6]\"",
                  "    x: \"f32[6, 4]\" = torch.embedding(p_t, ids)\n    y: \"f32[6, 4]\" = torch.sin(x)\n"
                  "    l: \"f32[]\" = torch.nn.functional.cross_entropy(y, labels)\n    return (l,)\n"),
      "m.txt");
  REQUIRE(verify(graph).empty());
  CHECK_THROWS_WITH(add_backward(graph), Contains("op y") && Contains("elementwise"));
}

TEST_CASE("the gradients of attention, norms and losses are known", "[import][fx]") {
  const std::string text = R"(class joint(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[2, 4, 6, 8]",  # PlainAOTInput(idx=0)
        primals_2: "f32[2, 4, 6, 8]",  # PlainAOTInput(idx=1)
        primals_3: "f32[2, 4, 6, 8]",  # PlainAOTInput(idx=2)
        primals_4: "f32[8]",  # ParamAOTInput(target='norm.weight')
        primals_5: "f32[8]",  # ParamAOTInput(target='norm.bias')
        tangents_1: "f32[2, 4, 6, 8]",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(primals_1, primals_2, primals_3, 0.0, True)
        o: "f32[2, 4, 6, 8]" = attention[0]
        lse: "f32[2, 4, 6]" = attention[1];  attention = None
        norm = torch.ops.aten.native_layer_norm.default(o, [8], primals_4, primals_5, 1e-05)
        y: "f32[2, 4, 6, 8]" = norm[0]
        mean: "f32[2, 4, 6, 1]" = norm[1]
        rstd: "f32[2, 4, 6, 1]" = norm[2];  norm = None
        norm_back = torch.ops.aten.native_layer_norm_backward.default(tangents_1, o, [8], mean, rstd, primals_4, primals_5, [True, True, True])
        do: "f32[2, 4, 6, 8]" = norm_back[0]
        dw: "f32[8]" = norm_back[1]
        db: "f32[8]" = norm_back[2];  norm_back = None
        back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default(do, primals_1, primals_2, primals_3, o, lse, 0.0, True)
        dq: "f32[2, 4, 6, 8]" = back[0]
        dk: "f32[2, 4, 6, 8]" = back[1]
        dv: "f32[2, 4, 6, 8]" = back[2];  back = None
        return (
            y,  # PlainAOTOutput(idx=0)
            dq,  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
            dk,  # GradAOTOutput(grad_of=PlainAOTInput(idx=1))
            dv,  # GradAOTOutput(grad_of=PlainAOTInput(idx=2))
            dw,  # GradAOTOutput(grad_of=ParamAOTInput(target='norm.weight'))
            db,  # GradAOTOutput(grad_of=ParamAOTInput(target='norm.bias'))
        )
)";
  const Graph graph = read_fx_text(text, "joint.txt");
  CHECK(verify(graph) == std::vector<std::string>{});
  CHECK(count(graph, OpKind::kAttention) == 1);
  CHECK(count(graph, OpKind::kAttentionGrad) == 1);
  CHECK(count(graph, OpKind::kNorm) == 1);
  CHECK(count(graph, OpKind::kNormGrad) == 1);
  const Sizes sizes = bind(graph, 1, 1);
  // Two products of 2·4·6·8 elements with 6 keys, the causal half; the backward takes 2.5 times that.
  const double forward = 2.0 * 2 * 384 * 6 * 0.5;
  CHECK(flops(graph, named(graph, "attention.attention"), sizes) == forward);
  CHECK(flops(graph, named(graph, "back.attention"), sizes) == 2.5 * forward);
}
