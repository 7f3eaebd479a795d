// Reading config.json: what each family means, what is refused, and what broken files say.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "model/transformer.hpp"

using namespace orrery;
using Catch::Contains;

namespace {

TransformerConfig parse(std::string_view json) { return parse_hf_config(json, "x.json"); }

std::string error(std::string_view json) {
  try {
    parse(json);
  } catch (const Error& caught) {
    CHECK(caught.kind() == ErrorKind::kInput);
    return caught.what();
  }
  return "no error";
}

// A small Llama with `fields` added or, because the last one wins, sizes replaced.
std::string llama_with(const std::string& fields, const std::string& without = "") {
  std::string text = "{";
  for (const std::string field :
       {"\"model_type\": \"llama\"", "\"hidden_size\": 64", "\"num_hidden_layers\": 2",
        "\"num_attention_heads\": 4", "\"num_key_value_heads\": 2", "\"intermediate_size\": 96",
        "\"vocab_size\": 100", "\"max_position_embeddings\": 128", "\"rms_norm_eps\": 1e-5",
        "\"hidden_act\": \"silu\"", "\"tie_word_embeddings\": false"}) {
    const std::string name = field.substr(0, field.find(':'));
    if (name == "\"" + without + "\"" || fields.find(name + ":") != std::string::npos) continue;
    text += (text.size() > 1 ? ",\n " : "") + field;
  }
  return text + (fields.empty() ? "" : ",\n " + fields) + "}";
}

bool has_note(const TransformerConfig& config, const std::string& part) {
  for (const std::string& note : config.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a Llama config", "[hf_config]") {
  const TransformerConfig c = parse(llama_with("\"rope_theta\": 500000.0"));
  CHECK(c.name == "x");
  CHECK(c.hidden == 64);
  CHECK(c.layers == 2);
  CHECK(c.heads == 4);
  CHECK(c.kv_heads == 2);
  CHECK(c.head_dim == 16);
  CHECK(c.ffn == 96);
  CHECK(c.vocab == 100);
  CHECK(c.max_positions == 128);
  CHECK(c.norm == NormKind::kRms);
  CHECK(c.norm_epsilon == 1e-5);
  CHECK(c.positions == PositionKind::kRope);
  CHECK(c.rotary_fraction == 1);
  CHECK(c.rope_theta == 500000);
  CHECK(c.gated_mlp);
  CHECK_FALSE(c.tied_head);
  CHECK_FALSE(c.qkv_bias);
  CHECK(c.notes.empty());
  CHECK(verify(build_training_graph(c, DType::kBf16)).empty());
}

TEST_CASE("absent fields take the family's defaults and leave notes", "[hf_config]") {
  const TransformerConfig c = parse(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100})");
  CHECK(c.kv_heads == 4);
  CHECK(c.max_positions == 2048);
  CHECK(c.notes == std::vector<std::string>{
                       "tie_word_embeddings absent: taken as false",
                       "max_position_embeddings absent: taken as 2048", "rms_norm_eps absent: taken as 1e-06",
                       "hidden_act absent: taken as silu", "num_key_value_heads absent: taken as 4"});
  const TransformerConfig gpt2 = parse(R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 3,
      "vocab_size": 100, "n_inner": null})");
  CHECK(gpt2.tied_head);
  CHECK(gpt2.ffn == 192);
  CHECK(gpt2.residual_dropout == 0.1);
  CHECK(has_note(gpt2, "tie_word_embeddings absent: taken as true"));
  CHECK(has_note(gpt2, "resid_pdrop absent: taken as 0.1"));
}

