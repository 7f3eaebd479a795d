// Where a GPU's libraries are looked for, in trees of empty files.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "executor/device/library_search.hpp"

namespace fs = std::filesystem;
using namespace orrery::device;

namespace {

constexpr LibraryWanted kCudnn{"cuDNN", "libcudnn.so.9", "cudnn", {9, 8, 0}, "install it"};

// A root of a file system, with an environment.
class Machine {
 public:
  Machine() {
    static int count = 0;
    root_ = fs::temp_directory_path() /
            ("orrery-libraries-" + std::to_string(getpid()) + "-" + std::to_string(++count));
    fs::create_directories(root_);
    root_ = fs::canonical(root_);
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void file(const std::string& path, const std::string& text = "") {
    const fs::path at = root_ / path;
    fs::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  void folder(const std::string& path) { fs::create_directories(root_ / path); }
  // Relative, so that it leads to the same place wherever the root is.
  void link(const std::string& path, const std::string& to) {
    fs::create_directories((root_ / path).parent_path());
    fs::create_symlink(to, root_ / path);
  }
  void set(const std::string& variable, const std::string& value) { variables_[variable] = value; }

  std::vector<std::string> files(const LibraryWanted& wanted = kCudnn,
                                 const std::string& module_folder = "") const {
    SearchRoots roots;
    roots.root = root_;
    roots.module_folder = module_folder;
    roots.variable = [this](const char* name) -> std::optional<std::string> {
      const auto at = variables_.find(name);
      return at != variables_.end() ? std::optional(at->second) : std::nullopt;
    };
    std::vector<std::string> found;
    for (const LibraryFile& each : library_files(wanted, search_folders(roots))) {
      std::string text = each.path;
      if (text.rfind(root_.string(), 0) == 0) text = text.substr(root_.string().size() + 1);
      found.push_back(text + (each.version ? " " + to_string(*each.version) : "") +
                      (each.chosen_by_user ? " chosen" : ""));
    }
    return found;
  }

 private:
  fs::path root_;
  std::map<std::string, std::string> variables_;
};

using Files = std::vector<std::string>;

}  // namespace

TEST_CASE("versions are read and compared number by number", "[device]") {
  CHECK(parse_version("9.19.0.56") == LibraryVersion{9, 19, 0});
  CHECK(parse_version("2.28.9") == LibraryVersion{2, 28, 9});
  CHECK(parse_version("13.1") == LibraryVersion{13, 1, 0});
  CHECK(parse_version("9.14.") == LibraryVersion{9, 14, 0});
  for (const char* text : {"", "9", "9.", "so.9", "9.x", "9x.1"}) CHECK_FALSE(parse_version(text));
  CHECK(LibraryVersion{9, 8, 0} < LibraryVersion{9, 19, 0});
  CHECK(LibraryVersion{2, 30, 1} < LibraryVersion{13, 0, 0});
  CHECK(to_string(LibraryVersion{9, 19, 0}) == "9.19.0");
}

TEST_CASE("a machine without libraries leaves it to the loader", "[device]") {
  const Machine machine;
  CHECK(machine.files() == Files{"libcudnn.so.9"});
}

TEST_CASE("the newest of a system's and a Python environment's library comes first", "[device]") {
  Machine machine;
  machine.file("usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0");
  machine.link("usr/lib/x86_64-linux-gnu/libcudnn.so.9", "libcudnn.so.9.14.0");
  machine.file("opt/training/.venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
  machine.folder("opt/training/.venv/lib/python3.12/site-packages/nvidia_cudnn_cu13-9.19.0.56.dist-info");
  machine.folder("opt/training/.venv/lib/python3.12/site-packages/nvidia_cudnn_cu12-9.30.0.1.dist-info");
  machine.folder("opt/training/.venv/lib/python3.12/site-packages/nvidia_cudnn_frontend-1.17.0.dist-info");
  CHECK(machine.files() ==
        Files{"opt/training/.venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9 9.19.0",
              "usr/lib/x86_64-linux-gnu/libcudnn.so.9 9.14.0", "libcudnn.so.9"});
}

TEST_CASE("a folder that the user names comes before newer ones", "[device]") {
  Machine machine;
  machine.file("usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0");
  machine.link("usr/lib/x86_64-linux-gnu/libcudnn.so.9", "libcudnn.so.9.14.0");
  machine.file("home/me/libs/libcudnn.so.9.10.2");
  machine.link("home/me/libs/libcudnn.so.9", "libcudnn.so.9.10.2");
  machine.set("ORRERY_CUDA_LIBRARIES", "/nowhere::/home/me/libs");
  CHECK(machine.files() == Files{"home/me/libs/libcudnn.so.9 9.10.2 chosen",
                                 "usr/lib/x86_64-linux-gnu/libcudnn.so.9 9.14.0", "libcudnn.so.9"});
}

TEST_CASE("a file that several links lead to is tried once", "[device]") {
  Machine machine;
  machine.file("usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudnn.so.9");
  machine.link("usr/local/cuda-13.0/lib64", "targets/x86_64-linux/lib");
  machine.link("usr/local/cuda", "cuda-13.0");
  machine.set("CUDA_HOME", "/usr/local/cuda");
  CHECK(machine.files() == Files{"usr/local/cuda/lib64/libcudnn.so.9", "libcudnn.so.9"});
}

TEST_CASE("folders are looked for where toolkits, the loader and Python have them", "[device]") {
  const std::string place =
      GENERATE(as<std::string>{}, "a/lib64", "b/extras/CUPTI/lib64", "c", "listed/lib", "module", "lib",
               "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
               "conda/lib/python3.13/site-packages/nvidia/cudnn/lib",
               "usr/local/lib/python3.12/dist-packages/nvidia/cudnn/lib",
               "usr/lib/python3/dist-packages/nvidia/cu13/lib",
               "apps/python/lib/python3.12/site-packages/nvidia/cudnn/lib",
               "real/python/lib/python3.12/site-packages/nvidia/cudnn/lib", "usr/local/cuda-13.2/lib64");
  CAPTURE(place);
  Machine machine;
  machine.set("CUDA_HOME", "/a");
  machine.set("CUDA_PATH", "/b");
  machine.set("LD_LIBRARY_PATH", ":/c:");
  machine.file("etc/ld.so.conf.d/vendor.conf", "# libraries\n/listed/lib # of a vendor\nnot/absolute\n");
  machine.set("VIRTUAL_ENV", "/venv");
  machine.set("CONDA_PREFIX", "/conda");
  machine.set("PATH", "/bin:/apps/python/bin");
  machine.file("real/python/bin/python3.12");
  machine.link("apps/python/bin/python3", "../../../real/python/bin/python3.12");
  machine.file(place + "/libcudnn.so.9");
  CHECK(machine.files(kCudnn, "/module") == Files{place + "/libcudnn.so.9", "libcudnn.so.9"});
}

TEST_CASE("a library beside the module is found", "[device]") {
  Machine machine;
  machine.folder("app/bin");
  machine.file("app/lib/libcudnn.so.9");
  CHECK(machine.files(kCudnn, "/app/bin") == Files{"app/bin/../lib/libcudnn.so.9", "libcudnn.so.9"});
}

TEST_CASE("files whose names tell no version come after those that do", "[device]") {
  Machine machine;
  machine.file("usr/lib/x86_64-linux-gnu/libcudnn.so.9");
  machine.file("usr/lib64/libcudnn.so.9.8.0");
  machine.link("usr/lib64/libcudnn.so.9", "libcudnn.so.9.8.0");
  CHECK(machine.files() ==
        Files{"usr/lib64/libcudnn.so.9 9.8.0", "usr/lib/x86_64-linux-gnu/libcudnn.so.9", "libcudnn.so.9"});
}
