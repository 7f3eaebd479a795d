#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "simulator/job.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

// Ranks by class, compactly: "0-2 3" is a class of three and one of one.
std::string class_text(const Job& job) {
  std::string text;
  for (const JobClass& c : job.classes) {
    if (!text.empty()) text += " ";
    for (std::size_t i = 0; i < c.ranks.ranks.size(); ++i)
      text += (i == 0 ? "" : ",") + std::to_string(c.ranks.ranks[i].value);
  }
  return text;
}

const Transfer& transfer_of(const Job& job, std::int32_t rank_class, std::int32_t instruction) {
  const std::int32_t number =
      job.classes[static_cast<std::size_t>(rank_class)].rendezvous[static_cast<std::size_t>(instruction)];
  REQUIRE(number >= 0);
  return job.transfers[static_cast<std::size_t>(job.rendezvous[static_cast<std::size_t>(number)].transfer)];
}

// (link capacity, count) of a transfer, sorted.
std::multiset<std::pair<std::int64_t, std::int32_t>> links_of(const Job& job, const Transfer& transfer) {
  std::multiset<std::pair<std::int64_t, std::int32_t>> links;
  for (std::int32_t l = transfer.links.begin; l < transfer.links.end; ++l) {
    const LinkUse& use = job.link_uses[static_cast<std::size_t>(l)];
    links.insert({job.link_capacity[static_cast<std::size_t>(use.link)], use.count});
  }
  return links;
}

// One collective over all ranks of a cluster.
Job job_of_collective(CollectiveKind kind, std::int64_t bytes, const Cluster& cluster, std::int32_t ranks,
                      const Profile& profile = Profile()) {
  static Program program;  // The job refers to it.
  program = Program();
  add_axes(program, {ranks, 1, 1});
  RoleWriter role(program, "all", {{"comm", 0}});
  role.add("c", 0, Collective{kind, AxisId(0), bytes}, -1, -1, {});
  program.roles.push_back(role.take());
  return make_job(program, cluster, profile, {});
}

}  // namespace

