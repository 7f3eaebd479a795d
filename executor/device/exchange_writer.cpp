#include "executor/device/exchange_writer.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace orrery::device {
namespace {

// Above so many stretches, copies to one place and one call take less than so many calls, unless stretches
// are so long that another copy of them costs more. Both estimates: a call in a group costs about a
// microsecond, a copy on the device about as much and its bytes.
constexpr std::size_t kManyCalls = 8;
constexpr std::int64_t kLongBytes = 64 << 10;
constexpr std::size_t kMostCalls = 256;
// What the library's widest loads want.
constexpr std::int64_t kVector = 16;
constexpr std::int64_t kScratchAlignment = 256;

DType type_of(const Arrays& arrays) { return arrays.front().dtype; }

bool worth_calls(const Slot& slot, DType dtype) {
  if (slot.size() <= kManyCalls) return true;
  const std::int64_t mean = elements(slot) * size_bytes(dtype) / std::ssize(slot);
  return slot.size() <= kMostCalls && mean >= kLongBytes;
}

}  // namespace

ExchangeWriter::Block ExchangeWriter::take(std::int64_t elements, DType dtype) {
  const std::int64_t offset = exchange_.scratch_bytes;
  const std::int64_t bytes = elements * size_bytes(dtype);
  exchange_.scratch_bytes += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return {scratch_ == nullptr ? nullptr : scratch_ + offset, dtype};
}

ExchangeWriter::Block ExchangeWriter::after(Block block, std::int64_t elements) const {
  return {block.data == nullptr ? nullptr : block.data + elements * size_bytes(block.dtype), block.dtype};
}

ExchangeWriter::Block ExchangeWriter::at(const Arrays& arrays, std::int32_t array, std::int64_t element) {
  const host::TensorView& view = arrays[static_cast<std::size_t>(array)];
  return {view.data + element * size_bytes(view.dtype), view.dtype};
}

void ExchangeWriter::call(CallKind kind, Block from, Block to, std::int64_t count, bool maximum) {
  Call call;
  call.kind = kind;
  call.maximum = maximum;
  call.count = count;
  call.dtype = from.dtype;
  call.from = from.data;
  call.to = to.data;
  exchange_.calls.push_back(call);
}

void ExchangeWriter::send(Block from, std::int64_t count, std::size_t peer) {
  call(CallKind::kSend, from, {nullptr, from.dtype}, count);
  exchange_.calls.back().peer = static_cast<std::int32_t>(peer);
}

void ExchangeWriter::receive(Block to, std::int64_t count, std::size_t peer) {
  call(CallKind::kReceive, {nullptr, to.dtype}, to, count);
  exchange_.calls.back().peer = static_cast<std::int32_t>(peer);
}

void ExchangeWriter::launch(const CopyList& copies) {
  for (Launch& copy : copies.launches()) exchange_.launches.push_back(std::move(copy));
}
void ExchangeWriter::land(const CopyList& copies) {
  for (Launch& copy : copies.launches()) exchange_.landing.push_back(std::move(copy));
}

// This member's own part, which no call brings.
void ExchangeWriter::copy(const Slot& slot, const Arrays& from, const Arrays& to) {
  CopyList copies;
  for (const Stretch& stretch : slot) {
    const Block target = at(to, stretch.array, stretch.to), source = at(from, stretch.array, stretch.from);
    if (target.data != source.data) {
      copies.add(target.data, source.data, stretch.count * size_bytes(target.dtype));
    }
  }
  launch(copies);
}

std::optional<ExchangeWriter::Block> ExchangeWriter::whole(const Slot& slot, const Arrays& arrays,
                                                           std::int64_t Stretch::* end) {
  if (slot.empty()) return std::nullopt;
  for (std::size_t s = 1; s < slot.size(); ++s) {
    const Stretch &before = slot[s - 1], &here = slot[s];
    if (here.array != before.array || here.*end != before.*end + before.count) return std::nullopt;
  }
  return at(arrays, slot.front().array, slot.front().*end);
}

void ExchangeWriter::pack(const Slot& slot, const Arrays& from, Block to, CopyList& copies) const {
  for (const Stretch& stretch : slot) {
    copies.add(to.data, at(from, stretch.array, stretch.from).data, stretch.count * size_bytes(to.dtype));
    to = after(to, stretch.count);
  }
}

void ExchangeWriter::unpack(const Slot& slot, Block from, const Arrays& to, CopyList& copies) const {
  for (const Stretch& stretch : slot) {
    copies.add(at(to, stretch.array, stretch.to).data, from.data, stretch.count * size_bytes(from.dtype));
    from = after(from, stretch.count);
  }
}

