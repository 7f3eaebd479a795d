// Published training rows: what is worked out from them, what is refused, and the report.

#include "calibration/training.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "calibration/training_case.hpp"
#include "calibration/training_row.hpp"
#include "tests/calibration/training_rows.hpp"

using namespace orrery;
using namespace orrery::training_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

class TableFile {
 public:
  explicit TableFile(const std::string& text)
      : path_(fs::temp_directory_path() / ("orrery-training-" + std::to_string(::getpid()) + ".csv")) {
    std::ofstream(path_) << text;
  }
  ~TableFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TrainingRow row(Values changes) {
  const TableFile file(header() + line(std::move(changes)));
  return read_training_rows(file.path()).at(0);
}

std::string refusal(Values changes) {
  const auto made = training_case(row(std::move(changes)));
  const auto* refused = std::get_if<TrainingRefusal>(&made);
  return refused == nullptr ? "" : refused->reason;
}

TrainingCase accepted(Values changes) {
  auto made = training_case(row(std::move(changes)));
  if (const auto* refused = std::get_if<TrainingRefusal>(&made)) FAIL(refused->reason);
  return std::get<TrainingCase>(std::move(made));
}

}  // namespace

TEST_CASE("a published step time is taken as it is", "[calibration]") {
  CHECK(measured_step(row({{"measured_step_s", "1.25"}, {"tokens_per_s_per_gpu", "7"}})) == 1.25);
}

TEST_CASE("tokens per second give the step time", "[calibration]") {
  // 8 sequences of 1,024 tokens at 2 × 4,096 tokens/s.
  CHECK(measured_step(row({{"measured_step_s", ""}, {"tokens_per_s_per_gpu", "4096"}})) == Approx(1.0));
}

TEST_CASE("TFLOP/s give the step time by the source's own formula", "[calibration]") {
  const Values base = {
      {"measured_step_s", ""}, {"tflops_per_gpu", "100"}, {"layers", "2"},  {"hidden", "64"}, {"ffn", "256"},
      {"heads", "4"},          {"kv_heads", "4"},         {"vocab", "128"}, {"seq", "32"},    {"gbs", "2"}};
  const auto with = [&](const std::string& id, const std::string& framework) {
    Values values = base;
    values["id"] = id;
    values["framework"] = framework;
    return row(values);
  };
  // 96·2·32·2·64²·(1 + 32/(6·64) + 128/(16·2·64)) = 96·2·32·2·4096 + a twelfth + a sixteenth of it.
  const double megatron = 50331648.0 * (1 + 1.0 / 12 + 1.0 / 16);
  CHECK(published_flops(with("megatron-001", "Megatron-LM 2021"))->flops == Approx(megatron));
  CHECK(*measured_step(with("bloom-001", "Megatron-DeepSpeed")) == Approx(megatron / (2 * 100e12)));
  // Matrices: 2·(4·64² + 2·64·256) + 64·128 = 106496. Tokens: 64. Attention: 12·2·64·32 per token, or half.
  const double matrices = 64.0 * 6 * 106496, pairs = 64.0 * 12 * 2 * 64 * 32;
  CHECK(published_flops(with("mosaic-001", "llm-foundry"))->flops == Approx(matrices + pairs));
  CHECK(published_flops(with("dgxc-001", "NeMo"))->flops == Approx(matrices + pairs));
  CHECK(published_flops(with("mbridge-001", "Megatron-Bridge"))->flops == Approx(matrices + pairs / 2));
  CHECK_FALSE(published_flops(with("unheard-001", "own code")));
  CHECK_FALSE(measured_step(with("unheard-001", "own code")));
}

TEST_CASE("MFU gives the step time over the source's peak", "[calibration]") {
  const Values values = {{"id", "dgxc-001"}, {"measured_step_s", ""}, {"mfu", "0.5"}};
  const TrainingRow published = row(values);
  CHECK(*measured_step(published) == Approx(published_flops(published)->flops / (0.5 * 989e12 * 2)));
  CHECK(published_peak(row({{"precision", "FP8"}})) == 1979e12);
  CHECK(published_peak(row({{"gpu", "A100-80GB"}})) == 312e12);
  CHECK_FALSE(published_peak(row({{"gpu", "B200"}})));
}

