// Timed choices in a file.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "executor/device/algorithm_cache.hpp"

namespace fs = std::filesystem;
using orrery::device::AlgorithmCache;
using orrery::device::CachedAlgorithm;

namespace {

struct Folder {
  Folder() {
    static int count = 0;
    path = fs::temp_directory_path() /
           ("orrery-algorithms-" + std::to_string(getpid()) + "-" + std::to_string(++count));
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  AlgorithmCache cache(const std::string& gpu = "NVIDIA H200") const {
    return {path.string(), "cublaslt 13.1.0", gpu};
  }
  fs::path path;
};

CachedAlgorithm algorithm(std::uint64_t seed) {
  CachedAlgorithm made;
  for (auto& word : made.words) word = seed = seed * 6364136223846793005ULL + 1;
  made.microseconds = static_cast<double>(seed % 100000) / 8;
  return made;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("choices come back as they were kept", "[device]") {
  const Folder folder;
  AlgorithmCache written = folder.cache();
  CHECK(written.load().empty());
  for (std::uint64_t i = 0; i < 20; ++i) written.put("m" + std::to_string(i) + " n1, a bf16", algorithm(i));
  REQUIRE(written.save().empty());

  AlgorithmCache read = folder.cache();
  CHECK(read.load().empty());
  for (std::uint64_t i = 0; i < 20; ++i) {
    const CachedAlgorithm* const found = read.find("m" + std::to_string(i) + " n1, a bf16");
    REQUIRE(found != nullptr);
    CHECK(*found == algorithm(i));
  }
  CHECK(read.find("m20 n1, a bf16") == nullptr);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);  // No unfinished file is left.

  AlgorithmCache other = folder.cache("NVIDIA H100");
  CHECK(other.load().empty());
  CHECK(other.find("m1 n1, a bf16") == nullptr);
}

TEST_CASE("what another process kept meanwhile stays", "[device]") {
  const Folder folder;
  AlgorithmCache first = folder.cache(), second = folder.cache();
  first.put("a", algorithm(1));
  first.put("both", algorithm(2));
  second.put("b", algorithm(3));
  second.put("both", algorithm(4));
  REQUIRE(first.save().empty());
  REQUIRE(second.save().empty());
  AlgorithmCache read = folder.cache();
  CHECK(read.load().empty());
  REQUIRE((read.find("a") != nullptr && read.find("b") != nullptr && read.find("both") != nullptr));
  CHECK(*read.find("a") == algorithm(1));
  CHECK(*read.find("b") == algorithm(3));
  CHECK(*read.find("both") == algorithm(4));
}

TEST_CASE("files that aren't lists of algorithms are left out with a warning", "[device]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "\n", "{\"algorithms\": []}\n", std::string(5000, '\xff'),
               "orrery algorithms 2\tcublaslt 13.1.0\tNVIDIA H200\n",
               "orrery algorithms 1\tcublaslt 13.0.0\tNVIDIA H200\n");
  const Folder folder;
  AlgorithmCache cache = folder.cache();
  fs::create_directories(folder.path);
  std::ofstream(cache.path()) << text;
  CHECK_THAT(cache.load(), Catch::Contains("isn't a list of algorithms"));
  cache.put("a", algorithm(1));
  REQUIRE(cache.save().empty());
  AlgorithmCache read = folder.cache();
  CHECK(read.load().empty());
  CHECK(read.find("a") != nullptr);
}

TEST_CASE("damaged lines are left out and counted", "[device]") {
  const Folder folder;
  AlgorithmCache written = folder.cache();
  written.put("good", algorithm(1));
  REQUIRE(written.save().empty());
  const std::string good = text_of(written.path());
  const std::string line = good.substr(good.find('\n') + 1);
  const std::string entry = line.substr(line.find('\t'));
  std::string wrong_digit = "e" + entry;
  wrong_digit[5] = 'g';
  std::ofstream(written.path()) << good << "no tabulators\nx\t1234\t5\ny\t" << std::string(128, '0')
                                << "\tfast\nz\t" << std::string(128, '0') << "\tnan\n"
                                << wrong_digit << "cut" << entry.substr(0, 60);
  AlgorithmCache read = folder.cache();
  CHECK_THAT(read.load(), Catch::Contains("6 damaged lines"));
  REQUIRE(read.find("good") != nullptr);
  CHECK(*read.find("good") == algorithm(1));
  for (const char* key : {"x", "y", "z", "e", "cut"}) CHECK(read.find(key) == nullptr);
}

TEST_CASE("without a folder nothing is kept, and a folder that can't be written is a warning", "[device]") {
  AlgorithmCache none("", "cublaslt 13.1.0", "NVIDIA H200");
  none.put("a", algorithm(1));
  CHECK(none.load().empty());
  CHECK(none.save().empty());
  CHECK(none.find("a") != nullptr);

  const Folder folder;
  fs::create_directories(folder.path);
  std::ofstream(folder.path / "file") << "x";
  AlgorithmCache blocked((folder.path / "file").string(), "cublaslt 13.1.0", "NVIDIA H200");
  blocked.put("a", algorithm(1));
  CHECK_THAT(blocked.save(), Catch::Contains("can't write"));
}