TEST_CASE("what the families mean without saying so", "[hf_config]") {
  CHECK(parse(llama_with("\"model_type\": \"qwen2\"")).qkv_bias);
  CHECK_FALSE(parse(llama_with("\"model_type\": \"qwen2\"")).attention_out_bias);

  const TransformerConfig qwen3 = parse(llama_with("\"model_type\": \"qwen3\""));
  CHECK(qwen3.qk_norm);
  CHECK(qwen3.head_dim == 128);  // Not 64 / 4.
  CHECK(has_note(qwen3, "head_dim absent: taken as 128"));

  const TransformerConfig biased = parse(llama_with("\"attention_bias\": true, \"mlp_bias\": true"));
  CHECK((biased.qkv_bias && biased.attention_out_bias && biased.mlp_bias));

  // MistralConfig: 8 kv heads when absent, as many as heads when null.
  const std::string mistral =
      "\"model_type\": \"mistral\", \"sliding_window\": null, \"num_attention_heads\": 16";
  CHECK(parse(llama_with(mistral, "num_key_value_heads")).kv_heads == 8);
  CHECK(parse(llama_with(mistral + ", \"num_key_value_heads\": null")).kv_heads == 16);

  const TransformerConfig neox = parse(llama_with("\"model_type\": \"gpt_neox\", \"rotary_pct\": 0.25"));
  CHECK((neox.parallel_residual && !neox.shared_input_norm && neox.qkv_bias && !neox.gated_mlp));
  CHECK(neox.rotary_fraction == 0.25);
  CHECK(neox.norm == NormKind::kLayer);

  const TransformerConfig phi = parse(llama_with("\"model_type\": \"phi\", \"partial_rotary_factor\": 0.4"));
  CHECK((phi.shared_input_norm && phi.head_bias));
  CHECK(phi.rotary_fraction == 6.0 / 16);  // The library rounds 6.4 dimensions down.
}

TEST_CASE("the first Qwen counts gate and up together", "[hf_config]") {
  const TransformerConfig c = parse(llama_with("\"model_type\": \"qwen\", \"layer_norm_epsilon\": 1e-6"));
  CHECK(c.ffn == 48);
  CHECK((c.qkv_bias && !c.mlp_bias));
  CHECK_THAT(error(llama_with("\"model_type\": \"qwen\", \"intermediate_size\": 97")),
             Contains("intermediate_size: gate and up together; expected an even number"));
}

TEST_CASE("old and new Falcons", "[hf_config]") {
  const std::string sizes =
      R"({"model_type": "falcon", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, )";
  const TransformerConfig seven = parse(sizes + R"("multi_query": true, "parallel_attn": true})");
  CHECK(seven.kv_heads == 1);
  CHECK((seven.parallel_residual && seven.shared_input_norm));
  CHECK(seven.ffn == 256);
  const TransformerConfig forty =
      parse(sizes + R"("new_decoder_architecture": true, "num_kv_heads": 2, "multi_query": true})");
  CHECK(forty.kv_heads == 2);
  CHECK((forty.parallel_residual && !forty.shared_input_norm));
  const TransformerConfig plain = parse(sizes + R"("multi_query": false, "parallel_attn": false})");
  CHECK(plain.kv_heads == 4);
  CHECK_FALSE(plain.parallel_residual);
  CHECK_THAT(error(sizes + R"("alibi": true})"), Contains("alibi true (line 1): positions by ALiBi"));
}

// Published counts of families that the data set doesn't hold, from the sizes their models have.
TEST_CASE("published parameter counts of further families", "[hf_config]") {
  const auto parameters = [](std::string_view json) {
    const Graph graph = build_forward(parse(json), DType::kBf16);
    CHECK(verify(graph).empty());
    return parameter_count(graph);
  };
  CHECK(parameters(R"({"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 10240, "vocab_size": 51200,
      "partial_rotary_factor": 0.4})") == 2'779'683'840);                     // phi-2
  CHECK(parameters(R"({"model_type": "stablelm", "hidden_size": 2048, "num_hidden_layers": 24,
      "num_attention_heads": 32, "intermediate_size": 5632, "vocab_size": 100352,
      "use_qkv_bias": true})") == 1'644'515'328);                             // stablelm-2-1.6b
  CHECK(parameters(R"({"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "kv_channels": 128, "intermediate_size": 22016,
      "vocab_size": 151936})") == 7'721'324'544);                             // Qwen-7B
  CHECK(parameters(R"({"model_type": "deepseek_v2", "hidden_size": 5120, "num_hidden_layers": 60,
      "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 12288, "vocab_size": 102400,
      "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
      "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "topk_method": "group_limited_greedy",
      "n_group": 8, "topk_group": 3})") == 235'741'434'880);                  // DeepSeek-V2
  CHECK(parameters(R"({"model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94,
      "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
      "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
      "vocab_size": 151936})") == 235'093'634'560);                           // Qwen3-235B-A22B
  CHECK(parameters(R"({"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16,
      "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64,
      "num_experts_per_tok": 8, "vocab_size": 50304})") == 6'919'161'856);    // OLMoE-1B-7B
  CHECK(parameters(R"({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
      "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
      "num_experts_per_tok": 4, "vocab_size": 151936})") == 14'315'784'192);  // Qwen1.5-MoE-A2.7B
}

