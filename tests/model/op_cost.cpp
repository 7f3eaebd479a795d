// Costs against arithmetic by hand. Llama 3 8B: hidden 4096, 32 heads of 128, 8 kv heads, ffn 14336,
// vocabulary 128256; 2 sequences of 1024 tokens.

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/graph.hpp"
#include "tests/model/transformer_shapes.hpp"

using namespace orrery;

namespace {

const Op& find(const Graph& graph, std::string_view name) {
  const auto found =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.name == name; });
  REQUIRE(found != graph.ops.end());
  return *found;
}

struct Costs {
  Graph graph = build_training_graph(test::llama3_8b(), DType::kBf16);
  Sizes sizes = bind(graph, 2, 1024);
  double flops_of(std::string_view name) const { return flops(graph, find(graph, name), sizes); }
  Traffic traffic_of(std::string_view name) const { return traffic(graph, find(graph, name), sizes); }
};

bool is_matmul(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kMatmulGradInput || kind == OpKind::kMatmulGradWeight;
}

constexpr std::int64_t kTokens = 2 * 1024;

}  // namespace

TEST_CASE("contractions are read off the shapes", "[op_cost]") {
  const Costs c;
  const auto mnk = [&](std::string_view name, std::size_t pair) {
    const Contraction x = contraction(c.graph, find(c.graph, name), pair, c.sizes);
    return std::vector<std::int64_t>{x.m, x.n, x.k};
  };
  using V = std::vector<std::int64_t>;
  CHECK(mnk("layer1.qkv", 0) == V{kTokens, 4096, 4096});
  CHECK(mnk("layer1.qkv", 2) == V{kTokens, 1024, 4096});
  CHECK(mnk("layer1.attention_out", 0) == V{kTokens, 4096, 4096});
  CHECK(mnk("layer1.gate_up", 1) == V{kTokens, 14336, 4096});
  CHECK(mnk("layer1.down", 0) == V{kTokens, 4096, 14336});
  CHECK(mnk("layer1.gate_up.grad_input", 1) == V{kTokens, 4096, 14336});
  CHECK(mnk("layer1.down.grad_input", 0) == V{kTokens, 14336, 4096});
  CHECK(mnk("layer1.qkv.grad_weight", 1) == V{4096, 1024, kTokens});  // Batch and sequence contracted.
  CHECK(mnk("head", 0) == V{kTokens, 128256, 4096});
  CHECK(mnk("head.grad_weight", 0) == V{4096, 128256, kTokens});
}

TEST_CASE("the order of a weight's dimensions doesn't matter", "[op_cost]") {
  // A tied head contracts the table [vocab, hidden]; an untied weight is [hidden, vocab].
  TransformerConfig config = test::llama3_8b();
  config.tied_head = true;
  const Graph tied = build_forward(config, DType::kBf16);
  const Contraction c = contraction(tied, find(tied, "head"), 0, bind(tied, 2, 1024));
  CHECK(c.m == kTokens);
  CHECK(c.n == 128256);
  CHECK(c.k == 4096);
}

TEST_CASE("divided sizes divide the contraction", "[op_cost]") {
  const Costs c;
  Sizes local = c.sizes;
  for (std::size_t i = 0; i < local.size(); ++i) {
    const DimRole role = c.graph.dims[i].role;
    if (role == DimRole::kHeads || role == DimRole::kKvHeads || role == DimRole::kFfn) local[i] /= 4;
  }
  CHECK(contraction(c.graph, find(c.graph, "layer1.qkv"), 1, local).n == 256);
  CHECK(contraction(c.graph, find(c.graph, "layer1.down"), 0, local).k == 3584);
  CHECK(flops(c.graph, find(c.graph, "layer1.attention"), local) == c.flops_of("layer1.attention") / 4);
}

