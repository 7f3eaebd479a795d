#pragma once
// Slots of an exchange as calls of a communication library: straight from and to where data lies where the
// library can, else by way of scratch. All members write calls that fit together, since they decide by what
// all of them know.

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/device/copy_list.hpp"
#include "executor/device/exchange_slots.hpp"
#include "executor/device/lower_exchange.hpp"
#include "executor/kernels/kernels.hpp"

namespace orrery::device {

// This member's arrays that stretches number; all of one exchange have one type.
using Arrays = std::vector<host::TensorView>;

class ExchangeWriter {
 public:
  // `scratch`: null while nobody knows how much it takes.
  ExchangeWriter(LoweredExchange& exchange, std::size_t members, std::size_t own, std::byte* scratch)
      : exchange_(exchange), members_(members), own_(own), scratch_(scratch) {}

  // Each member brings its slot to all. `agreed`: all members' targets lie in the same way. `in_place`: the
  // own part is where it belongs.
  void gather(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to, bool agreed,
              bool in_place);
  // Each member takes the sum of all members' elements of its slot. REQUIRES: all sources lie in the same
  // way.
  void reduce_scatter(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to,
                      Reduction reduction);
  // All take the sum of all of the slot.
  void all_reduce(const Slot& slot, const Arrays& from, const Arrays& to, bool agreed, Reduction reduction);
  // What this member takes from each one, and what it brings to each one.
  void all_to_all(const std::vector<Slot>& in, const std::vector<Slot>& out, const Arrays& from,
                  const Arrays& to);

 private:
  // Elements of one type, in scratch or not.
  struct Block {
    std::byte* data = nullptr;
    DType dtype = DType::kFp32;
  };
  Block take(std::int64_t elements, DType dtype);
  Block after(Block block, std::int64_t elements) const;

  void call(CallKind kind, Block from, Block to, std::int64_t count, bool maximum = false);
  void send(Block from, std::int64_t count, std::size_t peer);
  void receive(Block to, std::int64_t count, std::size_t peer);
  void copy(const Slot& slot, const Arrays& from, const Arrays& to);
  static Block at(const Arrays& arrays, std::int32_t array, std::int64_t element);
  // Where the slot lies if it does so in one piece, and in order.
  static std::optional<Block> whole(const Slot& slot, const Arrays& arrays, std::int64_t Stretch::* end);
  void pack(const Slot& slot, const Arrays& from, Block to, CopyList& copies) const;
  void unpack(const Slot& slot, Block from, const Arrays& to, CopyList& copies) const;
  void launch(const CopyList& copies);
  void land(const CopyList& copies);

  // One member alone has something to bring.
  void broadcast(const std::vector<Slot>& slots, std::size_t root, const Arrays& from, const Arrays& to,
                 bool agreed);
  void gather_packed(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to, bool in_place);
  void tree_all_reduce(const Slot& slot, const Arrays& from, const Arrays& to);
  void tree_reduce_scatter(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to);
  // Lands the tree's sum over members' blocks, which lie one after the other, in the first one's place.
  void add_tree(Block blocks, std::int64_t count, std::size_t begin, std::size_t end);
  std::int64_t padded(const std::vector<Slot>& slots, DType dtype) const;

  LoweredExchange& exchange_;
  std::size_t members_, own_;
  std::byte* scratch_;
};

}  // namespace orrery::device
