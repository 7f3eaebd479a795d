#include "simulator/simgrid_platform.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>
#include <xbt/log.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <simgrid/s4u.hpp>
#include <sstream>

#include "base/error.hpp"
#include "simulator/simgrid_process.hpp"

namespace orrery {
namespace {

namespace s4u = simgrid::s4u;

// SimGrid reads files only, and wants the name to end in ".xml".
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text) {
    std::string name = (std::filesystem::temp_directory_path() / "orrery-platform-XXXXXX.xml").string();
    const int file = ::mkstemps(name.data(), 4);
    if (file < 0) fail(ErrorKind::kRuntime, "can't make a temporary file {}", name);
    ::close(file);
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string load_and_ask(const std::string& file,
                         const std::vector<std::pair<std::string, std::string>>& pairs) {
  static char name[] = "orrery";
  char* arguments[] = {name, nullptr};
  int count = 1;
  s4u::Engine engine(&count, arguments);
  xbt_log_control_set("root.thres:warning");
  engine.load_platform(file);
  std::string answer;
  for (const auto& [from, to] : pairs) {
    std::vector<s4u::Link*> links;
    double latency_s = 0, bytes_per_s = std::numeric_limits<double>::infinity();
    engine.host_by_name(from)->route_to(engine.host_by_name(to), links, &latency_s);
    for (const s4u::Link* link : links) bytes_per_s = std::min(bytes_per_s, link->get_bandwidth());
    answer += fmt::format("{:.17g} {:.17g}\n", bytes_per_s, latency_s);
  }
  return answer;
}

}  // namespace

std::vector<SimgridWay> simgrid_ways(std::string_view platform,
                                     const std::vector<std::pair<std::string, std::string>>& pairs) {
  const TemporaryFile file(platform);
  std::istringstream answer(simgrid_engine::run_in_child([&] { return load_and_ask(file.path(), pairs); }));
  std::vector<SimgridWay> ways(pairs.size());
  for (SimgridWay& way : ways) answer >> way.bytes_per_s >> way.latency_s;
  return ways;
}

}  // namespace orrery
