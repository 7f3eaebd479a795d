#include "report/host_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "topology/link_rates.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

template <class Number>
Json known(Number value, bool is_known) {
  return is_known ? Json(value) : Json(nullptr);
}
Json known(const std::string& text) { return known(text, !text.empty()); }
Json code(std::uint32_t value, int digits) {
  return known(fmt::format("0x{:0{}x}", value, digits), value != 0);
}

Json to_json(const HostCpu& cpu) {
  const double between = cpu_interconnect_bytes_per_s(cpu);
  return {{"numa", known(cpu.numa, cpu.numa >= 0)},
          {"affinity", known(cpu.affinity)},
          {"architecture", known(cpu.architecture)},
          {"vendor", known(cpu.vendor)},
          {"family", known(cpu.family, cpu.family != 0)},
          {"model", known(cpu.model, cpu.model != 0)},
          {"interconnect_bytes_per_s", known(between, between > 0)}};
}

Json to_json(const PciDevice& device) {
  return {{"bus_id", device.bus_id},
          {"cpu", device.cpu},
          {"parent", known(device.parent, device.parent >= 0)},
          {"class", code(device.device_class, 6)},
          {"vendor", code(device.vendor, 4)},
          {"device", code(device.device, 4)},
          {"subsystem_vendor", code(device.subsystem_vendor, 4)},
          {"subsystem_device", code(device.subsystem_device, 4)},
          {"gigatransfers_per_s", known(device.gigatransfers_per_s, device.gigatransfers_per_s > 0)},
          {"lanes", known(device.lanes, device.lanes > 0)},
          {"peer", known(device.peer)},
          {"bytes_per_s", pcie_bytes_per_s(device)}};
}

Json to_json(const HostGpu& gpu) {
  Json links = Json::array();
  for (const HostNvLink& link : gpu.nvlinks)
    links.push_back({{"target", link.target},
                     {"count", link.count},
                     {"target_class", code(link.target_class, 6)},
                     {"bytes_per_s", link.count * nvlink_bytes_per_s(gpu.compute_capability)}});
  return {{"index", gpu.index},
          {"pci", known(gpu.pci, gpu.pci >= 0)},
          {"rank", known(gpu.rank, gpu.rank >= 0)},
          {"model", known(gpu.model)},
          {"compute_capability", known(gpu.compute_capability, gpu.compute_capability > 0)},
          {"part", known(gpu.part, gpu.part >= 0)},
          {"gpu_direct_rdma", gpu.gpu_direct_rdma},
          {"c2c_bytes_per_s", known(gpu.c2c_bytes_per_s, gpu.c2c_bytes_per_s > 0)},
          {"nvlinks", std::move(links)}};
}

Json to_json(const HostNic& nic) {
  return {{"index", nic.index},
          {"name", known(nic.name)},
          {"pci", known(nic.pci, nic.pci >= 0)},
          {"cpu", nic.cpu},
          {"port", nic.port},
          {"bytes_per_s", known(nic.bytes_per_s, nic.bytes_per_s > 0)},
          {"latency_s", nic.latency_s},
          {"guid", known(nic.guid)},
          {"gpu_direct_rdma", nic.gpu_direct_rdma},
          {"in_network_reduction", nic.in_network_reduction},
          {"max_connections", known(nic.max_connections, nic.max_connections > 0)},
          {"rail", known(nic.rail, nic.rail >= 0)},
          {"plane", known(nic.plane, nic.plane >= 0)},
          {"host_network", nic.host_network},
          {"gpu_initiated", nic.gpu_initiated},
          {"one_sided", nic.one_sided},
          {"keep", nic.keep}};
}

Json to_json(const Host& host);
Json to_json(const ImportNote& note);

template <class Item>
Json to_list(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(to_json(item));
  return list;
}

Json to_json(const Host& host) {
  return {{"name", known(host.name)}, {"source", host.source},      {"cpus", to_list(host.cpus)},
          {"pci", to_list(host.pci)}, {"gpus", to_list(host.gpus)}, {"nics", to_list(host.nics)}};
}

Json to_json(const ImportNote& note) {
  constexpr const char* kKinds[] = {"repaired", "assumed", "missing", "suspect"};
  return {{"kind", kKinds[static_cast<std::size_t>(note.kind)]},
          {"line", known(note.line, note.line > 0)},
          {"text", note.text},
          {"remedy", known(note.remedy)}};
}

}  // namespace

std::string host_json(const HostImport& import) {
  const Json json{{"hosts", to_list(import.hosts)}, {"notes", to_list(import.notes)}};
  // Host names come from files of any encoding.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
