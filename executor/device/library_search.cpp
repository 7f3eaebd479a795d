#include "executor/device/library_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>

namespace orrery::device {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Sorted, so that a search gives the same on every machine of a cluster. What can't be read has no entries.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (fs::directory_iterator at(folder, unreadable), end; !unreadable && at != end;
       at.increment(unreadable)) {
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> entries_that_begin_with(const fs::path& folder, std::string_view start) {
  std::vector<fs::path> found = entries(folder);
  std::erase_if(found, [&](const fs::path& path) { return path.filename().string().rfind(start, 0) != 0; });
  return found;
}

class Collector {
 public:
  explicit Collector(const SearchRoots& roots) : roots_(roots) {}

  fs::path rooted(const fs::path& path) const {
    return path.is_absolute() ? roots_.root / path.relative_path() : path;
  }
  std::optional<std::string> variable(const char* name) const {
    std::optional<std::string> value = roots_.variable ? roots_.variable(name) : std::nullopt;
    return value && !value->empty() ? value : std::nullopt;
  }

  void add(const fs::path& folder, bool chosen_by_user = false) {
    std::error_code missing;
    const fs::path real = fs::canonical(folder, missing);
    if (missing || !fs::is_directory(real, missing) || !seen_.insert(real.string()).second) return;
    found_.push_back({folder, chosen_by_user});
  }

  // nvidia/cudnn/lib, nvidia/cu13/lib and their like.
  void add_packages(const fs::path& site_packages) {
    for (const fs::path& package : entries(site_packages / "nvidia")) add(package / "lib");
  }
  // An installation of Python, or a virtual environment.
  void add_python(const fs::path& prefix) {
    for (const char* lib : {"lib", "lib64"}) {
      for (const fs::path& python : entries_that_begin_with(prefix / lib, "python3")) {
        for (const char* packages : {"site-packages", "dist-packages"}) add_packages(python / packages);
      }
    }
  }
  void add_toolkit(const fs::path& toolkit) {
    for (const char* part : {"lib64", "lib", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"})
      add(toolkit / part);
  }

  std::vector<SearchFolder> take() { return std::move(found_); }

 private:
  const SearchRoots& roots_;
  std::vector<SearchFolder> found_;
  std::set<std::string> seen_;
};

// As ld.so: its variable, its configuration, its own folders.
void add_loader_folders(Collector& to) {
  for (const std::string& folder : split(to.variable("LD_LIBRARY_PATH").value_or(""), ':'))
    to.add(to.rooted(folder));
  for (const fs::path& file : entries(to.rooted("/etc/ld.so.conf.d"))) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      line.erase(std::min(line.find_first_of(" \t#\r"), line.size()));
      if (!line.empty() && line.front() == '/') to.add(to.rooted(line));
    }
  }
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/local/lib",
                             "/usr/lib64", "/lib64", "/usr/lib", "/lib"}) {
    to.add(to.rooted(folder));
  }
}

void add_toolkits(Collector& to) {
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto toolkit = to.variable(name)) to.add_toolkit(to.rooted(*toolkit));
  }
  to.add_toolkit(to.rooted("/usr/local/cuda"));
  for (const fs::path& toolkit : entries_that_begin_with(to.rooted("/usr/local"), "cuda-13"))
    to.add_toolkit(toolkit);
}

// The installations that `python3` and `python` of PATH belong to: PREFIX/bin/python3, and where links from
// there lead.
void add_pythons_of_path(Collector& to) {
  for (const std::string& folder : split(to.variable("PATH").value_or(""), ':')) {
    for (const char* name : {"python3", "python"}) {
      const fs::path program = to.rooted(folder) / name;
      std::error_code missing;
      if (!fs::exists(program, missing)) continue;
      to.add_python(to.rooted(folder).parent_path());
      const fs::path real = fs::canonical(program, missing);
      if (!missing) to.add_python(real.parent_path().parent_path());
    }
  }
}