// Elements between the beginnings of packed slots: those of the longest.
std::int64_t ExchangeWriter::padded(const std::vector<Slot>& slots, DType dtype) const {
  std::int64_t longest = 0;
  bool equal = true;
  for (const Slot& slot : slots) {
    equal = equal && elements(slot) == elements(slots.front());
    longest = std::max(longest, elements(slot));
  }
  const std::int64_t vector = kVector / size_bytes(dtype);
  return equal ? longest : (longest + vector - 1) / vector * vector;
}

// ---- To all.

void ExchangeWriter::gather(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to, bool agreed,
                            bool in_place) {
  if (members_ == 1) return copy(slots[own_], from, to);
  const auto brings = [](const Slot& slot) { return !slot.empty(); };
  const auto bringing = std::count_if(slots.begin(), slots.end(), brings);
  if (bringing == 0) return;
  if (bringing == 1 && !in_place) {
    const auto root = std::find_if(slots.begin(), slots.end(), brings);
    return broadcast(slots, static_cast<std::size_t>(root - slots.begin()), from, to, agreed);
  }
  if (!agreed || !aligned(slots, &Stretch::to) || !worth_calls(slots.front(), type_of(to))) {
    return gather_packed(slots, from, to, in_place);
  }
  for (std::size_t s = 0; s < slots.front().size(); ++s) {
    const Stretch &first = slots.front()[s], &own = slots[own_][s];
    call(CallKind::kAllGather, at(from, own.array, own.from), at(to, first.array, first.to), own.count);
  }
}

void ExchangeWriter::gather_packed(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to,
                                   bool in_place) {
  const DType dtype = type_of(to);
  const std::int64_t part = padded(slots, dtype);
  const Block packed = take(part * static_cast<std::int64_t>(members_), dtype);
  const auto part_of = [&](std::size_t member) {
    return after(packed, part * static_cast<std::int64_t>(member));
  };
  const std::optional<Block> lies =
      elements(slots[own_]) == part ? whole(slots[own_], from, &Stretch::from) : std::nullopt;
  CopyList before, landing;
  if (!lies) pack(slots[own_], from, part_of(own_), before);
  launch(before);
  call(CallKind::kAllGather, lies ? *lies : part_of(own_), packed, part);
  for (std::size_t m = 0; m < members_; ++m) {
    if (!in_place || m != own_) unpack(slots[m], part_of(m), to, landing);
  }
  land(landing);
}

void ExchangeWriter::broadcast(const std::vector<Slot>& slots, std::size_t root, const Arrays& from,
                               const Arrays& to, bool agreed) {
  const Slot& slot = slots[root];
  const auto call_of = [&](Block source, Block target, std::int64_t count) {
    call(CallKind::kBroadcast, own_ == root ? source : target, target, count);
    exchange_.calls.back().peer = static_cast<std::int32_t>(root);
  };
  if (agreed && worth_calls(slot, type_of(to))) {
    for (const Stretch& stretch : slot) {
      call_of(at(from, stretch.array, stretch.from), at(to, stretch.array, stretch.to), stretch.count);
    }
    return;
  }
  const std::int64_t count = elements(slot);
  const Block packed = take(count, type_of(to));
  CopyList before, landing;
  if (own_ == root) pack(slot, from, packed, before);
  launch(before);
  call_of(packed, packed, count);
  unpack(slot, packed, to, landing);
  land(landing);
}

// ---- Sums.

void ExchangeWriter::reduce_scatter(const std::vector<Slot>& slots, const Arrays& from, const Arrays& to,
                                    Reduction reduction) {
  if (members_ == 1) return copy(slots[own_], from, to);
  if (reduction == Reduction::kTreeSum) return tree_reduce_scatter(slots, from, to);
  const bool maximum = reduction == Reduction::kMax;
  const DType dtype = type_of(from);
  if (aligned(slots, &Stretch::from) && worth_calls(slots.front(), dtype)) {
    for (std::size_t s = 0; s < slots.front().size(); ++s) {
      const Stretch &first = slots.front()[s], &own = slots[own_][s];
      call(CallKind::kReduceScatter, at(from, first.array, first.from), at(to, own.array, own.to), own.count,
           maximum);
    }
    return;
  }
  const std::int64_t part = padded(slots, dtype);
  if (part == 0) return;
  const Block packed = take(part * static_cast<std::int64_t>(members_), dtype);
  CopyList before, landing;
  for (std::size_t m = 0; m < members_; ++m) {
    pack(slots[m], from, after(packed, part * static_cast<std::int64_t>(m)), before);
  }
  launch(before);
  const Block sum = after(packed, part * static_cast<std::int64_t>(own_));
  const std::optional<Block> lies =
      elements(slots[own_]) == part ? whole(slots[own_], to, &Stretch::to) : std::nullopt;
  call(CallKind::kReduceScatter, packed, lies ? *lies : sum, part, maximum);
  if (!lies) unpack(slots[own_], sum, to, landing);
  land(landing);
}

