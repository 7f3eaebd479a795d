#include "tests/device/emulated_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "executor/kernels/kernels.hpp"

namespace orrery::test {
namespace {

using device::Call;
using device::CallKind;
using device::Launch;

void run(const Launch& launch) {
  host::Workspace workspace;
  if (const auto* const copy = std::get_if<device::CopyBytes>(&launch)) {
    std::memcpy(copy->to, copy->from, static_cast<std::size_t>(copy->bytes));
  } else if (const auto* const rows = std::get_if<device::CopyRows>(&launch)) {
    for (std::int64_t r = 0; r < rows->rows; ++r) {
      std::memcpy(rows->to + r * rows->to_stride, rows->from + r * rows->from_stride,
                  static_cast<std::size_t>(rows->row_bytes));
    }
  } else {
    const auto& add = std::get<device::Accumulate>(launch);
    host::accumulate({add.from.data, add.from.dtype, add.elements}, {add.to.data, add.to.dtype, add.elements},
                     workspace);
  }
}

std::int64_t width(const Call& call) { return call.fp64 ? 8 : size_bytes(call.dtype); }

// Sums in fp32, rounded at the end; fp64 as it is.
std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& inputs, const Call& call,
                               std::int64_t elements) {
  std::vector<std::byte> result(static_cast<std::size_t>(elements * width(call)));
  if (call.fp64) {
    auto* const to = reinterpret_cast<double*>(result.data());
    for (const auto& input : inputs) {
      for (std::int64_t i = 0; i < elements; ++i) to[i] += reinterpret_cast<const double*>(input.data())[i];
    }
    return result;
  }
  host::Workspace workspace;
  const auto count = static_cast<std::size_t>(elements);
  std::vector<float> sum(count), next(count);
  const auto floats = [&](std::vector<float>& of) {
    return host::TensorView{reinterpret_cast<std::byte*>(of.data()), DType::kFp32, elements};
  };
  for (std::size_t m = 0; m < inputs.size(); ++m) {
    std::vector<std::byte> input = inputs[m];
    host::convert({input.data(), call.dtype, elements}, floats(next), workspace);
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = m == 0 ? next[i] : call.maximum ? std::max(sum[i], next[i]) : sum[i] + next[i];
    }
  }
  host::convert(floats(sum), {result.data(), call.dtype, elements}, workspace);
  return result;
}

std::vector<std::byte> bytes_at(const std::byte* from, std::int64_t bytes) { return {from, from + bytes}; }

struct Write {
  std::byte* to = nullptr;
  std::vector<std::byte> bytes;
};

// The c-th call of all members, all of one kind.
std::string collective(const std::vector<Participant>& members, std::size_t c, std::vector<Write>& writes) {
  const Call& first = members.front().exchange.calls[c];
  const auto size = std::ssize(members);
  const std::int64_t bytes = first.count * width(first);
  std::vector<std::vector<std::byte>> inputs;
  for (std::int64_t m = 0; m < size; ++m) {
    const Call& call = members[static_cast<std::size_t>(m)].exchange.calls[c];
    const bool same = call.kind == first.kind && call.count == first.count && call.dtype == first.dtype &&
                      call.fp64 == first.fp64 && call.maximum == first.maximum && call.peer == first.peer;
    if (!same)
      return fmt::format("call {} differs on rank {}", c, members[static_cast<std::size_t>(m)].rank.value);
    const bool scatters = first.kind == CallKind::kReduceScatter;
    const std::int64_t given = scatters ? size * bytes : bytes;
    const std::int64_t taken = first.kind == CallKind::kAllGather ? size * bytes : bytes;
    // Where input and output overlap the library wants them to lie just so.
    const bool apart = call.from + given <= call.to || call.to + taken <= call.from;
    const std::byte* const in_place = first.kind == CallKind::kAllGather ? call.to + m * bytes
                                      : scatters                         ? call.to - m * bytes
                                                                         : call.to;
    if (!apart && call.from != in_place) return fmt::format("call {} overlaps itself", c);
    inputs.push_back(bytes_at(call.from, given));
  }
  std::vector<std::byte> result;
  if (first.kind == CallKind::kAllGather) {
    for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
  } else if (first.kind == CallKind::kBroadcast) {
    result = inputs[static_cast<std::size_t>(first.peer)];
  } else {
    result =
        reduced(inputs, first, first.kind == CallKind::kReduceScatter ? size * first.count : first.count);
  }
  for (std::int64_t m = 0; m < size; ++m) {
    const Call& call = members[static_cast<std::size_t>(m)].exchange.calls[c];
    const std::int64_t begin = first.kind == CallKind::kReduceScatter ? m * bytes : 0;
    const std::int64_t end = first.kind == CallKind::kReduceScatter ? begin + bytes : std::ssize(result);
    writes.push_back({call.to, {result.begin() + begin, result.begin() + end}});
  }
  return "";
}