TEST_CASE("an OPT-350m projects its embedding but normalises too late", "[hf_config]") {
  const std::string opt =
      R"({"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "ffn_dim": 256, "vocab_size": 100, "word_embed_proj_dim": 32)";
  const TransformerConfig c = parse(opt + "}");
  CHECK(c.embedding_dim == 32);
  CHECK(c.position_offset == 2);
  CHECK(c.activation == Activation::kRelu);
  CHECK_THAT(error(opt + R"(, "do_layer_norm_before": false})"),
             Contains("do_layer_norm_before false (line 2): norms after attention and MLP"));
}

TEST_CASE("mechanisms that the graph can't express are named", "[hf_config]") {
  const auto refused = [](const std::string& field) { return error(llama_with(field)); };
  CHECK(
      refused("\"num_local_experts\": 8") ==
      "x.json: the graph can't express num_local_experts 8 (line 12): experts, which this model_type is read "
      "without");
  CHECK_THAT(refused("\"kv_lora_rank\": 512"), Contains("kv_lora_rank 512 (line 12): multi-head latent"));
  CHECK_THAT(refused("\"embedding_multiplier\": 12.0"), Contains("embedding_multiplier 12"));
  CHECK_THAT(refused("\"final_logit_softcapping\": 30.0"), Contains("final_logit_softcapping 30"));
  CHECK_THAT(refused("\"layer_types\": [\"full_attention\", \"linear_attention\"]"),
             Contains("layer_types an array (line 12): 1 of 2 layers aren't attention (layer 1 is "
                      "\"linear_attention\")"));
  CHECK_THAT(refused("\"attn_config\": {\"alibi\": true}"), Contains("attn_config.alibi true"));
  CHECK_THAT(refused("\"vision_config\": {}, \"text_config\": {\"num_local_experts\": 16}"),
             Contains("text_config.num_local_experts 16") && Contains("text_config an object") &&
                 Contains("vision_config"));
  CHECK_THAT(refused("\"position_embedding_type\": \"nope\""), Contains("position_embedding_type \"nope\""));
  CHECK_THAT(refused("\"model_type\": \"bloom\""), Contains("ALiBi"));
  CHECK_THAT(refused("\"hidden_act\": \"relu2\""), Contains("hidden_act") && Contains("\"relu2\""));
  CHECK_THAT(refused("\"model_type\": \"mixtral\", \"clip_qkv\": 8"), Contains("clip_qkv 8"));
  // All of them at once.
  CHECK_THAT(refused("\"num_experts\": 4, \"kv_lora_rank\": 8"),
             Contains("num_experts 4") && Contains("kv_lora_rank 8"));
}

TEST_CASE("mechanisms that are there but switched off", "[hf_config]") {
  const auto accepted = [](const std::string& field) { return parse(llama_with(field)); };
  CHECK(accepted("\"num_local_experts\": 0, \"kv_lora_rank\": null, \"embedding_multiplier\": 1.0")
            .notes.empty());
  CHECK(accepted("\"layer_types\": [\"full_attention\", \"attention\"]").layers == 2);
  CHECK(accepted("\"sliding_window\": null").notes.empty());
  CHECK(
      has_note(accepted("\"sliding_window\": 128"), "sliding_window 128: inactive, max_position_embeddings"));
  CHECK(has_note(accepted("\"sliding_window\": 64, \"use_sliding_window\": false"),
                 "sliding_window 64: inactive"));
  CHECK(has_note(accepted("\"model_type\": \"qwen2\", \"sliding_window\": 64"),
                 "use_sliding_window isn't true"));
  CHECK(has_note(accepted("\"model_type\": \"qwen2\", \"sliding_window\": 64, \"use_sliding_window\": true, "
                          "\"max_window_layers\": 2"),
                 "sliding_window 64: inactive, no layer has it"));
  CHECK(has_note(accepted("\"model_type\": \"qwen3\", \"sliding_window\": 64, \"use_sliding_window\": true, "
                          "\"layer_types\": [\"full_attention\", \"full_attention\"]"),
                 "sliding_window 64: inactive, no layer has it"));
  for (const char* type : {"llama", "mistral", "qwen2"}) {
    CHECK(accepted("\"model_type\": \"" + std::string(type) + "\", \"sliding_window\": null").local.window ==
          0);
  }
}

