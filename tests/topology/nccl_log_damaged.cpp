// Logs and tables damaged at random: nothing crashes, and what is wrong is never silently so.
#include <catch2/catch.hpp>

#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/topology/nccl_log_files.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/import/nccl_tests_table.hpp"

using namespace orrery;

namespace {

// Per kind of text; ORRERY_DAMAGED_VARIANTS asks for more.
int variants() {
  const char* given = std::getenv("ORRERY_DAMAGED_VARIANTS");
  return given != nullptr ? std::max(1, std::atoi(given)) : 2000;
}

// Twelve ranks on two hosts, so that numbers have one digit and two; the second communicator has four of
// them.
std::string two_communicators() {
  std::string text = "NCCL version 2.22.3+cuda12.5\n";
  const auto say = [&](int rank, int thread, const std::string& message) {
    text += "n" + std::to_string(rank / 6) + ":" + std::to_string(100 + rank) + ":" +
            std::to_string(1000 * thread + rank) + " [" + std::to_string(rank % 6) + "] NCCL INFO " +
            message + "\n";
  };
  for (int r = 0; r < 12; ++r) {
    say(r, 1,
        "comm 0x" + std::to_string(50 + r) + " rank " + std::to_string(r) +
            " nRanks 12 nNodes 2 localRanks 6 localRank " + std::to_string(r % 6) + " MNNVL 0");
  }
  const auto ring = [](int channel, int step, int size) {
    std::string order = "Channel 0" + std::to_string(channel) + "/04 :";
    for (int i = 0; i < size; ++i) order += " " + std::to_string(i * step % size);
    return order;
  };
  // Steps that have no factor in common with the size give different rings.
  for (const int channel : {0, 1, 2, 3})
    say(0, 1, ring(channel, 1 + 2 * (channel % 2) * 2 + 6 * (channel / 2), 12));
  for (int r = 0; r < 12; ++r) {
    const std::string me = std::to_string(r);
    say(r, 1,
        "Ring 00 : " + std::to_string((r + 11) % 12) + " -> " + me + " -> " + std::to_string((r + 1) % 12));
    say(r, 1,
        "Trees [0] " + std::to_string(r < 11 ? r + 1 : -1) + "/-1/-1->" + me + "->" + std::to_string(r - 1));
    say(r, 1,
        "Channel 00/0 : " + me + "[" + std::to_string(r % 6) + "] -> " + std::to_string((r + 1) % 12) + "[" +
            std::to_string((r + 1) % 6) + "] via P2P/IPC");
  }
  say(0, 1, "Connected all rings");
  for (int r = 0; r < 4; ++r) {
    say(r, 2,
        "comm 0x" + std::to_string(80 + r) + " rank " + std::to_string(r) +
            " nRanks 4 nNodes 1 localRanks 4 localRank " + std::to_string(r) + " MNNVL 0");
  }
  for (const int channel : {0, 1, 2, 3}) say(0, 2, ring(channel, channel % 2 == 0 ? 1 : 3, 4));
  return text;
}

// A machine, graphs and tuning: only that nothing crashes.
const std::string kMachine =
    "n0:1:2 [0] NCCL INFO === System : maxBw 24.0 totalBw 240.0 ===\n"
    "n0:1:2 [0] NCCL INFO CPU/0-0 (1/1/2)\n"
    "n0:1:2 [0] NCCL INFO + PCI[24.0] - PCI/0-1000 (1000c01010de13b8)\n"
    "n0:1:2 [0] NCCL INFO               + PCI[24.0] - GPU/0-3000 (0)\n"
    "n0:1:2 [0] NCCL INFO                             + NVL[240.0] - NVS/0-0\n"
    "n0:1:2 [0] NCCL INFO               + PCI[24.0] - NIC/0-5000\n"
    "n0:1:2 [0] NCCL INFO                             + NET[25.0] - NET/0-0 "
    "(7/0200000000000001/2/25.000000)\n"
    "n0:1:2 [0] NCCL INFO GPU/0-3000 :GPU/0-3000 (0/5000.0/LOC) NET/0-0 (3/24.0/PIX)\n"
    "n0:1:2 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 1, bw 24.000000/12.000000, type NVL/PIX, "
    "sameChannels 0\n"
    "n0:1:2 [0] NCCL INFO  0 : NET/0-0 GPU/0-3000 NET/0-0\n"
    "n0:1:2 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Ring/    LL |\n"
    "n0:1:2 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     4.6/   8.0 |\n"
    "n0:1:2 [0] NCCL INFO NVLS Head 0: 0 1\n"
    "n0:1:2 [0] NCCL INFO AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}\n"
    "n0:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_3:2/RoCE [RO]; OOB ib0:192.0.2.1<0>\n"
    "n0:1:2 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 4 total 0.37 (kernels 0.28, alloc "
    "0.09)\n"
    "n0:1:2 [0] NCCL INFO 4 coll channels, 8 p2p channels, 2 p2p channels per peer\n";

std::string table() {
  std::string text =
      "# nThread 1 nGpus 2 minBytes 1024 maxBytes 65536 step: 2(factor) warmup iters: 5 iters: 20\n";
  text +=
      "#  Rank  0 Group  0 Pid 7 on node-0 device  0 [0x07] NVIDIA A100\n#  Rank  1 Group  0 Pid 8 on node-0 "
      "device  1 [0x0f] NVIDIA A100\n";
  // Rates of 1, 2, … 7 GB/s, so 4 on average; with two ranks busbw is algbw.
  int rate = 1;
  for (int bytes = 1024; bytes <= 65536; bytes *= 2, ++rate) {
    const std::string half = " " + std::to_string(bytes / 1e3 / rate) + " " + std::to_string(rate) + ".00 " +
                             std::to_string(rate) + ".00 0";
    text += std::to_string(bytes) + " " + std::to_string(bytes / 4) + " float sum -1" + half + half + "\n";
  }
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4\n";
}

// One kind of damage at a place that the seed picks.
std::string damage(std::vector<std::string>& lines, Random& random) {
  const auto pick = [&] {
    return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(lines.size()) - 1));
  };
  const auto place = [&](const std::string& line) {
    return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(line.size())));
  };
  const std::size_t i = pick();
  switch (random.between(0, 8)) {
    case 0: lines[i].resize(place(lines[i])); return "cut";
    case 1: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i)); return "drop";
    case 2:
      if (i + 1 < lines.size()) {
        lines[i] += lines[i + 1];
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
      return "glue";
    case 3: lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(pick()), lines[i]); return "repeat";
    case 4: std::swap(lines[i], lines[pick()]); return "swap";
    case 5: {
      const std::size_t at = place(lines[i]);
      const std::string rest = lines[i].substr(at), other = lines[pick()];
      lines[i] = lines[i].substr(0, at) + other;
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
      return "tear";
    }
    case 6: lines[i].erase(0, place(lines[i])); return "behead";
    case 7: lines[i].insert(place(lines[i]), "\x1b[31m"); return "colour";
    default: lines.resize(i + 1); return "end";
  }
}

