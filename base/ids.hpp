#pragma once
// Typed indices. Things are named by their position in the vector that owns them, and the type of
// the index says which vector that is, so that a tensor can't be looked up among the ops.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace orrery {

template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int64_t index) : value(static_cast<std::int32_t>(index)) {}

  constexpr bool valid() const { return value >= 0; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  constexpr auto operator<=>(const Id&) const = default;
};

// A half-open interval [begin, end) of positions in some vector.
struct Range {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  constexpr std::int32_t size() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
  constexpr bool operator==(const Range&) const = default;
};

using RankId = Id<struct RankTag>;  // One process with one device, numbered 0 … world size − 1.

}  // namespace orrery

template <class Tag>
struct std::hash<orrery::Id<Tag>> {
  std::size_t operator()(orrery::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
