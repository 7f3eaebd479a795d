// Every published settings file in the data folder: imported with the values that stand in it, or refused
// with the reason. The values were read off the files by hand.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "scenarios/scenario.hpp"
#include "tests/scenarios/framework_texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

using Keys = std::map<std::string, std::string>;

struct Expected {
  Keys keys = {};            // "": not there. Empty: refused.
  std::string refusal = {};  // What the message has to name.
  std::int64_t gpus = 0;
  FrameworkVariables variables = {};
};

// As a DeepSeek-V3 run on 1024 H100s sets them (the runs' script has them before its commands).
const FrameworkVariables kDeepSeekRun = {{"TP", "2"},  {"PP", "8"},     {"EP", "64"},       {"CP", "1"},
                                         {"MBS", "1"}, {"GBS", "8192"}, {"SEQ_LEN", "4096"}};

const std::map<std::string, Expected>& expectations() {
  static const std::map<std::string, Expected> kTable = {
      // One node of 8 GPUs stands in the script, for TP 8 x PP 16.
      {"megatron-gpt3-175b.sh",
       {{{"plan.tp", "8"},
         {"plan.pp", "16"},
         {"plan.dp", ""},
         {"plan.zero", "0"},
         {"plan.microbatch", "1"},
         {"plan.precision", "fp16"},
         {"plan.gradient_type", "fp16"},
         {"plan.schedule", "1f1b"},
         {"global_batch", "1536"},
         {"sequence", "2048"},
         {"model.hidden", "12288"},
         {"model.layers", "96"},
         {"model.vocab", "50257"},
         {"model.tied_head", "true"},
         {"model.positions", "learned"}},
        ""}},
      {"megatron-mixtral-8x7b.sh",
       {{{"plan.tp", "1"},
         {"plan.pp", "4"},
         {"plan.ep", "8"},
         {"plan.dp", ""},
         {"plan.zero", "1"},
         {"plan.microbatch", "1"},
         {"plan.sequence_parallel", "false"},
         {"plan.precision", "bf16"},
         {"plan.overlap.gradient_reduce", "true"},
         {"plan.overlap.parameter_gather", "true"},
         {"global_batch", "256"},
         {"sequence", "4096"},
         {"model.kv_heads", "8"},
         {"model.ffn", "14336"},
         {"model.experts.count", "8"},
         {"model.experts.per_token", "2"},
         {"model.vocab", "32000"}},
        ""}},
      {"megatron-kwai-7b.sh", {{}, "./pretrain_llama.sh"}},
      {"megatron-sc21-config.sh", {{}, "leaves values open: GBS"}},
      {"megatron-moezoo-dsv3-h100-runs.sh", {{}, "sbatch_benchmarking.sh"}},
      {"megatron-moezoo-dsv3.yaml",
       {{{"plan.tp", "2"},
         {"plan.pp", "8"},
         {"plan.ep", "64"},
         {"plan.dp", "64"},
         {"plan.zero", "1"},
         {"plan.microbatch", "1"},
         {"plan.vocab_multiple", "3232"},
         {"global_batch", "8192"},
         {"sequence", "4096"},
         {"model.layers", "61"},
         {"model.experts.count", "256"},
         {"model.experts.dense_layers", "3"},
         {"model.latent.kv_dim", "512"},
         {"model.latent.q_dim", "1536"},
         {"model.vocab", "129280"},
         {"profile.nvls", "false"}},
        "",
        1024,
        kDeepSeekRun}},
      // E and 2 layers, five stages of two, one of one, one with layer and head: 8 stages, 14 layers.
      {"megatron-test-dsv3-proxy.yaml",
       {{{"plan.tp", "2"},
         {"plan.pp", "4"},
         {"plan.ep", "16"},
         {"plan.virtual_stages", "2"},
         {"plan.schedule", "interleaved"},
         {"plan.layout", "\"Et*2|(tt|)*5t|tmL\""},
         {"global_batch", "512"},
         {"model.layers", "14"},
         {"model.experts.dense_layers", "3"}},
        ""}},
      {"megatron-test-gpt3-mla.yaml",
       {{{"plan.tp", "2"},
         {"plan.pp", "2"},
         {"plan.zero", "0"},
         {"plan.sequence_parallel", "true"},
         {"plan.microbatch", "4"},
         {"global_batch", "32"},
         {"sequence", "1024"},
         {"model.latent.kv_dim", "64"},
         {"model.latent.plain_dim", "16"},
         {"model.latent.rope_dim", "8"}},
        ""}},
      // 8 nodes of 32, over 32 x 4.
      {"megatron-neuron-mixtral.yaml",
       {{{"plan.tp", "32"},
         {"plan.pp", "4"},
         {"plan.dp", "2"},
         {"plan.zero", "1"},
         {"plan.recompute", "full"},
         {"plan.microbatch", "1"},
         {"global_batch", "128"},
         {"sequence", "4096"},
         {"plan.expert_capacity_factor", "2"}},
        ""}},
      {"mlperf-gpt3-1452n.sh", {{}, "no command has Megatron-LM's arguments"}},
      // 128 nodes of 8, over 4 x 8.
      {"nemo-gpt3-175b.yaml",
       {{{"plan.tp", "4"},
         {"plan.pp", "8"},
         {"plan.dp", "32"},
         {"plan.zero", "1"},
         {"plan.virtual_stages", "6"},
         {"plan.schedule", "interleaved"},
         {"plan.bucket", "220MiB"},
         {"plan.overlap.parameter_gather", "true"},
         {"plan.microbatch", "1"},
         {"global_batch", "2048"},
         {"sequence", "2048"},
         {"model.ffn", "49152"},
         {"model.residual_dropout", "0.1"}},
        ""}},
      // 48 nodes of 8, over 8 x 2; its global batch is 1.
      {"nemo-mixtral-8x22b.yaml",
       {{{"plan.tp", "8"},
         {"plan.pp", "2"},
         {"plan.dp", "24"},
         {"plan.zero", "1"},
         {"global_batch", "1"},
         {"sequence", "4096"},
         {"model.hidden", "6144"},
         {"model.experts.count", "8"},
         {"model.kv_heads", "8"}},
        ""}},
      {"nemo-mlperf-tp4cp2.yaml", {{}, "Transformer Engine's overlap"}},
      {"mbridge-llama32-distill.yaml",
       {{{"plan.tp", "2"},
         {"plan.pp", "1"},
         {"plan.microbatch", "1"},
         {"plan.sequence_parallel", "true"},
         {"global_batch", "8"},
         {"sequence", "4096"},
         {"plan.zero", ""}},
        ""}},
      {"mbridge-qwen3next-finetune.yaml",
       {{{"plan.microbatch", "1"},
         {"global_batch", "64"},
         {"sequence", "2048"},
         {"plan.gradient_type", "fp32"}},
        ""}},
      {"primus-dsv3-mi300x.yaml",
       {{{"plan.tp", "1"},
         {"plan.pp", "1"},
         {"plan.ep", "8"},
         {"plan.microbatch", "4"},
         {"global_batch", "256"},
         {"sequence", "4096"},
         {"plan.overlap.gradient_reduce", "true"}},
        ""}},
      // 64 GPUs over TP 8: dp 8, each with 8 sequences.
      {"titan-llama3-70b.toml",
       {{{"plan.tp", "8"},
         {"plan.dp", "8"},
         {"plan.zero", "3"},
         {"plan.microbatch", "8"},
         {"global_batch", "64"},
         {"plan.recompute", "full"},
         {"plan.sequence_parallel", "true"},
         {"sequence", "8192"},
         {"model.layers", "80"}},
        "",
        64}},
      {"titan-llama3-8b.toml",
       {{{"plan.tp", "1"},
         {"plan.dp", "64"},
         {"plan.zero", "3"},
         {"plan.microbatch", "1"},
         {"global_batch", "64"},
         {"plan.zero_reshard", "true"},
         {"sequence", "8192"}},
        "",
        64}},
      {"titan-2024-llama2-70b.toml",
       {{{"plan.tp", "8"},
         {"plan.dp", "8"},
         {"plan.zero", "3"},
         {"plan.microbatch", "16"},
         {"global_batch", "128"},
         {"plan.recompute", "full"},
         {"sequence", "4096"},
         {"model.vocab", "32000"}},
        "",
        64}},
      {"titan-dsv3-671b.toml",
       {{{"plan.tp", "1"},
         {"plan.pp", "1"},
         {"plan.ep", ""},
         {"plan.zero", "3"},
         {"plan.microbatch", "4"},
         {"global_batch", "1024"},
         {"model.experts.count", "256"}},
        "",
        256}},
      {"ds-axolotl-z1.json",
       {{{"plan.zero", "1"}, {"plan.overlap.gradient_reduce", "true"}, {"plan.microbatch", ""}}, ""}},
      {"ds-lf-autotp.json", {{{"plan.zero", "2"}, {"plan.tp", "2"}, {"plan.bucket", "1GB"}}, ""}},
      {"ds-lf-z2-offload.json", {{{"plan.zero", "2"}, {"plan.tp", ""}, {"plan.bucket", "1GB"}}, ""}},
      {"ds-lf-z3.json", {{{"plan.zero", "3"}, {"plan.overlap.gradient_reduce", "false"}}, ""}},
      // 7,000,000 gradients of 2 bytes.
      {"ds-megatron-bs4-z2-offload.json",
       {{{"plan.zero", "2"},
         {"global_batch", "4"},
         {"plan.precision", "fp16"},
         {"plan.bucket", "14MB"},
         {"plan.clip_gradients", "true"}},
        ""}},
      // 24 nodes of 8, over 4 x 12; 70 layers with embedding and head are 72 in 12 stages.
      {"slurm-bloom-176b.slurm",
       {{{"plan.tp", "4"},
         {"plan.pp", "12"},
         {"plan.dp", "4"},
         {"plan.zero", "0"},
         {"plan.microbatch", "2"},
         {"plan.layers_per_stage", "[5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5]"},
         {"plan.recompute", "full"},
         {"plan.precision", "bf16"},
         {"global_batch", "2048"},
         {"sequence", "2048"},
         {"model.hidden", ""}},
        ""}},
      {"slurm-ds-finetune-llama.sbatch",
       {{{"plan.tp", "4"},
         {"plan.pp", "2"},
         {"plan.dp", "1"},
         {"plan.zero", "0"},
         {"plan.microbatch", "16"},
         {"global_batch", "256"},
         {"sequence", "512"},
         {"model.ffn", "11008"},
         {"model.norm", "rms"},
         {"model.vocab", "32000"}},
        ""}},
      {"slurm-aws-fsdp-llama31-70b.sbatch", {{}, "no command has Megatron-LM's arguments"}},
      {"accelerate-zero3.yaml", {{}, "accelerate"}},
      {"axolotl-dbrx-fft-z3.yaml", {{}, "Axolotl"}},
      {"axolotl-llama31-8b-hsdp-tp.yaml", {{}, "Axolotl"}},
      {"foundry-dbrx-full.yaml", {{}, "LLM Foundry"}},
      {"foundry-mpt-7b.yaml", {{}, "LLM Foundry"}},
      {"galvatron-llama2-7b.json", {{}, "Galvatron"}},
      {"levanter-gpt2-20b.yaml", {{}, "tags (!"}},
      {"lf-llama3-fp8-ds.yaml", {{}, "LLaMA-Factory"}},
      {"lf-qwen3-full-sft.yaml", {{}, "LLaMA-Factory"}},
      {"lingua-llama-7b.yaml", {{}, "Lingua"}},
      {"maxtext-dsv3-671b.yml", {{}, "MaxText"}},
      {"maxtext-gpu-llama3-70b.yml", {{}, "MaxText"}},
      {"nanotron-qwen-moe.yaml", {{}, "\"moe_config\" is given twice"}},
      {"neox-20b.yml", {{}, "GPT-NeoX"}},
      {"neox-llama2-70b.yml", {{}, "GPT-NeoX"}},
  };
  return kTable;
}

