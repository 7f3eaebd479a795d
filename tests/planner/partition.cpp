// Placements of single ops: chains that are placed and timed by hand, pieces and their limits, and pieces
// that find the NVLinks.
#include "planner/partition.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/partition_lower.hpp"
#include "planner/partition_mapping.hpp"
#include "planner/partition_order.hpp"
#include "planner/partition_pieces.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using Catch::Matchers::Contains;
using test::shorthand;
using test::small_llama;

// x → a → b → c → d, an activation each; a stands in block 0, d in block 3.
Graph chain_of_four() {
  Graph graph;
  graph.name = "chain";
  graph.layers = 2;
  graph.dims = {
      {"batch", DimRole::kBatch, 0}, {"sequence", DimRole::kSequence, 0}, {"hidden", DimRole::kHidden, 1024}};
  const std::vector<DimId> shape = {DimId(0), DimId(1), DimId(2)};
  graph.tensors.push_back({"x", TensorKind::kInput, DType::kBf16, shape, {}, 0, {}});
  for (std::int32_t i = 0; i < 4; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    graph.tensors.push_back({name + "_out", TensorKind::kActivation, DType::kBf16, shape, OpId(i), i, {}});
    graph.ops.push_back({name, OpKind::kUnary, Phase::kForward, i, {TensorId(i)}, {TensorId(i + 1)}, {}, {}});
  }
  return graph;
}

// Two GPUs that are joined by one cable.
Cluster pair() {
  NodeShape shape;
  shape.gpus = 2;
  shape.nvlink_bytes_per_s = 300e9;
  Cluster cluster;
  cluster.node = make_node(shape, catalogue_gpu("a100-pcie-80gb").value());
  return cluster;
}

struct Chain {
  Graph graph = chain_of_four();
  Cluster cluster = pair();
  Profile profile = default_profile(cluster.node.gpu);
  PartitionProblem problem{graph, shorthand(1, 1, 1, 2), cluster, profile};  // Two micro-batches.
};

std::vector<std::int32_t> devices(const Partition& partition) {
  std::vector<std::int32_t> of;
  for (std::size_t o = 0; o < partition.piece_of.size(); ++o)
    of.push_back(partition.device(OpId(static_cast<std::int64_t>(o))));
  return of;
}

std::string message(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInfeasible);
    return error.what();
  }
  return "";
}

// Vertices of cost 1 and two ops, with this traffic between each and the next.
PieceGraph chain(const std::vector<std::int64_t>& traffic) {
  PieceGraph graph;
  graph.cost_s.assign(traffic.size() + 1, 1.0);
  graph.size.assign(traffic.size() + 1, 2);
  graph.traffic.resize(traffic.size() + 1);
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    graph.traffic[i][static_cast<std::int32_t>(i + 1)] = traffic[i];
    graph.traffic[i + 1][static_cast<std::int32_t>(i)] = traffic[i];
  }
  return graph;
}

}  // namespace

TEST_CASE("a chain of four ops on two devices", "[planner][partition]") {
  const Chain chain;
  const Partition layers = make_partition(chain.problem, PartitionStrategy::kPerLayer);
  const Partition ops = make_partition(chain.problem, PartitionStrategy::kPerOperator);
  const Partition near = make_partition(chain.problem, PartitionStrategy::kNvLinkNeighbourhood);
  CHECK(devices(layers) == std::vector<std::int32_t>{0, 0, 1, 1});
  CHECK(devices(ops) == std::vector<std::int32_t>{0, 1, 0, 1});
  const std::vector<std::int32_t> found = devices(near);
  CHECK(found[0] == found[1]);
  CHECK(found[2] == found[3]);
  CHECK(found[1] != found[2]);
}

TEST_CASE("devices take what is ready, messages follow what they carry", "[planner][partition]") {
  const Chain chain;
  const SimTime op = chain.problem.time({{OpId(0)}});
  // 2 x 256 tokens x 1024 x 2 bytes over 240 of 300 GB/s and 0.6 us.
  const SimTime message = from_seconds(0.6e-6 + 2 * 256 * 1024 * 2 / 240e9);
  // Device 0 does a b of the first and of the second micro-batch. The second message leaves when its b is
  // done and the first message has come; device 1 then has done c d of the first, or waits.
  const Partition layers = make_partition(chain.problem, PartitionStrategy::kPerLayer);
  CHECK(order_partition(chain.problem, layers).makespan ==
        std::max(4 * op + message, 2 * op + 2 * message) + 2 * op);
  // Dealt out, a b c d of one micro-batch are four ops and three messages. The other one's fill the gaps:
  // while device 1 does b, device 0 does the second a, and so on, half an op behind at most.
  const Partition ops = make_partition(chain.problem, PartitionStrategy::kPerOperator);
  const PartitionOrder order = order_partition(chain.problem, ops);
  CHECK(order.makespan >= 4 * op + 3 * message);
  std::size_t messages = 0;
  for (const PartitionEvent& event : order.events) messages += event.launch < 0;
  CHECK(messages == 6);  // Three a micro-batch.
}

