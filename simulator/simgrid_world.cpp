#include "simulator/simgrid_world.hpp"

#include <fmt/format.h>
#include <xbt/log.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

namespace orrery::simgrid_engine {
namespace {

namespace s4u = simgrid::s4u;
namespace routing = simgrid::kernel::routing;
using simgrid::kernel::timer::Timer;
using LinkImpl = simgrid::kernel::resource::StandardLinkImpl;

constexpr double kSecond = 1e12;  // In picoseconds.

// How far into a picosecond its events are collected before they are handled as one instant; longer than the
// rounding of SimGrid's clock, a double in seconds, during the first minutes, short against a picosecond.
constexpr double kCollect = 0.01;

// Fractions of a picosecond that are rounding.
constexpr double kRounding = 0.25;

// A zone whose routes are decided flow by flow. All flows get the same "latency" here, because CM02 weighs
// flows by it; equal weights are plain max-min.
class PathZone : public routing::NetZoneImpl {
 public:
  explicit PathZone(const std::string& name) : routing::NetZoneImpl(name) {}
  void get_local_route(const routing::NetPoint*, const routing::NetPoint*, routing::Route* into,
                       double* latency) override {
    into->link_list_.insert(into->link_list_.end(), next_path.begin(), next_path.end());
    if (latency != nullptr) *latency += 1.0;
  }
  std::vector<LinkImpl*> next_path;  // Of the Comm that starts next.
};

// time = bytes / rate with max-min rates: see the functions' tests.
void configure() {
  for (const char* setting : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e30",
                              "surf/precision:1e-12", "maxmin/precision:1e-12"})
    s4u::Engine::set_config(setting);
}

// Keeps the process arguments that SimGrid wants; it has none of ours.
s4u::Engine* make_engine() {
  static char name[] = "orrery";
  static char* arguments[] = {name, nullptr};
  static int count = 1;
  xbt_log_control_set("root.thres:warning");
  return new s4u::Engine(&count, arguments);
}

}  // namespace

struct World::Impl {
  struct Alarm {
    Timer* timer = nullptr;
    std::int64_t date = 0;
  };
  struct Flow {
    s4u::CommPtr comm;
    s4u::Link* cap_link = nullptr;
    double cap = 0;       // Of the link, now.
    double full_cap = 0;  // That it was made with.
  };
  struct Varying {
    s4u::Link* link = nullptr;
    double capacity = 0, now = 0;
  };

  explicit Impl(const WorldShape& shape);
  void add_links(const WorldShape& shape);
  s4u::Link* varying_link(const std::string& name, double capacity, const double* now);
  void due(Due event, std::int64_t picoseconds);
  void handle();
  void ended(const s4u::Activity& activity);

  s4u::Engine* engine;
  PathZone* zone;
  s4u::Host* from = nullptr;
  s4u::Host* to = nullptr;
  std::vector<s4u::Link*> links;
  std::vector<Varying> varying;  // By link; without link: it doesn't vary.
  std::vector<Alarm> alarms;
  std::vector<Flow> flows;
  bool caps_vary = false;
  // SimGrid's kernel goes on using a Comm while it tells of its end.
  std::vector<s4u::CommPtr> ended_comms;
  std::int32_t live = 0, max_live = 0;
  std::vector<Due> due_events;
  std::int64_t instant = -1;  // Of due_events.
  bool collecting = false;
  Handler handler;
};

World::Impl::Impl(const WorldShape& shape)
    : engine(make_engine()),
      zone(nullptr),
      alarms(static_cast<std::size_t>(shape.alarms)),
      flows(static_cast<std::size_t>(shape.flows)),
      caps_vary(shape.caps_vary) {
  configure();
  zone = new PathZone("root");  // SimGrid's.
  s4u::NetZone* open = zone->get_iface();
  from = open->create_host("from", 1e9);
  to = open->create_host("to", 1e9);
  add_links(shape);
  open->get_network_model()->set_lat_factor_cb([](double, const s4u::Host*, const s4u::Host*,
                                                  const std::vector<s4u::Link*>&,
                                                  const std::unordered_set<s4u::NetZone*>&) { return 0.0; });
  open->seal();
  s4u::Activity::on_completion_cb([this](const s4u::Activity& activity) { ended(activity); });
  s4u::Engine::on_time_advance_cb([this](double) { ended_comms.clear(); });
}

void World::Impl::add_links(const WorldShape& shape) {
  const std::size_t count = shape.link_capacity.size();
  links.resize(count);
  varying.resize(count);
  for (std::size_t l = 0; l < count; ++l) {
    if (!shape.link_used[l]) continue;
    const std::string name = fmt::format("link{}", l);
    const auto capacity = static_cast<double>(shape.link_capacity[l]);
    if (shape.link_varies[l]) {
      varying[l] = {nullptr, capacity, capacity};
      links[l] = varying[l].link = varying_link(name, capacity, &varying[l].now);
    } else {
      links[l] = zone->get_iface()->create_link(name, capacity);
    }
  }
  for (std::size_t f = 0; f < flows.size(); ++f) {
    const std::string name = fmt::format("cap{}", f);
    flows[f].full_cap = 1e9;
    flows[f].cap_link = caps_vary ? varying_link(name, flows[f].full_cap, &flows[f].cap)
                                  : zone->get_iface()->create_link(name, flows[f].full_cap);
  }
}

