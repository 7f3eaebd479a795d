#include "executor/kernels/workspace.hpp"

#include <algorithm>
#include <cmath>
#include <new>

namespace orrery::host {

void Workspace::Free::operator()(std::byte* data) const {
  ::operator delete(data, std::align_val_t(kAlignmentBytes));
}

Workspace::Block Workspace::new_block(std::size_t bytes) {
  Block block;
  block.data.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignmentBytes))));
  block.size_bytes = bytes;
  return block;
}

void* Workspace::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  if (blocks_.empty() || blocks_.back().size_bytes - blocks_.back().used_bytes < rounded) {
    std::size_t wanted = wanted_bytes_;
    for (const Block& block : blocks_) wanted += block.size_bytes;
    blocks_.push_back(new_block(std::max(rounded, wanted)));
  }
  Block& block = blocks_.back();
  void* taken = block.data.get() + block.used_bytes;
  block.used_bytes += rounded;
  return taken;
}

Scratch::Scratch(Workspace& workspace)
    : workspace_(workspace),
      blocks_(workspace.blocks_.size()),
      used_bytes_(blocks_ == 0 ? 0 : workspace.blocks_.back().used_bytes) {}

Scratch::~Scratch() {
  std::vector<Workspace::Block>& blocks = workspace_.blocks_;
  if (blocks_ == 0 || (blocks_ == 1 && used_bytes_ == 0)) {
    if (blocks.size() > 1) {  // Outgrown: one block for all of it from the next take on.
      for (const Workspace::Block& block : blocks) workspace_.wanted_bytes_ += block.size_bytes;
      blocks.clear();
    }
    if (!blocks.empty()) blocks.back().used_bytes = 0;
    return;
  }
  for (std::size_t i = blocks_; i < blocks.size(); ++i) blocks[i].used_bytes = 0;
  blocks[blocks_ - 1].used_bytes = used_bytes_;
}

const RopeTable& Workspace::rope_table(double theta, std::size_t pairs,
                                       std::span<const std::int64_t> positions) {
  constexpr std::size_t kTables = 16;  // Global and local layers, times pieces of a sequence.
  for (const RopeTable& table : rope_tables_) {
    if (table.theta == theta && table.pairs == pairs &&
        std::equal(positions.begin(), positions.end(), table.positions.begin(), table.positions.end())) {
      return table;
    }
  }
  if (rope_tables_.size() < kTables) rope_tables_.emplace_back();
  RopeTable& table = rope_tables_[next_table_++ % rope_tables_.size()];
  table.theta = theta;
  table.pairs = pairs;
  table.positions.assign(positions.begin(), positions.end());
  table.cosines.clear();
  table.sines.clear();
  std::vector<double> turns;  // Per position.
  for (std::size_t i = 0; i < pairs; ++i) {
    turns.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  for (const std::int64_t position : positions) {
    for (const double turn : turns) {
      const double angle = static_cast<double>(position) * turn;
      table.cosines.push_back(static_cast<float>(std::cos(angle)));
      table.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace orrery::host
