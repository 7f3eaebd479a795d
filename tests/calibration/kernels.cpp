#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "calibration/kernel_fit.hpp"
#include "calibration/kernel_validation.hpp"
#include "calibration/least_squares.hpp"
#include "topology/kernel_costs.hpp"

using namespace orrery;

namespace {

const std::string kMeasured = ORRERY_SOURCE_DIR "/docs/results/kernels-h200.csv";

std::string with_line(const std::string& line) {
  const auto path = std::filesystem::temp_directory_path() / "orrery-kernels-test.csv";
  std::ofstream(path) << "kernel,dtype,shape,time_us,state\n" << line << "\n";
  return path.string();
}

std::string fault_of(const std::string& line) {
  try {
    read_kernel_measurements(with_line(line));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void same_attention(const AttentionCosts& fitted, const AttentionCosts& kept) {
  CHECK(kept.exponential_share == Approx(fitted.exponential_share).epsilon(0.02));
  CHECK(kept.tile_start_s == Approx(fitted.tile_start_s).epsilon(0.02));
  CHECK(kept.quantisation == Approx(fitted.quantisation).margin(1e-3));
  CHECK(kept.passes == Approx(fitted.passes).epsilon(0.02).margin(1e-3));
}

}  // namespace

TEST_CASE("a fit finds the parameters that made the data, past odd ones", "[calibration]") {
  // y = a · x^b with a = 3, b = 0.5; every tenth point is twice too high.
  std::vector<double> logs;
  for (int i = 1; i <= 50; ++i) logs.push_back(std::log(3 * std::sqrt(i)) + (i % 10 == 0 ? std::log(2) : 0));
  const std::vector<double> found = fit_positive({1, 1}, [&](const std::vector<double>& p) {
    std::vector<double> residuals;
    for (int i = 1; i <= 50; ++i)
      residuals.push_back(std::log(p[0] * std::pow(i, p[1])) - logs[static_cast<std::size_t>(i - 1)]);
    return residuals;
  });
  CHECK(found[0] == Approx(3).epsilon(0.03));
  CHECK(found[1] == Approx(0.5).epsilon(0.03));
}

TEST_CASE("the kept kernel figures are what the measurements of H200 give", "[calibration]") {
  const GpuType gpu = catalogue_gpu("h200").value();
  const auto measurements = read_kernel_measurements(kMeasured);
  CHECK(measurements.size() == 932);
  const Profile fitted = fit_kernels(measurements, gpu, Profile()).profile;
  const Profile kept = default_profile(gpu);
  CHECK(kept.memory_efficiency == Approx(fitted.memory_efficiency).epsilon(0.02));
  CHECK(kept.kernel_floor_s == Approx(fitted.kernel_floor_s).epsilon(0.02));
  CHECK(kept.memory.cache_bytes_per_clock == Approx(fitted.memory.cache_bytes_per_clock).epsilon(0.02));
  CHECK(kept.memory.row_efficiency == Approx(fitted.memory.row_efficiency).epsilon(0.02));
  CHECK(kept.memory.row_element_s == Approx(fitted.memory.row_element_s).epsilon(0.02));
  CHECK(kept.matmul_efficiency == Approx(fitted.matmul_efficiency).epsilon(0.02));
  CHECK(kept.sustained_slowdown == Approx(fitted.sustained_slowdown).epsilon(0.02));
  CHECK(kept.throttle_s == fitted.throttle_s);
  CHECK(kept.matmul.tile_start_s == Approx(fitted.matmul.tile_start_s).epsilon(0.02));
  CHECK(kept.matmul.quantisation == Approx(fitted.matmul.quantisation).epsilon(0.02));
  CHECK(kept.matmul.split_s == Approx(fitted.matmul.split_s).epsilon(0.05));
  CHECK(kept.matmul.cache_reuse == Approx(fitted.matmul.cache_reuse).epsilon(0.02));
  CHECK(kept.matmul.misaligned_4 == Approx(fitted.matmul.misaligned_4).epsilon(0.02));
  CHECK(kept.matmul.misaligned_2 == Approx(fitted.matmul.misaligned_2).epsilon(0.02));
  for (const DType type : {DType::kFp8, DType::kTf32, DType::kFp32}) {
    const auto i = static_cast<std::size_t>(type);
    CHECK(kept.matmul.type_efficiency[i] == Approx(fitted.matmul.type_efficiency[i]).epsilon(0.02));
  }
  CHECK(kept.attention_efficiency == Approx(fitted.attention_efficiency).epsilon(0.02));
  CHECK(kept.attention_backward_efficiency == Approx(fitted.attention_backward_efficiency).epsilon(0.02));
  same_attention(fitted.attention, kept.attention);
  same_attention(fitted.attention_backward, kept.attention_backward);
}

TEST_CASE("FP8 products' other arithmetics are as much faster or slower as measured", "[calibration]") {
  std::ifstream file(ORRERY_SOURCE_DIR "/docs/results/gpu-products-h200.json");
  const nlohmann::json rows = nlohmann::json::parse(file).at("rows");
  std::map<std::string, std::map<std::string, double>> us;  // By product and arithmetic.
  for (const auto& row : rows) us[row.at("what")][row.at("arithmetic")] = row.at("us");
  CHECK(us.size() == 10);
  const auto gain = [&](const std::string& arithmetic, auto counts) {
    double logs = 0;
    int count = 0;
    for (const auto& [what, times] : us) {
      if (!counts(what.find("gradient") != std::string::npos)) continue;
      logs += std::log(times.at("fp8") / times.at(arithmetic));
      ++count;
    }
    return std::exp(logs / count);
  };
  const MatmulCosts kept = default_profile(catalogue_gpu("h200").value()).matmul;
  CHECK(kept.fp8_fast == Approx(gain("fp8 fast", [](bool) { return true; })).epsilon(0.01));
  CHECK(kept.fp8_squares ==
        Approx(gain("fp8 blocks", [](bool gradient) { return !gradient; })).epsilon(0.01));
  CHECK(kept.fp8_rows == Approx(gain("fp8 blocks", [](bool gradient) { return gradient; })).epsilon(0.01));
}

TEST_CASE("FlashAttention 2's figures are what the measurements of H200 give", "[calibration]") {
  const GpuType gpu = catalogue_gpu("h200").value();
  KernelFitOptions options;
  options.attention = AttentionImplementation::kFlash2;
  const GpuKernelFit fit = fit_kernels(read_kernel_measurements(kMeasured), gpu, Profile(), options);
  Profile kept = default_profile(gpu);
  set_attention_kernels(gpu, AttentionKernels::kLegacy, kept);
  CHECK(kept.attention_efficiency == Approx(fit.profile.attention_efficiency).epsilon(0.02));
  CHECK(kept.attention_backward_efficiency ==
        Approx(fit.profile.attention_backward_efficiency).epsilon(0.02));
  same_attention(fit.profile.attention, kept.attention);
  same_attention(fit.profile.attention_backward, kept.attention_backward);
}

TEST_CASE("FlashAttention 2 does as much per SM and clock before Hopper as on it, below the peak",
          "[calibration]") {
  const auto per_clock = [](const char* name) {
    const GpuType gpu = catalogue_gpu(name).value();
    Profile profile = default_profile(gpu);
    set_attention_kernels(gpu, AttentionKernels::kLegacy, profile);
    return profile.attention_efficiency * gpu.peak(DType::kFp16) / (gpu.sms * gpu.clock_hz);
  };
  // An H200's SM can do 4,096 per clock, an A100's 2,048: 39 % of one is 78 % of the other.
  CHECK(per_clock("h200") == Approx(0.39 * 4096).epsilon(0.01));
  CHECK(per_clock("a100") == Approx(per_clock("h200")));
  CHECK(per_clock("l40s") == Approx(0.95 * 1024));
}

TEST_CASE("shapes that a fit had not seen are predicted as well as docs/kernel-costs.md says",
          "[calibration]") {
  KernelFitOptions options;
  options.hold_out = true;
  const GpuKernelFit fit =
      fit_kernels(read_kernel_measurements(kMeasured), catalogue_gpu("h200").value(), Profile(), options);
  const auto held_out = [&](KernelFamily family) { return fit.held_out[static_cast<std::size_t>(family)]; };
  for (const FitError& error : fit.held_out) CHECK(error.measurements >= 10);
  CHECK(held_out(KernelFamily::kMatmul).median_abs < 0.06);
  CHECK(held_out(KernelFamily::kAttention).median_abs < 0.07);
  CHECK(held_out(KernelFamily::kAttentionBackward).median_abs < 0.08);
  CHECK(held_out(KernelFamily::kStream).median_abs < 0.08);
  // The errors that intervals are made of aren't smaller than what was found.
  const KernelErrors errors = default_profile(catalogue_gpu("h200").value()).errors;
  CHECK(held_out(KernelFamily::kMatmul).sigma <= errors.matmul.entry_sigma);
  CHECK(held_out(KernelFamily::kAttention).sigma <= errors.attention.entry_sigma);
  CHECK(held_out(KernelFamily::kAttentionBackward).sigma <= errors.attention_backward.entry_sigma);
  CHECK(held_out(KernelFamily::kStream).sigma <= errors.memory.entry_sigma);
  CHECK(held_out(KernelFamily::kRows).sigma <= errors.rows.entry_sigma);
}

TEST_CASE("faults of a table of measurements name their line", "[calibration]") {
  CHECK(fault_of("matmul,bf16,\"{\"\"m\"\": 4}\",1,captured").find("test.csv:2: the shape needs \"n\"") !=
        std::string::npos);
  CHECK(fault_of("matmul,bf17,{},1,captured").find(":2: dtype is \"bf17\"") != std::string::npos);
  CHECK(fault_of("copy,bf16,[],1,captured").find(":2: shape is no JSON object") != std::string::npos);
  CHECK(fault_of("copy,bf16,{},1,cold").find(":2: state is \"cold\"") != std::string::npos);
  CHECK(fault_of("copy,bf16,{},0,burst").find(":2: time_us has to be positive") != std::string::npos);
}

TEST_CASE("published rows are predicted, refused with a reason, and grouped", "[calibration]") {
  const auto path = std::filesystem::temp_directory_path() / "orrery-published-test.csv";
  std::ofstream(path)
      << "id,source,gpu,kernel,dtype,shape_json,tflops,time_us,notes\n"
         "a,x/y table 1,H100,gemm,bf16,\"{\"\"m\"\": 4096, \"\"n\"\": 4096, \"\"k\"\": 4096}\",700,,\n"
         "b,x/y table 2,H100,gemm,bf16,\"{\"\"m\"\": 4096, \"\"n\"\": 4096, \"\"k\"\": 4096}\",,900,\n"
         "c,x/y,H101,gemm,bf16,{},1,,\n"
         "d,x/y,H100,gemm,bf16,{},,,\n"
         "e,x/y,V100-16GB,gemm,bf16,\"{\"\"m\"\": 64, \"\"n\"\": 64, \"\"k\"\": 64}\",1,,\n"
         "f,x/y,H100,fft,bf16,{},1,1,\n";
  const ValidationReport report = validate_kernels(path);
  REQUIRE(report.rows.size() == 2);
  CHECK(report.rows[0].measured_s == Approx(2 * std::pow(4096.0, 3) / 700e12));
  CHECK(report.rows[0].covered());
  CHECK_FALSE(report.rows[1].covered());  // Four times slower than it should be.
  CHECK(report.rows[0].predicted_s == report.rows[1].predicted_s);
  CHECK(report.refused.size() == 4);
  const auto group = std::find_if(report.groups.begin(), report.groups.end(),
                                  [](const ValidationGroup& it) { return it.family == "matmul"; });
  REQUIRE(group != report.groups.end());
  CHECK(group->source == "x/y");
  CHECK(group->predicted == 2);
  CHECK(group->coverage == 0.5);
}

TEST_CASE("published kernels are predicted within the errors that the Profile states", "[calibration]") {
  const char* given = std::getenv("ORRERY_DATA");
  const std::filesystem::path data = given != nullptr ? given : ORRERY_SOURCE_DIR "/../shared/data";
  const std::filesystem::path file = data / "published/kernels.csv";
  if (!std::filesystem::exists(file)) {
    std::cout << "skipped: no " << file << "; set ORRERY_DATA to the folder of published measurements\n";
    return;
  }
  const ValidationReport report = validate_kernels(file);
  std::int64_t rows = 0, covered = 0;
  for (const ValidationRow& row : report.rows) {
    ++rows;
    covered += row.covered();
  }
  REQUIRE(rows > 2000);
  const double share = static_cast<double>(covered) / static_cast<double>(rows);
  CHECK(share > 0.80);
  CHECK(share < 0.98);
  const auto median = [&](std::string_view source, std::string_view gpu, std::string_view family) {
    for (const ValidationGroup& group : report.groups)
      if (group.source == source && group.gpu == gpu && group.family == family) return group.median_abs_error;
    FAIL("no group " << source << ", " << gpu << ", " << family);
    return 1.0;
  };
  CHECK(median("openxla/xla", "H100", "matmul") < 0.15);
  CHECK(median("openxla/xla", "B200", "matmul") < 0.15);
  CHECK(median("MooreThreads/SimuMax", "A100-80GB-PCIe", "matmul") < 0.15);
  CHECK(median("eth-easl/sailor", "A100-40GB", "matmul") < 0.15);
  CHECK(median("eth-easl/sailor", "V100-16GB", "matmul") < 0.15);
  CHECK(median("deepseek-ai/DeepGEMM", "H800", "matmul") < 0.15);
  CHECK(median("Dao-AILab/flash-attention", "H100", "attention forward") < 0.15);
  CHECK(median("NVIDIA/cudnn-frontend", "GB200", "attention forward") < 0.15);
  CHECK(median("NVIDIA/cudnn-frontend", "GB200", "attention backward") < 0.15);
}
