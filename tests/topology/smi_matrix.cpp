#include "topology/import/smi_matrix.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/smi_pastes.hpp"
#include "topology/import/smi_p2p.hpp"

namespace orrery {
namespace {

using smi_test::four_gpus;
using smi_test::replaced;

// Cell of two labels; "-" where a label is missing.
std::string cell(const SmiMatrix& matrix, const std::string& row, const std::string& column) {
  std::size_t a = matrix.devices.size(), b = a;
  for (std::size_t i = 0; i < matrix.devices.size(); ++i) {
    if (matrix.devices[i].label == row) a = i;
    if (matrix.devices[i].label == column) b = i;
  }
  return a < matrix.devices.size() && b < matrix.devices.size() ? to_string(matrix.at(a, b)) : "-";
}

bool says(const SmiMatrix& matrix, ImportNote::Kind kind, const std::string& part) {
  for (const ImportNote& note : matrix.notes) {
    if (note.kind == kind && note.text.find(part) != std::string::npos) return true;
  }
  return false;
}

SmiMatrix read(const std::string& text) { return read_smi_matrix(text, "paste.txt"); }

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

// Every cell as the tool printed it.
void check_cells(const SmiMatrix& matrix) {
  const SmiMatrix whole = read(four_gpus());
  REQUIRE(matrix.devices.size() == 6);
  CHECK(matrix.cells == whole.cells);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(matrix.devices[i].label == whole.devices[i].label);
    CHECK(matrix.devices[i].numa_affinity == whole.devices[i].numa_affinity);
    CHECK(matrix.devices[i].cpu_affinity == whole.devices[i].cpu_affinity);
  }
}

using Kind = ImportNote::Kind;

}  // namespace

TEST_CASE("the tool's own output reads without a note", "[smi]") {
  const SmiMatrix matrix = read(four_gpus());
  CHECK(matrix.notes.empty());
  CHECK(matrix.gpu_count() == 4);
  CHECK(matrix.devices[4].name == "mlx5_0");
  CHECK(matrix.devices[5].name == "mlx5_bond_0");
  CHECK(cell(matrix, "GPU0", "GPU1") == "NV4");
  CHECK(cell(matrix, "NIC1", "GPU2") == "PHB");
  CHECK(cell(matrix, "GPU3", "GPU3") == "X");
  CHECK(matrix.devices[2].cpu_affinity == "16-31,48-63");
  CHECK(matrix.devices[2].numa_affinity == "1");
  CHECK_FALSE(matrix.devices[2].gpu_numa_id);
}

TEST_CASE("layout that people's tools change makes no difference", "[smi]") {
  const std::string text = four_gpus();
  check_cells(read(text.substr(1)));                                                // Leading tab lost.
  check_cells(read(replaced(text, "\n", "\r\n")));                                  // CRLF.
  check_cells(read(replaced(text, "\t", "      ")));                                // Blanks for tabs.
  check_cells(read(replaced(text, "\n", "\n# ")));                                  // Commented out.
  check_cells(read(replaced(text, "\n", "\n        ")));                            // Indented.
  check_cells(read(replaced(text, "\n", "\n2026-05-01T12:00:00Z n17 [rank0]: ")));  // Logged.
  check_cells(read(replaced(text, "\nGPU", "\n[1,0]<stdout>:GPU")));                // mpirun --tag-output.
  check_cells(read(replaced(text, "\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1")));         // Underlined header.
  check_cells(read(replaced(text, "\tGPU0\tGPU1", "\t[4mGPU0\tGPU1")));             // … whose ESC was lost.
  check_cells(read(replaced(text, " X ", "X")));                                    // X not padded.
  check_cells(read("$ nvidia-smi topo -m\nGPU0 is the first.\n\n" + text + "done.\n"));
}

TEST_CASE("a header that is glued, wrapped, missing or below the rows", "[smi]") {
  const std::string text = four_gpus();
  const SmiMatrix glued = read(replaced(text, "GPU0\tGPU1\tGPU2\tGPU3\tNIC0", "GPU0GPU1GPU2GPU3NIC0"));
  check_cells(glued);
  CHECK(says(glued, Kind::kRepaired, "glued"));
  const SmiMatrix wrapped = read(replaced(text, "\tGPU0\tGPU1\tGPU2", "\tGPU0\nGPU1\tGPU2"));
  check_cells(wrapped);
  CHECK(says(wrapped, Kind::kRepaired, "wrapped"));
  const SmiMatrix missing = read(text.substr(text.find('\n') + 1));
  CHECK(missing.cells == glued.cells);
  CHECK(says(missing, Kind::kRepaired, "no header"));
  // Without GPU3's row and those of the NICs, NVLinks tell the fourth column from the fifth.
  const std::size_t rows = text.find('\n') + 1;
  const SmiMatrix few = read(text.substr(rows, text.find("GPU3\tSYS") - rows));
  CHECK(few.gpu_count() == 4);
  CHECK(cell(few, "GPU2", "GPU3") == "NV4");
  CHECK(cell(few, "GPU2", "NIC1") == "PHB");
  CHECK(says(few, Kind::kAssumed, "GPU3, NIC0, NIC1"));
}

