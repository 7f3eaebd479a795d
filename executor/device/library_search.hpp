#pragma once
// Where the libraries of a GPU vendor may lie: they come with a toolkit, with the system or inside of
// Python's packages, and none of these folders need be known to the loader. Nothing is loaded here, and no
// Python started.

#include <compare>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::device {

struct LibraryVersion {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const LibraryVersion&) const = default;
};
std::string to_string(LibraryVersion version);  // "9.19.0"
// "9.19.0.56" → 9.19.0; fewer than two numbers give nothing.
std::optional<LibraryVersion> parse_version(std::string_view text);

struct LibraryWanted {
  std::string_view name;     // "cuDNN"
  std::string_view soname;   // "libcudnn.so.9"
  std::string_view package;  // Of Python: "cudnn", as in nvidia_cudnn_cu13-9.19.0.56.dist-info.
  LibraryVersion at_least;
  std::string_view remedy;  // What to install where there is none.
};

// What the search depends on; tests give their own.
struct SearchRoots {
  std::function<std::optional<std::string>(const char*)> variable;  // Of the environment.
  std::filesystem::path root = "/";                                 // Before every absolute path.
  std::filesystem::path module_folder;  // Of the program's own module; empty: unknown.
};
// This process's environment.
SearchRoots system_roots(std::filesystem::path module_folder);

// A variable that names folders to be searched before all others, colons between them.
inline constexpr const char* kLibrariesVariable = "ORRERY_CUDA_LIBRARIES";

struct SearchFolder {
  std::filesystem::path path;
  bool chosen_by_user = false;  // By kLibrariesVariable.
};
// Folders that exist, each once, in order: the variable's; beside the module; the loader's; the toolkit's;
// Python's.
std::vector<SearchFolder> search_folders(const SearchRoots& roots);

struct LibraryFile {
  std::string path;  // Or a bare soname: what the loader makes of it.
  bool chosen_by_user = false;
  std::optional<LibraryVersion>
      version;  // As the names of files around it tell; the library has the last word.
};
// Files to try, in order: the user's, then those of the highest version told, then those that tell none, then
// the bare soname. Every file once, whatever links lead to it.
std::vector<LibraryFile> library_files(const LibraryWanted& wanted, const std::vector<SearchFolder>& folders);

// What a file's own name ("libcudnn.so.9.14.0") or the record of its Python package says.
std::optional<LibraryVersion> told_version(const LibraryWanted& wanted, const std::filesystem::path& file);

}  // namespace orrery::device
