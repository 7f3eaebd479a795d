// Routers and experts' rows against the host's: bit by bit where the arithmetic is the same.
#include <cmath>

#include "tests/gpu/generic_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kWhole = DType::kInt32;
constexpr DType kTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

Values zeros(std::int64_t n) { return Values(static_cast<std::size_t>(n)); }

struct Router {
  const char* name;
  DType type = DType::kFp32;
  std::int64_t tokens = 1, experts = 1, picks = 1;
  std::int32_t groups = 1, top_groups = 1;
  bool sigmoid = false, normalized = true, bias = false;
  double scale = 1;
};

OpAttributes attributes_of(const Router& x) {
  OpAttributes attributes;
  attributes.score = x.sigmoid ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  attributes.normalized = x.normalized;
  attributes.scale = x.scale;
  attributes.groups = x.groups, attributes.top_groups = x.top_groups;
  return attributes;
}

// Routers in which nothing is equal, much is, and all is.
std::vector<Values> logits_of(const Router& x) {
  Values few = whole_numbers(x.tokens * x.experts, 2, 5);
  Values far = numbers(x.tokens * x.experts, 3, x.type, 400);  // Exponentials that vanish.
  return {numbers(x.tokens * x.experts, 1, x.type, 6), few, far, zeros(x.tokens * x.experts)};
}

void check_route(const Router& x, const Values& logits) {
  const Values bias = numbers(x.experts, 4, x.type, 0.2), dweights = numbers(x.tokens * x.picks, 5, x.type);
  const Values picked = zeros(x.tokens * x.picks);
  OneOp forward, backward;
  forward.op.kind = OpKind::kRoute, backward.op.kind = OpKind::kRouteGrad;
  forward.op.attributes = backward.op.attributes = attributes_of(x);
  forward.reads({x.tokens, x.experts}, x.type);
  if (x.bias) forward.reads({x.experts}, x.type);
  forward.writes({x.tokens, x.picks}, x.type), forward.writes({x.tokens, x.picks}, kWhole);
  backward.reads({x.tokens, x.experts}, x.type), backward.reads({x.tokens, x.picks}, kWhole);
  backward.reads({x.tokens, x.picks}, x.type), backward.writes({x.tokens, x.experts}, x.type);
  std::vector<Values> inputs = {logits};
  if (x.bias) inputs.push_back(bias);
  const auto wanted = on_host(forward, inputs, {picked, picked});
  const auto wanted_back = on_host(backward, {logits, to_values(wanted[1], kWhole), dweights}, {logits});

  const DeviceMemory on_logits = upload(logits, x.type), on_bias = upload(bias, x.type);
  const DeviceMemory on_dweights = upload(dweights, x.type);
  DeviceMemory weights = output(x.tokens * x.picks, x.type), picks = output(x.tokens * x.picks, kWhole);
  DeviceMemory dlogits = output(x.tokens * x.experts, x.type);
  device::Route launch;
  launch.tokens = x.tokens, launch.experts = x.experts, launch.picks_per_token = x.picks;
  launch.groups = x.groups, launch.top_groups = x.top_groups, launch.sigmoid = x.sigmoid;
  launch.normalized = x.normalized;
  launch.scale = static_cast<float>(x.scale);
  launch.logits = on_logits.array(x.type), launch.weights = weights.array(x.type);
  launch.picks = picks.array(kWhole);
  if (x.bias) launch.bias = on_bias.array(x.type);
  run_twice({&weights, &picks}, [&] { launch_with(launch, 0); });
  CHECK(picks.download() == wanted[1]);
  CHECK(weights.download() == wanted[0]);
  device::RouteGrad back;
  back.tokens = x.tokens, back.experts = x.experts, back.picks_per_token = x.picks;
  back.sigmoid = x.sigmoid, back.normalized = x.normalized, back.scale = launch.scale;
  back.logits = launch.logits, back.picks = launch.picks;
  back.dweights = on_dweights.array(x.type), back.dlogits = dlogits.array(x.type);
  run_twice({&dlogits}, [&] { launch_with(back, 0); });
  CHECK(dlogits.download() == wanted_back[0]);
}

