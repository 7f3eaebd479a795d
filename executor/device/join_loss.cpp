#include "executor/device/join_loss.hpp"

#include <algorithm>

namespace orrery::device {
namespace {

bool of_one_loss(const CrossEntropy& loss, const CrossEntropyGrad& grad) {
  return loss.logits.data == grad.logits.data && loss.labels.data == grad.labels.data &&
         loss.lse == grad.lse && loss.tokens == grad.tokens && loss.vocab == grad.vocab &&
         loss.real == grad.real && loss.first_entry == grad.first_entry &&
         loss.tokens_of_mean == grad.tokens_of_mean && loss.logits.dtype == grad.dlogits.dtype;
}

// Logits may be written over, by the gradient of the same element.
bool is_free(const CrossEntropy& loss, const Array& dlogits) {
  const std::int64_t elements = loss.tokens * loss.vocab;
  const std::byte* const begin = dlogits.data;
  const std::byte* const end = begin + elements * size_bytes(dlogits.dtype);
  const auto apart = [&](const void* at, std::int64_t bytes) {
    const auto* const other = static_cast<const std::byte*>(at);
    return other + bytes <= begin || end <= other;
  };
  return (loss.logits.data == begin || apart(loss.logits.data, end - begin)) &&
         apart(loss.labels.data, loss.tokens * size_bytes(loss.labels.dtype)) &&
         apart(loss.lse, loss.tokens * size_bytes(DType::kFp32)) &&
         apart(loss.loss.data, size_bytes(loss.loss.dtype));
}

}  // namespace

void join_loss(DeviceStep& step) {
  for (std::size_t i = 0; i + 1 < step.instructions.size(); ++i) {
    DeviceInstruction& first = step.instructions[i];
    DeviceInstruction& second = step.instructions[i + 1];
    if (first.stream != second.stream || first.launches.empty() || second.launches.empty()) continue;
    auto* const loss = std::get_if<CrossEntropy>(&first.launches.back());
    const auto* const grad = std::get_if<CrossEntropyGrad>(&second.launches.front());
    if (loss == nullptr || grad == nullptr) continue;
    if (!of_one_loss(*loss, *grad) || !is_free(*loss, grad->dlogits)) continue;
    loss->dlogits = grad->dlogits;
    second.launches.erase(second.launches.begin());
    for (const std::int32_t before : second.after) {
      if (before != static_cast<std::int32_t>(i)) first.after.push_back(before);
    }
  }
}

}  // namespace orrery::device
