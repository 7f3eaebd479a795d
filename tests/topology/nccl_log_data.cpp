// Every published log and every published nccl-tests table: what is known of each, and its faults.
#include <catch2/catch.hpp>

#include <functional>
#include <iostream>
#include <map>

#include "tests/topology/nccl_log_files.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/import/nccl_tests_table.hpp"

using namespace orrery;
using log_test::says;

namespace {

using Ranks = std::vector<std::int32_t>;

struct LogFacts {
  std::string version;
  std::int32_t ranks = 0;  // Of the first communicator.
  std::size_t comms = 1;
  std::size_t rings = 0, complete = 0;  // Of the first communicator.
  std::vector<Ranks> first_rings;       // By channel, as many as are worth writing down.
  std::vector<std::string> notes;       // Parts of what must be said.
};

const std::map<std::string, LogFacts>& logs() {
  static const std::map<std::string, LogFacts> kLogs{
      {"a100-2x4-ib.txt", {"2.12.10", 8, 1, 4, 4, {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 3, 2, 5, 4, 7, 6, 1}}, {}}},
      {"b200-8-single-node.txt", {"2.25.1", 8, 1, 32, 32, {{0, 1, 2, 3, 4, 5, 6, 7}}, {}}},
      {"gb300-2tray-nvlink-lost-2.29.txt",
       {"",
        8,
        1,
        0,
        0,
        {},
        {"GPU/1-906000 has no working NVLink", "falling back to simple order", "8 by the highest rank"}}},
      {"h-2x8-4nic-timestamped.txt",
       {"",
        16,
        1,
        16,
        16,
        {{0, 7, 6, 5, 4, 3, 2, 1, 8, 15, 14, 13, 12, 11, 10, 9},
         {0, 7, 6, 5, 4, 3, 10, 9, 8, 15, 14, 13, 12, 11, 2, 1}},
        {}}},
      {"h100-2x4-ib-2.18.txt",
       {"2.18.5",
        8,
        4,
        16,
        16,
        {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 5, 7, 6, 4, 1, 3, 2}},
        {"4 by the highest rank"}}},
      {"h100-2x8-rail-swap-2.2x.txt",
       {"",
        16,
        1,
        12,
        12,
        {{0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8}},
        {"12 of 16 channels have their ring"}}},
      {"h100-6x8-ib-sharp-2.18.txt",
       {"2.18.5",
        48,
        1,
        16,
        0,
        {},
        {"channel 0 is cut off or torn behind 20 of 48", "48 by the highest rank"}}},
      {"h200-8-nvls-off-2.18.txt", {"2.18.5", 8, 3, 24, 24, {{0, 1, 2, 3, 4, 5, 6, 7}}, {}}},
      {"h800-tuning-table-cut.txt", {"", 0, 1, 0, 0, {}, {"row 'Broadcast' is cut off behind 2 cells"}}},
      {"nccl-docs-logging.txt", {"", 2, 9, 0, 0, {}, {"it isn't sure which of several communicators"}}},
      {"one-gpu-64ch-2.29.txt", {"2.29.7", 1, 1, 23, 23, {{0}}, {"23 of 64 channels have their ring"}}},
      {"rccl-2pcie-chipset.txt",
       {"", 2, 1, 0, 0, {}, {"the tree may lack its beginning", "put under CPU 0"}}},
      {"three-nodes-soft-roce.txt", {"", 3, 1, 1, 1, {{0, 1, 2}}, {}}},
      {"v100-4-2.7-n1-16gb.txt", {"2.7.8", 4, 1, 12, 12, {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 3, 1}}, {}}},
      {"v100-4-vm-2.5-old-ring.txt", {"", 4, 1, 0, 0, {}, {"4 by its thread thresholds"}}},
      {"v100-4x4-opa-2.10.txt",
       {"2.10.3",
        16,
        1,
        4,
        4,
        {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        {"16 by its thread thresholds"}}},
  };
  return kLogs;
}