TEST_CASE("every weight is on one device, and so is a tied table", "[planner][partition]") {
  TransformerConfig config = small_llama();
  config.tied_head = true;
  const Graph graph = build_training_graph(config, DType::kBf16);
  Cluster cluster;
  cluster.node = catalogue_node("pcie-a100-bridged").value();
  const Profile profile = default_profile(cluster.node.gpu);
  const PartitionProblem problem(graph, shorthand(1, 1, 1, 4), cluster, profile);
  for (const PartitionStrategy strategy : all_partition_strategies()) {
    INFO(to_string(strategy));
    const Partition partition = make_partition(problem, strategy);
    std::vector<std::set<std::int32_t>> users(graph.tensors.size());
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const OpId op(static_cast<std::int64_t>(o));
      if (graph[op].forward_of.valid()) CHECK(partition.device(op) == partition.device(graph[op].forward_of));
      for (const TensorId input : graph[op].inputs) users[input.index()].insert(partition.device(op));
    }
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].kind == TensorKind::kParameter) CHECK(users[t].size() == 1);
    }
    CHECK(make_partition(problem, strategy).piece_of == partition.piece_of);  // The same again.
  }
}

TEST_CASE("METIS cuts where little crosses", "[planner][partition]") {
  const PieceGraph graph = chain({9, 9, 9, 1, 9, 9, 9});
  const std::vector<std::int32_t> part_of = cut_graph(graph, 2, 0);
  for (std::size_t v = 1; v < 8; ++v) CHECK((part_of[v] == part_of[v - 1]) == (v != 4));
}

TEST_CASE("pieces keep their limits, or the reason is told", "[planner][partition]") {
  // Twelve vertices of two ops.
  const PieceGraph graph = chain(std::vector<std::int64_t>(11, 5));
  CHECK(piece_count(graph, {1, 1000}, 4) == 4);
  CHECK(piece_count(graph, {8, 1000}, 4) == 3);  // Only three pieces of 8 in 24 ops: a device idles.
  CHECK(piece_count(graph, {1, 4}, 4) == 8);     // Six would do; eight are two for each device.
  CHECK(piece_count(graph, {4, 4}, 4) == 6);
  CHECK_THAT(message([&] { piece_count(graph, {1, 1}, 4); }), Contains("2 ops have to stay together"));
  CHECK_THAT(message([&] { piece_count(graph, {25, 1000}, 4); }),
             Contains("the graph's 24 ops don't divide into such pieces; lower the minimum to 24"));
  CHECK_THAT(message([&] { piece_count(graph, {9, 11}, 4); }), Contains("lower the minimum to 8"));
  for (std::int32_t seed = 0; seed < 20; ++seed) {
    const auto cut = cut_pieces(graph, 4, {6, 6}, seed);
    REQUIRE(cut);
    for (std::int32_t p = 0; p < 4; ++p) CHECK(std::count(cut->begin(), cut->end(), p) == 3);
  }
  // Two pieces of 12 ops, of vertices of 8 and 16: no move helps.
  PieceGraph coarse = chain({1});
  coarse.size = {8, 16};
  CHECK_FALSE(cut_pieces(coarse, 2, {12, 12}, 0));
}

TEST_CASE("pieces of random graphs keep their limits", "[planner][partition]") {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    INFO(round);
    PieceGraph graph = chain(std::vector<std::int64_t>(static_cast<std::size_t>(random.between(20, 80)), 5));
    for (std::size_t v = 0; v < graph.size.size(); ++v) {
      graph.size[v] = static_cast<std::int32_t>(random.between(1, 5));
      graph.cost_s[v] = random.uniform();
    }
    const std::int32_t devices = static_cast<std::int32_t>(random.between(1, 6));
    const std::int32_t mean = graph.total_size() / devices;
    const PieceLimits limits{std::max(1, mean - 6), mean + 6};
    const std::int32_t pieces = piece_count(graph, limits, devices);
    const auto cut = cut_pieces(graph, pieces, limits, round);
    REQUIRE(cut);
    std::vector<std::int32_t> sizes(static_cast<std::size_t>(pieces), 0);
    for (std::size_t v = 0; v < cut->size(); ++v) sizes[static_cast<std::size_t>((*cut)[v])] += graph.size[v];
    for (const std::int32_t size : sizes) {
      CHECK(size >= limits.min);
      CHECK(size <= limits.max);
    }
  }
}

TEST_CASE("pieces that talk much are put on bridged pairs", "[planner][partition]") {
  Cluster cluster;
  cluster.node = catalogue_node("pcie-a100-bridged").value();
  const Router router(cluster);
  const std::vector<double> seconds = seconds_per_byte(router);
  // 0–5, 1–3, 2–4 and 6–7 talk much, each of them little to the next.
  PieceGraph parts = chain(std::vector<std::int64_t>(7, 1));
  const std::vector<std::pair<std::int32_t, std::int32_t>> loud = {{0, 5}, {1, 3}, {2, 4}, {6, 7}};
  for (const auto& [a, b] : loud) {
    parts.traffic[static_cast<std::size_t>(a)][b] = 100;
    parts.traffic[static_cast<std::size_t>(b)][a] = 100;
  }
  const std::vector<std::int32_t> device_of = map_parts(parts, seconds, 8);
  for (const auto& [a, b] : loud) {
    CHECK(device_of[static_cast<std::size_t>(a)] / 2 == device_of[static_cast<std::size_t>(b)] / 2);
  }
  // 12 cables of 20 GB/s within a pair, PCIe 4 elsewhere (between CPUs 16 GB/s).
  CHECK(1 / seconds[1] == Approx(240e9));
  CHECK(1 / seconds[2] == Approx(24e9));
  CHECK(1 / seconds[4] == Approx(16e9));
}

