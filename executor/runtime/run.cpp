#include "executor/runtime/run.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "executor/launch/shared_segment.hpp"
#include "executor/launch/supervisor.hpp"
#include "executor/launch/watchdog.hpp"
#include "executor/runtime/run_parts.hpp"

namespace orrery::host {
namespace {

// `slot`: of the ranks of this host.
void pin_to_core(std::size_t slot) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  if (slot >= cores.size()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[slot], &one);
  sched_setaffinity(0, sizeof one, &one);
}

// The memory of these ranks, one after the other.
std::size_t total_bytes(const Program& program, const std::vector<RankId>& ranks,
                        const RecordOptions& record) {
  std::int64_t bytes = 0;
  for (const RankId rank : ranks) {
    bytes += layout_of(program.roles[program.role_of[rank.index()].index()], record).bytes;
  }
  return static_cast<std::size_t>(bytes);
}
void divide(const Program& program, const std::vector<RankId>& ranks, const RecordOptions& record,
            std::byte* memory, std::vector<std::byte*>& by_rank) {
  for (const RankId rank : ranks) {
    by_rank[rank.index()] = memory;
    memory += layout_of(program.roles[program.role_of[rank.index()].index()], record).bytes;
  }
}

// Memory of all ranks in one segment.
struct SharedMemory {
  SharedMemory(const Program& program, const RecordOptions& record)
      : ranks(active_ranks(program)),
        segment(launch::SharedSegment::anonymous(total_bytes(program, ranks, record))),
        by_rank(program.role_of.size(), nullptr) {
    divide(program, ranks, record, segment.bytes().data(), by_rank);
    for (const RankId rank : ranks) new (by_rank[rank.index()]) RankHeader;
  }

  std::vector<RankId> ranks;
  launch::SharedSegment segment;
  std::vector<std::byte*> by_rank;
};

// Binding, training and hashing of one rank in the calling thread, which has joined the status page.
class RankRun {
 public:
  RankRun(const Graph& graph, const World& world, RankId rank, const RunOptions& options)
      : graph_(graph), world_(world), rank_(rank), options_(options), tables_(graph, world) {
    bound_ = bind_rank(graph, world, rank);
    world.header(rank).workspace_bytes = bound_.scratch_bytes;
    initialize(tables_, bound_, options.initial);
  }

  void train(const RunCallbacks& callbacks, Remote* remote = nullptr) {
    run_steps(graph_, world_, bound_, callbacks, 0, options_.steps, remote);
    world_.header(rank_).parameter_hash = parameter_hash(tables_, rank_);
  }

  Tables& tables() { return tables_; }
  const BoundRank& bound() const { return bound_; }

 private:
  const Graph& graph_;
  const World& world_;
  RankId rank_;
  const RunOptions& options_;
  Tables tables_;
  BoundRank bound_;
};

std::size_t slot_of(const std::vector<RankId>& ranks, RankId rank) {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// Ends the run with the exception's message; keeps the first.
void give_up(const launch::StatusPage& page, RankId rank, const std::exception& error) {
  launch::end_run(page, {rank.value, error.what()});
}

}  // namespace

RunResult run_threads(const Graph& graph, const Program& program, const RunOptions& options) {
  const RecordOptions record = record_options(options);
  const SharedMemory memory(program, record);
  const World world(program, memory.by_rank, record);
  const int size = program.world_size();
  const launch::StatusPage page(launch::SharedSegment::anonymous(launch::StatusPage::bytes(size)), size);
  const RunCallbacks callbacks = options.callbacks();
  const launch::Watchdog watchdog(page, memory.ranks.front().value, watchdog_options(program, options));
  std::mutex lock;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (const RankId rank : memory.ranks) {
    threads.emplace_back([&, rank] {
      launch::join_page(page, rank.value);
      try {
        if (options.pin) pin_to_core(slot_of(memory.ranks, rank));
        RankRun(graph, world, rank, options).train(callbacks);
      } catch (const std::exception& failure) {
        const std::lock_guard guard(lock);
        if (!error) error = std::current_exception();
        give_up(page, rank, failure);
      }
      launch::leave_page();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return collect(world, options);
}

RunResult run_processes(const Graph& graph, const Program& program, const RunOptions& options) {
  const RecordOptions record = record_options(options);
  const SharedMemory memory(program, record);
  const World world(program, memory.by_rank, record);
  launch::SupervisorOptions supervisor;
  supervisor.watchdog = watchdog_options(program, options);
  const auto work = [&](int rank, const launch::StatusPage&) {
    if (options.pin) pin_to_core(slot_of(memory.ranks, RankId(rank)));
    RankRun(graph, world, RankId(rank), options).train(options.callbacks());
    return 0;
  };
  const launch::RunResult ended = launch::run_ranks(static_cast<int>(memory.ranks.size()), supervisor, work);
  if (!ended.ok()) fail(ErrorKind::kRuntime, "{}", ended.message);
  return collect(world, options);
}

RunResult run_joined(const Graph& graph, const Program& program, const RunOptions& options,
                     launch::Rendezvous& rendezvous) {
  const RecordOptions record = record_options(options);
  const RankId self(rendezvous.rank());
  const std::vector<RankId> ranks = active_ranks(program);
  const int size = rendezvous.world_size();
  launch::HostSegment status = launch::share_on_host(rendezvous, launch::StatusPage::bytes(size));
  std::vector<RankId> near, far;
  for (const RankId rank : ranks) {
    const bool shares = std::find(status.ranks.begin(), status.ranks.end(), rank.value) != status.ranks.end();
    (shares ? near : far).push_back(rank);
  }
  // Segments have one size on all hosts; the largest host decides.
  std::size_t bytes = total_bytes(program, near, record);
  for (const std::string& other : rendezvous.all_gather(std::to_string(bytes))) {
    bytes = std::max(bytes, static_cast<std::size_t>(std::stoull(other)));
  }
  const launch::HostSegment shared = launch::share_on_host(rendezvous, bytes);
  const launch::SharedSegment mirror =
      far.empty() ? launch::SharedSegment()
                  : launch::SharedSegment::anonymous(total_bytes(program, far, record));
  std::vector<std::byte*> by_rank(program.role_of.size(), nullptr);
  divide(program, near, record, shared.segment.bytes().data(), by_rank);
  divide(program, far, record, mirror.bytes().data(), by_rank);
  new (by_rank[self.index()]) RankHeader;
  for (const RankId rank : far) new (by_rank[rank.index()]) RankHeader;
  const World world(program, by_rank, record);
  const launch::StatusPage page(std::move(status.segment), size);
  launch::MeshOptions mesh_options;
  mesh_options.peers.emplace();
  for (const RankId rank : far) mesh_options.peers->push_back(rank.value);
  launch::Mesh mesh = launch::connect_mesh(rendezvous, mesh_options);
  const launch::Watchdog watchdog(page, self.value, watchdog_options(program, options),
                                  rendezvous.take_watch_connections());
  launch::join_page(page, self.value);
  try {
    if (options.pin) pin_to_core(slot_of(near, self));
    RankRun run(graph, world, self, options);
    Remote remote(run.tables(), run.bound(), mesh, far);
    rendezvous.barrier();  // Everybody's memory stands.
    run.train(options.callbacks(), far.empty() ? nullptr : &remote);
    rendezvous.barrier();
    if (!far.empty()) gather_records(world, self, far, rendezvous);
  } catch (const std::exception& failure) {
    give_up(page, self, failure);
    launch::leave_page();
    throw;
  }
  launch::leave_page();
  return collect(world, options);
}

}  // namespace orrery::host
