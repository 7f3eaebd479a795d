#pragma once
// The commands. Each adds itself to the program and does its work when it was chosen; wrong input leaves as
// an Error, which main turns into the exit code.

#include <string_view>

namespace CLI {
class App;
}

namespace orrery {

inline constexpr std::string_view kVersion = "0.1.0";  // That of CMakeLists.txt; a test compares them.

void add_simulate(CLI::App& app);
void add_memory(CLI::App& app);
void add_scenario(CLI::App& app);
void add_model(CLI::App& app);
void add_catalogue(CLI::App& app);
void add_validate(CLI::App& app);
void add_graph(CLI::App& app);
void add_partition(CLI::App& app);
void add_placement(CLI::App& app);
void add_plan(CLI::App& app);
void add_topo(CLI::App& app);
void add_diagnose(CLI::App& app);
void add_collective(CLI::App& app);
void add_fabric(CLI::App& app);
void add_remap(CLI::App& app);
void add_run(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_compare(CLI::App& app);

}  // namespace orrery
