#include "executor/launch/membership.hpp"

#include <unistd.h>

#include <charconv>

#include "base/error.hpp"
#include "executor/launch/membership_parts.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace membership {

const std::string* given(const Environment& environment, const std::string& name) {
  const auto at = environment.find(name);
  return at == environment.end() || at->second.empty() ? nullptr : &at->second;
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void refuse(const Environment& environment, const std::string& name, const std::string& expected) {
  const std::string* value = given(environment, name);
  fail(ErrorKind::kUsage, "environment variable {} is \"{}\": expected {}", name, value ? *value : "",
       expected);
}

const std::string& need(const Environment& environment, const std::string& name, const std::string& launcher,
                        const std::string& expected) {
  if (const std::string* value = given(environment, name)) return *value;
  fail(ErrorKind::kUsage,
       "environment variable {} isn't set, although others of {} are: expected {}; set it, or unset the "
       "others to run "
       "without a launcher",
       name, launcher, expected);
}

int number(const Environment& environment, const std::string& name, const std::string& launcher, int least,
           int most) {
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  const std::optional<int> value = whole_number(need(environment, name, launcher, expected));
  if (!value || *value < least || *value > most) refuse(environment, name, expected);
  return *value;
}

std::uint16_t derived_port(const std::string& job_id) {
  return static_cast<std::uint16_t>(20000 + hash_of(job_id) % 12000);
}

void find_address(const Environment& environment, const std::string& fallback_host,
                  const std::string& fallback_origin, bool master_port_is_free, Membership& found) {
  const std::string* host = given(environment, "MASTER_ADDR");
  const std::string* port = given(environment, "MASTER_PORT");
  if (host == nullptr && fallback_host.empty()) {
    fail(ErrorKind::kUsage,
         "environment variable MASTER_ADDR isn't set and {} doesn't say where rank 0 is: expected the name "
         "or address "
         "of rank 0's host, on all ranks (and MASTER_PORT, a free port there)",
         found.launched_by);
  }
  found.coordinator_host = host ? *host : fallback_host;
  found.origin += host ? "; host from MASTER_ADDR" : "; host: " + fallback_origin;
  if (port != nullptr) {
    const int value = number(environment, "MASTER_PORT", found.launched_by, 1, 65535);
    if (found.job_id.empty()) found.job_id = found.coordinator_host + ":" + *port;
    if (master_port_is_free) {
      found.coordinator_port = static_cast<std::uint16_t>(value);
      found.origin += ", port from MASTER_PORT";
      return;
    }
    found.job_id += "@" + *port;
  }
  if (found.job_id.empty())
    need(environment, "MASTER_PORT", found.launched_by, "a free port on rank 0's host");
  found.coordinator_port = derived_port(found.job_id);
  found.origin += fmt::format(", port {} derived from job id \"{}\"", found.coordinator_port, found.job_id);
}

}  // namespace membership

namespace {

using namespace membership;

// One launcher's variables for the four numbers.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kOwn = {"orrery", "ORRERY_RANK", "ORRERY_WORLD_SIZE", "ORRERY_LOCAL_RANK",
                        "ORRERY_LOCAL_SIZE"};
constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
// Hydra's (MPICH, Intel MPI); srun --mpi=pmi2 sets the first two and Slurm's own.
constexpr Names kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

bool any_set(const Environment& environment, const Names& names) {
  for (const char* name : {names.rank, names.world_size, names.local_rank, names.local_size}) {
    if (given(environment, name) != nullptr) return true;
  }
  return false;
}

Membership four_numbers(const Environment& environment, const Names& names) {
  Membership found;
  found.launched_by = names.launcher;
  found.origin = fmt::format("{} ({}, {}, {}, {})", names.launcher, names.rank, names.world_size,
                             names.local_rank, names.local_size);
  found.world_size = number(environment, names.world_size, names.launcher, 1, kMostRanks);
  found.rank = number(environment, names.rank, names.launcher, 0, found.world_size - 1);
  found.local_size = number(environment, names.local_size, names.launcher, 1, found.world_size);
  found.local_rank = number(environment, names.local_rank, names.launcher, 0, found.local_size - 1);
  return found;
}

