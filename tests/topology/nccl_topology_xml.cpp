#include "topology/import/nccl_topology_xml.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/topo_files.hpp"

using namespace orrery;
using topo_test::find_note;
using Kind = ImportNote::Kind;

namespace {

// Two GPUs of one switch with two NVLinks between them, and a card of two ports.
const char* const kPair = R"(<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:40:00.0" class="0x060400" vendor="0x1000" device="0xc010" subsystem_vendor="0x10de" subsystem_device="0x13b8" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:41:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
        <gpu dev="0" sm="80" rank="3" gdr="1">
          <nvlink target="0000:42:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:42:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
        <gpu dev="1" sm="80" rank="4" gdr="0">
          <nvlink target="0000:41:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:43:00.0" class="0x020700" link_speed="16 GT/s" link_width="8">
        <nic>
          <net name="mlx5_1" dev="1" speed="100000" port="2" latency="1.5" guid="0x1" maxconn="131072" gdr="1" coll="1" rail="0" plane="1"/>
          <net name="mlx5_0" dev="0" speed="100000" port="1" latency="0.000000" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

HostImport read(const std::string& text, const NcclTopologyOptions& options = {}) {
  return read_nccl_topology(text, "t.xml", options);
}

std::string error_of(const std::string& text, const NcclTopologyOptions& options = {}) {
  try {
    read(text, options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

std::string in_cpu(const std::string& devices) {
  return R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">)" +
         devices + "</cpu></system>";
}

}  // namespace

TEST_CASE("a topology dump says all of one machine", "[topology][nccl_xml]") {
  const HostImport import = read(kPair);
  REQUIRE(import.hosts.size() == 1);
  CHECK(import.notes == std::vector<ImportNote>{});
  const Host& host = import.hosts[0];
  CHECK(host.source == "t.xml");
  REQUIRE(host.cpus.size() == 1);
  CHECK(host.cpus[0].affinity == "0000ffff");
  CHECK(host.cpus[0].family == 175);
  REQUIRE(host.pci.size() == 4);
  CHECK(host.pci[0].device == 0xc010);
  CHECK(host.pci[0].gigatransfers_per_s == 16);
  CHECK(host.pci[3].parent == 0);
  CHECK(host.pci[3].lanes == 8);
  REQUIRE(host.gpus.size() == 2);
  CHECK(host.gpus[1].rank == 4);
  CHECK(host.gpus[1].compute_capability == 80);
  CHECK_FALSE(host.gpus[1].gpu_direct_rdma);
  CHECK(host.gpus[0].nvlinks == std::vector<HostNvLink>{{"0000:42:00.0", 2, 0x030200}});
  REQUIRE(host.nics.size() == 2);  // By dev.
  CHECK(host.nics[0].name == "mlx5_0");
  CHECK(host.nics[1].port == 2);
  CHECK(host.nics[1].bytes_per_s == 12.5e9);  // 100,000 Mb/s.
  CHECK(host.nics[1].latency_s == 1.5e-6);
  CHECK(host.nics[1].in_network_reduction);
  CHECK(host.nics[1].plane == 1);
  CHECK(host.nics[0].plane == -1);
}

TEST_CASE("what is written reads back equal", "[topology][nccl_xml]") {
  const std::string switched =
      replaced(kPair, "</pci>\n  </cpu>",
               "<pcilink target=\"0000:50:00.0\"/></pci>"
               "<nic><net name=\"eth0\" dev=\"2\" speed=\"10000\" gin=\"1\" net=\"0\" "
               "keep=\"1\"/></nic></cpu><cpu numaid=\"-1\"/>");
  const std::vector<Host> hosts = read(switched).hosts;
  CHECK(hosts[0].nics[2].pci == -1);
  CHECK(hosts[0].nics[2].keep);
  CHECK(hosts[0].pci[0].peer == "0000:50:00.0");
  const NcclTopologyText written = write_nccl_topology(hosts);
  CHECK(written.notes.empty());
  CHECK(read(written.text).hosts == hosts);
  CHECK_THAT(written.text, Catch::StartsWith("<system version=\"1\">\n  <cpu numaid=\"0\""));
  CHECK_THAT(written.text, Catch::Contains("latency=\"1.5\"") && Catch::Contains("\"16.0 GT/s PCIe\""));
}

TEST_CASE("CRLF, comments and single quotes are plain; a prolog and entities are more than NCCL takes",
          "[topology][nccl_xml]") {
  Host plain = read(kPair).hosts[0];
  const HostImport crlf = read(replaced(std::string("<!-- a\n > b -->\n") + kPair, "\n", "\r\n"));
  CHECK(crlf.hosts[0] == plain);
  CHECK(crlf.notes.empty());
  CHECK(read(replaced(kPair, "\"", "'")).hosts[0] == plain);
  const HostImport prolog = read("<?xml version=\"1.0\"?>\n" + replaced(kPair, "mlx5_1", "m&lt;1"));
  CHECK(find_note(prolog.notes, Kind::kSuspect, "<?xml") != nullptr);
  const ImportNote* entity = find_note(prolog.notes, Kind::kSuspect, "entities");
  REQUIRE(entity != nullptr);
  CHECK(entity->line == 17);
  CHECK(prolog.hosts[0].nics[1].name == "m<1");
}

TEST_CASE("a file that is no topology says what it is", "[topology][nccl_xml]") {
  CHECK_THAT(error_of("<graphs version=\"1\"/>"), Catch::Contains("graph file"));
  CHECK_THAT(error_of("<topology version=\"2.0\"/>"), Catch::Contains("hwloc"));
  CHECK_THAT(error_of("<system version=\"3\"/>"), Catch::Contains("version \"3\""));
  CHECK_THAT(error_of("<system version=\"1\"/>"), Catch::Contains("no <cpu>"));
  CHECK_THAT(error_of("<system version=\"1\"><cpu numaid=\"0\"/></system>"), Catch::Contains("no <pci>"));
  CHECK_THAT(error_of("GPU0 X"), Catch::Contains("not well-formed"));
  CHECK_THAT(error_of(std::string(kPair) + kPair), Catch::Contains("second root"));
  CHECK(find_note(read(replaced(kPair, " version=\"1\"", "")).notes, Kind::kSuspect, "version") != nullptr);
}

TEST_CASE("text that is not well formed names the element that stays open", "[topology][nccl_xml]") {
  const std::string whole = kPair;
  CHECK_THAT(error_of(whole.substr(0, whole.find("        </gpu>"))),
             Catch::Contains("ends in line 6 although <gpu> of line 5"));
  CHECK_THAT(error_of(replaced(whole, "        </gpu>\n", "")),
             Catch::Contains("line 7: </pci> stands where </gpu> must, which closes line 5"));
  CHECK_THAT(error_of(whole + "</cpu>"), Catch::Contains("</cpu> closes nothing"));
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "<pci busid=\"0000:00:00.0\">";
  for (int i = 0; i < 300; ++i) deep += "</pci>";
  CHECK_THAT(error_of(in_cpu(deep)), Catch::Contains("nested deeper than 256"));
}

TEST_CASE("speeds and widths come in several forms", "[topology][nccl_xml]") {
  const auto device = [](const std::string& speed, const std::string& width) {
    return read(in_cpu("<pci busid=\"0000:07:00.0\" class=\"0x030200\" link_speed=\"" + speed +
                       "\" link_width=\"" + width + "\"/>"));
  };
  CHECK(device("16.0 GT/s PCIe", "16").hosts[0].pci[0].gigatransfers_per_s == 16);
  CHECK(device("32 GT/s PCIe/s", "16").hosts[0].pci[0].gigatransfers_per_s == 32);
  CHECK(device("2.5 GT/s", "16").hosts[0].pci[0].gigatransfers_per_s == 2.5);
  const HostImport empty = device("", "0");
  CHECK(empty.hosts[0].pci[0].gigatransfers_per_s == 0);
  CHECK(empty.hosts[0].pci[0].lanes == 0);
  CHECK(find_note(empty.notes, Kind::kAssumed, "NCCL counts 16 lanes") != nullptr);
  CHECK(find_note(empty.notes, Kind::kAssumed, "NCCL counts 8 GT/s") != nullptr);
  CHECK(find_note(device("Unknown", "16").notes, Kind::kSuspect, "link_speed=\"Unknown\"") != nullptr);
  CHECK(find_note(device("8 GT/s", "wide").notes, Kind::kSuspect, "link_width=\"wide\"") != nullptr);
}

TEST_CASE("leaves without gpu and net elements go by their class", "[topology][nccl_xml]") {
  const HostImport import = read(in_cpu(R"(
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="000d:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0102:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    </pci>)"));
  const Host& host = import.hosts[0];
  REQUIRE(host.gpus.size() == 2);  // By bus id, not as they stand there.
  CHECK(host.pci[host.gpus[0].pci].bus_id == "0001:00:00.0");
  CHECK(host.gpus[0].index == 0);
  REQUIRE(host.nics.size() == 2);
  CHECK(host.pci[host.nics[0].pci].bus_id == "0101:00:00.0");
  CHECK(find_note(import.notes, Kind::kAssumed, "numbered by their bus ids") != nullptr);
  const ImportNote* bare = find_note(import.notes, Kind::kMissing, "neither capability nor NVLinks");
  REQUIRE(bare != nullptr);
  CHECK_THAT(bare->text, Catch::StartsWith("0001:00:00.0, 000d:00:00.0: "));
  CHECK_THAT(bare->remedy, Catch::Contains("NCCL_TOPO_DUMP_FILE"));
}

TEST_CASE("leaves without class need the list of GPUs", "[topology][nccl_xml]") {
  // As clouds ship it: GPU 53 isn't even listed, and lies between 52 and the next bridge, 56.
  const std::string sparse = R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:45:00.0"><pci busid="0000:52:00.0" link_speed="32 GT/s PCIe/s" link_width="16"/></pci>
    <pci busid="0000:56:00.0"><pci busid="0000:60:00.0"/><pci busid="0000:64:00.0"/></pci></cpu></system>)";
  const HostImport without = read(sparse);
  CHECK(without.hosts[0].gpus.empty());
  CHECK(without.hosts[0].nics.empty());
  const ImportNote* ask = find_note(without.notes, Kind::kMissing, "GPU or a network card");
  REQUIRE(ask != nullptr);
  CHECK_THAT(ask->remedy, Catch::Contains("nvidia-smi --query-gpu=pci.bus_id"));

  NcclTopologyOptions options;
  options.gpu_bus_ids = {"00000000:53:00.0", "00000000:64:00.0"};
  const HostImport with = read(sparse, options);
  const Host& host = with.hosts[0];
  REQUIRE(host.gpus.size() == 2);
  const PciDevice& placed = host.pci[static_cast<std::size_t>(host.gpus[0].pci)];
  CHECK(placed.bus_id == "0000:53:00.0");
  CHECK(placed.parent == 0);
  CHECK(host.gpus[0].pci == 2);  // Behind 52, before 56.
  CHECK(host.pci[static_cast<std::size_t>(host.gpus[1].pci)].bus_id == "0000:64:00.0");
  CHECK(host.pci[static_cast<std::size_t>(host.gpus[1].pci)].parent == 3);
  CHECK(host.nics.size() == 2);  // 52 and 60.
  CHECK(find_note(with.notes, Kind::kAssumed, "is not in the file") != nullptr);
  CHECK(find_note(with.notes, Kind::kAssumed, "taken as a network card") != nullptr);
  CHECK(read(write_nccl_topology(with.hosts).text).hosts == with.hosts);

  options.gpu_bus_ids = {"0001:00:00.0"};  // Another domain.
  const HostImport elsewhere = read(sparse, options);
  CHECK(elsewhere.hosts[0].gpus.empty());
  CHECK(find_note(elsewhere.notes, Kind::kMissing, "left out") != nullptr);
}

TEST_CASE("RCCL's files are refused or mapped on request", "[topology][nccl_xml]") {
  const std::string text =
      R"(<system version="2"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143">
    <pci busid="0001:00:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">
      <gpu dev="0" sm="120" gcn="908" arch="38911" rank="0" gdr="0">
        <xgmi target="0002:00:00.0" count="1" tclass="0x038000"/></gpu></pci>
    <pci busid="0002:00:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">
      <gpu dev="1" sm="304" gcn="gfx942" rank="1" gdr="0">
        <xgmi target="0001:00:00.0" count="1" tclass="0x038000"/></gpu></pci></cpu></system>)";
  CHECK_THAT(error_of(text), Catch::Contains("version 2 is RCCL's"));
  NcclTopologyOptions options;
  options.map_rccl = true;
  const HostImport import = read(text, options);
  const std::vector<HostGpu>& gpus = import.hosts[0].gpus;
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].model == "gfx908");
  CHECK(gpus[1].model == "gfx942");
  CHECK(gpus[1].compute_capability == 0);  // 304 are compute units.
  CHECK(gpus[0].nvlinks == std::vector<HostNvLink>{{"0002:00:00.0", 1, 0x038000}});
  CHECK(find_note(import.notes, Kind::kAssumed, "RCCL") != nullptr);
}

