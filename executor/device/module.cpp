#include "executor/device/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <sstream>
#include <system_error>

#include "base/error.hpp"
#include "executor/device/module_entry.hpp"
#include "executor/device/unique_ids.hpp"

namespace orrery::device {
namespace {

constexpr const char* kFile = "liborrery-cuda.so";

constexpr const char* kRemedy =
    "build program and module together where nvcc is (cmake --preset cuda), or use --backend host";

const ModuleEntry& load_module() {
  std::vector<std::string> tried;
  for (const std::filesystem::path& place : module_folders()) {
    std::error_code error;
    const bool is_file = std::filesystem::is_regular_file(place, error);  // ORRERY_MODULES may name one.
    const std::filesystem::path file = is_file ? place : place / kFile;
    if (!std::filesystem::exists(file, error)) {
      tried.push_back(file.string());
      continue;
    }
    // Stays loaded: libraries that it brings along can't be unloaded safely.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      fail(ErrorKind::kRuntime, "{} can't be loaded ({}): {}", file.string(), dlerror(), kRemedy);
    }
    const auto* const entry = static_cast<const ModuleEntry*>(dlsym(library, kModuleEntryName));
    if (entry == nullptr) {
      fail(ErrorKind::kRuntime, "{} is no module of orrery's: {}", file.string(), kRemedy);
    }
    if (std::string_view(kBuild) != entry->build) {
      fail(ErrorKind::kRuntime, "{} is of build {}, this program of {}: {}", file.string(), entry->build,
           kBuild, kRemedy);
    }
    return *entry;
  }
  fail(ErrorKind::kRuntime, "no {}: {}; looked for in ORRERY_MODULES and at {}", kFile, kRemedy,
       fmt::join(tried, ", "));
}

const ModuleEntry& module() {
  static const ModuleEntry& entry = load_module();
  return entry;
}

class CudaBackend : public host::Backend {
 public:
  explicit CudaBackend(const DeviceRunOptions& options) : options_(options) {}

  host::RunResult run(const Graph& graph, const Program& program, const host::RunOptions& options) override {
    const std::vector<RankId> ranks = host::active_ranks(program);
    if (ranks.size() > 1) {
      fail(ErrorKind::kUsage,
           "this plan has {} ranks; on GPUs each is a process of its own: torchrun --no-python "
           "--nproc-per-node {} "
           "orrery run …, or mpirun -n {}",
           ranks.size(), ranks.size(), ranks.size());
    }
    device_count();
    const std::unique_ptr<Device> device = module().open(0);
    return run_on_device(graph, program, options, options_, *device, ranks.front(), nullptr);
  }
  std::string describe_ranks(const Program&) const override { return "1 GPU"; }

  host::RunResult run_joined(const Graph& graph, const Program& program, const host::RunOptions& options,
                             launch::Rendezvous& rendezvous) override {
    const int local = rendezvous.membership().local_rank;
    const int devices = device_count();
    if (local >= devices) {
      fail(ErrorKind::kRuntime,
           "rank {} is the {}. of its host, which has {} GPU{}: launch no more ranks a host",
           rendezvous.rank(), local + 1, devices, devices == 1 ? "" : "s");
    }
    const std::unique_ptr<Device> device = module().open(local);
    return run_on_device(graph, program, options, options_, *device, RankId(rendezvous.rank()), &rendezvous);
  }
  // Where no GPU can be used, that is said before ranks wait for each other.
  std::string device_name(int local_rank) const override {
    device_count();
    return with_nccl_host(fmt::format("GPU {}", local_rank));
  }

 private:
  static int device_count() {
    std::string why;
    const int count = module().device_count(why);
    if (count == 0) fail(ErrorKind::kRuntime, "no GPU can be used: {}; without one use --backend host", why);
    return count;
  }

  DeviceRunOptions options_;
};

}  // namespace

std::vector<std::filesystem::path> module_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* const named = std::getenv("ORRERY_MODULES"); named != nullptr) {
    std::istringstream list(named);
    for (std::string folder; std::getline(list, folder, ':');) {
      if (!folder.empty()) folders.emplace_back(folder);
    }
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    folders.push_back(program);
    folders.push_back(program / "lib");
    folders.push_back(program.parent_path() / "lib");
  }
  return folders;
}

std::unique_ptr<host::Backend> cuda_backend(const DeviceRunOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

std::vector<std::string> module_report() { return module().libraries(); }

std::string default_algorithm_cache() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fmt::format("{}/orrery", cache);
  }
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fmt::format("{}/.cache/orrery", home) : "";
}

}  // namespace orrery::device