TEST_CASE("windows, by layer", "[hf_config]") {
  const auto local = [](const std::string& fields) { return parse(llama_with(fields)).local; };
  using List = std::vector<bool>;
  CHECK(local("\"sliding_window\": 64").window == 64);
  CHECK(local("\"sliding_window\": 64").layers.empty());
  const std::string long_mistral = "\"model_type\": \"mistral\", \"max_position_embeddings\": 8192";
  CHECK(local(long_mistral).window == 4096);
  CHECK(has_note(parse(llama_with(long_mistral)), "sliding_window absent: taken as 4096"));
  const auto qwen = local(
      "\"model_type\": \"qwen2\", \"sliding_window\": 64, \"use_sliding_window\": true, "
      "\"max_window_layers\": 1");
  CHECK(qwen.window == 64);
  CHECK(qwen.layers == List{false, true});
  const auto listed = local(
      "\"model_type\": \"qwen3\", \"sliding_window\": 64, \"use_sliding_window\": true, "
      "\"layer_types\": [\"sliding_attention\", \"full_attention\"]");
  CHECK(listed.layers == List{true, false});
  const auto gemma2 = local("\"model_type\": \"gemma2\", \"sliding_window\": 64, \"num_hidden_layers\": 5");
  CHECK(gemma2.layers == List{true, false, true, false, true});
  const auto gemma3 = local(
      "\"model_type\": \"gemma3_text\", \"sliding_window\": 64, "
      "\"num_hidden_layers\": 4, \"sliding_window_pattern\": 3");
  CHECK(gemma3.layers == List{true, true, false, true});
  CHECK(gemma3.rope_theta == 10000);
  const TransformerConfig cohere =
      parse(llama_with("\"model_type\": \"cohere2\", \"sliding_window\": 64, "
                       "\"num_hidden_layers\": 5"));
  CHECK(cohere.local.layers == List{true, true, true, false, true});
  CHECK(cohere.unrotated_layers == List{false, false, false, true, false});
  CHECK(parse(llama_with("\"no_rope_layers\": [1, 0]")).unrotated_layers == List{false, true});
  CHECK_THAT(error(llama_with("\"no_rope_layers\": [1]")),
             Contains("no_rope_layers: expected a list with an entry for each of 2 layers, found 1"));
  CHECK_THAT(error(llama_with("\"no_rope_layers\": [1, \"x\"]")), Contains("expected 0 or 1 for each layer"));
  CHECK_THAT(error(llama_with("\"sliding_window\": 64, \"layer_types\": [\"sliding_attention\"]")),
             Contains("layer_types: expected a list with an entry for each of 2 layers"));
  CHECK_THAT(error(llama_with("\"sliding_window\": -1")),
             Contains("sliding_window: expected a whole number"));
}

