// Every published config.json in the data folder: built with the published number of parameters, or
// refused for the field that the graph can't express.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "base/error.hpp"
#include "model/transformer.hpp"

using namespace orrery;

namespace {

struct Expected {
  std::int64_t parameters = 0;  // 0: refused.
  std::string field;            // What the refusal has to name.
};

const std::map<std::string, Expected>& expectations() {
  static const std::map<std::string, Expected> table = {
      {"baichuan2-7b", {7'505'973'248, ""}},
      {"bloom-3b", {0, "model_type \"bloom\""}},
      {"command-r-35b-sparse", {0, "model_type \"cohere\""}},
      {"dbrx-16x13b-neuron", {0, "ffn_config.moe_num_experts 16"}},
      {"deepseek-moe-16b", {0, "n_routed_experts 64"}},
      {"deepseek-v2-lite-chat", {0, "kv_lora_rank 512"}},
      {"deepseek-v3", {0, "kv_lora_rank 512"}},
      {"deepseek-v3.1-nvfp4", {0, "n_routed_experts 256"}},
      {"falcon-40b", {41'303'293'952, ""}},
      {"gemma-2-2b", {0, "attn_logit_softcapping 50"}},
      {"gemma-3-1b", {0, "sliding_window 512"}},
      {"gemma-7b", {0, "model_type \"gemma\""}},
      {"glm-4-9b", {9'399'951'360, ""}},
      {"glm-4.5", {0, "n_routed_experts 160"}},
      {"gpt-j-6b", {6'050'882'784, ""}},
      {"gpt-oss-20b", {0, "num_local_experts 32"}},
      // Retrained shapes: 36 (24) layers of 12h² + 13h, 32000 + 1024 rows of h, and a norm of 2h.
      {"gpt2-large-vocab32k", {750'661'120, ""}},
      {"gpt2-medium-vocab32k", {336'128'000, ""}},
      {"gpt2-small", {124'439'808, ""}},
      {"gpt2-xl", {1'557'611'200, ""}},
      {"granite-3.3-8b", {0, "embedding_multiplier 12"}},
      {"granite-4-8b-dense-hybrid", {0, "embedding_multiplier 12"}},
      {"internlm2-7b", {7'737'708'544, ""}},
      {"jamba-trim", {0, "attn_layer_period 4"}},
      {"kimi-k2-instruct", {0, "n_routed_experts 384"}},
      {"llama-2-70b-neuron", {68'976'648'192, ""}},
      {"llama-3-8b", {8'030'261'248, ""}},
      {"llama-3.1-405b-fbgemm-fp8", {405'853'388'800, ""}},
      {"llama-3.1-8b", {8'030'261'248, ""}},
      {"llama-3.2-1b", {1'235'814'400, ""}},
      {"llama-4-scout", {0, "text_config.num_local_experts 16"}},
      {"llama1-7b", {6'738'415'616, ""}},
      {"mimo-7b-base", {0, "num_nextn_predict_layers 1"}},
      {"minicpm3-4b", {0, "kv_lora_rank 256"}},
      {"minimax-m2.5", {0, "num_local_experts 256"}},
      {"mistral-7b-v0.1", {0, "sliding_window 4096"}},
      {"mixtral-8x7b", {0, "num_local_experts 8"}},
      {"mpt-7b", {0, "attn_config.alibi true"}},
      {"nemotron-h-56b", {0, "hybrid_override_pattern"}},
      {"olmo-3.1-32b", {0, "layer_types"}},
      {"openmoe-8b", {0, "num_experts 32"}},
      {"opt-1.3b", {1'315'758'080, ""}},
      {"phi-3-mini-128k", {3'821'079'552, ""}},
      {"phi-3.5-moe", {0, "num_local_experts 16"}},
      {"phi-4", {14'659'507'200, ""}},
      {"pythia-1b", {1'011'781'632, ""}},
      {"qwen1.5-4b-xft", {3'950'369'280, ""}},
      {"qwen2-7b", {7'615'616'512, ""}},
      {"qwen2.5-0.5b", {494'032'768, ""}},
      {"qwen2.5-72b", {72'706'203'648, ""}},
      {"qwen3-0.6b", {596'049'920, ""}},
      {"qwen3-30b-a3b", {0, "num_experts 128"}},
      {"qwen3-32b", {32'762'123'264, ""}},
      {"qwen3-next-80b-a3b", {0, "full_attention_interval 4"}},
      {"smollm-1.7b", {1'711'376'384, ""}},
  };
  return table;
}

std::filesystem::path data_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return given;
  return std::filesystem::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data";
}

void check_file(const std::filesystem::path& file, const Expected& expected) {
  INFO(file.filename().string());
  try {
    const TransformerConfig config = read_hf_config(file);
    const Graph graph = build_training_graph(config, DType::kBf16);
    CHECK(verify(graph).empty());
    CHECK(parameter_count(graph) == expected.parameters);
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.kind() == ErrorKind::kInput);
    REQUIRE(expected.parameters == 0);
    CHECK_THAT(error.what(), Catch::Contains(expected.field) && Catch::Contains(file.filename().string()));
  }
}

}  // namespace

TEST_CASE("every published config is built or refused for the right field", "[hf_config][data]") {
  const std::filesystem::path models = data_folder() / "models";
  if (!std::filesystem::exists(models)) {
    std::cout << "skipped: no published configs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  for (const auto& [name, expected] : expectations()) check_file(models / (name + ".json"), expected);
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path().string());
    CHECK(expectations().contains(entry.path().stem().string()));
  }
}
