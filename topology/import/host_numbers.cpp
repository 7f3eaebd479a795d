#include "topology/import/host_numbers.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "topology/import/pci_address.hpp"

namespace orrery {
namespace {

template <class Item>
bool give_numbers(const Host& host, std::vector<Item>& items) {
  std::set<std::int32_t> used;
  std::vector<Item*> open;
  for (Item& item : items) {
    if (item.index >= 0)
      used.insert(item.index);
    else
      open.push_back(&item);
  }
  const auto bus_id = [&](const Item* item) {
    return item->pci >= 0 ? std::string_view(host.pci[static_cast<std::size_t>(item->pci)].bus_id)
                          : std::string_view("virtual");
  };
  std::ranges::stable_sort(open,
                           [&](const Item* a, const Item* b) { return bus_id_less(bus_id(a), bus_id(b)); });
  std::int32_t next = 0;
  for (Item* item : open) {
    while (used.contains(next)) ++next;
    item->index = next++;
  }
  std::ranges::stable_sort(items, {}, &Item::index);
  return !open.empty();
}

}  // namespace

bool number_gpus(Host& host) { return give_numbers(host, host.gpus); }
bool number_nics(Host& host) { return give_numbers(host, host.nics); }

}  // namespace orrery