void ExchangeWriter::all_reduce(const Slot& slot, const Arrays& from, const Arrays& to, bool agreed,
                                Reduction reduction) {
  if (members_ == 1) return copy(slot, from, to);
  if (slot.empty()) return;
  if (reduction == Reduction::kTreeSum) return tree_all_reduce(slot, from, to);
  const bool maximum = reduction == Reduction::kMax;
  const DType dtype = type_of(from);
  if (agreed && worth_calls(slot, dtype)) {
    for (const Stretch& stretch : slot) {
      call(CallKind::kAllReduce, at(from, stretch.array, stretch.from), at(to, stretch.array, stretch.to),
           stretch.count, maximum);
    }
    return;
  }
  const std::int64_t count = elements(slot);
  const Block packed = take(count, dtype);
  CopyList before, landing;
  pack(slot, from, packed, before);
  launch(before);
  call(CallKind::kAllReduce, packed, packed, count, maximum);
  unpack(slot, packed, to, landing);
  land(landing);
}

// ---- Each to each.

void ExchangeWriter::all_to_all(const std::vector<Slot>& in, const std::vector<Slot>& out, const Arrays& from,
                                const Arrays& to) {
  copy(in[own_], from, to);
  CopyList before, landing;
  for (std::size_t step = 1; step < members_; ++step) {
    // Each pair in a step of its own, so that not all send to one.
    const std::size_t next = (own_ + step) % members_, previous = (own_ + members_ - step) % members_;
    if (const std::int64_t count = elements(out[next]); count > 0) {
      std::optional<Block> source = whole(out[next], from, &Stretch::from);
      if (!source) {
        source = take(count, type_of(from));
        pack(out[next], from, *source, before);
      }
      send(*source, count, next);
    }
    if (const std::int64_t count = elements(in[previous]); count > 0) {
      std::optional<Block> target = whole(in[previous], to, &Stretch::to);
      if (!target) {
        target = take(count, type_of(to));
        unpack(in[previous], *target, to, landing);
      }
      receive(*target, count, previous);
    }
  }
  launch(before);
  land(landing);
}

// ---- Sums in the order of a tree (Reduction::kTreeSum): members' addends come as they are, and every member
// adds up what it takes.

void ExchangeWriter::tree_all_reduce(const Slot& slot, const Arrays& from, const Arrays& to) {
  const std::int64_t count = elements(slot);
  const Block packed = take(count * static_cast<std::int64_t>(members_), type_of(from));
  const Block mine = after(packed, count * static_cast<std::int64_t>(own_));
  const std::optional<Block> lies = whole(slot, from, &Stretch::from);
  CopyList before, landing;
  if (!lies) pack(slot, from, mine, before);
  launch(before);
  call(CallKind::kAllGather, lies ? *lies : mine, packed, count);
  add_tree(packed, count, 0, members_);
  unpack(slot, packed, to, landing);
  land(landing);
}

void ExchangeWriter::tree_reduce_scatter(const std::vector<Slot>& slots, const Arrays& from,
                                         const Arrays& to) {
  const DType dtype = type_of(from);
  const std::int64_t count = elements(slots[own_]);
  const Block addends = take(count * static_cast<std::int64_t>(members_), dtype);
  CopyList before, landing;
  pack(slots[own_], from, after(addends, count * static_cast<std::int64_t>(own_)), before);
  for (std::size_t step = 1; step < members_; ++step) {
    const std::size_t next = (own_ + step) % members_, previous = (own_ + members_ - step) % members_;
    if (const std::int64_t theirs = elements(slots[next]); theirs > 0) {
      std::optional<Block> source = whole(slots[next], from, &Stretch::from);
      if (!source) {
        source = take(theirs, dtype);
        pack(slots[next], from, *source, before);
      }
      send(*source, theirs, next);
    }
    if (count > 0) receive(after(addends, count * static_cast<std::int64_t>(previous)), count, previous);
  }
  launch(before);
  if (count == 0) return;
  add_tree(addends, count, 0, members_);
  unpack(slots[own_], addends, to, landing);
  land(landing);
}

void ExchangeWriter::add_tree(Block blocks, std::int64_t count, std::size_t begin, std::size_t end) {
  assert(blocks.dtype == DType::kFp32);
  if (end - begin == 1) return;
  const std::size_t middle = begin + std::bit_floor(end - begin - 1);
  add_tree(blocks, count, begin, middle);
  add_tree(blocks, count, middle, end);
  const Block left = after(blocks, count * static_cast<std::int64_t>(begin));
  const Block right = after(blocks, count * static_cast<std::int64_t>(middle));
  exchange_.landing.emplace_back(Accumulate{count, {right.data, right.dtype}, {left.data, left.dtype}});
}

}  // namespace orrery::device
