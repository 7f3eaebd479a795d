#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/schedule_layout.hpp"
#include "planner/schedule_split.hpp"

namespace orrery {
namespace {

using Firsts = std::vector<std::int32_t>;

std::vector<LayerCost> layers(const std::vector<double>& times, double static_bytes = 0,
                              double activation = 0) {
  std::vector<LayerCost> result;
  for (const double time : times) result.push_back({time, static_bytes, activation});
  return result;
}

// The best split by trying all.
double slowest_of_all(std::span<const LayerCost> layers, std::size_t stage,
                      std::span<const StageLimit> limits) {
  if (stage == limits.size()) return layers.empty() ? 0 : INFINITY;
  double best = INFINITY, time = 0, bytes = 0;
  for (std::size_t n = 1; n <= layers.size(); ++n) {
    time += layers[n - 1].time;
    bytes += layers[n - 1].static_bytes + limits[stage].in_flight * layers[n - 1].activation_bytes;
    if (bytes > limits[stage].memory_bytes) break;
    best = std::min(best, std::max(time, slowest_of_all(layers.subspan(n), stage + 1, limits)));
  }
  return best;
}

}  // namespace

TEST_CASE("layers are split so that the slowest stage is fastest", "[planner][pipeline]") {
  // Embedding 0.2, six layers of 1, head 1.5, together 7.7. Two stages can't have less than 3 each beside a
  // last one of 2.5: 2.2 | 3 | 2.5 and 3.2 | 2 | 2.5 and 2.2 | 2 | 3.5 are the candidates.
  const LayerSplit split = split_layers(layers({0.2, 1, 1, 1, 1, 1, 1, 1.5}), 3);
  CHECK(split.first_layer == Firsts{0, 3, 6, 8});
  CHECK(split.slowest_time == Approx(3));
  // Five layers on three stages: 2 | 2 | 1 in some order is as fast as it gets, and never 2 | 1 | 2 with a 0.
  CHECK(split_layers(layers({1, 1, 1, 1, 1}), 3).slowest_time == 2);
  // With the slowest stage given (the layer of 4), the others are balanced: 3 | 3, not 4 | 2 or 2 | 4.
  CHECK(split_layers(layers({4, 1, 1, 1, 1, 1, 1}), 3).first_layer == Firsts{0, 1, 4, 7});
}

TEST_CASE("memory moves layers to later stages", "[planner][pipeline]") {
  // 1F1B on three stages: 3, 2, 1 micro-batches in flight. A layer has 1 byte of state and 1 per micro-batch,
  // so stages hold 4, 3, 2 bytes per layer; 8 bytes leave room for 2, 2 and 4 layers.
  const std::vector<StageLimit> limits = {{8, 3}, {8, 2}, {8, 1}};
  const auto eight = layers({1, 1, 1, 1, 1, 1, 1, 1}, 1, 1);
  CHECK(split_layers(eight, 3, limits).first_layer == Firsts{0, 2, 4, 8});
  CHECK(split_layers(eight, 3).slowest_time == 3);
  const auto nine = layers({1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, 1);
  CHECK_THROWS_WITH(split_layers(nine, 3, limits), Catch::Contains("9 layers don't fit on 3 stages"));
}

TEST_CASE("empty stages only where allowed", "[planner][pipeline]") {
  CHECK_THROWS_WITH(split_layers(layers({1, 1}), 3), Catch::Contains("use at most 2 stages"));
  CHECK(split_layers(layers({1, 1}), 3, {}, true).slowest_time == 1);
  const std::vector<StageLimit> limits = {{0, 1}, {9, 1}};  // Nothing fits on the first.
  CHECK(split_layers(layers({1, 1}, 1), 2, limits, true).first_layer == Firsts{0, 0, 2});
  CHECK_THROWS_AS(split_layers(layers({1, -1}), 1), Error);
  CHECK_THROWS_AS(split_layers(layers({1}), 0), Error);
}

TEST_CASE("no other split is faster", "[planner][pipeline]") {
  Random random(3);
  for (int trial = 0; trial < 500; ++trial) {
    INFO("trial " << trial);
    std::vector<LayerCost> costs(static_cast<std::size_t>(random.between(1, 10)));
    for (LayerCost& cost : costs) {
      cost = {static_cast<double>(random.between(0, 9)), static_cast<double>(random.between(0, 9)),
              static_cast<double>(random.between(0, 3))};
    }
    std::vector<StageLimit> limits(static_cast<std::size_t>(random.between(1, 4)));
    for (StageLimit& limit : limits) {
      limit = {static_cast<double>(random.between(10, 60)), static_cast<double>(random.between(1, 4))};
    }
    if (limits.size() > costs.size()) continue;
    const double best = slowest_of_all(costs, 0, limits);
    const auto stages = static_cast<std::int32_t>(limits.size());
    if (std::isinf(best)) {
      CHECK_THROWS_AS(split_layers(costs, stages, limits), Error);
      continue;
    }
    const LayerSplit split = split_layers(costs, stages, limits);
    CHECK(split.slowest_time == best);
    for (std::size_t s = 0; s < limits.size(); ++s) CHECK(split.first_layer[s] < split.first_layer[s + 1]);
  }
}

TEST_CASE("a layout string says what each stage holds", "[planner][pipeline]") {
  const std::vector<StageContent> stages = parse_layout("Et*3|(tt|)*29,m|L");
  REQUIRE(stages.size() == 32);
  CHECK(stages[0] == StageContent{true, 3, 0, false});
  CHECK(stages[1] == StageContent{false, 2, 0, false});
  CHECK(stages[29] == StageContent{false, 2, 0, false});
  CHECK(stages[30] == StageContent{false, 0, 1, false});
  CHECK(stages[31] == StageContent{false, 0, 0, true});
  CHECK(parse_layout("E||t|L")[1] == StageContent{});  // An empty stage.
  CHECK(parse_layout(" E , (t(t|)*2)*2 L").size() == 5);
  CHECK(to_text(parse_layout("Ettt|(tt|)*2,m||L")) == "Et*3|t*2|t*2|m||L");
  CHECK(parse_layout(to_text(stages)) == stages);
}

TEST_CASE("a wrong layout is told by its column", "[planner][pipeline]") {
  const auto says = [](const char* text, const std::string& what) {
    CHECK_THROWS_WITH(parse_layout(text), Catch::Contains(what));
  };
  says("", "column 1: the layout has no embedding");
  says("Et|x", "column 4: expected E, t, m, L, |, ( or ), found 'x'");
  says("tE|L", "column 1: 't' before the embedding (E)");
  says("EtE|L", "column 3: the embedding (E) comes once");
  says("Et|Lt", "column 5: 't' after the head");
  says("Em|tL", "column 4: a layer (t) after a prediction layer (m)");
  says("Et|t", "column 5: the layout ends without the head");
  says("E(t|L", "column 2: '(' without its ')'");
  says("Et)|L", "column 3: ')' without its '('");
  says("Et*|L", "column 4: expected a count from 1 on");
  says("Et*0|L", "column 4: expected a count from 1 on");
  says("Et*99999999999999999999|L", "column 4: expected a count of at most 100000");
  says("E((t*1000)*1000)|L", "column 3: more than 100000 symbols");
  says("E((((((((((((((((((t))))))))))))))))))L", "nested more than 16 deep");
}

}  // namespace orrery