TEST_CASE("families with experts", "[hf_config]") {
  const auto parsed = [](const std::string& fields) { return parse(llama_with(fields)); };
  const TransformerConfig mixtral =
      parsed("\"model_type\": \"mixtral\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2");
  CHECK(mixtral.experts.count == 4);
  CHECK(mixtral.experts.per_token == 2);
  CHECK(mixtral.experts.ffn == 96);
  CHECK(mixtral.ffn == 0);
  CHECK(mixtral.experts.normalized);
  CHECK(has_note(parsed("\"model_type\": \"mixtral\", \"router_aux_loss_coef\": 0.02"),
                 "router_aux_loss_coef 0.02: the loss that balances experts"));

  const TransformerConfig qwen2 = parsed(
      "\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 4, "
      "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [3], "
      "\"shared_expert_intermediate_size\": 48");
  CHECK(qwen2.experts.layers == std::vector<bool>{false, true, false, false});
  CHECK((qwen2.qkv_bias && qwen2.experts.shared_gate && !qwen2.experts.normalized));
  CHECK(qwen2.experts.shared_ffn == 48);
  CHECK(qwen2.experts.count == 60);
  CHECK_THAT(error(llama_with("\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [2]")),
             Contains("mlp_only_layers: expected layers from 0 to 1, found 2"));
  CHECK(parsed("\"model_type\": \"olmoe\", \"num_experts\": 64").qk_norm_across_heads);

  const std::string third =
      "\"model_type\": \"deepseek_v3\", \"num_key_value_heads\": 4, \"q_lora_rank\": 24, \"kv_lora_rank\": "
      "16, "
      "\"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"n_routed_experts\": 8, "
      "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, \"n_shared_experts\": 2, \"n_group\": 4, "
      "\"topk_group\": 2, \"routed_scaling_factor\": 2.5, \"first_k_dense_replace\": 1, "
      "\"num_nextn_predict_layers\": 1";
  const TransformerConfig v3 = parsed(third);
  CHECK(v3.latent.q_dim == 24);
  CHECK(v3.latent.kv_dim == 16);
  CHECK(v3.head_dim == 16);
  CHECK(v3.latent.value_dim == 8);
  CHECK(v3.experts.score == RouterScore::kSigmoid);
  CHECK((v3.experts.normalized && v3.experts.balancing_bias));
  CHECK(v3.experts.scale == 2.5);
  CHECK(std::pair(v3.experts.groups, v3.experts.top_groups) == std::pair(4, 2));
  CHECK(v3.experts.shared_ffn == 64);
  CHECK(v3.experts.layers == std::vector<bool>{false, true});
  CHECK(has_note(v3, "num_nextn_predict_layers 1: the graph has the main model"));
  CHECK(verify(build_training_graph(v3, DType::kBf16)).empty());
  CHECK_THAT(error(llama_with(third + ", \"scoring_func\": \"tanh\"")),
             Contains("scoring_func: \"tanh\": expected softmax or sigmoid"));
  CHECK_THAT(error(llama_with(third + ", \"topk_method\": \"dice\"")), Contains("topk_method: \"dice\""));

  const TransformerConfig oss = parsed(
      "\"model_type\": \"gpt_oss\", \"num_local_experts\": 4, "
      "\"num_experts_per_tok\": 2, \"swiglu_limit\": 7.0");
  CHECK((oss.attention_sinks && oss.experts.router_bias && oss.experts.expert_bias));
  CHECK(oss.activation == Activation::kClampedSilu);
  CHECK(oss.activation_limit == 7);
}

TEST_CASE("the language model of a Llama 4", "[hf_config]") {
  std::string text = llama_with(
      "\"model_type\": \"llama4_text\", \"num_hidden_layers\": 4, "
      "\"num_local_experts\": 4, \"interleave_moe_layer_step\": 2, "
      "\"intermediate_size_mlp\": 192, \"attention_chunk_size\": 64");
  const TransformerConfig c = parse("{\"model_type\": \"llama4\", \"text_config\": " + text + "}");
  CHECK(has_note(c, "text_config: the language model alone"));
  CHECK(c.experts.layers == std::vector<bool>{false, true, false, true});
  CHECK(c.experts.ffn == 96);
  CHECK(c.ffn == 192);
  CHECK(c.local.chunk == 64);
  CHECK(c.local.layers == std::vector<bool>{true, true, true, false});
  CHECK(c.unrotated_layers == std::vector<bool>{false, false, false, true});
  CHECK((c.qk_norm_unweighted && c.experts.scale_inputs && !c.experts.normalized));
  CHECK_THAT(error("{\"text_config\": " + llama_with("", "vocab_size") + "}"),
             Contains("x.json: text_config.vocab_size is missing"));
  CHECK_THAT(error("{\"text_config\": " + llama_with("\"hidden_size\": 0") + "}"),
             Contains("text_config.hidden_size: expected a whole number"));
}

