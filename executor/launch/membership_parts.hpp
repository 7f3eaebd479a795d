#pragma once
// What reading each launcher's variables has in common. For membership.cpp and membership_slurm.cpp.

#include <optional>
#include <string>
#include <string_view>

#include "executor/launch/membership.hpp"

namespace orrery::launch::membership {

constexpr int kMostRanks = 1 << 24;

// Nothing where the variable isn't set, or set to nothing.
const std::string* given(const Environment& environment, const std::string& name);
std::optional<int> whole_number(std::string_view text);

// THROW Error(kUsage): "RANK isn't set, although other variables of torchrun's are; expected …".
const std::string& need(const Environment& environment, const std::string& name, const std::string& launcher,
                        const std::string& expected);
int number(const Environment& environment, const std::string& name, const std::string& launcher, int least,
           int most);

[[noreturn]] void refuse(const Environment& environment, const std::string& name,
                         const std::string& expected);

// 20000 + (FNV-1a of the job id mod 12000).
std::uint16_t derived_port(const std::string& job_id);

// Fills in the address from MASTER_ADDR and MASTER_PORT if the first is set; else `fallback_host` is it, if
// that isn't empty. `job_id` has to stand already. THROWS Error(kUsage): neither is there; no port and no job
// id to make one from.
void find_address(const Environment& environment, const std::string& fallback_host,
                  const std::string& fallback_origin, bool master_port_is_free, Membership& found);

// Whether this is a task of a Slurm step.
bool in_slurm_step(const Environment& environment);
Membership from_slurm(const Environment& environment);

}  // namespace orrery::launch::membership
