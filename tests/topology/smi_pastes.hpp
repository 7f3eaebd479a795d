#pragma once
// Matrices for the tests: small ones of our own, and published ones where the data folder is there.

#include <filesystem>
#include <string>
#include <vector>

namespace orrery::smi_test {

// Four GPUs in two NVLink pairs on two NUMA nodes, and two NICs: as the tool prints it.
std::string four_gpus();
// Two GPUs and one NIC of the names of old drivers.
std::string two_gpus();
// Four GPUs with NVSwitches, without network cards.
std::string switched_gpus();
std::vector<std::string> own_pastes();

std::vector<std::filesystem::path> data_files();  // Empty where there is no data folder.
std::string read(const std::filesystem::path& file);
std::string replaced(std::string text, const std::string& what, const std::string& with);  // Everywhere.

}  // namespace orrery::smi_test