fs::path folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return fs::path(given) / "frameworks";
  return fs::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data" / "frameworks";
}

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void check_import(const fs::path& file, const Expected& expected) {
  FrameworkImportOptions options;
  options.gpus = expected.gpus;
  options.variables = expected.variables;
  const ImportedPlan plan = import_plan(read(file), file.filename().string(), options);
  for (const auto& [key, value] : expected.keys) {
    CAPTURE(key);
    CHECK(value_of(plan, key) == value);
  }
  // With a machine, and where the file says too little with a model, sequence and batch, it reads as a
  // scenario.
  options.cluster = "{node: dgx-h100, nodes: 128}";
  const ImportedPlan whole = import_plan(read(file), file.filename().string(), options);
  Overrides rest;
  if (whole.find("model.hidden") == nullptr) {
    rest.push_back("model={hidden: 1024, layers: 8, heads: 8, ffn: 4096, vocab: 32000}");
  } else if (whole.find("model.vocab") == nullptr) {
    rest.push_back("model.vocab=50000");
  }
  if (whole.find("sequence") == nullptr) rest.push_back("sequence=2048");
  if (whole.find("global_batch") == nullptr) rest.push_back("global_batch=64");
  const std::string text = scenario_text(whole, file.string());
  INFO(text);
  CHECK_NOTHROW(parse_scenario(text, "out.yaml", rest));
}

}  // namespace

