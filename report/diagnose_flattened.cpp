// The flattened machine: a virtual machine that hides the PCIe switches which GPUs share with their network
// cards, so that every card looks equally far from every GPU and none may use GPUDirect.

#include <fmt/format.h>

#include <algorithm>

#include "report/diagnose_rules.hpp"

namespace orrery::diagnosis {
namespace {

bool share_a_bridge(const Host& host, std::int32_t a, std::int32_t b) {
  const auto parent = [&](std::int32_t device) { return host.pci[static_cast<std::size_t>(device)].parent; };
  for (std::int32_t x = parent(a); x >= 0; x = parent(x))
    for (std::int32_t y = parent(b); y >= 0; y = parent(y))
      if (x == y) return true;
  return false;
}

// A switch for every GPU, with the cards that are its by number. REQUIRES: as many cards for every GPU.
Host with_switches(const Host& host) {
  Host mended = host;
  const auto gpus = static_cast<std::int32_t>(host.gpus.size());
  mended.pci.clear();
  for (std::int32_t g = 0; g < gpus; ++g) {
    const PciDevice& gpu = host.pci[static_cast<std::size_t>(host.gpus[static_cast<std::size_t>(g)].pci)];
    PciDevice bridge;
    bridge.bus_id = fmt::format("ffff:ff:{:02x}.0", g);
    bridge.cpu = gpu.cpu;
    bridge.device_class = 0x060400;
    bridge.gigatransfers_per_s = gpu.gigatransfers_per_s;
    bridge.lanes = gpu.lanes;
    mended.pci.push_back(bridge);
  }
  for (PciDevice device : host.pci) {
    if (device.parent >= 0) device.parent += gpus;
    mended.pci.push_back(std::move(device));
  }
  const auto hang = [&](std::int32_t& pci, std::int32_t gpu) {
    pci += gpus;
    PciDevice& device = mended.pci[static_cast<std::size_t>(pci)];
    device.parent = gpu;
    device.cpu = mended.pci[static_cast<std::size_t>(gpu)].cpu;
  };
  for (std::int32_t g = 0; g < gpus; ++g) hang(mended.gpus[static_cast<std::size_t>(g)].pci, g);
  const auto nics = static_cast<std::int32_t>(host.nics.size());
  for (std::int32_t n = 0; n < nics; ++n) {
    HostNic& nic = mended.nics[static_cast<std::size_t>(n)];
    hang(nic.pci, static_cast<std::int32_t>(static_cast<std::int64_t>(n) * gpus / nics));
    nic.cpu = mended.pci[static_cast<std::size_t>(nic.pci)].cpu;
  }
  return mended;
}

}  // namespace

void look_for_hidden_switches(const Host& host, Findings& found) {
  if (host.gpus.size() < 4 || host.nics.size() < 2) return;
  for (const HostGpu& gpu : host.gpus) {
    // Machines with an NVSwitch are built with a switch between each GPU and its card.
    const bool nvswitch = std::ranges::any_of(
        gpu.nvlinks, [](const HostNvLink& link) { return link.target_class == kNvSwitchClass; });
    if (gpu.pci < 0 || gpu.c2c_bytes_per_s > 0 || !nvswitch) return;
    for (const HostNic& nic : host.nics)
      if (nic.pci < 0 || share_a_bridge(host, gpu.pci, nic.pci)) return;
  }
  const std::size_t gpus = host.gpus.size(), nics = host.nics.size();
  Finding finding;
  finding.id = "flattened-vm";
  finding.title =
      fmt::format("none of the {} network cards shares a PCIe switch with any of the {} GPUs", nics, gpus);
  finding.evidence.push_back(
      {host.source, 0, "every GPU reaches every network card through a CPU (PHB, NODE or SYS)"});
  finding.cause =
      "machines with so many NVLinks have switches that join GPUs and cards; a virtual machine hides them, "
      "so NCCL "
      "turns GPUDirect off and takes cards without regard to where they are";
  finding.remedy =
      "set NCCL_TOPO_FILE to the provider's topology file (Azure, AWS and Oracle publish theirs), or have "
      "orrery topo "
      "convert write one and correct the pairs of GPU and card in it";
  const bool rates = std::ranges::all_of(host.nics, [](const HostNic& nic) { return nic.bytes_per_s > 0; });
  if (!rates) finding.remedy += "; with --nic RATE the loss is worked out";
  if (rates && (nics % gpus == 0 || gpus % nics == 0)) price(finding, host, with_switches(host), true);
  found.push_back(std::move(finding));
}

}  // namespace orrery::diagnosis