TEST_CASE("words that ran together are taken apart, or read from their mirror", "[smi]") {
  const std::string text = four_gpus();
  const SmiMatrix two = read(replaced(text, "NV4\tSYS\tSYS\tPIX", "NV4\tSYSSYS\tPIX"));
  check_cells(two);
  CHECK(says(two, Kind::kRepaired, "\"SYSSYS\" is taken apart"));
  check_cells(read(replaced(text, "NV4\tSYS\tSYS\tPIX", "NV4\tSYS SYS\tPIX")));
  // The driver's own: the last cell is overwritten by the CPU list.
  const SmiMatrix overwritten = read(replaced(text, "PHB\t16-31,48-63", "PH16-31,48-63"));
  check_cells(overwritten);
  CHECK(says(overwritten, Kind::kRepaired, "GPU2 × NIC1"));
  const SmiMatrix unreadable = read(replaced(text, "GPU0\t X \tNV4", "GPU0\t X \tN?4"));
  check_cells(unreadable);
  CHECK(says(unreadable, Kind::kRepaired, "GPU0 × GPU1"));
}

TEST_CASE("affinities that are glued, cut or blank", "[smi]") {
  const std::string text = four_gpus();
  // As if node 0 had been printed without a tab: 0-15,32-47 and 0.
  const SmiMatrix glued = read(replaced(text, "0-15,32-47\t0\t", "0-15,32-470\t"));
  check_cells(glued);
  CHECK(says(glued, Kind::kRepaired, "0-15,32-470"));
  const SmiMatrix blank = read(replaced(text, "16-31,48-63", ""));
  CHECK(blank.devices[2].cpu_affinity.empty());
  CHECK(blank.devices[2].numa_affinity == "1");
  CHECK(says(blank, Kind::kMissing, "GPU2, GPU3: CPU Affinity is blank"));
  const std::string spaced = replaced(replaced(text, "\t\tN/A", "\tN/A"), "\t", " ");
  check_cells(read(spaced));  // "0 N/A"
  const SmiMatrix cut =
      read(text.substr(0, text.find("GPU2\tSYS")) + "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPHB\t16-31,48-6");
  CHECK(cut.devices[2].cpu_affinity.empty());
  CHECK(says(cut, Kind::kMissing, "GPU2: CPU list \"16-31,48-6\""));
  const SmiMatrix six = read(replaced(text, "0-15,32-47", "0,2,4,6,8,10"));
  CHECK(says(six, Kind::kMissing, "six entries"));
  const SmiMatrix grace =
      read(replaced(replaced(text, "\t0\t\tN/A", "\t0,3-9\t\t2"), "\t1\t\tN/A", "\t1,19-25\t\t18"));
  CHECK(grace.devices[0].numa_affinity == "0,3-9");
  CHECK(grace.devices[0].gpu_numa_id == 2);
  CHECK(grace.devices[3].gpu_numa_id == 18);
}

TEST_CASE("rows cut, missing, doubled or out of order", "[smi]") {
  const std::string text = four_gpus();
  const std::string gpu1 = "GPU1\tNV4\t X \tSYS\tSYS\tPXB\tSYS\t0-15,32-47\t0\t\tN/A\n";
  const SmiMatrix without = read(replaced(text, gpu1, ""));
  CHECK(without.cells == read(text).cells);  // All of it is in GPU1's column.
  CHECK(says(without, Kind::kMissing, "no row for GPU1"));
  check_cells(read(replaced(text, gpu1, "") + "\n" + gpu1));
  CHECK(says(read(replaced(text, gpu1, gpu1 + gpu1)), Kind::kAssumed, "GPU1 has a second row"));
  // "NV1" may be the beginning of "NV18": such a cell is read from the other side.
  const SmiMatrix cut =
      read(replaced(smi_test::switched_gpus(), "NV18\tNV18\t0-31\t0\nGPU1", "NV18\tNV1\nGPU1"));
  CHECK(cell(cut, "GPU0", "GPU3") == "NV18");
  CHECK(says(cut, Kind::kRepaired, "GPU0"));
  const SmiMatrix unlabelled = read(replaced(text, "\nGPU1\t", "\n\t"));
  check_cells(unlabelled);
  CHECK(says(unlabelled, Kind::kRepaired, "GPU1"));
}

TEST_CASE("a shift of columns never makes a wrong cell", "[smi]") {
  const std::string text = four_gpus();
  // GPU1 lost its first cell: NV4 with GPU0 comes from GPU0's row, the cells behind X still count from the
  // right.
  const SmiMatrix lost = read(replaced(text, "GPU1\tNV4\t X ", "GPU1\t X "));
  check_cells(lost);
  CHECK(says(lost, Kind::kSuspect, "row of GPU1"));
  // awk '{$4 = ""}' takes another column from the header than from the rows, which start with a label.
  const SmiMatrix shifted = read(
      "GPU0 GPU1 GPU2\n"
      "GPU0 X NV4 SYS\n"
      "GPU1 NV4 X SYS\n"
      "GPU2 SYS SYS NV2\n"
      "GPU3 SYS SYS X\n");
  CHECK(says(shifted, Kind::kSuspect, "headed GPU2"));
  CHECK(cell(shifted, "GPU0", "GPU1") == "NV4");
  CHECK(cell(shifted, "GPU2", "GPU3") == "?");
  // The same column gone from all lines: GPU2 keeps its row, and is said to have lost its column.
  const SmiMatrix column =
      read("GPU0 GPU1 GPU3\nGPU0 X NV4 SYS\nGPU1 NV4 X SYS\nGPU2 SYS SYS NV2\nGPU3 SYS SYS X\n");
  CHECK(cell(column, "GPU2", "GPU3") == "NV2");
  CHECK(says(column, Kind::kRepaired, "row of GPU2"));
}