std::string damaged(const std::string& text, std::uint64_t seed, std::string& how) {
  Random random(seed);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t stop = text.find('\n', at);
    lines.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  const std::string prefixes[] = {"", "", "3: ", "[1,0]<stdout>:", "(Worker pid=1) "};
  const std::string prefix = prefixes[random.between(0, 4)];
  const std::string end = random.between(0, 3) == 0 ? "\r\n" : "\n";
  for (std::int64_t n = random.between(1, 4); n > 0 && !lines.empty(); --n)
    how += damage(lines, random) + " ";
  std::string result;
  for (const std::string& line : lines) result += prefix + line + end;
  return result;
}

using RingOrders = std::set<std::pair<std::int32_t, std::vector<std::int32_t>>>;

RingOrders complete_rings(const NcclLog& log) {
  RingOrders rings;
  for (const LogComm& comm : log.comms) {
    for (const LogRing& ring : comm.rings) {
      if (ring.complete) rings.insert({ring.channel, ring.ranks});
    }
  }
  return rings;
}

bool is_permutation_of_ranks(const LogRing& ring, const LogComm& comm) {
  const std::set<std::int32_t> ranks(ring.ranks.begin(), ring.ranks.end());
  return static_cast<std::int32_t>(ring.ranks.size()) == comm.rank_count &&
         ranks.size() == ring.ranks.size() && *ranks.begin() == 0 && *ranks.rbegin() == comm.rank_count - 1;
}

