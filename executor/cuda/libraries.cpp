#include "executor/cuda/libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <nvrtc.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "base/error.hpp"

namespace orrery::cuda {
namespace {

using device::LibraryVersion;
using device::LibraryWanted;

// The versions below are the oldest whose interfaces are used here: attention graphs and their device
// descriptions came with cuDNN 9.8, shrinking communicators with NCCL 2.27.
constexpr LibraryWanted kCublasLt{"cuBLASLt",
                                  "libcublasLt.so.13",
                                  "cublas",
                                  {13, 0, 0},
                                  "install cuBLAS 13 (CUDA Toolkit 13, or the Python package nvidia-cublas)"};
constexpr LibraryWanted kNvrtc{"NVRTC",
                               "libnvrtc.so.13",
                               "cuda_nvrtc",
                               {13, 0, 0},
                               "install NVRTC 13 (CUDA Toolkit 13, or the Python package nvidia-cuda-nvrtc)"};
constexpr LibraryWanted kCudnn{
    "cuDNN",
    "libcudnn.so.9",
    "cudnn",
    {9, 8, 0},
    "install cuDNN 9.8 or newer for CUDA 13 (the Python package nvidia-cudnn-cu13)"};
constexpr LibraryWanted kNccl{"NCCL",
                              "libnccl.so.2",
                              "nccl",
                              {2, 27, 0},
                              "install NCCL 2.27 or newer for CUDA 13 (the Python package nvidia-nccl-cu13)"};
constexpr LibraryWanted kCupti{"CUPTI",
                               "libcupti.so.13",
                               "cuda_cupti",
                               {13, 0, 0},
                               "install CUPTI 13 (CUDA Toolkit 13, or the Python package nvidia-cuda-cupti)"};

// In messages, before a line for each file.
constexpr std::string_view kTried = ". Tried:";

std::filesystem::path module_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&module_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

const std::vector<device::SearchFolder>& folders() {
  static const std::vector<device::SearchFolder> found =
      device::search_folders(device::system_roots(module_folder()));
  return found;
}

template <class Function>
Function find_symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

std::string path_of(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr;
  return known && map->l_name != nullptr && *map->l_name != '\0' ? map->l_name : asked;
}

using VersionOf = std::function<std::optional<LibraryVersion>(void* handle)>;

// The first of the files that loads and is new enough.
LoadedLibrary load(const LibraryWanted& wanted, int mode, const VersionOf& version_of) {
  std::string tried;
  for (const device::LibraryFile& file : device::library_files(wanted, folders())) {
    void* const handle = dlopen(file.path.c_str(), RTLD_NOW | mode);
    if (handle == nullptr) {
      const char* const why = dlerror();
      tried += fmt::format("\n  {}", why != nullptr ? why : file.path.c_str());
      continue;
    }
    const std::optional<LibraryVersion> version = version_of(handle);
    if (version && version->major == wanted.at_least.major && !(*version < wanted.at_least)) {
      return {handle, path_of(handle, file.path), *version};
    }
    tried += fmt::format("\n  {}: is {}, {} or newer is needed", file.path,
                         version ? to_string(*version) : "of unknown version", to_string(wanted.at_least));
    dlclose(handle);
  }
  fail(ErrorKind::kRuntime, "no usable {} ({}): {}, or name its folder in {}{}{}", wanted.name, wanted.soname,
       wanted.remedy, device::kLibrariesVariable, kTried, tried);
}

// What a library's function with a version number for its answer says; digits: 10,000·major + 100·minor +
// patch.
template <class Answer>
VersionOf version_by(const char* symbol) {
  return [symbol](void* handle) -> std::optional<LibraryVersion> {
    const auto ask = find_symbol<Answer (*)()>(handle, symbol);
    if (ask == nullptr) return std::nullopt;
    const int number = static_cast<int>(ask());
    return LibraryVersion{number / 10000, number / 100 % 100, number % 100};
  };
}

VersionOf cublaslt_version() { return version_by<std::size_t>("cublasLtGetVersion"); }
VersionOf cudnn_version() { return version_by<std::size_t>("cudnnGetVersion"); }

std::optional<LibraryVersion> nvrtc_version(void* handle) {
  const auto ask = find_symbol<decltype(&nvrtcVersion)>(handle, "nvrtcVersion");
  LibraryVersion version;
  if (ask == nullptr || ask(&version.major, &version.minor) != NVRTC_SUCCESS) return std::nullopt;
  return version;
}

std::optional<LibraryVersion> nccl_version(void* handle) {
  const auto ask = find_symbol<decltype(&ncclGetVersion)>(handle, "ncclGetVersion");
  int number = 0;  // 22809 is 2.28.9.
  if (ask == nullptr || ask(&number) != ncclSuccess) return std::nullopt;
  return LibraryVersion{number / 10000, number / 100 % 100, number % 100};
}

std::optional<LibraryVersion> cupti_version(void* handle) {
  const auto ask = find_symbol<decltype(&cuptiGetVersion)>(handle, "cuptiGetVersion");
  std::uint32_t number = 0;  // 130001 is 13.0, interface 1.
  if (ask == nullptr || ask(&number) != CUPTI_SUCCESS) return std::nullopt;
  return LibraryVersion{static_cast<int>(number / 10000), static_cast<int>(number / 100 % 100),
                        static_cast<int>(number % 100)};
}

// Fills in one function after another.
class Symbols {
 public:
  Symbols(const LibraryWanted& wanted, const LoadedLibrary& library) : wanted_(wanted), library_(library) {}