TEST_CASE("a matrix that contradicts itself", "[smi]") {
  const SmiMatrix matrix = read(replaced(four_gpus(), "GPU2\tSYS\tSYS", "GPU2\tPHB\tSYS"));
  CHECK(cell(matrix, "GPU0", "GPU2") == "?");
  CHECK(says(matrix, Kind::kSuspect, "GPU0 × GPU2 is SYS, and GPU2 × GPU0 is PHB"));
}

TEST_CASE("NVLinks that some GPUs lack are told, bridges are not", "[smi]") {
  CHECK(read(smi_test::switched_gpus()).notes.empty());
  const std::string text = smi_test::switched_gpus();
  const SmiMatrix lost = read(
      "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV18\tSYS\tNV18\nGPU1\tNV18\tX\tSYS\tNV18\n"
      "GPU2\tSYS\tSYS\tX\tNODE\nGPU3\tNV18\tNV18\tNODE\tX\n");
  CHECK(says(lost, Kind::kSuspect, "GPU2 has no NVLink"));
  const SmiMatrix fewer = read(
      "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV18\tNV16\tNV18\nGPU1\tNV18\tX\tNV16\tNV18\n"
      "GPU2\tNV16\tNV16\tX\tNV16\nGPU3\tNV18\tNV18\tNV16\tX\n");
  CHECK(says(fewer, Kind::kSuspect, "GPU2 has 16 NVLinks"));
  // A bridge joins two of three GPUs: as built.
  CHECK_FALSE(says(read("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tSYS\nGPU1\tNV4\tX\tSYS\nGPU2\tSYS\tSYS\tX\n"),
                   Kind::kSuspect, "NVLink"));
}

TEST_CASE("what the text around a matrix says", "[smi]") {
  const std::string hidden = replaced(replaced(four_gpus(), "NV4", "NODE"),
                                      "  NV#  = Connection traversing a bonded set of # NVLinks\n", "");
  CHECK(read(hidden).nvlink_hidden);
  CHECK_FALSE(read(four_gpus()).nvlink_hidden);
  const SmiMatrix mig = read(
      "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n  MIG 1g.5gb  Device 0: (UUID: MIG-2)\n" + four_gpus());
  CHECK(mig.mig_enabled);
  CHECK(mig.gpu_model == "NVIDIA A100-SXM4-40GB");
  const SmiMatrix old = read(smi_test::two_gpus());
  CHECK(old.old_words);
  CHECK(cell(old, "GPU0", "mlx5_0") == "SYS");
  CHECK(says(read(four_gpus() + four_gpus()), Kind::kSuspect, "second matrix"));
}

TEST_CASE("other tables are refused with what they are", "[smi]") {
  const std::string p2p = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tOK\tX\t\n";
  CHECK_THAT(refusal(p2p), Catch::Contains("paste.txt:2: this is the table of `nvidia-smi topo -p2p`"));
  const SmiP2pTable table = read_smi_p2p(p2p, "paste.txt");
  CHECK(table.gpus == std::vector<std::int32_t>{0, 1});
  CHECK(table.at(0, 1) == SmiP2pStatus::kGpuNotSupported);
  CHECK(table.at(1, 0) == SmiP2pStatus::kOk);
  CHECK(table.notes.empty());
  CHECK_THROWS_AS(read_smi_p2p(four_gpus(), "paste.txt"), Error);
  CHECK_THAT(refusal("nothing here\n"), Catch::Contains("no matrix"));
  const std::string foreign = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tXGMI\tHT\nGPU1\tXGMI\tX\tHT\nGPU2\tHT\tHT\tX\n";
  CHECK_THAT(refusal(foreign), Catch::Contains("HT, XGMI"));
  CHECK_THAT(refusal(replaced(foreign, "GPU", "DCU")), Catch::Contains("another vendor"));
  const SmiReadOptions options{{{"XGMI", {SmiRelation::kNvLink, 1}}, {"HT", {SmiRelation::kSys, 0}}},
                               {"DCU"}};
  const SmiMatrix mapped = read_smi_matrix(replaced(foreign, "GPU", "DCU"), "paste.txt", options);
  CHECK(mapped.gpu_count() == 3);
  CHECK(cell(mapped, "DCU0", "DCU1") == "NV1");
  CHECK(cell(mapped, "DCU2", "DCU1") == "SYS");
}

}  // namespace orrery