TEST_CASE("hosts that share NVLink are told apart by their hash", "[topology][nccl_xml]") {
  const auto cpu = [](const std::string& hash, const std::string& dev) {
    return "<cpu host_hash=\"" + hash + R"(" numaid="0" arch="arm64">
      <pci busid="0008:06:00.0" class="0x030200" link_speed="64.0 GT/s PCIe" link_width="16">
        <gpu dev=")" +
           dev + R"(" sm="100" rank="0" gdr="1">
          <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="5"/>
        </gpu></pci></cpu>)";
  };
  const HostImport import =
      read("<system version=\"1\">" + cpu("0xa1", "0") + cpu("0xa2", "1") + "</system>");
  REQUIRE(import.hosts.size() == 2);
  CHECK(import.notes.empty());
  CHECK(import.hosts[1].name == "0xa2");
  CHECK(import.hosts[0].gpus[0].c2c_bytes_per_s == 5 * 44712e6);
  CHECK(import.hosts[0].gpus[0].nvlinks[0].target == "fffffff:ff:ff.0");
  CHECK(read(write_nccl_topology(import.hosts).text).hosts == import.hosts);
  CHECK_THROWS_WITH(write_nccl_topology(std::vector<Host>(2, import.hosts[0])),
                    Catch::Contains("names that differ"));
}