void add_pythons(Collector& to) {
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto prefix = to.variable(name)) to.add_python(to.rooted(*prefix));
  }
  add_pythons_of_path(to);
  for (const fs::path& product : entries(to.rooted("/opt"))) {
    to.add_python(product / ".venv");
    to.add_python(product / "venv");
    to.add_python(product);
  }
  to.add_python(to.rooted("/usr/local"));
  to.add_python(to.rooted("/usr"));
}

}  // namespace

std::string to_string(LibraryVersion version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

std::optional<LibraryVersion> parse_version(std::string_view text) {
  int numbers[3] = {0, 0, 0}, count = 0;
  for (const char *at = text.data(), *end = at + text.size(); count < 3;) {
    const auto [stop, error] = std::from_chars(at, end, numbers[count]);
    if (error != std::errc() || numbers[count] < 0) break;
    ++count;
    if (stop == end || *stop != '.') break;
    at = stop + 1;
  }
  if (count < 2) return std::nullopt;
  return LibraryVersion{numbers[0], numbers[1], numbers[2]};
}

SearchRoots system_roots(std::filesystem::path module_folder) {
  SearchRoots roots;
  roots.variable = [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  roots.module_folder = std::move(module_folder);
  return roots;
}

std::vector<SearchFolder> search_folders(const SearchRoots& roots) {
  Collector folders(roots);
  for (const std::string& folder : split(folders.variable(kLibrariesVariable).value_or(""), ':')) {
    folders.add(folders.rooted(folder), true);
  }
  if (!roots.module_folder.empty()) {
    folders.add(folders.rooted(roots.module_folder));
    folders.add(folders.rooted(roots.module_folder) / ".." / "lib");
  }
  add_loader_folders(folders);
  add_toolkits(folders);
  add_pythons(folders);
  return folders.take();
}

std::optional<LibraryVersion> told_version(const LibraryWanted& wanted, const std::filesystem::path& file) {
  std::error_code missing;
  const fs::path real = fs::canonical(file, missing);
  // "libcudnn.so.9.14.0" is of version 9.14.0; but "libcublasLt.so.13" alone tells no more than its soname
  // does.
  const std::string name = missing ? file.filename().string() : real.filename().string();
  const std::size_t number = name.find(".so.");
  if (number != std::string::npos) {
    if (const auto version = parse_version(std::string_view(name).substr(number + 4))) return version;
  }
  // site-packages/nvidia/cudnn/lib/libcudnn.so.9 beside site-packages/nvidia_cudnn_cu13-9.19.0.56.dist-info.
  const fs::path nvidia = file.parent_path().parent_path().parent_path();
  if (nvidia.filename() != "nvidia") return std::nullopt;
  std::optional<LibraryVersion> highest;
  const std::string start = fmt::format("nvidia_{}", wanted.package);
  for (const fs::path& entry : entries_that_begin_with(nvidia.parent_path(), start)) {
    const std::string record = entry.filename().string();
    if (entry.extension() != ".dist-info") continue;
    const std::size_t dash = record.find('-');
    const std::string_view suffix = std::string_view(record).substr(start.size(), dash - start.size());
    if (dash == std::string::npos || dash < start.size() || (!suffix.empty() && suffix != "_cu13")) continue;
    const auto version = parse_version(std::string_view(record).substr(dash + 1));
    if (version && (!highest || *highest < *version)) highest = version;
  }
  return highest;
}

std::vector<LibraryFile> library_files(const LibraryWanted& wanted,
                                       const std::vector<SearchFolder>& folders) {
  std::vector<LibraryFile> files;
  std::set<std::string> seen;
  for (const SearchFolder& folder : folders) {
    const fs::path path = folder.path / wanted.soname;
    std::error_code missing;
    const fs::path real = fs::canonical(path, missing);
    if (missing || !seen.insert(real.string()).second) continue;
    files.push_back({path.string(), folder.chosen_by_user, told_version(wanted, path)});
  }
  const auto rank = [](const LibraryFile& file) { return file.chosen_by_user ? 0 : file.version ? 1 : 2; };
  std::stable_sort(files.begin(), files.end(), [&](const LibraryFile& a, const LibraryFile& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return rank(a) == 1 && *b.version < *a.version;
  });
  files.push_back({std::string(wanted.soname), false, std::nullopt});
  return files;
}

}  // namespace orrery::device