TEST_CASE("flops of a Llama layer", "[op_cost]") {
  const Costs c;
  // 2 · tokens · weights: 2 · 2048 · 4096 · (4096 + 2 · 1024) and so on.
  CHECK(c.flops_of("layer1.qkv") == 2.0 * kTokens * 4096 * 6144);
  CHECK(c.flops_of("layer1.attention_out") == 2.0 * kTokens * 4096 * 4096);
  CHECK(c.flops_of("layer1.gate_up") == 2.0 * kTokens * 4096 * 2 * 14336);
  CHECK(c.flops_of("layer1.down") == 2.0 * kTokens * 4096 * 14336);
  // Two products of 2 · 128 flops for 1024² / 2 pairs, 32 heads, 2 sequences.
  CHECK(c.flops_of("layer1.attention") == 2.0 * 2 * 128 * (1024.0 * 1024 / 2) * 32 * 2);
  CHECK(c.flops_of("layer1.attention.grad") == 2.5 * c.flops_of("layer1.attention"));
  CHECK(c.flops_of("layer1.mlp_add") == kTokens * 4096.0);
  CHECK(c.flops_of("embedding.tokens") == 0);
}

TEST_CASE("without the causal mask attention does twice the work", "[op_cost]") {
  const Costs c;
  Op op = find(c.graph, "layer1.attention");
  op.attributes.causal = false;
  CHECK(flops(c.graph, op, c.sizes) == 2 * c.flops_of("layer1.attention"));
}

TEST_CASE("matmul flops are 2 · weights · tokens forward and twice that backward", "[op_cost]") {
  for (const bool tied : {false, true}) {
    TransformerConfig config = test::llama3_8b();
    config.tied_head = tied;
    const Graph graph = build_training_graph(config, DType::kBf16);
    const Sizes sizes = bind(graph, 2, 1024);
    double forward = 0;
    double backward = 0;
    for (const Op& op : graph.ops) {
      if (!is_matmul(op.kind)) continue;
      (op.phase == Phase::kForward ? forward : backward) += flops(graph, op, sizes);
    }
    // All parameters but the norms (two a layer and the last) and, untied, the token table.
    const std::int64_t norms = (2 * 32 + 1) * 4096;
    const std::int64_t table = tied ? 0 : 128256LL * 4096;
    const double weights = static_cast<double>(parameter_count(graph) - norms - table);
    CHECK(forward == 2 * weights * kTokens);
    CHECK(backward == 2 * forward);
  }
}

TEST_CASE("traffic reads inputs and writes outputs once, each at its type's size", "[op_cost]") {
  const Costs c;
  const std::int64_t x = kTokens * 4096 * 2;  // bf16
  CHECK(c.traffic_of("layer1.mlp_add").read_bytes == 2 * x);
  CHECK(c.traffic_of("layer1.mlp_add").written_bytes == x);
  CHECK(c.traffic_of("layer1.down").read_bytes == kTokens * 14336 * 2 + 14336LL * 4096 * 2);
  CHECK(c.traffic_of("layer1.down").written_bytes == x);
  // Weight gradients are fp32.
  CHECK(c.traffic_of("layer1.down.grad_weight").written_bytes == 14336LL * 4096 * 4);
  // q, k, v; o and the fp32 log-sum-exp of each row and head.
  CHECK(c.traffic_of("layer1.attention").read_bytes == x + 2 * kTokens * 1024 * 2);
  CHECK(c.traffic_of("layer1.attention").written_bytes == x + kTokens * 32 * 4);
  // Logits in bf16, labels int64; loss and log-sum-exp fp32.
  CHECK(c.traffic_of("cross_entropy").read_bytes == kTokens * 128256 * 2 + kTokens * 8);
  CHECK(c.traffic_of("cross_entropy").written_bytes == 4 + kTokens * 4);
}

TEST_CASE("only the rows that tokens pick cross the memory interface", "[op_cost]") {
  const Costs c;
  CHECK(c.traffic_of("embedding.tokens").read_bytes == kTokens * 8 + kTokens * 4096 * 2);
  CHECK(c.traffic_of("embedding.tokens.grad").written_bytes == kTokens * 4096 * 4);
  // More tokens than rows: the whole table at most.
  const Sizes many = bind(c.graph, 512, 1024);
  CHECK(traffic(c.graph, find(c.graph, "embedding.tokens"), many).read_bytes ==
        512 * 1024 * 8 + 128256LL * 4096 * 2);

  const Graph gpt2 = build_training_graph(test::gpt2("gpt2", 768, 12, 12), DType::kBf16);
  const Sizes sizes = bind(gpt2, 4, 512);
  // x, and 512 of the 1024 position rows.
  CHECK(traffic(gpt2, find(gpt2, "embedding.positions"), sizes).read_bytes ==
        4 * 512 * 768 * 2 + 512 * 768 * 2);
  CHECK(traffic(gpt2, find(gpt2, "embedding.positions.grad"), sizes).written_bytes == 512 * 768 * 4);
}

