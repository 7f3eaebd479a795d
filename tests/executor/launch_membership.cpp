// Environments as launchers leave them, and what is wrong with some.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "executor/launch/membership.hpp"

namespace orrery::launch {
namespace {

std::string line(const std::optional<Membership>& found) {
  if (!found) return "none";
  return fmt::format("{}: {} of {}, here {} of {}, {} {}, {}", found->launched_by, found->rank,
                     found->world_size, found->local_rank, found->local_size, found->coordinator_host,
                     found->coordinator_port, found->job_id);
}

std::string fault(const Environment& environment) {
  try {
    return line(find_membership(environment));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUsage);
    return error.what();
  }
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

const Environment kOwn = {{"ORRERY_RANK", "3"},
                          {"ORRERY_WORLD_SIZE", "4"},
                          {"ORRERY_LOCAL_RANK", "1"},
                          {"ORRERY_LOCAL_SIZE", "2"},
                          {"ORRERY_COORDINATOR", "[fe80::1%eth0]:4000"}};

// torchrun --nnodes 2 --nproc-per-node 4 --rdzv-id 17: its agent's store listens at MASTER_PORT.
const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"GROUP_RANK", "1"},
                               {"ROLE_RANK", "5"},
                               {"MASTER_ADDR", "gpu01"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "17"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

// mpirun -np 2, Open MPI 4.1.
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                              {"OMPI_UNIVERSE_SIZE", "8"},
                              {"OMPI_MCA_ess_base_jobid", "1954545665"},
                              {"PMIX_NAMESPACE", "1954545665"},
                              {"PMIX_RANK", "1"}};

// srun -N 3 -n 10.
const Environment kSlurm = {{"SLURM_PROCID", "9"},
                            {"SLURM_NTASKS", "10"},
                            {"SLURM_STEP_NUM_TASKS", "10"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_NODELIST", "node[03-05,9]"},
                            {"SLURM_STEP_NODELIST", "node[04-05,9]"},
                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"},
                            {"SLURM_TASKS_PER_NODE", "8(x4)"},
                            {"SLURM_JOB_ID", "123456"},
                            {"SLURM_STEP_ID", "0"}};

}  // namespace

TEST_CASE("every launcher's variables are read", "[launch]") {
  CHECK(line(find_membership({{"HOME", "/"}, {"ORRERY_DATA", "/data"}, {"MASTER_ADDR", "x"}})) == "none");
  CHECK(line(find_membership(kOwn)) == "orrery: 3 of 4, here 1 of 2, fe80::1%eth0 4000, [fe80::1%eth0]:4000");
  CHECK(line(find_membership(without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE"))) ==
        "torchrun: 5 of 8, here 1 of 4, gpu01 29500, 17");
  const Environment hydra = {{"PMI_RANK", "0"},        {"PMI_SIZE", "2"},           {"MPI_LOCALRANKID", "0"},
                             {"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4001"}};
  CHECK(line(find_membership(hydra)) == "PMI: 0 of 2, here 0 of 1, 10.0.0.1 4001, 10.0.0.1:4001");
}

TEST_CASE("a port that isn't given follows from the job", "[launch]") {
  const Membership mpi = find_membership(kOpenMpi).value();
  CHECK(line(mpi) ==
        fmt::format("Open MPI: 1 of 2, here 1 of 2, 127.0.0.1 {}, 1954545665", mpi.coordinator_port));
  CHECK(mpi.origin.find("PMIX_NAMESPACE") != std::string::npos);
  const Membership slurm = find_membership(kSlurm).value();
  CHECK(line(slurm) ==
        fmt::format("Slurm: 9 of 10, here 1 of 2, node04 {}, 123456.0", slurm.coordinator_port));
  for (const Membership& one : {mpi, slurm, find_membership(kTorchrun).value()}) {
    CHECK(one.coordinator_port >= 20000);
    CHECK(one.coordinator_port < 32000);  // 20000 + 12000.
    CHECK(one.origin.find("derived") != std::string::npos);
  }
  // All ranks of a job come to the same port, and another job to another one.
  const Environment first =
      with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "0"}});
  CHECK(find_membership(first)->coordinator_port == slurm.coordinator_port);
  CHECK(find_membership(with(kSlurm, {{"SLURM_JOB_ID", "123457"}}))->coordinator_port !=
        slurm.coordinator_port);
}