TEST_CASE("published settings files are imported, or refused with the reason", "[frameworks]") {
  const fs::path data = folder();
  if (!fs::is_directory(data)) {
    std::cout << "skipped: no published settings (set ORRERY_DATA to the data folder)\n";
    return;
  }
  for (const auto& [name, expected] : expectations()) {
    CAPTURE(name);
    if (!fs::exists(data / name)) {
      FAIL_CHECK("the file isn't in the data folder");
    } else if (expected.keys.empty()) {
      CHECK_THAT(import_message(read(data / name), name), Contains(expected.refusal));
    } else {
      CHECK_NOTHROW(check_import(data / name, expected));
    }
  }
  // Files that came later: whatever they are, they end in a plan or in an input error with their name.
  for (const fs::directory_entry& entry : fs::directory_iterator(data)) {
    const std::string name = entry.path().filename().string();
    if (expectations().contains(name) || entry.path().extension() == ".csv") continue;
    const std::string message = import_message(read(entry.path()), name);
    CAPTURE(name, message);
    CHECK((message.empty() || message.find(name) != std::string::npos));
  }
}

TEST_CASE("a script's open values are given from outside", "[frameworks]") {
  const fs::path file = folder() / "megatron-sc21-config.sh";
  if (!fs::exists(file)) {
    std::cout << "skipped: no published settings (set ORRERY_DATA to the data folder)\n";
    return;
  }
  FrameworkImportOptions options;
  options.variables = {{"TP", "8"},   {"PP", "8"},     {"MBS", "1"}, {"GBS", "512"},
                       {"NLS", "96"}, {"HS", "12288"}, {"NAH", "96"}};
  const ImportedPlan plan = import_plan(read(file), "megatron-sc21-config.sh", options);
  CHECK(value_of(plan, "plan.tp") == "8");
  CHECK(value_of(plan, "plan.pp") == "8");
  CHECK(value_of(plan, "plan.clip_gradients") == "true");
  CHECK(value_of(plan, "global_batch") == "512");
  CHECK(value_of(plan, "model.layers") == "96");
}