TEST_CASE("what a plan can't express is refused by name", "[calibration]") {
  CHECK(refusal({}).empty());
  CHECK(refusal({{"experts", "8"}}) == "experts");
  CHECK(refusal({{"cp", "2"}}) == "context parallelism");
  CHECK(refusal({{"vpp", "2"}}) == "interleaved schedule");
  CHECK(refusal({{"schedule", "interleaved-1f1b"}}) == "interleaved schedule");
  CHECK(refusal({{"zero_stage", "3"}}) == "ZeRO-2, ZeRO-3 or FSDP");
  CHECK(refusal({{"precision", "FP8"}}) == "FP8 or FP4");
  CHECK(refusal({{"precision", ""}}) == "precision not published");
  CHECK(refusal({{"notes", "LoRA fine-tuning"}}) == "LoRA");
  CHECK(refusal({{"notes", "CPU offload used"}}) == "CPU offload");
  CHECK(refusal({{"notes", "FLAG two figures disagree"}}) ==
        "flagged in the table: fails an arithmetic check");
  CHECK(refusal({{"measured_step_s", ""}}) == "no time, throughput or TFLOP/s published");
  CHECK(refusal({{"mbs", ""}}) == "mbs not published");
  CHECK(refusal({{"heads", ""}}) == "heads not published");
  CHECK(refusal({{"vocab", ""}}) == "vocab not published");
  CHECK(refusal({{"dp", "4"}}) == "degrees don't multiply to the GPUs");
  CHECK(refusal({{"gpu", "Abacus"}}) == "GPU not in the catalogue: Abacus");
  CHECK(refusal({{"model", "Nemotron-H 56B"}}) == "architecture not known by its name");
  CHECK(refusal({{"framework", "own code"}}) == "software whose kernels aren't known");
  CHECK(
      refusal({{"framework", "InternEvo"}, {"notes", "zero1 within 4 ranks"}, {"gpus", "8"}, {"dp", "8"}}) ==
      "optimizer state split within a part of the replicas");
  CHECK(refusal({{"framework", "InternEvo"}, {"notes", "zero1 within 4 ranks"}}).empty());
}

TEST_CASE("names stand for architectures", "[calibration]") {
  const TransformerConfig gpt = accepted({{"kv_heads", ""}, {"framework", "Megatron-LM 2021"}}).model;
  CHECK(gpt.norm == NormKind::kLayer);
  CHECK_FALSE(gpt.gated_mlp);
  CHECK(gpt.kv_heads == 16);
  CHECK(gpt.residual_dropout == 0.1);
  const TransformerConfig llama = accepted({{"model", "LLAMA3_70B"}, {"kv_heads", "8"}}).model;
  CHECK(llama.gated_mlp);
  CHECK(llama.norm == NormKind::kRms);
  CHECK(llama.kv_heads == 8);
  CHECK(accepted({{"model", "Qwen2.5-1.5B"}}).model.tied_head);
  CHECK_FALSE(accepted({{"model", "Qwen2.5-7B"}}).model.tied_head);
  CHECK(accepted({{"model", "Nemotron-4-15B"}}).model.activation == Activation::kRelu);
}

TEST_CASE("software's habits fill in what a row leaves open", "[calibration]") {
  const TrainingCase old = accepted(
      {{"framework", "Megatron-LM 2021"}, {"precision", "FP16"}, {"recompute", ""}, {"zero_stage", ""}});
  CHECK_FALSE(old.habits.flash_attention);
  CHECK(old.plan.settings.recompute == Recompute::kFull);
  CHECK(old.plan.settings.zero_stage == 0);
  CHECK(old.plan.settings.gradient_dtype == DType::kFp16);
  CHECK(old.assumed.size() == 2);
  // 40 us for each of 83 kernels, which are 50 instructions. Hand-written CUDA: as the Profile has it.
  CHECK(old.habits.launch_s == Approx(66.4e-6));
  CHECK(accepted({{"framework", "llm.c"}}).habits.launch_s == 0);
  const TrainingCase nemo =
      accepted({{"zero_stage", ""}, {"recompute", "selective"}, {"tp", "2"}, {"dp", "1"}});
  CHECK(nemo.plan.settings.zero_stage == 1);
  CHECK(nemo.plan.settings.sequence_parallel);
  CHECK(nemo.plan.settings.recompute == Recompute::kNone);
  CHECK_FALSE(nemo.recompute_attention);
  CHECK(accepted({{"framework", "Megatron-LM 2022"}, {"recompute", "selective"}}).recompute_attention);
}

TEST_CASE("layers that don't divide are placed and said", "[calibration]") {
  const Values three = {{"pp", "3"}, {"dp", "1"}, {"gpus", "3"}};
  Values values = three;
  values["layers"] = "4";  // 4 + 2 over three stages: 1, 2, 1 layers and the embedding and head.
  CHECK(accepted(values).plan.layers_per_stage == std::vector<std::int32_t>{1, 2, 1});
  values["layers"] = "5";
  CHECK(accepted(values).plan.layers_per_stage == std::vector<std::int32_t>{2, 2, 1});
  values["layers"] = "6";
  CHECK(accepted(values).plan.layers_per_stage.empty());
}

TEST_CASE("the network is read from the words that describe it", "[calibration]") {
  const auto node = [](const std::string& gpu, const std::string& words, const std::string& gpus = "16") {
    return accepted({{"gpu", gpu}, {"interconnect", words}, {"gpus", gpus}, {"dp", gpus}, {"gbs", "64"}})
        .cluster.node;
  };
  const NodeType omnipath = node("A100-80GB", "NVLink3; 4x100 Gb/s Omni-Path per node");
  CHECK(omnipath.nics == 4);
  CHECK(omnipath.nic_bytes_per_s == Approx(12.5e9));
  const NodeType roce = node("A100-80GB", "NVLink; inter: 1600 Gb/s RoCE per node");
  CHECK(roce.name == "DGX-A100");  // 200 Gb/s for each of eight is what the catalogue's node has.
  CHECK(node("H100", "NVLink; 1.6 Tb/s per node").nic_bytes_per_s == Approx(25e9));
  CHECK(node("H100", "NVLink; 400 Gb/s RoCE per GPU").name == "DGX-H100");
  CHECK(node("H100", "NVLink; IB 200 Gb/s x4").nics == 4);
  CHECK(node("H100", "not published").name == "DGX-H100");
  CHECK(node("H100", "4x100 Gb/s", "8").name == "DGX-H100");  // One node needs no network.
}