std::vector<Call> between(const Participant& of, CallKind kind, std::int32_t peer) {
  std::vector<Call> found;
  for (const Call& call : of.exchange.calls) {
    if (call.kind == kind && call.peer == peer) found.push_back(call);
  }
  return found;
}

std::string messages(const std::vector<Participant>& members, std::vector<Write>& writes) {
  for (std::size_t from = 0; from < members.size(); ++from) {
    for (std::size_t to = 0; to < members.size(); ++to) {
      const auto sent = between(members[from], CallKind::kSend, static_cast<std::int32_t>(to));
      const auto received = between(members[to], CallKind::kReceive, static_cast<std::int32_t>(from));
      if (sent.size() != received.size()) return "as many are sent as are not received";
      if (from == to && !sent.empty()) return "a message to itself";
      for (std::size_t i = 0; i < sent.size(); ++i) {
        if (sent[i].count != received[i].count || sent[i].dtype != received[i].dtype) {
          return "a message's ends differ";
        }
        writes.push_back({received[i].to, bytes_at(sent[i].from, sent[i].count * width(sent[i]))});
      }
    }
  }
  return "";
}

bool is_message(const Call& call) { return call.kind == CallKind::kSend || call.kind == CallKind::kReceive; }

std::string fault_of_groups(const std::vector<Participant>& members) {
  const auto group = [](const Participant& of) -> const device::Group& {
    return of.groups[static_cast<std::size_t>(of.exchange.group)];
  };
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m].exchange.group < 0) return "a member without a group";
    const device::Group& here = group(members[m]);
    const bool fits = here.name == group(members.front()).name &&
                      here.ranks == group(members.front()).ranks && here.ranks.size() == members.size() &&
                      here.position == static_cast<std::int32_t>(m) && here.ranks[m] == members[m].rank.value;
    if (!fits) return fmt::format("group {} isn't what others think it is", here.name);
  }
  return "";
}

}  // namespace

std::string perform(const std::vector<Participant>& participants) {
  for (const Participant& of : participants) {
    for (const Launch& launch : of.exchange.launches) run(launch);
  }
  const auto& calls = participants.front().exchange.calls;
  std::vector<Write> writes;  // After all reads: calls of a group go on at once.
  std::string fault;
  const bool any = std::any_of(participants.begin(), participants.end(),
                               [](const Participant& of) { return !of.exchange.calls.empty(); });
  if (any) {
    const bool sends = std::any_of(participants.begin(), participants.end(), [](const Participant& of) {
      return !of.exchange.calls.empty() && is_message(of.exchange.calls.front());
    });
    fault = fault_of_groups(participants);
    if (!sends) {
      for (const Participant& of : participants) {
        if (of.exchange.calls.size() != calls.size()) fault = "members have unlike numbers of calls";
      }
      for (std::size_t c = 0; c < calls.size() && fault.empty(); ++c) {
        fault = collective(participants, c, writes);
      }
    } else if (fault.empty()) {
      fault = messages(participants, writes);
    }
  }
  if (!fault.empty()) return fault;
  for (const Write& write : writes) std::copy(write.bytes.begin(), write.bytes.end(), write.to);
  for (const Participant& of : participants) {
    for (const Launch& launch : of.exchange.landing) run(launch);
  }
  return "";
}

}  // namespace orrery::test
