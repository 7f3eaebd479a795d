#pragma once
// Writes the roles of a CollectiveProgram: streams, message numbers, dependencies and slots.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/collective_program.hpp"

namespace orrery::collective {

// A part of a buffer.
struct Part {
  DataBuffer buffer = DataBuffer::kPayload;
  std::vector<DataCut> cuts;

  Part of_member(AxisId axis, std::int32_t shift, std::int32_t of) const { return cut({axis, shift, of, 1}); }
  Part number(std::int32_t index, std::int32_t of, std::int32_t count = 1) const {
    return of == 1 ? *this : cut({AxisId(), index, of, count});
  }

 private:
  Part cut(DataCut next) const;
};

// One direction to or from one peer, with messages of its own order.
struct Connection {
  AxisId axis;
  std::int32_t offset = 0;
  std::int32_t channel = 0;
  std::int32_t lanes = 1;           // Messages under way at a time: streams.
  double wire_factor = 1;           // On top of the spec's.
  std::int32_t shared_stream = -1;  // Not −1: a stream that it shares with all of this number.
};

// A pipeline's messages as (first unit, units) of `units` in all. The first ones are smaller, the j-th of
// `slots` in proportion to j, so that the slots get out of step: in step all wait for the latency together,
// and a link shared fairly would never be filled.
struct Pipeline {
  std::int32_t units = 1;
  std::vector<std::pair<std::int32_t, std::int32_t>> messages;

  Part part(const Part& whole, std::size_t message) const {
    return whole.number(messages[message].first, units, messages[message].second);
  }
};
Pipeline pipeline(std::int64_t bytes, std::int64_t chunk_bytes, std::int32_t slots);

// What messages of a role have read and written so far, by part: a tree of cuts.
class Hazards {
 public:
  enum class Access : std::uint8_t { kRead, kStore, kAdd };

  // The instructions that `instruction` has to wait for; later calls count it. Adds don't wait for each
  // other. `filled`: those of them that wrote what is read.
  void touch(const Part& part, Access access, std::int32_t instruction, std::vector<std::int32_t>& waits,
             std::vector<std::int32_t>& filled);

 private:
  struct Node {
    std::int32_t store = -1;
    std::vector<std::int32_t> adds, readers;
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>, std::int32_t> children;
  };
  std::int32_t child(std::int32_t node, const DataCut& cut);
  void collect(std::int32_t node, Access access, std::vector<std::int32_t>& waits,
               std::vector<std::int32_t>& filled) const;
  void collect_below(std::int32_t node, Access access, std::vector<std::int32_t>& waits,
                     std::vector<std::int32_t>& filled) const;
  void collect_other_cuts(std::int32_t node, const DataCut& cut, Access access,
                          std::vector<std::int32_t>& waits, std::vector<std::int32_t>& filled) const;
  void forget_below(std::int32_t node);

  std::vector<Node> nodes_{3};  // First the roots, by buffer.
};

class Scribe {
 public:
  Scribe(const CollectiveSpec& spec, CollectiveProgram& out) : spec_(spec), out_(out) {}

  AxisId add_axis(std::string name, std::vector<std::vector<RankId>> groups);
  void begin_role(std::string name);
  void end_role();
  void send(const Connection& to, const std::vector<Part>& parts);
  void recv(const Connection& from, const std::vector<Part>& parts, bool adds);

  const CollectiveSpec& spec() const { return spec_; }
  std::int64_t bytes(const Part& part) const;

 private:
  struct Lane {
    LabelId label;
    std::int32_t messages = 0;
    std::vector<std::int32_t> received;  // Instructions.
  };
  void message(const Connection& with, const std::vector<Part>& parts, bool sends, bool adds);
  StreamId stream(const Connection& with, bool sends, std::int32_t lane);

  const CollectiveSpec& spec_;
  CollectiveProgram& out_;
  Role role_;
  std::vector<Range> moves_;
  Hazards hazards_;
  std::vector<std::vector<std::int32_t>> passed_on_;  // By receive: the sends of what it brought.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, bool>, Lane> lanes_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, bool, std::int32_t>, StreamId> streams_;
  std::vector<std::int32_t> last_of_stream_;
  std::int32_t call_ = -1;
};

}  // namespace orrery::collective
