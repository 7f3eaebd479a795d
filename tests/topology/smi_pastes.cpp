#include "tests/topology/smi_pastes.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace orrery::smi_test {

std::string four_gpus() {
  return "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
         "GPU0\t X \tNV4\tSYS\tSYS\tPIX\tSYS\t0-15,32-47\t0\t\tN/A\n"
         "GPU1\tNV4\t X \tSYS\tSYS\tPXB\tSYS\t0-15,32-47\t0\t\tN/A\n"
         "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPHB\t16-31,48-63\t1\t\tN/A\n"
         "GPU3\tSYS\tSYS\tNV4\t X \tSYS\tNODE\t16-31,48-63\t1\t\tN/A\n"
         "NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
         "NIC1\tSYS\tSYS\tPHB\tNODE\tSYS\t X \t\t\t\t\n"
         "\nLegend:\n\n  X    = Self\n"
         "  PIX  = Connection traversing at most a single PCIe bridge\n"
         "  NV#  = Connection traversing a bonded set of # NVLinks\n"
         "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n";
}

std::string two_gpus() {
  return "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\n"
         "GPU0\t X \tPHB\tSOC\t0-5\n"
         "GPU1\tPHB\t X \tSOC\t0-5\n"
         "mlx5_0\tSOC\tSOC\t X \t\n";
}

std::string switched_gpus() {
  return "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
         "GPU0\t X \tNV18\tNV18\tNV18\t0-31\t0\n"
         "GPU1\tNV18\t X \tNV18\tNV18\t0-31\t0\n"
         "GPU2\tNV18\tNV18\t X \tNV18\t32-63\t1\n"
         "GPU3\tNV18\tNV18\tNV18\t X \t32-63\t1\n";
}

std::vector<std::string> own_pastes() { return {four_gpus(), two_gpus(), switched_gpus()}; }

std::vector<std::filesystem::path> data_files() {
  const char* given = std::getenv("ORRERY_DATA");
  const auto data = given != nullptr
                        ? std::filesystem::path(given)
                        : std::filesystem::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data";
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(data / "topo" / "smi")) return files;
  for (const auto& entry : std::filesystem::directory_iterator(data / "topo" / "smi"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

}  // namespace orrery::smi_test