TEST_CASE("a collective inside a node runs at its NVLink", "[simulator]") {
  const Job job = job_of_collective(CollectiveKind::kAllReduce, 8'000'000, cluster_of("dgx-h100", 1), 8);
  REQUIRE(job.classes.size() == 1);
  CHECK(job.classes[0].ranks.ranks.size() == 8);
  REQUIRE(job.rendezvous.size() == 1);
  CHECK(job.rendezvous[0].participants.size() == 1);
  CHECK(job.transfers[0].bytes == 14'000'000);  // 2·7/8 of 8 MB.
  CHECK(job.transfers[0].rate_cap == 370'800'000'000);
  CHECK(job.transfers[0].links.empty());  // Nobody to share with.
}

TEST_CASE("over several nodes each NIC carries its share", "[simulator]") {
  Profile profile = Profile();
  profile.step_latency_s = 1e-6;
  profile.network_step_latency_s = 10e-6;
  const Job job =
      job_of_collective(CollectiveKind::kAllGather, 16'000'000, cluster_of("dgx-h100", 2), 16, profile);
  CHECK(job.transfers[0].bytes == 1'875'000);  // 15/16 of 16 MB over 8 NICs.
  // The NIC's PCIe link is narrower than an NVLink shared by the 7 channels that don't leave there.
  CHECK(job.transfers[0].rate_cap == 48'000'000'000);
  CHECK(job.transfers[0].latency == SimTime{(14 * 1 + 10) * 1'000'000});
}

TEST_CASE("an all-to-all is limited by the messages through the busiest link", "[simulator]") {
  // One node: 7 messages of 1 MB leave each GPU.
  const Job one = job_of_collective(CollectiveKind::kAllToAll, 8'000'000, cluster_of("dgx-h100", 1), 8);
  CHECK(one.transfers[0].bytes == 1'000'000);
  CHECK(one.transfers[0].rate_cap == 370'800'000'000 / 7);
  // Two nodes: 8 messages of half a MB through each NIC.
  const Job two = job_of_collective(CollectiveKind::kAllToAll, 8'000'000, cluster_of("dgx-h100", 2), 16);
  CHECK(two.transfers[0].bytes == 500'000);
  CHECK(two.transfers[0].rate_cap == 6'000'000'000);
  // Two pods of one node under 4:1: 8 GPUs on rails of their own send 8 messages each to the other node, one
  // of them on each rail's uplink of 12.5 GB/s per NIC.
  const Job pods =
      job_of_collective(CollectiveKind::kAllToAll, 8'000'000, cluster_of("dgx-h100", 2, 4, 1), 16);
  CHECK(pods.transfers[0].rate_cap == 12'500'000'000 / 8);
}

TEST_CASE("GPUs that share a NIC share its rate", "[simulator]") {
  // DGX-1: two GPUs per 100 Gb/s NIC behind PCIe Gen3. A ring with 8 channels sends two through each NIC.
  const Job job = job_of_collective(CollectiveKind::kAllGather, 16'000'000, cluster_of("dgx-v100", 2), 16);
  CHECK(job.transfers[0].rate_cap == 6'000'000'000);
}

TEST_CASE("a pipeline of data-parallel replicas folds to its stages", "[simulator]") {
  const Program program = grid_program({8, 4, 4});
  const Cluster cluster = cluster_of("dgx-h100", 16);
  const Job job = make_job(program, cluster, Profile(), {});
  REQUIRE(job.classes.size() == 4);
  for (const JobClass& c : job.classes) CHECK(c.ranks.ranks.size() == 32);
  CHECK(job.classes[1].ranks.ranks[0].value == 8);
  for (const JobClass& c : job.classes) {
    const Role& role = program.roles[c.ranks.role.index()];
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      const bool compute = std::holds_alternative<Compute>(role.instructions[i].work);
      CHECK((c.rendezvous[i] < 0) == compute);
      CHECK((c.work[i] > SimTime{}) == compute);
    }
  }
  const Job flat = make_job(program, cluster, Profile(), {.fold = false, .stragglers = {}});
  CHECK(flat.classes.size() == 128);
  CHECK(flat.classes[77].ranks.ranks == std::vector<RankId>{RankId(77)});
}

TEST_CASE("a straggler splits only what it touches", "[simulator]") {
  const Program program = grid_program({2, 1, 4});
  const Cluster cluster = cluster_of("dgx-h100", 1);
  CHECK(class_text(make_job(program, cluster, Profile(), {})) == "0,1,2,3,4,5,6,7");
  // Rank 2 is slow. Its tensor-parallel mate 3 is another class; so are the ranks that reduce gradients with
  // it (0, 4, 6) and those that reduce with its mate (1, 5, 7).
  JobOptions options;
  options.stragglers = {{RankId(2), 1.5}};
  const Job job = make_job(program, cluster, Profile(), options);
  CHECK(class_text(job) == "0,4,6 1,5,7 2 3");
  CHECK(job.classes[2].work[0] == SimTime{75'000'000});
  CHECK(job.classes[3].work[0] == SimTime{50'000'000});
}

TEST_CASE("links shared by several transfers keep their counts when folded", "[simulator]") {
  // Four nodes in two pods, 2:1 oversubscribed; one ring over the nodes on rail 0 and, at the same time,
  // sends from each node to the next one.
  Program program;
  const Grid grid{1, 1, 4};
  add_axes(program, grid);
  program.device_of = {0, 8, 16, 24};
  RoleWriter role(program, "all", {{"a", 0}, {"b", 0}, {"c", 0}});
  role.add("g", 0, Collective{CollectiveKind::kAllGather, AxisId(2), 4'000'000}, -1, -1, {});
  role.add("s", 1, Send{AxisId(2), 1, 1'000'000}, -1, -1, {});
  role.add("r", 2, Recv{AxisId(2), -1, 1'000'000}, -1, -1, {});
  program.roles.push_back(role.take());
  const Cluster cluster = cluster_of("dgx-h100", 4, 2, 2);

  const Job flat = make_job(program, cluster, Profile(), {.fold = false, .stragglers = {}});
  // The ring crosses all four GPUs' PCIe links both ways and each pod's uplink and downlink, 2 NICs / 2,
  // once.
  const Transfer& ring = transfer_of(flat, 0, 0);
  CHECK(ring.rate_cap == 48'000'000'000);
  using Links = std::multiset<std::pair<std::int64_t, std::int32_t>>;
  Links expected;
  for (int i = 0; i < 8; ++i) expected.insert({48'000'000'000, 1});
  for (int i = 0; i < 4; ++i) expected.insert({50'000'000'000, 1});
  CHECK(links_of(flat, ring) == expected);
  // Rank 0 sends inside its pod, rank 1 to the other one.
  CHECK(links_of(flat, transfer_of(flat, 0, 1)) == Links{{48'000'000'000, 1}, {48'000'000'000, 1}});
  CHECK(links_of(flat, transfer_of(flat, 1, 1)).size() == 4);

  const Job folded = make_job(program, cluster, Profile(), {});
  CHECK(class_text(folded) == "0,2 1,3");
  // A PCIe link sees the ring and one send, either inside a pod or between pods, in whichever direction; a
  // trunk sees the ring and a send between pods.
  CHECK(folded.link_capacity.size() == 3);
  CHECK(links_of(folded, transfer_of(folded, 0, 0)) ==
        Links{{48'000'000'000, 1}, {48'000'000'000, 1}, {50'000'000'000, 1}});
  CHECK(links_of(folded, transfer_of(folded, 0, 1)) == Links{{48'000'000'000, 1}});
  CHECK(links_of(folded, transfer_of(folded, 1, 1)) == Links{{48'000'000'000, 1}, {50'000'000'000, 1}});
}

TEST_CASE("offsets that lead to the same peer meet in program order", "[simulator]") {
  Program program;
  add_axes(program, {1, 1, 2});
  RoleWriter role(program, "both", {{"a", 0}, {"b", 0}});
  role.add("s1", 0, Send{AxisId(2), 1, 1000}, -1, -1, {});
  role.add("r1", 1, Recv{AxisId(2), 1, 1000}, -1, -1, {});
  role.add("s2", 0, Send{AxisId(2), -1, 2000}, -1, -1, {});
  role.add("r2", 1, Recv{AxisId(2), -1, 2000}, -1, -1, {});
  program.roles.push_back(role.take());
  const Job job = make_job(program, two_ranks(1e9, {}), Profile(), {});
  REQUIRE(job.classes.size() == 1);
  const std::vector<std::int32_t>& rendezvous = job.classes[0].rendezvous;
  CHECK(rendezvous[0] == rendezvous[1]);
  CHECK(rendezvous[2] == rendezvous[3]);
  CHECK(transfer_of(job, 0, 0).bytes == 1000);
  CHECK(transfer_of(job, 0, 3).bytes == 2000);
}

TEST_CASE("launches, copies and interference come from the profile", "[simulator]") {
  Program program;
  add_axes(program, {1, 1, 1});
  RoleWriter role(program, "all", {{"a", 0}});
  role.add("c", 0, Copy{true, 48'000'000}, -1, -1, {});
  program.roles.push_back(role.take());
  Profile profile = Profile();
  profile.launch_s = 4e-6;
  profile.graph_node_s = 1e-6;
  profile.compute_interference = 1.25;
  Job job = make_job(program, cluster_of("dgx-h100", 1), profile, {});
  CHECK(job.launch == SimTime{4'000'000});
  CHECK(job.compute_interference == 1.25);
  CHECK(transfer_of(job, 0, 0).rate_cap == 48'000'000'000);
  CHECK(job.rendezvous[0].participants.size() == 1);
  program.captured = true;
  CHECK(make_job(program, cluster_of("dgx-h100", 1), profile, {}).launch == SimTime{1'000'000});
  CHECK_THROWS_WITH(make_job(program, two_ranks(1e9, {}), profile, {}), Catch::Contains("no CPU"));
}

TEST_CASE("idle ranks are in no class", "[simulator]") {
  Program program = grid_program({1, 1, 3});
  program.role_of.insert(program.role_of.begin(), RoleId());
  program.device_of.insert(program.device_of.begin(), 7);
  for (Axis& axis : program.axes)
    for (std::vector<RankId>& group : axis.groups)
      for (RankId& rank : group) rank = RankId(rank.value + 1);
  CHECK(class_text(make_job(program, cluster_of("dgx-h100", 1), Profile(), {})) == "1,2,3");
}

TEST_CASE("impossible requests are refused", "[simulator]") {
  const Program program = grid_program({8, 1, 2});
  CHECK_THROWS_WITH(make_job(program, cluster_of("dgx-h100", 1), Profile(), {}),
                    Catch::Contains("has 8 GPUs"));
  JobOptions options;
  options.stragglers = {{RankId(16), 1.5}};
  CHECK_THROWS_WITH(make_job(program, cluster_of("dgx-h100", 2), Profile(), options),
                    Catch::Contains("there is no rank 16"));
  options.stragglers = {{RankId(3), 0.5}};
  CHECK_THROWS_WITH(make_job(program, cluster_of("dgx-h100", 2), Profile(), options),
                    Catch::Contains("slowdown 0.5"));
}
