// GPUs by name. Rates are dense peaks: where a datasheet gives the rate with structured sparsity, half of it.
// Memory is what CUDA hands to programs, which is less than the board carries: the "total capacity" that
// PyTorch prints in public out-of-memory reports (cudaMemGetInfo), or what nvidia-smi shows less CUDA's share
// of some 550 MiB. A figure for which no document was found says "unverified" in its source.

#include <algorithm>
#include <cassert>

#include "topology/catalogue_tables.hpp"

namespace orrery {
namespace {

constexpr std::int64_t bytes_of_gib(double count) { return static_cast<std::int64_t>(count * 1073741824.0); }
constexpr double gib_less_cuda(double mebibytes) { return (mebibytes - 550) / 1024; }

// Tera-operations per second by type.
struct Peaks {
  double fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0;
};

// What all boards of one chip share.
struct Chip {
  Architecture architecture;
  std::int32_t sms;
  double half_flops_per_clock;  // Of one SM: its fp16 peak over this is the clock at which the peaks count.
  double cache_mib;
};

// SMs, tensor core rate per clock and level 2 cache: NVIDIA's white papers on Volta (2017), Ampere (2020),
// Hopper (2022), Ada (2022); on Blackwell, SMs and cache as CUDA reports them (B200: 148, 126.5 MB,
// github.com/pytorch/ao/pull/4002, 2026; B300 148, GB200 and GB300 152, as kernels published for them count),
// the rate from the datasheet's peak at 1.85 to 2 GHz.
constexpr Chip kGv100{Architecture::kVolta, 80, 1024, 6};
constexpr Chip kGa100{Architecture::kAmpere, 108, 2048, 40};
constexpr Chip kGh100{Architecture::kHopper, 132, 4096, 50};
constexpr Chip kGh100Pcie{Architecture::kHopper, 114, 4096, 50};
constexpr Chip kGb100{Architecture::kBlackwell, 148, 8192, 126};
constexpr Chip kGb100Grace{Architecture::kBlackwell, 152, 8192, 126};
constexpr Chip kAd102L40s{Architecture::kAda, 142, 1024, 96};
constexpr Chip kAd102Rtx{Architecture::kAda, 128, 512, 72};  // Half rate with fp32 accumulation.
// Compute units and Infinity Cache (level 3): AMD GPU specifications, rocm.docs.amd.com, 2026.
constexpr Chip kCdna3{Architecture::kCdna3, 304, 2048, 256};
constexpr Chip kCdna4{Architecture::kCdna3, 256, 4096, 256};

struct Board {
  double memory_gib, terabytes_per_s, power_w;
  std::string source;
};

GpuType gpu(std::string name, const Chip& chip, const Peaks& peaks, const Board& board) {
  GpuType type;
  type.name = std::move(name);
  type.architecture = chip.architecture;
  type.sms = chip.sms;
  type.clock_hz = peaks.fp16 * 1e12 / (chip.sms * chip.half_flops_per_clock);
  type.cache_bytes = bytes_of_gib(chip.cache_mib / 1024);
  const auto set = [&](DType dtype, double tera) {
    type.peak_flops_per_s[static_cast<std::size_t>(dtype)] = tera * 1e12;
  };
  set(DType::kFp32, peaks.fp32);
  set(DType::kTf32, peaks.tf32);
  set(DType::kFp16, peaks.fp16);
  set(DType::kBf16, peaks.bf16);
  set(DType::kFp8, peaks.fp8);
  type.memory_bytes = bytes_of_gib(board.memory_gib);
  type.memory_bytes_per_s = board.terabytes_per_s * 1e12;
  type.power_w = board.power_w;
  type.source = board.source;
  return type;
}

std::vector<NamedGpu> volta_and_ampere() {
  const Peaks volta{15.7, 0, 125, 0, 0}, ampere{19.5, 156, 312, 312, 0};
  const std::string v100 = "NVIDIA V100 datasheet, 2020; memory as CUDA reports it";
  const std::string a100 =
      "NVIDIA A100 datasheet, 2021 (nvidia.com/en-us/data-center/a100); memory as CUDA reports it";
  return {
      {"v100-sxm-16gb",
       {"v100-sxm2-16gb", "v100-16gb"},
       gpu("V100-SXM2-16GB", kGv100, volta, {15.75, 0.9, 300, v100})},
      {"v100-sxm-32gb",
       {"v100-sxm2-32gb", "v100-sxm", "v100"},
       gpu("V100-SXM2-32GB", kGv100, volta, {31.74, 0.9, 300, v100})},
      {"v100-pcie-16gb",
       {"v100-pcie"},
       gpu("V100-PCIe-16GB", kGv100, {14, 0, 112, 0, 0}, {15.75, 0.9, 250, v100})},
      {"a100-sxm-40gb",
       {"a100-sxm4-40gb", "a100-40gb"},
       gpu("A100-SXM4-40GB", kGa100, ampere, {39.5, 1.555, 400, a100})},
      {"a100-sxm-80gb",
       {"a100-sxm4-80gb", "a100-80gb", "a100-sxm", "a100"},
       gpu("A100-SXM4-80GB", kGa100, ampere, {79.25, 2.039, 400, a100})},
      {"a800-sxm-80gb",
       {"a800-sxm4-80gb", "a800"},
       gpu("A800-SXM4-80GB", kGa100, ampere,
           {79.25, 2.039, 400, "as A100-SXM4-80GB, with 400 GB/s of NVLink"})},
      {"a100-pcie-40gb", {}, gpu("A100-PCIe-40GB", kGa100, ampere, {39.5, 1.555, 250, a100})},
      {"a100-pcie-80gb",
       {"a100-pcie", "a100-80gb-pcie"},
       gpu("A100-PCIe-80GB", kGa100, ampere, {79.25, 1.935, 300, a100})},
  };
}

std::vector<NamedGpu> hopper() {
  const Peaks peaks{66.9, 494.7, 989.4, 989.4, 1978.9};
  const std::string paper =
      "NVIDIA H100 architecture white paper, 2022 (dense; nvidia.com/en-us/data-center/h100); memory as CUDA "
      "reports it";
  return {
      {"h100-sxm",
       {"h100-sxm5-80gb", "h100-sxm5", "h100-80gb", "h100"},
       gpu("H100-SXM5-80GB", kGh100, peaks, {79.11, 3.35, 700, paper})},
      {
          "h100-pcie",
          {"h100-pcie-80gb"},
          gpu("H100-PCIe-80GB", kGh100Pcie, {51, 378, 756, 756, 1513},
              {79.11, 2.0, 350,
               "NVIDIA H100 PCIe product brief PB-11133-001, 2022 (bandwidth, power) and datasheet (dense "
               "peaks); "
               "memory as on H100-SXM5-80GB"}),
      },
      {"h100-nvl",
       {"h100-nvl-94gb"},
       gpu("H100-NVL-94GB", kGh100, {60, 417.5, 835.5, 835.5, 1671},
           {gib_less_cuda(95830), 3.9, 400,
            "NVIDIA H100 datasheet, 2024 (NVL, dense); memory: nvidia-smi's 95,830 MiB less CUDA's share"})},
      {"h800-sxm",
       {"h800-sxm5-80gb", "h800"},
       gpu("H800-SXM5-80GB", kGh100, peaks,
           {79.11, 3.35, 700, "as H100-SXM5-80GB, with 400 GB/s of NVLink"})},
      // nvidia-smi shows 143,771 MiB; CUDA keeps back some 550 MiB, as on the H100 (81,559 MiB, 79.11 GiB).
      {"h200-sxm",
       {"h200-sxm-141gb", "h200-141gb", "h200"},
       gpu("H200-SXM-141GB", kGh100, peaks,
           {gib_less_cuda(143771), 4.8, 700,
            "NVIDIA H200 datasheet, 2024 (compute as H100 SXM5; nvidia.com/en-us/data-center/h200); memory "
            "from "
            "nvidia-smi, less CUDA's share"})},
      {"gh200-96gb",
       {"gh200", "gh200-sxm"},
       gpu("GH200-96GB", kGh100, peaks,
           {gib_less_cuda(97871), 4.0, 700,
            "NVIDIA GH200 datasheet, 2024 (HBM3; compute as H100 SXM5; the module's 450 to 1,000 W are "
            "shared with "
            "its CPU); memory: nvidia-smi's 97,871 MiB less CUDA's share"})},
      {"gh200-144gb",
       {},
       gpu("GH200-144GB", kGh100, peaks,
           {gib_less_cuda(147456), 4.9, 700,
            "NVIDIA GH200 datasheet, 2024 (HBM3e; else as GH200-96GB); 144 GB taken as GiB: unverified"})},
  };
}

std::vector<NamedGpu> blackwell() {
  const Peaks hgx{75, 1125, 2250, 2250, 4500}, rack{80, 1250, 2500, 2500, 5000};
  return {
      {"b200-sxm",
       {"b200-sxm-180gb", "b200-180gb", "b200"},
       gpu("B200-SXM-180GB", kGb100, hgx,
           {178.35, 7.672, 1000,
            "NVIDIA HGX B200 table, 2025 (an eighth of the board, dense: 36 PFLOP/s of sparse bf16, 600 "
            "TFLOP/s of "
            "fp32); memory and its 7,680 bits at 3,996 MHz as CUDA and nvidia-smi report them "
            "(github.com/pytorch/ao/pull/4002, 2026; the first datasheets say 8 TB/s)"})},
      {"gb200",
       {"gb200-186gb", "gb200-sxm"},
       gpu("GB200-186GB", kGb100Grace, rack,
           {gib_less_cuda(189471), 8.0, 1200,
            "NVIDIA GB200 NVL72 datasheet, 2024 (a 72nd, dense: 360 PFLOP/s of sparse bf16, 576 TB/s); "
            "memory: "
            "nvidia-smi's 189,471 MiB less CUDA's share"})},
      {"b300-sxm",
       {"b300-sxm-270gb", "b300"},
       gpu("B300-SXM-270GB", kGb100, hgx,
           {251, 7.7, 1100,
            "NVIDIA HGX B300 table, 2025 (an eighth of the board, dense); bandwidth, 270 GB and 1.1 kW as "
            "verda.com/blog/gb300-nvl72-architecture, 2025, has them; what CUDA leaves of the memory: "
            "unverified"})},
      {"gb300",
       {"gb300-279gb", "gb300-sxm"},
       gpu("GB300-279GB", kGb100Grace, rack,
           {259, 8.0, 1400,
            "NVIDIA GB300 NVL72 datasheet, 2025 (a 72nd, dense: 576 TB/s, 20 TB); what CUDA leaves of the "
            "memory: "
            "unverified"})},
  };
}

std::vector<NamedGpu> others() {
  const std::string mi300x =
      "AMD Instinct MI300X datasheet, 2023 (dense, matrix cores; fp32 vector; "
      "amd.com/en/products/accelerators/instinct/mi300/mi300x.html)";
  return {
      {"l40s",
       {"l40s-48gb"},
       gpu("L40S-48GB", kAd102L40s, {91.6, 183, 362, 362, 733},
           {44.4, 0.864, 350,
            "NVIDIA L40S datasheet, 2023 (dense; resources.nvidia.com/en-us-l40s); memory as CUDA reports "
            "it"})},
      {"rtx-4090",
       {"rtx4090", "geforce-rtx-4090", "4090"},
       gpu("RTX-4090-24GB", kAd102Rtx, {82.6, 82.6, 165.2, 165.2, 330.3},
           {23.65, 1.008, 450,
            "NVIDIA Ada architecture white paper, 2022 (dense, fp32 accumulation); memory as CUDA reports "
            "it"})},
      {"mi300x",
       {"mi300x-192gb"},
       gpu("MI300X-192GB", kCdna3, {163.4, 653.7, 1307.4, 1307.4, 2614.9},
           {191.98, 5.3, 750, mi300x + "; memory as ROCm reports it"})},
      {"mi325x",
       {"mi325x-256gb"},
       gpu("MI325X-256GB", kCdna3, {163.4, 653.7, 1307.4, 1307.4, 2614.9},
           {255.98, 6.0, 1000,
            "AMD Instinct MI325X datasheet, 2024 "
            "(amd.com/en/products/accelerators/instinct/mi300/mi325x.html); "
            "memory as on MI300X"})},
      {"mi355x",
       {"mi355x-288gb"},
       gpu("MI355X-288GB", kCdna4, {157.3, 0, 2516.6, 2516.6, 5033.2},
           {287.98, 8.0, 1400,
            "AMD Instinct MI355X datasheet, 2025 (bandwidth, power); peaks: 256 compute units of twice "
            "MI300X's "
            "rate at 2.4 GHz, unverified; memory as on MI300X"})},
  };
}

}  // namespace

const std::vector<NamedGpu>& gpu_table() {
  static const std::vector<NamedGpu> table = [] {
    std::vector<NamedGpu> all;
    for (auto part : {volta_and_ampere(), hopper(), blackwell(), others()})
      for (NamedGpu& entry : part) all.push_back(std::move(entry));
    return all;
  }();
  return table;
}

const GpuType& known_gpu(std::string_view name) {
  const auto entry = std::ranges::find(gpu_table(), name, &NamedGpu::name);
  assert(entry != gpu_table().end());
  return entry->type;
}

}  // namespace orrery
