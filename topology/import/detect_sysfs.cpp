#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "topology/import/detect_host.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using Kind = ImportNote::Kind;

// The first line; empty for what isn't there or can't be read.
std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number that a line begins with: "16.0 GT/s PCIe", "200 Gb/sec (4X HDR)". 0: none.
double leading_number(const std::string& line) {
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() && value > 0 && value < 1e9 ? value : 0;
}

double smaller_known(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// What both the device and the port above it can.
void add_link(PciDevice& device, const fs::path& sysfs) {
  const fs::path own = sysfs / "bus" / "pci" / "devices" / device.bus_id;
  std::error_code ignored;
  const fs::path port = fs::canonical(own, ignored).parent_path();
  const auto both = [&](const char* file) {
    const double above = port.empty() ? 0 : leading_number(first_line(port / file));
    return smaller_known(leading_number(first_line(own / file)), above);
  };
  const double speed = both("max_link_speed");
  const double width = both("max_link_width");
  if (speed > 0) device.gigatransfers_per_s = speed;
  if (width > 0 && width <= 32) device.lanes = static_cast<std::int32_t>(width);  // 255: not known.
  const std::string written = first_line(own / "class");
  if (!written.starts_with("0x")) return;
  std::uint32_t device_class = 0;
  const auto [end, error] =
      std::from_chars(written.data() + 2, written.data() + written.size(), device_class, 16);
  if (error == std::errc()) device.device_class = device_class;
}

// The ports of an InfiniBand or RoCE device that are up, by number.
std::vector<HostNic> verbs_ports(const HostNic& card, const fs::path& folder, NoteTally& notes) {
  std::vector<HostNic> ports;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "ports", ignored)) {
    const std::string state = first_line(entry.path() / "state");  // "4: ACTIVE"
    HostNic port = card;
    port.port = static_cast<std::int32_t>(leading_number(entry.path().filename().string()));
    if (!state.starts_with("4")) {
      notes.add(Kind::kMissing, 0, fmt::format("{} port {}", card.name, port.port),
                "this port is not up, so that NCCL leaves it out; so does this", "ibstat");
      continue;
    }
    port.bytes_per_s = leading_number(first_line(entry.path() / "rate")) * (1e9 / 8);  // From Gb/s.
    std::string guid = first_line(folder / "sys_image_guid");
    std::erase(guid, ':');
    if (!guid.empty()) port.guid = "0x" + guid;
    ports.push_back(std::move(port));
  }
  std::ranges::sort(ports, {}, &HostNic::port);
  return ports;
}

}  // namespace

void add_sysfs(Host& host, const fs::path& sysfs, NoteTally& notes) {
  for (PciDevice& device : host.pci) add_link(device, sysfs);
  std::vector<HostNic> ports;
  for (HostNic& nic : host.nics) {
    std::error_code ignored;
    const fs::path verbs = sysfs / "class" / "infiniband" / nic.name;
    if (fs::exists(verbs, ignored)) {
      for (HostNic& port : verbs_ports(nic, verbs, notes)) ports.push_back(std::move(port));
      continue;
    }
    // Mb/s; −1 where the driver doesn't know, as in many virtual machines.
    nic.bytes_per_s = leading_number(first_line(sysfs / "class" / "net" / nic.name / "speed")) * (1e6 / 8);
    if (nic.bytes_per_s == 0)
      notes.add(Kind::kMissing, 0, nic.name, "/sys doesn't say this port's rate; NCCL counts 10 Gb/s",
                "ethtool " + nic.name);
    ports.push_back(std::move(nic));
  }
  // A card of two ports makes two: numbered anew, in the same order.
  if (ports.size() != host.nics.size())
    for (HostNic& port : ports) port.index = -1;
  host.nics = std::move(ports);
}

}  // namespace orrery