TEST_CASE("a chain of eight pieces finds a way along the NVLinks of a hybrid cube mesh",
          "[planner][partition]") {
  Cluster cluster;
  cluster.node = catalogue_node("dgx-v100-mesh").value();
  const Router router(cluster);
  const std::vector<double> seconds = seconds_per_byte(router);
  const PieceGraph parts = chain(std::vector<std::int64_t>(7, 80));
  const std::vector<std::int32_t> device_of = map_parts(parts, seconds, 8);
  for (std::size_t p = 1; p < 8; ++p) {
    // Double cables all the way: 40 GB/s (0 3 2 1 5 6 7 4 is such a way).
    CHECK(router.path(device_of[p - 1], device_of[p]).bytes_per_s() == Approx(40e9));
  }
  CHECK(mapping_cost_s(parts, device_of, seconds, 8) == Approx(7 * 80 / 40e9));
  // In the order of numbers, 3 to 4 goes over both CPUs (6 GB/s), 0 to 1, 4 to 5 over one cable.
  std::vector<std::int32_t> in_order = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(mapping_cost_s(parts, in_order, seconds, 8) == Approx(80 * (4 / 40e9 + 2 / 20e9 + 1 / 6e9)));
}

TEST_CASE("more than eight devices are mapped by exchanges, no worse than in order", "[planner][partition]") {
  Cluster cluster;
  cluster.node = catalogue_node("pcie-a100-bridged").value();
  cluster.nodes = 2;
  const Router router(cluster);
  const std::vector<double> seconds = seconds_per_byte(router);
  Random random(11);
  for (int round = 0; round < 10; ++round) {
    PieceGraph parts = chain(std::vector<std::int64_t>(13, 1));
    for (int pairs = 0; pairs < 12; ++pairs) {
      const auto a = random.between(0, 13), b = random.between(0, 13);
      if (a == b) continue;
      parts.traffic[static_cast<std::size_t>(a)][static_cast<std::int32_t>(b)] = 50;
      parts.traffic[static_cast<std::size_t>(b)][static_cast<std::int32_t>(a)] = 50;
    }
    const std::vector<std::int32_t> device_of = map_parts(parts, seconds, 16);
    std::vector<std::int32_t> in_order;
    for (std::int32_t p = 0; p < 14; ++p) in_order.push_back(p);
    CHECK(std::set<std::int32_t>(device_of.begin(), device_of.end()).size() == 14);
    CHECK(mapping_cost_s(parts, device_of, seconds, 16) < mapping_cost_s(parts, in_order, seconds, 16));
  }
}

TEST_CASE("each tensor is sent once to each device that reads it", "[planner][partition]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  Cluster cluster;
  cluster.node = catalogue_node("pcie-a100-bridged").value();
  const Profile profile = default_profile(cluster.node.gpu);
  const PartitionProblem problem(graph, shorthand(1, 1, 1, 3), cluster, profile);
  const Partition partition = make_partition(problem, PartitionStrategy::kPerOperator);
  std::int64_t wanted = 0;  // Of a micro-batch.
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorId tensor(static_cast<std::int64_t>(t));
    if (!problem.travels(tensor)) continue;
    std::set<std::int32_t> readers;
    for (const OpId reader : problem.index().readers[t]) readers.insert(partition.device(reader));
    readers.erase(partition.device(graph[tensor].producer));
    wanted += problem.bytes(tensor) * std::ssize(readers);
  }
  std::int64_t sent = 0;
  const Program program = lower_partition(problem, partition);
  for (const Role& role : program.roles) {
    for (const Instruction& instruction : role.instructions) {
      if (const auto* const send = std::get_if<Send>(&instruction.work)) sent += send->bytes;
    }
  }
  CHECK(sent == 3 * wanted);
}

TEST_CASE("a plan that placed ops can't follow is refused", "[planner][partition]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  const Cluster cluster = pair();
  const Profile profile = default_profile(cluster.node.gpu);
  PlanShorthand plan = shorthand(1, 1, 1, 3);
  plan.settings.recompute = Recompute::kFull;
  CHECK_THAT(message([&] { PartitionProblem(graph, plan, cluster, profile); }), Contains("plan.recompute"));
  plan = shorthand(1, 1, 1, 3);
  plan.global_batch = 5;  // Micro-batches of 2.
  CHECK_THAT(message([&] { PartitionProblem(graph, plan, cluster, profile); }), Contains("isn't a multiple"));
}

}  // namespace orrery