  template <class Function>
  Symbols& operator()(Function& function, const char* name) {
    function = find_symbol<Function>(library_.handle, name);
    if (function == nullptr) {
      fail(ErrorKind::kRuntime, "{} {} at {} has no function {}: {}, or name its folder in {}", wanted_.name,
           to_string(library_.version), library_.path, name, wanted_.remedy, device::kLibrariesVariable);
    }
    return *this;
  }

 private:
  const LibraryWanted& wanted_;
  const LoadedLibrary& library_;
};

CublasLt load_cublaslt() {
  CublasLt made;
  made.library = load(kCublasLt, RTLD_GLOBAL, cublaslt_version());
  Symbols symbols(kCublasLt, made.library);
  symbols(made.create, "cublasLtCreate")(made.destroy, "cublasLtDestroy");
  symbols(made.status_string, "cublasLtGetStatusString")(made.matmul, "cublasLtMatmul");
  symbols(made.algorithm_check, "cublasLtMatmulAlgoCheck")(made.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  symbols(made.operation_create, "cublasLtMatmulDescCreate")(made.operation_destroy,
                                                             "cublasLtMatmulDescDestroy");
  symbols(made.operation_set, "cublasLtMatmulDescSetAttribute");
  symbols(made.layout_create, "cublasLtMatrixLayoutCreate")(made.layout_destroy,
                                                            "cublasLtMatrixLayoutDestroy");
  symbols(made.layout_set, "cublasLtMatrixLayoutSetAttribute");
  symbols(made.preference_create, "cublasLtMatmulPreferenceCreate");
  symbols(made.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  symbols(made.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return made;
}

// cuDNN opens its parts by name alone too, and LD_LIBRARY_PATH may lead it to those of another version; parts
// that are loaded already are taken instead. One that isn't there is for cuDNN to miss.
void load_parts_beside(const std::string& library) {
  const std::filesystem::path folder = std::filesystem::path(library).parent_path();
  if (folder.empty()) return;
  for (const char* part : {"graph", "ops", "engines_runtime_compiled", "engines_precompiled", "heuristic"}) {
    dlopen((folder / fmt::format("libcudnn_{}.so.9", part)).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

Cudnn load_cudnn() {
  // cuDNN opens these two by soname alone; once they are loaded that finds them wherever they lie.
  nvrtc();
  cublaslt();
  Cudnn made;
  made.library = load(kCudnn, RTLD_LOCAL, cudnn_version());
  load_parts_beside(made.library.path);
  Symbols symbols(kCudnn, made.library);
  symbols(made.create, "cudnnCreate")(made.destroy, "cudnnDestroy")(made.set_stream, "cudnnSetStream");
  symbols(made.error_string, "cudnnGetErrorString")(made.last_error_string, "cudnnGetLastErrorString");
  symbols(made.create_descriptor, "cudnnBackendCreateDescriptor");
  symbols(made.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  symbols(made.set_attribute, "cudnnBackendSetAttribute")(made.get_attribute, "cudnnBackendGetAttribute");
  symbols(made.finalize, "cudnnBackendFinalize")(made.execute, "cudnnBackendExecute");
  return made;
}

Nccl load_nccl() {
  Nccl made;
  made.library = load(kNccl, RTLD_LOCAL, nccl_version);
  Symbols symbols(kNccl, made.library);
  symbols(made.get_unique_id, "ncclGetUniqueId")(made.init_rank_config, "ncclCommInitRankConfig");
  symbols(made.get_async_error, "ncclCommGetAsyncError")(made.finalize, "ncclCommFinalize");
  symbols(made.register_buffer, "ncclCommRegister")(made.deregister_buffer, "ncclCommDeregister");
  symbols(made.destroy, "ncclCommDestroy")(made.abort, "ncclCommAbort");
  symbols(made.error_string, "ncclGetErrorString")(made.last_error, "ncclGetLastError");
  symbols(made.group_start, "ncclGroupStart")(made.group_end, "ncclGroupEnd");
  symbols(made.all_reduce, "ncclAllReduce")(made.all_gather, "ncclAllGather");
  symbols(made.reduce_scatter, "ncclReduceScatter")(made.broadcast, "ncclBroadcast");
  symbols(made.send, "ncclSend")(made.receive, "ncclRecv");
  return made;
}

Cupti load_cupti() {
  Cupti made;
  made.library = load(kCupti, RTLD_LOCAL, cupti_version);
  Symbols symbols(kCupti, made.library);
  symbols(made.result_string, "cuptiGetResultString")(made.enable, "cuptiActivityEnable");
  symbols(made.subscribe, "cuptiSubscribe")(made.unsubscribe, "cuptiUnsubscribe");
  symbols(made.enable_callback, "cuptiEnableCallback");
  symbols(made.register_callbacks, "cuptiActivityRegisterCallbacks")(made.disable, "cuptiActivityDisable");
  symbols(made.flush_all, "cuptiActivityFlushAll")(made.next_record, "cuptiActivityGetNextRecord");
  symbols(made.dropped_records, "cuptiActivityGetNumDroppedRecords");
  symbols(made.graph_node_id, "cuptiGetGraphNodeId")(made.timestamp, "cuptiGetTimestamp");
  return made;
}

std::string line_of(const LibraryWanted& wanted, const std::function<const LoadedLibrary&()>& library) {
  try {
    const LoadedLibrary& found = library();
    return fmt::format("{} {}  {}", wanted.name, to_string(found.version), found.path);
  } catch (const Error& error) {
    const std::string why = error.what();
    return why.substr(0, why.find(kTried));
  }
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt loaded = load_cublaslt();
  return loaded;
}

const LoadedLibrary& nvrtc() {
  static const LoadedLibrary loaded = load(kNvrtc, RTLD_GLOBAL, nvrtc_version);
  return loaded;
}

const Cudnn& cudnn() {
  static const Cudnn loaded = load_cudnn();
  return loaded;
}

const Nccl& nccl() {
  static const Nccl loaded = load_nccl();
  return loaded;
}

const Cupti& cupti() {
  static const Cupti loaded = load_cupti();
  return loaded;
}

std::vector<std::string> report() {
  return {line_of(kCublasLt, []() -> const LoadedLibrary& { return cublaslt().library; }),
          line_of(kNvrtc, []() -> const LoadedLibrary& { return nvrtc(); }),
          line_of(kCudnn, []() -> const LoadedLibrary& { return cudnn().library; }),
          line_of(kNccl, []() -> const LoadedLibrary& { return nccl().library; })};
}

}  // namespace orrery::cuda