// Rows of experts, with places as dispatch gives them.
struct Rows {
  DType type;
  std::int64_t tokens, width, experts, slots, picks;
  bool weighted;
};
constexpr Rows kRows[] = {{DType::kBf16, 40, 64, 8, 12, 2, true},
                          {DType::kFp16, 13, 33, 5, 4, 3, false},
                          {DType::kFp32, 1, 1000, 3, 2, 1, true},
                          {DType::kBf16, 700, 8, 3, 500, 3, false},
                          {DType::kFp32, 2500, 4, 2, 2400, 2, true}};

// Every expert at most once a token, as routers pick; the first ones more often, so that slots run out.
Values picks_of(const Rows& x) {
  Random random(7);
  Values picks;
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const std::int64_t first = random.between(0, x.experts - 1);
    for (std::int64_t i = 0; i < x.picks; ++i)
      picks.push_back(static_cast<double>((first * first + i) % x.experts));
  }
  return picks;
}

// Host's results of one op with places, weighted or not: operands as both sides name them.
struct Both {
  Values rows, tokens, weights, picks, places;
  explicit Both(const Rows& x)
      : rows(numbers(x.experts * x.slots * x.width, 1, x.type)),
        tokens(numbers(x.tokens * x.width, 2, x.type)),
        weights(numbers(x.tokens * x.picks, 3, x.type)),
        picks(picks_of(x)) {}
};

OneOp rows_op(OpKind kind, const Rows& x) {
  const std::vector<std::int64_t> rows = {x.experts, x.slots, x.width}, tokens = {x.tokens, x.width};
  const std::vector<std::int64_t> picks = {x.tokens, x.picks};
  OneOp one;
  one.op.kind = kind;
  const bool from_rows = kind == OpKind::kCombine || kind == OpKind::kDispatchGrad;
  const bool backward = kind == OpKind::kDispatchGrad || kind == OpKind::kCombineGrad;
  one.reads(from_rows ? rows : tokens, x.type), one.reads(picks, kWhole);
  if (x.weighted && backward) one.reads(from_rows ? tokens : rows, x.type);
  if (x.weighted) one.reads(picks, x.type);
  one.writes(from_rows ? tokens : rows, x.type);
  if (kind == OpKind::kDispatch) one.writes(picks, kWhole);
  if (x.weighted && backward) one.writes(picks, x.type);
  return one;
}

void check_dispatch(const Rows& x, Both& both) {
  std::vector<Values> inputs = {both.tokens, both.picks};
  if (x.weighted) inputs.push_back(both.weights);
  const auto wanted = on_host(rows_op(OpKind::kDispatch, x), inputs, {both.rows, both.picks});
  both.places = to_values(wanted[1], kWhole);
  const DeviceMemory tokens = upload(both.tokens, x.type), weights = upload(both.weights, x.type);
  const DeviceMemory picks = upload(both.picks, DType::kInt64);
  DeviceMemory rows = output(x.experts * x.slots * x.width, x.type),
               place = output(x.tokens * x.picks, kWhole);
  device::Dispatch launch;
  launch.tokens = x.tokens, launch.width = x.width, launch.experts = x.experts;
  launch.slots = x.slots, launch.picks_per_token = x.picks;
  launch.x = tokens.array(x.type), launch.picks = picks.array(DType::kInt64);
  if (x.weighted) launch.weights = weights.array(x.type);
  launch.rows = rows.array(x.type), launch.place = place.array(kWhole);
  run_twice({&rows, &place}, [&] { launch_with(launch, cuda::workspace_bytes(launch)); });
  CHECK(place.download() == wanted[1]);
  CHECK(rows.download() == wanted[0]);
}

void check_combine(const Rows& x, const Both& both) {
  std::vector<Values> inputs = {both.rows, both.places};
  if (x.weighted) inputs.push_back(both.weights);
  const auto wanted = on_host(rows_op(OpKind::kCombine, x), inputs, {both.tokens});
  const DeviceMemory rows = upload(both.rows, x.type), weights = upload(both.weights, x.type);
  const DeviceMemory place = upload(both.places, kWhole);
  DeviceMemory y = output(x.tokens * x.width, x.type);
  device::Combine launch;
  launch.tokens = x.tokens, launch.width = x.width, launch.experts = x.experts;
  launch.slots = x.slots, launch.picks_per_token = x.picks;
  launch.rows = rows.array(x.type), launch.place = place.array(kWhole), launch.y = y.array(x.type);
  if (x.weighted) launch.weights = weights.array(x.type);
  run_twice({&y}, [&] { launch_with(launch, 0); });
  CHECK(y.download() == wanted[0]);
}