// Whole by the log's word, but not as it was before: then a note must say that something was taken or made
// up.
bool speaks_of(const std::vector<ImportNote>& notes, const LogRing& ring) {
  return std::ranges::any_of(notes, [&](const ImportNote& note) {
    return note.text.find("channel " + std::to_string(ring.channel)) != std::string::npos ||
           note.text.find("how many ranks") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("no damage to a log makes a wrong ring that nobody speaks of", "[nccl_log]") {
  const std::string text = two_communicators();
  const NcclLog whole = read_nccl_log(text, "log.txt");
  CHECK(whole.notes.empty());
  REQUIRE(whole.comms.size() == 2);
  const RingOrders before = complete_rings(whole);
  REQUIRE(before.size() == 8);
  for (int seed = 0; seed < variants(); ++seed) {
    std::string how;
    const std::string variant = damaged(text, static_cast<std::uint64_t>(seed), how);
    try {
      const NcclLog log = read_nccl_log(variant, "log.txt");
      for (const LogComm& comm : log.comms) {
        for (const LogRing& ring : comm.rings) {
          if (!ring.complete) continue;
          if (is_permutation_of_ranks(ring, comm) &&
              (before.contains({ring.channel, ring.ranks}) || speaks_of(log.notes, ring)))
            continue;
          CAPTURE(seed, how, ring.channel, ring.ranks);
          CHECK(false);
        }
      }
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
    }
  }
}

TEST_CASE("no damage to a machine's tree, its graphs or its tuning crashes", "[nccl_log]") {
  for (int seed = 0; seed < variants(); ++seed) {
    std::string how;
    try {
      const NcclLog log = read_nccl_log(damaged(kMachine, static_cast<std::uint64_t>(seed), how), "log.txt");
      for (const Host& host : hosts_from_log(log).hosts) {
        for (const HostGpu& gpu : host.gpus) {
          if (gpu.pci < 0 || static_cast<std::size_t>(gpu.pci) >= host.pci.size())
            FAIL("a GPU without its PCI device, seed " << seed);
        }
      }
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
    }
  }
}

TEST_CASE("no damage to a table changes a row that nobody speaks of", "[nccl_tests]") {
  const NcclTestsTable whole = read_nccl_tests(table(), "all_reduce.txt");
  CHECK(whole.notes.empty());
  for (int seed = 0; seed < variants(); ++seed) {
    std::string how;
    const std::string variant = damaged(table(), static_cast<std::uint64_t>(seed), how);
    try {
      const NcclTestsTable read = read_nccl_tests(variant, "all_reduce.txt");
      const bool same =
          read.rows.size() == whole.rows.size() && read.rank_count == whole.rank_count &&
          std::ranges::equal(read.rows, whole.rows, [](const NcclTestsRow& a, const NcclTestsRow& b) {
            return a.bytes == b.bytes && a.out_of_place && a.in_place &&
                   a.out_of_place->time_us == b.out_of_place->time_us &&
                   a.in_place->time_us == b.in_place->time_us;
          });
      if (same || !read.notes.empty()) continue;
      CAPTURE(seed, how);
      CHECK(same);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInput);
    }
  }
}