TEST_CASE("the launcher nearest to the process wins", "[launch]") {
  // mpirun inside a Slurm job: Slurm's variables are those of mpirun's helper.
  CHECK(find_membership(with(kSlurm, kOpenMpi))->launched_by == "Open MPI");
  CHECK(find_membership(with(kOpenMpi, kTorchrun))->launched_by == "torchrun");
  CHECK(find_membership(with(kTorchrun, kOwn))->launched_by == "orrery");
  // srun --mpi=pmi2 says who it is twice; Slurm's variables know the nodes.
  CHECK(find_membership(with(kSlurm, {{"PMI_RANK", "9"}, {"PMI_SIZE", "10"}}))->launched_by == "Slurm");
  // A batch script has SLURM_PROCID=0 and is nobody's rank.
  CHECK(line(find_membership(without(kSlurm, "SLURM_STEP_ID"))) == "none");
  CHECK(line(find_membership(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}}))) == "none");  // salloc's shell.
}

TEST_CASE("variables that are half there or contradict each other are named", "[launch]") {
  CHECK(fault(without(kTorchrun, "WORLD_SIZE")) ==
        "environment variable WORLD_SIZE isn't set, although others of torchrun are: expected a whole number "
        "from 1 to "
        "16777216; set it, or unset the others to run without a launcher");
  CHECK(fault(with(kTorchrun, {{"RANK", "8"}})) ==
        "environment variable RANK is \"8\": expected a whole number from 0 to 7");
  CHECK(fault(with(kTorchrun, {{"LOCAL_RANK", "4"}})) ==
        "environment variable LOCAL_RANK is \"4\": expected a whole number from 0 to 3");
  CHECK(fault(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}})) ==
        "environment variable OMPI_COMM_WORLD_LOCAL_SIZE is \"3\": expected a whole number from 1 to 2");
  CHECK(fault(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))
            .starts_with(
                "environment variable MASTER_ADDR isn't set and Open MPI doesn't say where rank 0 is"));
  CHECK(fault(with(kTorchrun, {{"MASTER_PORT", "70000"}})) ==
        "environment variable MASTER_PORT is \"70000\": expected a whole number from 1 to 65535");
  CHECK(fault(with(kSlurm, {{"SLURM_PROCID", "1x"}})) ==
        "environment variable SLURM_PROCID is \"1x\": expected a whole number from 0 to 9");
  CHECK(
      fault(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}})) ==
      "environment variable SLURM_STEP_TASKS_PER_NODE is \"4(x2)\": expected numbers of tasks by node, like "
      "\"4(x2),3\", with one for node 2");
  CHECK(fault(without(kSlurm, "SLURM_JOB_ID")).starts_with("environment variable SLURM_JOB_ID isn't set"));
  CHECK(fault(without(kOwn, "ORRERY_COORDINATOR"))
            .starts_with("environment variable ORRERY_COORDINATOR isn't set"));
  for (const char* place : {"host", ":80", "host:", "host:0", "host:65536", "::1:80", "[]:80", "host:8o"}) {
    CHECK(fault(with(kOwn, {{"ORRERY_COORDINATOR", place}}))
              .starts_with(fmt::format("environment variable ORRERY_COORDINATOR is \"{}\"", place)));
  }
}

TEST_CASE("node lists are expanded", "[launch]") {
  using Names = std::vector<std::string>;
  CHECK(expand_host_list("gpu7") == Names{"gpu7"});
  CHECK(expand_host_list("gpu[03-05,9],login") == Names{"gpu03", "gpu04", "gpu05", "gpu9", "login"});
  CHECK(expand_host_list("r[1-2]n[08-10].x") ==
        Names{"r1n08.x", "r1n09.x", "r1n10.x", "r2n08.x", "r2n09.x", "r2n10.x"});
  for (const char* list :
       {"", "a,", "a[", "a]", "a[]", "a[1", "a[2-1]", "a[x]", "a[1-2-3]", "a[[1]]", "a[-1]", "a[0-99999999]",
        "a[1-1000]b[1-1000]c[1-1000]", "a[00000000000000000001]"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(expand_host_list(list), Error);
  }
}

}  // namespace orrery::launch