// Weights' gradients are dot products, whose sums have another order.
void check_dweights(const Rows& x, const DeviceMemory& dweights, const std::vector<Bytes>& wanted) {
  if (!x.weighted) return;
  CHECK(relative_error(download(dweights, x.type), to_values(wanted[1], x.type)) < tolerance_of(x.type));
}

void check_gradients(const Rows& x, const Both& both) {
  std::vector<Values> inputs = {both.rows, both.places}, outputs = {both.tokens};
  std::vector<Values> combined = {both.tokens, both.places}, combined_to = {both.rows};
  if (x.weighted) {
    inputs.insert(inputs.end(), {both.tokens, both.weights});
    combined.insert(combined.end(), {both.rows, both.weights});
    outputs.push_back(both.weights), combined_to.push_back(both.weights);
  }
  const auto wanted = on_host(rows_op(OpKind::kDispatchGrad, x), inputs, outputs);
  const auto wanted_of_combine = on_host(rows_op(OpKind::kCombineGrad, x), combined, combined_to);
  const DeviceMemory rows = upload(both.rows, x.type), tokens = upload(both.tokens, x.type);
  const DeviceMemory weights = upload(both.weights, x.type), place = upload(both.places, kWhole);
  DeviceMemory dx = output(x.tokens * x.width, x.type), drows = output(x.experts * x.slots * x.width, x.type);
  DeviceMemory dweights = output(x.tokens * x.picks, x.type);
  std::vector<DeviceMemory*> first = {&dx}, second = {&drows};
  device::DispatchGrad dispatch;
  dispatch.tokens = x.tokens, dispatch.width = x.width, dispatch.experts = x.experts;
  dispatch.slots = x.slots, dispatch.picks_per_token = x.picks;
  dispatch.drows = rows.array(x.type), dispatch.place = place.array(kWhole), dispatch.dx = dx.array(x.type);
  device::CombineGrad combine;
  combine.tokens = x.tokens, combine.width = x.width, combine.experts = x.experts;
  combine.slots = x.slots, combine.picks_per_token = x.picks;
  combine.dy = tokens.array(x.type), combine.place = place.array(kWhole), combine.drows = drows.array(x.type);
  if (x.weighted) {
    dispatch.x = tokens.array(x.type), combine.rows = rows.array(x.type);
    dispatch.weights = combine.weights = weights.array(x.type);
    dispatch.dweights = combine.dweights = dweights.array(x.type);
    first.push_back(&dweights), second.push_back(&dweights);
  }
  run_twice(first, [&] { launch_with(dispatch, 0); });
  CHECK(dx.download() == wanted[0]);
  check_dweights(x, dweights, wanted);
  run_twice(second, [&] { launch_with(combine, cuda::workspace_bytes(combine)); });
  CHECK(drows.download() == wanted_of_combine[0]);
  check_dweights(x, dweights, wanted_of_combine);
}

}  // namespace

TEST_CASE("routers have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kTypes) {
    for (const Router& x :
         std::initializer_list<Router>{{"plain", type, 9, 8, 2},
                                       {"not normalized", type, 5, 61, 6, 1, 1, false, false, false, 2.5},
                                       {"groups", type, 7, 64, 6, 8, 3},
                                       {"sigmoid", type, 7, 256, 8, 8, 4, true, true, true, 2.5},
                                       {"biased", type, 3, 16, 4, 1, 1, false, true, true},
                                       {"each its own group", type, 3, 6, 3, 6, 4, true},
                                       {"as many as there can be", type, 2, 1024, 10, 1, 1, true}}) {
      INFO(x.name << ", " << to_string(type));
      for (const Values& logits : logits_of(x)) check_route(x, logits);
    }
  }
}

TEST_CASE("rows go to experts and back as the host's do", "[gpu]") {
  if (!have_gpu()) return;
  for (const Rows& x : kRows) {
    CAPTURE(to_string(x.type), x.tokens, x.width, x.experts, x.slots, x.picks, x.weighted);
    Both both(x);
    check_dispatch(x, both);
    check_combine(x, both);
    check_gradients(x, both);
  }
}

TEST_CASE("more experts than a router's kernel takes are refused", "[gpu]") {
  device::Route launch;
  launch.tokens = 1, launch.experts = 1025, launch.picks_per_token = 1;
  CHECK_THROWS_AS(cuda::launch(launch, nullptr, nullptr, nullptr), Error);
}
