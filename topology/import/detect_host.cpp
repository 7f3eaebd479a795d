#include "topology/import/detect_host.hpp"

#include "topology/import/host_checks.hpp"
#include "topology/import/host_numbers.hpp"
#include "topology/import/hwloc_host.hpp"

namespace orrery {

HostImport detect_host() {
  using Kind = ImportNote::Kind;
  HostImport import = read_hwloc_live();
  Host& host = import.hosts[0];
  NoteTally notes;
  add_nvml(host, notes);
  add_sysfs(host, "/sys", notes);
  number_gpus(host);
  number_nics(host);
  if (host.gpus.empty())
    notes.add(Kind::kMissing, 0, "", "no GPU is to be seen here",
              "nvidia-smi -L; in a container start it with the GPUs (--gpus all)");
  if (host.nics.empty())
    notes.add(Kind::kMissing, 0, "", "no network card is to be seen here",
              "ls /sys/class/infiniband /sys/class/net; in a container mount /sys");
  if (!host.gpus.empty() && !host.nics.empty())
    notes.add(Kind::kAssumed, 0, "", "whether network cards reach GPU memory (GPUDirect) is taken as yes",
              "lsmod | grep -e nvidia_peermem -e nv_peer_mem; NCCL_DEBUG=INFO says \"GDR\" per connection");
  for (ImportNote& note : notes.notes()) import.notes.push_back(std::move(note));
  for (ImportNote& note : check_host(host)) import.notes.push_back(std::move(note));
  return import;
}

}  // namespace orrery