TEST_CASE("a table is predicted, refused rows are counted, on any number of threads", "[calibration]") {
  std::string text = header();
  for (int i = 1; i <= 6; ++i)
    text += line({{"id", "toy-00" + std::to_string(i)}, {"layers", std::to_string(i)}});
  text += line({{"id", "toy-007"}, {"experts", "8"}}) + line({{"id", "toy-008"}, {"experts", "8"}});
  text += line({{"id", "toy-009"}, {"gbs", "7"}});
  const TableFile file(text);
  std::size_t told = 0;
  TrainingOptions options;
  options.threads = 3;
  options.progress = [&](std::size_t done, std::size_t all) {
    CHECK(all == 9);
    told = std::max(told, done);
  };
  const ValidationReport report = validate_training(file.path(), options);
  CHECK(told == 9);
  REQUIRE(report.rows.size() == 6);
  const ValidationReport alone = validate_training(file.path());
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(report.rows[i].id == "toy-00" + std::to_string(i + 1));
    CHECK(report.rows[i].source == "toy");
    CHECK(report.rows[i].predicted_s == alone.rows[i].predicted_s);
    CHECK(report.rows[i].lower_s <= report.rows[i].predicted_s);
    if (i > 0) CHECK(report.rows[i].predicted_s > report.rows[i - 1].predicted_s);
  }
  REQUIRE(report.refused.size() == 2);
  CHECK(report.refused[0].reason == "experts");
  CHECK(report.refused[0].rows == 2);
  CHECK(report.refused[1].reason == "the plan can't be laid out for this model");
  REQUIRE(report.groups.size() == 1);
  CHECK(report.groups[0].rows == 9);
  CHECK(report.groups[0].predicted == 6);
}

TEST_CASE("attention that isn't fused costs more", "[calibration]") {
  // The same software but for its year, and everything else set alike.
  const Values fixed = {{"zero_stage", "0"}, {"precision", "FP16"}, {"seq", "4096"},
                        {"gbs", "2"},        {"mbs", "1"},          {"recompute", "none"}};
  const auto predicted = [&](const std::string& framework, const std::string& recompute) {
    Values values = fixed;
    values["framework"] = framework;
    values["recompute"] = recompute;
    const TableFile file(header() + line(values));
    return validate_training(file.path()).rows.at(0).predicted_s;
  };
  const double fused = predicted("Megatron-Core", "none"), plain = predicted("Megatron-LM 2022", "none");
  CHECK(plain > fused);
  CHECK(predicted("Megatron-LM 2022", "selective") > plain);
}

TEST_CASE("a broken training table is named with its line", "[calibration]") {
  const auto message = [](const std::string& text) -> std::string {
    const TableFile file(text);
    try {
      validate_training(file.path());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message(header() + line({{"layers", "many"}})), Contains(".csv:2") && Contains("layers"));
  CHECK_THAT(message(header() + line({{"gbs", "1.5"}})), Contains(".csv:2: gbs: expected a whole number"));
  CHECK_THAT(message(header() + line({}) + line({{"mfu", "-1"}})),
             Contains(".csv:3: mfu: expected a figure above 0"));
  CHECK_THAT(message("id,measured_step_s\nx,1\n"), Contains("gpu"));
}

TEST_CASE("published training steps stay within reach", "[calibration]") {
  const char* variable = std::getenv("ORRERY_DATA");
  const fs::path data =
      variable != nullptr ? fs::path(variable) : fs::path(ORRERY_SOURCE_DIR) / "../shared/data";
  const fs::path file = data / "published/training.csv";
  if (!fs::exists(file)) {
    WARN("skipped: no " << file);
    return;
  }
  // Small clusters, and not the many small rows of one source, which take most of the time.
  std::ifstream stream(file);
  std::string first, text, row_text;
  std::getline(stream, first);
  while (std::getline(stream, row_text)) {
    const bool small = parse_csv(first + "\n" + row_text).records.at(0).number("gpus") <= 64;
    if (small && !row_text.starts_with("vtrain_single")) text += row_text + "\n";
  }
  text = first + "\n" + text;
  const TableFile rest(text);
  TrainingOptions options;
  options.threads = 2;
  const ValidationReport report = validate_training(rest.path(), options);
  std::size_t groups = 0;
  for (const ValidationGroup& group : report.groups) {
    CAPTURE(group.source, group.gpu, group.median_error);
    groups += group.predicted >= 2;
    // A mapping that forgets something (a batch, a recompute) is wrong by far more.
    if (group.predicted >= 2) CHECK(group.median_abs_error < 0.5);
  }
  CHECK(groups >= 5);
}