TEST_CASE("AdamW reads 16 bytes a parameter and writes 14", "[op_cost]") {
  const Costs c;
  const std::int64_t elements = 4096LL * 14336;
  const Traffic t = c.traffic_of("layer1.mlp.down_weight.adamw");
  CHECK(t.read_bytes == elements * (4 + 4 + 4 + 4));     // dw, master, m, v
  CHECK(t.written_bytes == elements * (4 + 4 + 4 + 2));  // master, m, v, w
}

TEST_CASE("dropout writes a byte of mask an element", "[op_cost]") {
  TransformerConfig config = test::gpt2("gpt2", 768, 12, 12);
  config.residual_dropout = 0.1;
  const Graph graph = build_forward(config, DType::kBf16);
  const Sizes sizes = bind(graph, 1, 512);
  CHECK(traffic(graph, find(graph, "layer1.mlp_dropout"), sizes).written_bytes == 512 * 768 * (2 + 1));
}

TEST_CASE("every op has a finite cost", "[op_cost]") {
  TransformerConfig config = test::tiny_gpt2();
  config.residual_dropout = config.embedding_dropout = 0.1;
  for (const Graph& graph :
       {build_training_graph(config, DType::kFp16), build_training_graph(test::tiny_llama(), DType::kBf16),
        build_training_graph(test::tiny_experts(), DType::kBf16),
        build_training_graph(test::tiny_latent(), DType::kBf16)}) {
    const Sizes sizes = bind(graph, 2, 8);
    for (const Op& op : graph.ops) {
      INFO(op.name);
      CHECK(flops(graph, op, sizes) >= 0);
      const bool moves = op.kind == OpKind::kEmbedding || op.kind == OpKind::kDispatch ||
                         op.kind == OpKind::kHeadConcat || op.kind == OpKind::kHeadConcatGrad;
      CHECK((flops(graph, op, sizes) > 0 || moves));
      CHECK(traffic(graph, op, sizes).read_bytes > 0);
      CHECK(traffic(graph, op, sizes).written_bytes > 0);
    }
  }
}

// Mixtral: 8 experts, 2 for each token, so 2048 · 2 / 8 = 512 rows for each.
TEST_CASE("experts cost what their rows cost", "[op_cost]") {
  TransformerConfig config = test::llama3_8b();
  config.experts.count = 8;
  config.experts.per_token = 2;
  config.experts.ffn = config.ffn;
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Sizes sizes = bind(graph, 2, 1024);
  const auto mnk = [&](std::string_view name) {
    const Contraction x = contraction(graph, find(graph, name), 0, sizes);
    return std::vector<std::int64_t>{x.batch, x.m, x.n, x.k};
  };
  using V = std::vector<std::int64_t>;
  CHECK(mnk("layer1.experts_gate_up") == V{8, 512, 14336, 4096});
  CHECK(mnk("layer1.experts_down") == V{8, 512, 4096, 14336});
  CHECK(mnk("layer1.experts_down.grad_input") == V{8, 512, 14336, 4096});
  CHECK(mnk("layer1.experts_down.grad_weight") == V{8, 14336, 4096, 512});
  CHECK(mnk("layer1.router") == V{1, kTokens, 8, 4096});
  const auto flops_of = [&](std::string_view name) { return flops(graph, find(graph, name), sizes); };
  CHECK(flops_of("layer1.experts_gate_up") == 2.0 * (2 * kTokens) * 4096 * 2 * 14336);
  CHECK(flops_of("layer1.experts_gate_up.grad_weight") == 2.0 * (2 * kTokens) * 4096 * 2 * 14336);
  CHECK(flops_of("layer1.route") == 5.0 * kTokens * 8);
  CHECK(flops_of("layer1.dispatch") == 0);
  CHECK(flops_of("layer1.combine") == 2.0 * 2 * kTokens * 4096);

  const auto traffic_of = [&](std::string_view name) { return traffic(graph, find(graph, name), sizes); };
  const std::int64_t x = kTokens * 4096 * 2, picks = kTokens * 2 * 4;
  CHECK(traffic_of("layer1.dispatch").read_bytes == x + picks);
  CHECK(traffic_of("layer1.dispatch").written_bytes == 2 * x + picks);
  CHECK(traffic_of("layer1.combine").read_bytes == 2 * x + picks + kTokens * 2 * 2);
  CHECK(traffic_of("layer1.combine").written_bytes == x);
  CHECK(traffic_of("layer1.combine.grad").written_bytes == 2 * x + kTokens * 2 * 2);
  CHECK(traffic_of("layer1.experts_down").read_bytes == 2 * kTokens * 14336 * 2 + 8 * 14336LL * 4096 * 2);

  // An expert with a quarter more than its share; and never more rows than there are tokens.
  CHECK(contraction(graph, find(graph, "layer1.experts_down"), 0, bind(graph, 2, 1024, 1.25)).m == 640);
  CHECK(contraction(graph, find(graph, "layer1.experts_down"), 0, bind(graph, 2, 1024, 100)).m == kTokens);
}

