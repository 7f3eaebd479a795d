// Routers and experts' rows against the host's: bit by bit where the arithmetic is the same.
#include "base/error.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kWhole = DType::kInt32;

struct Router {
  const char* name;
  DType type = DType::kFp32;
  std::int64_t tokens = 1, experts = 1, picks = 1;
  std::int32_t groups = 1, top_groups = 1;
  bool sigmoid = false, normalized = true, bias = false;
  double scale = 1;
};

HostOp host_op(OpKind kind, const Router& x) {
  HostOp made(kind);
  OpAttributes& attributes = made.op.attributes;
  attributes.score = x.sigmoid ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  attributes.normalized = x.normalized;
  attributes.scale = x.scale;
  attributes.groups = x.groups, attributes.top_groups = x.top_groups;
  return made;
}

// Routers in which nothing is equal, much is, much vanishes, and all is equal.
std::vector<Values> logits_of(const Router& x) {
  const std::size_t all = product({x.tokens, x.experts});
  return {numbers(all, x.type, 1, 6), whole_numbers(all, 0, 4, 2), numbers(all, x.type, 3, 400), Values(all)};
}

template <class Launch>
Launch launch_of(const Router& x) {
  Launch launch;
  launch.tokens = x.tokens, launch.experts = x.experts, launch.picks_per_token = x.picks;
  launch.sigmoid = x.sigmoid, launch.normalized = x.normalized, launch.scale = static_cast<float>(x.scale);
  return launch;
}