// What only one file shows.
void check_details(const std::string& name, const NcclLog& log) {
  const LogComm& comm = log.comms.front();
  if (name == "a100-2x4-ib.txt") {
    CHECK(comm.channel_counts == LogChannelCounts{4, 0, 0, 4, 2});
    CHECK(comm.trees.size() == 8 * 4);
    CHECK(rank_devices(log)[7].bus_id == "0000:c1:00.0");
    CHECK(rank_devices(log)[7].host == "node01");
    CHECK(comm.ranks[4].node == 1);
  } else if (name == "gb300-2tray-nvlink-lost-2.29.txt") {
    const HostImport hosts = hosts_from_log(log);
    REQUIRE(hosts.hosts.size() == 2);
    REQUIRE(hosts.hosts[1].gpus.size() == 4);
    CHECK(hosts.hosts[0].gpus[0].nvlinks[0].count == 18);
    CHECK(hosts.hosts[1].gpus[1].nvlinks[0].count == 0);
    CHECK(comm.graphs[0].graphs[0].node_gb_per_s == 0.1);
    CHECK(comm.graphs[0].graphs[1].channels[0].gpus[0] == 0x100000000000001);
  } else if (name == "h-2x8-4nic-timestamped.txt") {
    CHECK(comm.nvls_heads == std::vector<Ranks>{{0, 8}, {2, 10}, {4, 12}, {6, 14}});
  } else if (name == "h100-2x4-ib-2.18.txt") {
    const auto proxied =
        std::ranges::count_if(comm.connections, [](const LogConnection& c) { return c.proxy_rank >= 0; });
    CHECK(proxied == 13);
    CHECK(log.comms[1].ranks[0].host == "node01");
    CHECK(log.comms[2].ranks[0].host == "node00");
    CHECK(ring_orders(log.comms[1]).size() == 6);
  } else if (name == "h200-8-nvls-off-2.18.txt") {
    CHECK(std::ranges::any_of(
        log.environment, [](const LogSetting& s) { return s.name == "NCCL_NVLS_ENABLE" && s.value == "0"; }));
  } else if (name == "rccl-2pcie-chipset.txt") {
    CHECK(comm.graphs[0].graphs[0].channels[0].gpus == std::vector<std::int64_t>{0, 1});
    CHECK(comm.graphs[0].graphs[0].node_path == nccl::PathClass::kPhb);
  } else if (name == "three-nodes-soft-roce.txt") {
    const Host host = hosts_from_log(log).hosts.at(0);
    CHECK(host.cpus[0].numa == -1);
    CHECK(host.nics[0].bytes_per_s == 312.5e6);
    CHECK_FALSE(host.nics[0].gpu_direct_rdma);
  } else if (name == "v100-4-vm-2.5-old-ring.txt") {
    CHECK(comm.connections[0].transport == LogTransport::kShm);
    CHECK(comm.ranks[3].bus_id == "b0");
  } else if (name == "nccl-docs-logging.txt") {
    CHECK(log.warnings.size() == 1);
    CHECK(std::ranges::any_of(
        log.comms, [](const LogComm& c) { return c.choices.size() == 1 && c.choices[0].calls == 3; }));
  }
}

struct TableFacts {
  std::string collective;
  std::int32_t ranks = 0;
  std::size_t rows = 0;
  std::int64_t last_bytes = 0;
  double last_bus_gb_per_s = 0;  // Out of place.
  std::vector<std::string> notes;
};

