#pragma once
// Packed projections. Buffers that lie one right behind the other (Buffer::behind) and hold what one product
// makes or reads are taken as one row-major matrix: tensor i has some of its columns, so that its rows stand
// a stride apart, although by its own buffer it were dense. That changes where an element lies, and is only
// done where nobody looks at these buffers by an element's place but launches that know strides; collectives
// in place, the norm and the optimiser go element by element, whatever stands there.

#include <cstdint>
#include <map>
#include <vector>

#include "executor/device/launch.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::device {

// Where a tensor's elements are: row r, column c at data[r · stride + c].
struct PackedPlace {
  std::byte* data = nullptr;
  std::int64_t columns = 0, stride = 0;
};
// By the address of the tensor's buffer; those that an instruction touches, as memory is used again.
using PackedPlaces = std::map<const std::byte*, PackedPlace>;

// Neighbouring elements of a tensor that one launch can do: rows of `width`, `stride` apart; 0: dense.
struct Stretch {
  std::int64_t skipped = 0, elements = 0;  // From the first element of all of them on.
  Array array;
  std::int64_t width = 0, stride = 0;
};

class Packs {
 public:
  Packs(host::Tables& tables, RankId rank);

  PackedPlaces places(const Instruction& instruction) const;
  // A part of a parameter, in order.
  std::vector<Stretch> stretches(const host::TensorView& part) const;

 private:
  // All of a chain of buffers, before anybody has asked who touches them.
  struct Pack {
    std::vector<BufferId> buffers;
    std::vector<std::int64_t> columns;
    OpId projection;
    bool weights = false, gradients = false;  // Of parameters; else what a micro-batch makes.
    bool usable = true;
  };
  void find_packs();
  bool describe(Pack& pack) const;
  void check_touchers();
  bool allows(const Pack& pack, const Instruction& instruction) const;
  bool one_role(AxisId axis) const;
  void pair_weights();
  void place();

  host::Tables& tables_;
  const RankId rank_;
  const Role& role_;
  std::vector<Pack> packs_;
  std::vector<std::int32_t> pack_of_;                   // By buffer; −1: none.
  std::vector<PackedPlace> places_;                     // By buffer; without data: it is dense.
  std::map<const std::byte*, std::size_t> persistent_;  // By where packed ones begin.
};

}  // namespace orrery::device