void check_route(const Router& x, const Values& logits) {
  const std::vector<std::int64_t> shape = {x.tokens, x.experts}, picked = {x.tokens, x.picks};
  const Values bias = numbers(product({x.experts}), x.type, 4, 0.2);
  const Values dweights = numbers(product(picked), x.type, 5);
  HostOp forward_op = host_op(OpKind::kRoute, x), backward_op = host_op(OpKind::kRouteGrad, x);
  forward_op.input(shape, logits);
  if (x.bias) forward_op.input({x.experts}, bias);
  const auto wanted = forward_op.output(picked).output(picked).run();
  backward_op.input(shape, logits).input(picked, wanted[1], kWhole).input(picked, dweights);
  const auto gradient = backward_op.output(shape).run();

  DeviceCase forward, backward;
  auto launch = launch_of<device::Route>(x);
  launch.groups = x.groups, launch.top_groups = x.top_groups;
  launch.logits = forward.input(logits, x.type);
  if (x.bias) launch.bias = forward.input(bias, x.type);
  launch.weights = forward.output(product(picked), x.type),
  launch.picks = forward.output(product(picked), kWhole);
  forward.run(launch);
  CHECK(forward.values(launch.picks) == wanted[1]);
  CHECK(forward.bytes(launch.weights) == to_bytes(wanted[0], x.type));
  auto back = launch_of<device::RouteGrad>(x);
  back.logits = backward.input(logits, x.type), back.picks = backward.input(wanted[1], kWhole);
  back.dweights = backward.input(dweights, x.type), back.dlogits = backward.output(product(shape), x.type);
  backward.run(back);
  CHECK(backward.bytes(back.dlogits) == to_bytes(gradient[0], x.type));
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

// Operands that ops share; places are dispatch's.
struct Operands {
  std::vector<std::int64_t> rows_shape, tokens_shape, picks_shape;
  Values rows, tokens, weights, picks, places;
  explicit Operands(const Rows& x)
      : rows_shape{x.experts, x.slots, x.width},
        tokens_shape{x.tokens, x.width},
        picks_shape{x.tokens, x.picks},
        rows(numbers(product(rows_shape), x.type, 1)),
        tokens(numbers(product(tokens_shape), x.type, 2)),
        weights(numbers(product(picks_shape), x.type, 3)),
        picks(picks_of(x)) {}
};

template <class Launch>
Launch launch_of(const Rows& x) {
  Launch launch;
  launch.tokens = x.tokens, launch.width = x.width, launch.experts = x.experts, launch.slots = x.slots;
  launch.picks_per_token = x.picks;
  return launch;
}

void check_dispatch(const Rows& x, Operands& all) {
  HostOp host_op(OpKind::kDispatch);
  host_op.input(all.tokens_shape, all.tokens).input(all.picks_shape, all.picks, kWhole);
  if (x.weighted) host_op.input(all.picks_shape, all.weights);
  const auto wanted = host_op.output(all.rows_shape).output(all.picks_shape).run();
  all.places = wanted[1];
  DeviceCase device;
  auto launch = launch_of<device::Dispatch>(x);
  launch.x = device.input(all.tokens, x.type), launch.picks = device.input(all.picks, DType::kInt64);
  if (x.weighted) launch.weights = device.input(all.weights, x.type);
  launch.rows = device.output(all.rows.size(), x.type),
  launch.place = device.output(all.picks.size(), kWhole);
  device.run(launch);
  CHECK(device.values(launch.place) == wanted[1]);
  CHECK(device.bytes(launch.rows) == to_bytes(wanted[0], x.type));
}

void check_combine(const Rows& x, const Operands& all) {
  HostOp host_op(OpKind::kCombine);
  host_op.input(all.rows_shape, all.rows).input(all.picks_shape, all.places, kWhole);
  if (x.weighted) host_op.input(all.picks_shape, all.weights);
  const auto wanted = host_op.output(all.tokens_shape).run();
  DeviceCase device;
  auto launch = launch_of<device::Combine>(x);
  launch.rows = device.input(all.rows, x.type), launch.place = device.input(all.places, kWhole);
  if (x.weighted) launch.weights = device.input(all.weights, x.type);
  launch.y = device.output(all.tokens.size(), x.type);
  device.run(launch);
  CHECK(device.bytes(launch.y) == to_bytes(wanted[0], x.type));
}

// Weights' gradients are dot products, whose sums have another order.
void check_dispatch_grad(const Rows& x, const Operands& all) {
  HostOp host_op(OpKind::kDispatchGrad);
  host_op.input(all.rows_shape, all.rows).input(all.picks_shape, all.places, kWhole);
  if (x.weighted) host_op.input(all.tokens_shape, all.tokens).input(all.picks_shape, all.weights);
  host_op.output(all.tokens_shape);
  if (x.weighted) host_op.output(all.picks_shape);
  const auto wanted = host_op.run();
  DeviceCase device;
  auto launch = launch_of<device::DispatchGrad>(x);
  launch.drows = device.input(all.rows, x.type), launch.place = device.input(all.places, kWhole);
  launch.dx = device.output(all.tokens.size(), x.type);
  if (x.weighted) {
    launch.x = device.input(all.tokens, x.type), launch.weights = device.input(all.weights, x.type);
    launch.dweights = device.output(all.picks.size(), x.type);
  }
  device.run(launch);
  CHECK(device.bytes(launch.dx) == to_bytes(wanted[0], x.type));
  if (x.weighted) CHECK(relative_error(device.values(launch.dweights), wanted[1]) < tolerance_of(x.type));
}

void check_combine_grad(const Rows& x, const Operands& all) {
  HostOp host_op(OpKind::kCombineGrad);
  host_op.input(all.tokens_shape, all.tokens).input(all.picks_shape, all.places, kWhole);
  if (x.weighted) host_op.input(all.rows_shape, all.rows).input(all.picks_shape, all.weights);
  host_op.output(all.rows_shape);
  if (x.weighted) host_op.output(all.picks_shape);
  const auto wanted = host_op.run();
  DeviceCase device;
  auto launch = launch_of<device::CombineGrad>(x);
  launch.dy = device.input(all.tokens, x.type), launch.place = device.input(all.places, kWhole);
  launch.drows = device.output(all.rows.size(), x.type);
  if (x.weighted) {
    launch.rows = device.input(all.rows, x.type), launch.weights = device.input(all.weights, x.type);
    launch.dweights = device.output(all.picks.size(), x.type);
  }
  device.run(launch);
  CHECK(device.bytes(launch.drows) == to_bytes(wanted[0], x.type));
  if (x.weighted) CHECK(relative_error(device.values(launch.dweights), wanted[1]) < tolerance_of(x.type));
}

}  // namespace

TEST_CASE("routers have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
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
    Operands all(x);
    check_dispatch(x, all);
    check_combine(x, all);
    check_dispatch_grad(x, all);
    check_combine_grad(x, all);
  }
}

TEST_CASE("more experts than a router's kernel takes are refused", "[gpu]") {
  device::Route launch;
  launch.tokens = 1, launch.experts = 1025, launch.picks_per_token = 1;
  CHECK_THROWS_AS(cuda::launch(launch, nullptr, nullptr, nullptr), Error);
}