Membership from_own(const Environment& environment) {
  Membership found = four_numbers(environment, kOwn);
  const std::string expected = "\"host:port\", an IPv6 address in brackets, port 1 to 65535";
  const std::string place = need(environment, "ORRERY_COORDINATOR", kOwn.launcher, expected);
  const std::size_t colon = place.rfind(':');
  if (colon == std::string::npos) refuse(environment, "ORRERY_COORDINATOR", expected);
  std::string host = place.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::optional<int> port = whole_number(std::string_view(place).substr(colon + 1));
  // Is "::1:80" port 80?
  const bool two_readings = !bracketed && host.find_first_of(":[]") != std::string::npos;
  if (!port || *port < 1 || *port > 65535 || host.empty() || two_readings) {
    refuse(environment, "ORRERY_COORDINATOR", expected);
  }
  found.coordinator_host = host;
  found.coordinator_port = static_cast<std::uint16_t>(*port);
  const std::string* job = given(environment, "ORRERY_JOB_ID");
  found.job_id = job ? *job : place;
  found.origin += "; address from ORRERY_COORDINATOR";
  return found;
}

// On one host nobody else has to reach rank 0.
std::string loopback_if_one_host(const Membership& found) {
  return found.local_size == found.world_size ? "127.0.0.1" : "";
}
constexpr const char* kOneHost = "all ranks are on this one";

Membership from_torchrun(const Environment& environment) {
  Membership found = four_numbers(environment, kTorchrun);
  if (const std::string* run = given(environment, "TORCHELASTIC_RUN_ID")) found.job_id = *run;
  need(environment, "MASTER_ADDR", kTorchrun.launcher, "the name or address of rank 0's host");
  need(environment, "MASTER_PORT", kTorchrun.launcher, "a free port on rank 0's host");
  const std::string* agent_store = given(environment, "TORCHELASTIC_USE_AGENT_STORE");
  find_address(environment, "", "", agent_store == nullptr || *agent_store != "True", found);
  return found;
}

Membership from_open_mpi(const Environment& environment) {
  Membership found = four_numbers(environment, kOpenMpi);
  // Open MPI 5, 4 and older: the first is the job's name, the others its number.
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}) {
    if (const std::string* job = given(environment, name); job && found.job_id.empty()) {
      found.job_id = *job;
      found.origin += fmt::format("; job id from {}", name);
    }
  }
  find_address(environment, loopback_if_one_host(found), kOneHost, true, found);
  return found;
}

Membership from_pmi(const Environment& environment) {
  Membership found = four_numbers(environment, kPmi);
  find_address(environment, loopback_if_one_host(found), kOneHost, true, found);
  return found;
}

// srun --mpi=pmi2: one launcher that speaks both ways. Slurm's variables know more.
bool pmi_is_slurms(const Environment& environment) {
  const std::string* rank = given(environment, "PMI_RANK");
  return in_slurm_step(environment) && rank != nullptr && *rank == environment.at("SLURM_PROCID") &&
         given(environment, kPmi.local_rank) == nullptr;
}

}  // namespace

Environment process_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<Membership> find_membership(const Environment& environment) {
  if (any_set(environment, kOwn)) return from_own(environment);
  if (any_set(environment, kTorchrun)) return from_torchrun(environment);
  if (any_set(environment, kOpenMpi)) return from_open_mpi(environment);
  if (any_set(environment, kPmi) && !pmi_is_slurms(environment)) return from_pmi(environment);
  if (in_slurm_step(environment)) return from_slurm(environment);
  return std::nullopt;
}

}  // namespace orrery::launch
