// orrery-cuda-probe: measures, on the GPUs of this machine, the figures that a Profile (topology/profile.hpp)
// is made of. Exit codes as orrery's: 0 fine, 2 wrong usage, 5 it can't run here.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "executor/cuda/nvml.hpp"
#include "executor/cuda/probe/device.hpp"
#include "executor/cuda/probe/measurements.hpp"

namespace orrery::cuda {
namespace {

constexpr const char* kUsage =
    "usage: orrery-cuda-probe [--json FILE] [--only copies,launches,matmuls,collectives]\n"
    "  Measures copy bandwidth, launch costs, bf16 matrix products and, on two or more GPUs, NCCL's\n"
    "  collectives; about a minute. Writes JSON to FILE, or to standard output (-, the default).\n";

struct Options {
  std::string json = "-";
  std::set<std::string> parts{"copies", "launches", "matmuls", "collectives"};
};

// False: `options` can't be read from these arguments.
bool parse(int argc, char** argv, Options& options) {
  const std::set<std::string> known = options.parts;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const std::string value = argv[i + 1];
    if (name == "--json") {
      options.json = value;
    } else if (name == "--only") {
      options.parts.clear();
      for (std::size_t start = 0; start <= value.size();) {
        const std::size_t end = std::min(value.find(',', start), value.size());
        options.parts.insert(value.substr(start, end - start));
        start = end + 1;
      }
      for (const std::string& part : options.parts) {
        if (!known.contains(part)) return false;
      }
    } else {
      return false;
    }
  }
  return true;
}

JsonObject describe(int gpus) {
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  ORRERY_CUDA(cudaGetDeviceProperties(&properties, 0));
  ORRERY_CUDA(cudaDriverGetVersion(&driver));
  ORRERY_CUDA(cudaRuntimeGetVersion(&runtime));
  return JsonObject()
      .add("name", properties.name)
      .add("gpus", gpus)
      .add("driver", Nvml().driver_version())
      .add("cuda_of_driver", driver)
      .add("cuda_of_probe", runtime)
      .add("multiprocessors", properties.multiProcessorCount)
      .add("memory_bytes", static_cast<std::int64_t>(properties.totalGlobalMem))
      .add("l2_bytes", properties.l2CacheSize);
}

JsonObject measure(const Options& options) {
  const int gpus = usable_gpus();
  ORRERY_CUDA(cudaSetDevice(0));
  JsonObject result;
  result.add("device", describe(gpus));
  const auto wanted = [&](const char* part) {
    const bool found = options.parts.contains(part);
    if (found) std::fprintf(stderr, "orrery-cuda-probe: measuring %s\n", part);
    return found;
  };
  if (wanted("copies")) result.add("copies", measure_copies());
  if (wanted("launches")) result.add("launches", measure_launches());
  if (wanted("matmuls")) {
    std::string left_out;
    result.add("matmuls", measure_matmuls(left_out));
    if (!left_out.empty()) result.add("matmuls_left_out", left_out);
  }
  if (wanted("collectives")) {
    std::string left_out;
    result.add("collectives", measure_collectives(gpus, left_out));
    result.add("nccl", nccl_version());
    if (!left_out.empty()) result.add("collectives_left_out", left_out);
  }
  return result;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::string text = measure(options).lines();
  if (options.json == "-") {
    std::cout << text;
    return 0;
  }
  std::ofstream file(options.json);
  file << text;
  file.close();
  if (!file) throw DeviceError("can't write " + options.json);
  return 0;
}

}  // namespace
}  // namespace orrery::cuda

int main(int argc, char** argv) {
  try {
    return orrery::cuda::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "orrery-cuda-probe: %s\n", error.what());
    return 5;
  }
}
