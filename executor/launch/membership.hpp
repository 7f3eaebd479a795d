#pragma once
// Which rank this process is, of how many, and where the others meet, as the launcher's environment variables
// say. Looked for in this order: orrery's own (ORRERY_RANK, …), torchrun, Open MPI, PMI (Hydra), Slurm; the
// launcher nearest to the process wins, since one often starts another (srun starts mpirun, mpirun starts
// torchrun).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::launch {

using Environment = std::map<std::string, std::string>;

Environment process_environment();

struct Membership {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // Among the ranks of this host.
  int local_size = 1;
  std::string coordinator_host;  // Where rank 0 listens: a name or an IPv4 or IPv6 address.
  std::uint16_t coordinator_port = 0;
  std::string job_id;       // The same on all ranks; tells this run from others that use the same port.
  std::string launched_by;  // "torchrun".
  std::string origin;       // For people: which variables said so, and how the address was come by.
};

// Nothing: no launcher's variables are there, so the process wasn't launched as one rank of several (a Slurm
// batch script or salloc's shell, which have SLURM_PROCID and no numbered step, count as that).
//
// The address is ORRERY_COORDINATOR ("host:port"), or MASTER_ADDR and MASTER_PORT; else, with all ranks on
// one host, 127.0.0.1, and with Slurm the step's first node. A port that isn't given is 20000 + (hash of the
// job id mod 12000), below the range from which kernels take ports for outgoing connections. torchrun's own
// store often listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True); then the port is derived as well.
//
// THROWS Error(kUsage) naming the variable, its value and what was expected: variables of one launcher that
// are only half there, aren't numbers or contradict each other; an address that can't be found.
std::optional<Membership> find_membership(const Environment& environment);

// Slurm's way of writing nodes: "gpu[03-05,9],login" is gpu03, gpu04, gpu05, gpu9, login.
// THROWS Error(kUsage) quoting a list that isn't one, or one of more than a million nodes.
std::vector<std::string> expand_host_list(std::string_view list);

}  // namespace orrery::launch