// A flow that starts on a link keeps the link's bandwidth of that moment as its limit for life, so the
// bandwidth stays at its largest and a policy says what there is of it now.
s4u::Link* World::Impl::varying_link(const std::string& name, double capacity, const double* now) {
  s4u::Link* link = zone->get_iface()->create_link(name, capacity);
  link->set_sharing_policy(s4u::Link::SharingPolicy::NONLINEAR, [now](double, int) { return *now; });
  return link;
}

// All events of one picosecond are handled together, a moment after it has begun.
void World::Impl::due(Due event, std::int64_t picoseconds) {
  due_events.push_back(event);
  instant = std::max(instant, picoseconds);
  if (collecting) return;
  collecting = true;
  const double date = static_cast<double>(picoseconds) / kSecond;
  const double collected = std::max(date + kCollect / kSecond, std::nextafter(date, 1.0 + 2 * date));
  Timer::set(std::max(collected, s4u::Engine::get_clock()),  // SimGrid aborts on a date that has passed.
             [this] { handle(); });
}

void World::Impl::handle() {
  collecting = false;
  const std::vector<Due> now = std::exchange(due_events, {});
  handler(instant, now);
}

void World::Impl::ended(const s4u::Activity& activity) {
  assert(activity.get_state() == s4u::Activity::State::FINISHED);
  const auto id = reinterpret_cast<std::uintptr_t>(activity.get_data<void>());
  ended_comms.push_back(std::move(flows[id].comm));
  --live;
  const double now = s4u::Engine::get_clock() * kSecond;
  const bool representable = now < static_cast<double>(kNever);
  due({true, static_cast<std::int32_t>(id)},
      representable ? static_cast<std::int64_t>(std::ceil(now - kRounding)) : kNever);
}

World::World(const WorldShape& shape) : impl_(std::make_unique<Impl>(shape)) {}

// What still runs belongs to SimGrid, which has no quiet way to drop it before the process ends.
World::~World() {
  for (Impl::Flow& flow : impl_->flows) flow.comm.detach();
}

void World::set_alarm(std::int32_t id, std::int64_t picoseconds) {
  clear_alarm(id);
  Impl* const impl = impl_.get();
  Impl::Alarm& alarm = impl->alarms[static_cast<std::size_t>(id)];
  alarm.date = picoseconds;
  alarm.timer = Timer::set(static_cast<double>(picoseconds) / kSecond, [impl, id] {
    Impl::Alarm& rung = impl->alarms[static_cast<std::size_t>(id)];
    rung.timer = nullptr;
    impl->due({false, id}, rung.date);
  });
}

void World::clear_alarm(std::int32_t id) {
  Timer*& timer = impl_->alarms[static_cast<std::size_t>(id)].timer;
  if (timer != nullptr) timer->remove();
  timer = nullptr;
}

void World::start_flow(std::int32_t id, std::int64_t bytes, std::int64_t cap, std::span<const LinkUse> uses) {
  Impl::Flow& flow = impl_->flows[static_cast<std::size_t>(id)];
  flow.cap = static_cast<double>(cap);
  if (flow.full_cap != flow.cap) flow.cap_link->set_bandwidth(flow.cap);
  flow.full_cap = flow.cap;
  std::vector<LinkImpl*>& path = impl_->zone->next_path;
  path.assign(1, flow.cap_link->get_impl());
  // A link that stands in a path several times gives the flow's rate so many times.
  for (const LinkUse& use : uses)
    path.insert(path.end(), static_cast<std::size_t>(use.count),
                impl_->links[static_cast<std::size_t>(use.link)]->get_impl());
  flow.comm = s4u::Comm::sendto_init(impl_->from, impl_->to);
  flow.comm->set_payload_size(static_cast<std::uint64_t>(bytes));
  flow.comm->set_data(reinterpret_cast<void*>(static_cast<std::uintptr_t>(id)));
  flow.comm->vetoable_start();
  impl_->max_live = std::max(impl_->max_live, ++impl_->live);
}

void World::set_cap(std::int32_t id, double bytes_per_s) {
  Impl::Flow& flow = impl_->flows[static_cast<std::size_t>(id)];
  if (flow.cap == bytes_per_s) return;
  flow.cap = bytes_per_s;
  flow.cap_link->set_bandwidth(flow.full_cap);  // The same, so that the solver looks at the policy again.
}

void World::set_capacity(std::int32_t link, double bytes_per_s) {
  Impl::Varying& varying = impl_->varying[static_cast<std::size_t>(link)];
  // The solver leaves out links that give nothing. So little moves no byte in a day.
  constexpr double kNothing = 1e-5;
  varying.now = std::max(bytes_per_s, kNothing);
  varying.link->set_bandwidth(varying.capacity);
}

void World::run(Handler handler) {
  impl_->handler = std::move(handler);
  impl_->engine->run();
}

std::int32_t World::max_live_flows() const { return impl_->max_live; }

}  // namespace orrery::simgrid_engine