TEST_CASE("unknown elements and limits are noted", "[topology][nccl_xml]") {
  const HostImport import = read(replaced(kPair, "<gpu dev=\"0\"", "<cxl/><gpu dev=\"0\""));
  CHECK(find_note(import.notes, Kind::kAssumed, "<cxl>: not known under <pci>") != nullptr);
  const std::string longer(300, 'f');
  CHECK(find_note(read(replaced(kPair, "0000ffff", longer)).notes, Kind::kSuspect, "255 characters") !=
        nullptr);
  std::string many = "<pci busid=\"0000:07:00.0\" class=\"0x030200\"";
  for (int i = 0; i < 20; ++i) many += " a" + std::to_string(i) + "=\"\"";
  CHECK(find_note(read(in_cpu(many + "/>")).notes, Kind::kSuspect, "16 attributes") != nullptr);
  CHECK_THAT(error_of(in_cpu("<pci class=\"0x030200\"/>")), Catch::Contains("without busid"));
  CHECK(find_note(read(replaced(kPair, "rank=\"3\"", "rank=\"third\"")).notes, Kind::kSuspect,
                  "rank=\"third\"") != nullptr);
}

TEST_CASE("files of more than 256 elements are noted, refused and pruned", "[topology][nccl_xml]") {
  // 20 GPUs with 12 links each: 1 + 1 + 20 · 14 = 282 elements; links joined: 2 + 20 · 3 = 62.
  std::string devices;
  for (int gpu = 0; gpu < 20; ++gpu) {
    devices += "<pci busid=\"00" + std::to_string(10 + gpu) +
               ":00:00.0\" class=\"0x030200\" link_speed=\"8 GT/s\" "
               "link_width=\"16\"><gpu dev=\"" +
               std::to_string(gpu) + "\" sm=\"90\">";
    for (int link = 0; link < 12; ++link)
      devices +=
          "<nvlink target=\"0000:f" + std::to_string(link % 10) + ":00.0\" count=\"1\" tclass=\"0x068000\"/>";
    devices += "</gpu></pci>";
  }
  const HostImport import = read(in_cpu(devices));
  CHECK(find_note(import.notes, Kind::kSuspect, "282 elements") != nullptr);
  CHECK_THROWS_WITH(write_nccl_topology(import.hosts), Catch::Contains("282 elements"));
  NcclTopologyWriteOptions options;
  options.prune = true;
  const NcclTopologyText written = write_nccl_topology(import.hosts, options);
  REQUIRE(written.notes.size() == 1);
  CHECK_THAT(written.notes[0].text, Catch::Contains("220 NVLink elements joined"));
  const HostImport again = read(written.text);
  CHECK(again.notes.empty());
  CHECK(again.hosts[0].gpus[7].nvlinks == std::vector<HostNvLink>{{"0000:f0:00.0", 12, 0x068000}});
}