TEST_CASE("attention counts the pairs within its window or chunk", "[op_cost]") {
  OpAttributes attributes;
  CHECK(attention_pairs(attributes, 1024) == 1024.0 * 1024 / 2);
  attributes.window = 256;
  CHECK(attention_pairs(attributes, 1024) == 1024.0 * 256 - 256.0 * 256 / 2);
  attributes.window = 1024;
  CHECK(attention_pairs(attributes, 1024) == 1024.0 * 1024 / 2);
  attributes.window = 0;
  attributes.chunk = 400;  // Two whole ones and 224 tokens.
  CHECK(attention_pairs(attributes, 1024) == 2 * (400.0 * 400 / 2) + 224.0 * 224 / 2);

  TransformerConfig config = test::llama3_8b();
  config.local.window = 256;
  config.local.layers = std::vector<bool>(32, true);
  config.local.layers[1] = false;
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Sizes sizes = bind(graph, 2, 1024);
  const double pair = 2.0 * 2 * 128 * 32 * 2;
  CHECK(flops(graph, find(graph, "layer1.attention"), sizes) == pair * 229'376);
  CHECK(flops(graph, find(graph, "layer2.attention"), sizes) == pair * 524'288);
  CHECK(flops(graph, find(graph, "layer1.attention.grad"), sizes) == 2.5 * pair * 229'376);
}

// DeepSeek-V2-Lite: 16 heads with keys of 128 + 64 and values of 128.
TEST_CASE("attention with values narrower than keys", "[op_cost]") {
  TransformerConfig config = test::llama("latent", 2048, 2, 16, 16, 10944, 102400);
  config.head_dim = 192;
  config.latent = {.kv_dim = 512, .q_dim = 0, .plain_dim = 128, .rope_dim = 64, .value_dim = 128};
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Sizes sizes = bind(graph, 2, 1024);
  const double pairs = 1024.0 * 1024 / 2 * 16 * 2;
  CHECK(flops(graph, find(graph, "layer1.attention"), sizes) == 2 * pairs * (192 + 128));
  CHECK(flops(graph, find(graph, "layer1.attention.grad"), sizes) == 2 * pairs * (3 * 192 + 2 * 128));
  // The one key's gradient is the sum over 16 heads: 15 of 16 of what comes in for its 64 dimensions.
  CHECK(flops(graph, find(graph, "layer1.k_concat.grad"), sizes) == kTokens * 64.0 * 15);
  CHECK(flops(graph, find(graph, "layer1.q_concat.grad"), sizes) == 0);
  const Traffic t = traffic(graph, find(graph, "layer1.k_concat"), sizes);
  CHECK(t.read_bytes == kTokens * (16 * 128 + 64) * 2);
  CHECK(t.written_bytes == kTokens * 16 * 192 * 2);
}
