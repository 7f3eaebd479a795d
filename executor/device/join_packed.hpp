#pragma once
// Launches of one instruction over the parts of a packed projection (packs.hpp), as one launch over all.

#include <vector>

#include "executor/device/join_launches.hpp"

namespace orrery::device {

// Products of one operand with columns side by side are one product; sums of products along rows side by side
// are one product over all of them. What a rotation reads that nobody else sees is made where its result
// belongs and rotated there; heads side by side are rotated at once. Other launches stay, in order.
void join_packed(std::vector<Launch>& launches, const SeenNowhereElse& private_to_it);

}  // namespace orrery::device
