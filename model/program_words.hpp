#pragma once
// The words of Program text, shared by its reader and its printer so that they can't drift apart.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "model/program.hpp"

namespace orrery {

template <class E>
inline constexpr int kWordCount = 0;
template <>
inline constexpr int kWordCount<KernelKind> = 9;
template <>
inline constexpr int kWordCount<CollectiveKind> = 5;
template <>
inline constexpr int kWordCount<Purpose> = kPurposeCount;
template <>
inline constexpr int kWordCount<MemoryCategory> = kMemoryCategoryCount;
template <>
inline constexpr int kWordCount<DType> = kDTypeCount;

// All words of an enumeration, in the order of its enumerators.
template <class E>
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> list;
    for (int i = 0; i < kWordCount<E>; ++i) list.emplace_back(to_string(static_cast<E>(i)));
    return list;
  }();
  return all;
}

template <class E>
std::optional<E> find_word(std::string_view word) {
  const auto found = std::ranges::find(words<E>(), word);
  if (found == words<E>().end()) return std::nullopt;
  return static_cast<E>(found - words<E>().begin());
}

// The stream of an instruction that names none.
inline std::string_view default_stream(const Work& work) {
  constexpr std::array<std::string_view, std::variant_size_v<Work>> kByAlternative = {"compute", "send",
                                                                                      "recv", "comm", "copy"};
  return kByAlternative[work.index()];
}

// A kernel that is nothing but a time, named by it: what "compute 10us" stands for.
inline bool is_plain(const Program& program, const Kernel& kernel) {
  Kernel plain;
  plain.label = kernel.label;
  plain.kind = KernelKind::kFixed;
  plain.fixed = kernel.fixed;
  return kernel == plain && kernel.fixed >= SimTime{} &&
         program.labels[kernel.label.index()] == exact_time(kernel.fixed);
}

}  // namespace orrery