const std::map<std::string, TableFacts>& tables() {
  static const std::map<std::string, TableFacts> kTables{
      {"nccltests-a100-1gpu.txt", {"", 1, 28, 1073741824, 0, {"doesn't say which collective"}}},
      {"nccltests-a100-64gpu-mpitag.txt",
       {"all_reduce", 64, 23, 4294967296, 127.26, {"all_reduce by busbw/algbw = 1.969"}}},
      {"nccltests-a100-8-allreduce-info-inside.txt", {"all_reduce", 8, 34, 8589934592, 235.26, {}}},
      {"nccltests-a100-8-reducescatter.txt", {"reduce_scatter", 8, 34, 8589934592, 231.52, {}}},
      {"nccltests-a100-8gpu.txt", {"all_reduce", 8, 28, 1073741824, 230.86, {"all_reduce by busbw/algbw"}}},
      {"nccltests-b200-2-pcie-fullid.txt",
       {"",
        2,
        8,
        8589934592,
        482.71,
        {"the first row is of 67108864", "summary", "doesn't say which collective"}}},
      {"nccltests-b200-8-allreduce-8threads.txt", {"all_reduce", 8, 1, 40160460, 389.23, {}}},
      {"nccltests-gb200-72gpu-excerpt.txt",
       {"all_reduce",
        72,
        5,
        8589934592,
        834.57,
        {"1 of 72 ranks are listed", "all_reduce by busbw/algbw", "the options"}}},
      {"nccltests-h100-8-dgxc.txt",
       {"all_reduce", 8, 32, 17179869184, 479.90, {"all_reduce by busbw/algbw"}}},
      {"nccltests-h100-8-one-size.txt", {"all_reduce", 8, 1, 53687090, 327.37, {}}},
      {"nccltests-h100-a3mega-indented.txt",
       {"",
        16,
        31,
        8589934592,
        188.73,
        {"list of devices", "the options", "16 ranks by busbw/algbw", "doesn't say which collective"}}},
      {"nccltests-h200-64-inside-joblog.txt",
       {"all_reduce", 64, 1, 1731821448, 320.00, {"all_reduce by busbw/algbw"}}},
      {"nccltests-v2.18-allgather-2.txt",
       {"all_gather", 2, 8, 134217728, 1.06, {"ranks 0 and 1 share device 0"}}},
  };
  return kTables;
}

// Every file of the folder is in the table, and each as often as the table says.
template <class Facts>
void check_folder(const std::filesystem::path& folder, const std::string& prefix,
                  const std::map<std::string, Facts>& known,
                  const std::function<void(const std::string&, const std::string&, const Facts&)>& check) {
  for (const auto& [name, facts] : known) {
    CAPTURE(name);
    check(name, log_test::read_file(folder / name), facts);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    if (name.starts_with(prefix)) CHECK(known.contains(name));
  }
}

}  // namespace

TEST_CASE("every published NCCL log says what it is known to say", "[nccl_log][data]") {
  const std::filesystem::path folder = log_test::data_folder() / "topo" / "log";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no published logs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  check_folder<LogFacts>(
      folder, "", logs(), [](const std::string& name, const std::string& text, const LogFacts& facts) {
        const NcclLog log = read_nccl_log(text, name);
        CHECK(log.version == facts.version);
        CHECK(log.comms.size() == facts.comms);
        REQUIRE_FALSE(log.comms.empty());
        const LogComm& comm = log.comms.front();
        CHECK(comm.rank_count == facts.ranks);
        CHECK(comm.rings.size() == facts.rings);
        CHECK(std::ranges::count(comm.rings, true, &LogRing::complete) ==
              static_cast<std::ptrdiff_t>(facts.complete));
        for (std::size_t c = 0; c < facts.first_rings.size() && c < comm.rings.size(); ++c) {
          CHECK(comm.rings[c].ranks == facts.first_rings[c]);
        }
        for (const std::string& words : facts.notes) {
          CAPTURE(words);
          CHECK(says(log.notes, words));
        }
        // Whole files: nothing in them is torn but for what the table names.
        if (facts.notes.empty()) CHECK_FALSE(says(log.notes, "torn"));
        check_details(name, log);
      });
}

TEST_CASE("every published nccl-tests table says what it is known to say", "[nccl_tests][data]") {
  const std::filesystem::path folder = log_test::data_folder() / "traces";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no published tables (set ORRERY_DATA to the data folder)\n";
    return;
  }
  check_folder<TableFacts>(folder, "nccltests-", tables(),
                           [](const std::string& name, const std::string& text, const TableFacts& facts) {
                             const NcclTestsTable table = read_nccl_tests(text, name);
                             CHECK(table.collective == facts.collective);
                             CHECK(table.rank_count == facts.ranks);
                             REQUIRE(table.rows.size() == facts.rows);
                             CHECK(table.rows.back().bytes == facts.last_bytes);
                             REQUIRE(table.rows.back().out_of_place);
                             CHECK(table.rows.back().out_of_place->bus_gb_per_s == facts.last_bus_gb_per_s);
                             CHECK(table.notes.size() == facts.notes.size());
                             for (const std::string& words : facts.notes) {
                               CAPTURE(words);
                               CHECK(says(table.notes, words));
                             }
                           });
}