TEST_CASE("families that scale what flows", "[hf_config]") {
  const auto parsed = [](const std::string& fields) { return parse(llama_with(fields)); };
  const TransformerConfig granite = parsed(
      "\"model_type\": \"granite\", \"embedding_multiplier\": 12.0, \"residual_multiplier\": 0.22, "
      "\"attention_multiplier\": 0.25, \"logits_scaling\": 16.0");
  CHECK(granite.embedding_scale == 12);
  CHECK(granite.residual_scale == 0.22);
  CHECK(granite.score_scale == 0.25);
  CHECK(granite.logit_scale == 1.0 / 16);
  CHECK(parsed("\"model_type\": \"granite\"").score_scale == 1);  // GraniteConfig's default.
  const TransformerConfig gemma = parsed("\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": 64");
  CHECK(gemma.embedding_scale == 8);  // √64
  CHECK(gemma.score_scale == 1.0 / 8);
  CHECK(gemma.attention_softcap == 50);
  CHECK(gemma.logit_softcap == 30);
  CHECK((gemma.pre_norm && gemma.post_norm));
  CHECK(parsed("\"model_type\": \"gemma2\", \"final_logit_softcapping\": null").logit_softcap == 0);
  const TransformerConfig olmo = parsed("\"model_type\": \"olmo2\"");
  CHECK((!olmo.pre_norm && olmo.post_norm && olmo.qk_norm_across_heads));
  const TransformerConfig cohere = parsed("\"model_type\": \"cohere\"");
  CHECK((!cohere.norm_bias && cohere.shared_input_norm));
  CHECK(cohere.logit_scale == 0.0625);
  CHECK_THAT(error(llama_with("\"model_type\": \"granite\", \"logits_scaling\": 0")),
             Contains("logits_scaling: logits are divided by it"));
}

TEST_CASE("what is read but not built is noted", "[hf_config]") {
  const auto noted = [](const std::string& field) { return parse(llama_with(field)); };
  CHECK(
      has_note(noted("\"quantization_config\": {\"quant_method\": \"fp8\"}"), "quantization_config \"fp8\""));
  CHECK(has_note(noted("\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}"),
                 "rope_scaling.rope_type \"llama3\""));
  CHECK(noted("\"rope_scaling\": {\"rope_type\": \"default\"}").notes.empty());
  CHECK(has_note(noted("\"attention_dropout\": 0.1"), "attention_dropout 0.1"));
  CHECK(has_note(noted("\"mystery\": 3, \"unset\": null"), "not understood and left out: mystery"));
  CHECK_FALSE(has_note(noted("\"unset\": null"), "unset"));
  CHECK(noted("\"eos_token_id\": [1, 2], \"bos_token_id\": 1, \"torch_dtype\": \"bfloat16\"").notes.empty());
}

TEST_CASE("without model_type the architecture decides", "[hf_config]") {
  const TransformerConfig c = parse(llama_with("\"architectures\": [\"LlamaForCausalLM\"]", "model_type"));
  CHECK(has_note(c, "model_type absent: taken as llama after LlamaForCausalLM"));
  CHECK_THAT(error(llama_with("", "model_type")), Contains("x.json: model_type is missing; expected one of"));
  CHECK_THAT(error(llama_with("\"model_type\": \"lama\"")),
             Contains("model_type: \"lama\" isn't supported; expected one of baichuan,") &&
                 Contains("did you mean \"llama\"?"));
  CHECK_THAT(error(llama_with("\"model_type\": 3")), Contains("model_type: expected a word, found 3"));
}

TEST_CASE("sizes that can't be are named with their place", "[hf_config]") {
  CHECK(error(llama_with("", "intermediate_size")) ==
        "x.json: intermediate_size is missing; expected a whole number from 1");
  CHECK(error(llama_with("\"hiden_size\": 64", "hidden_size")) ==
        "x.json: hidden_size is missing (also known as n_embd, d_model); expected a whole number from 1; did "
        "you mean \"hiden_size\"?");
  CHECK(error(llama_with("\"hidden_size\": \"64\"")) ==
        "x.json:11:2: hidden_size: expected a whole number from 1 to 1073741824, found \"64\"");
  for (const std::string value : {"-64", "0", "64.5", "1e30", "99999999999", "123456789012345678901234567890",
                                  "true", "[64]", "{}", "NaN", "Infinity", "-Infinity"}) {
    INFO(value);
    CHECK_THAT(error(llama_with("\"hidden_size\": " + value)),
               Contains("x.json:11:2: hidden_size: expected a whole number"));
  }
  CHECK_THAT(error(llama_with("\"hidden_size\": NaN")), Contains("found a number that isn't finite"));
  CHECK_THAT(error(llama_with("\"rope_theta\": NaN")), Contains("rope_theta: expected a number"));
  CHECK_THAT(error(llama_with("\"tie_word_embeddings\": 1")), Contains("expected true or false, found 1"));
  CHECK_THAT(error(llama_with("\"num_attention_heads\": 5")),
             Contains("head_dim: is missing, and hidden size 64"));
  CHECK_THAT(error(llama_with("\"num_key_value_heads\": 3")),
             Contains("x.json: heads 4 don't divide by kv_heads 3"));
  CHECK_THAT(error(llama_with("\"n_embd\": 65")), Contains("n_embd: 65 contradicts hidden_size 64"));
  CHECK_THAT(error(llama_with("\"num_hidden_layers\": 1000000")), Contains("layers is 1000000"));
}

TEST_CASE("files that aren't JSON say where", "[hf_config]") {
  CHECK_THAT(error(""), Contains("x.json:1:1: not JSON: ") && Contains("unexpected end of input"));
  CHECK_THAT(error("{\n  \"a\": 1,\n  \"b\" 2\n}"), Contains("x.json:3:7: not JSON: "));
  CHECK_THAT(error("{\"a\": [1, 2"), Contains("x.json:1:12: not JSON: "));
  CHECK_THAT(error("[1]"), Contains("x.json:1:1: expected an object"));
  CHECK_THAT(error("null"), Contains("expected an object"));
  CHECK_THAT(error("{} {}"), Contains("not JSON"));
  CHECK_THAT(error("{\"a\": 1e999}"), Contains("not JSON"));
  CHECK_THAT(error("{\"a\": \"\xff\"}"), Contains("not JSON"));
  CHECK_THAT(error("{\n \"hidden_size\": 1,\n \"hidden_size\": 2}"),
             Contains("x.json:3:2: duplicate key 'hidden_size'"));
  CHECK_THAT(error("{\"a\": {\"b\": {\"c\": 1, \"c\": 2}}}"), Contains("x.json:1:22: duplicate key 'c'"));
  CHECK_THAT(error(std::string(100'000, '[')), Contains("expected an object"));
  CHECK_THAT(error("{\"a\": " + std::string(100'000, '[')), Contains("x.json:1:70: nested deeper than 64"));
  CHECK_THAT(error(std::string(2 << 20, ' ')), Contains("bytes; a config.json has at most 1048576"));
  CHECK_THAT(error("{\"" + std::string(300, 'k') + "\": 1}"), Contains("a key of more than 256 characters"));
}

TEST_CASE("escapes in keys and Windows line ends don't confuse the places", "[hf_config]") {
  CHECK_THAT(error("{\r\n  \"a\\\"b\": 1,\r\n  \"a\\\"b\": 2\r\n}"),
             Contains("x.json:3:3: duplicate key 'a\"b'"));
  std::string crlf;
  for (const char c : llama_with("")) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  CHECK(parse(crlf).hidden == 64);
  CHECK(parse("\xef\xbb\xbf" + llama_with("")).hidden == 64);  // A byte order mark.
}

TEST_CASE("reading from a file", "[hf_config]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "orrery-hf-config-test";
  std::filesystem::create_directories(folder / "tiny-llama");
  const std::filesystem::path file = folder / "tiny-llama" / "config.json";
  std::ofstream(file) << llama_with("");
  CHECK(read_hf_config(file).name == "tiny-llama");
  CHECK_THROWS_WITH(read_hf_config(folder / "none.json"), Contains("none.json: can't be opened"));
  CHECK_THROWS_WITH(read_hf_config(folder / "tiny-llama"), Contains("is a folder"));
  std::filesystem::remove_all(folder);
}
