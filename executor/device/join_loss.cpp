#include "executor/device/join_loss.hpp"

#include <algorithm>

namespace orrery::device {
namespace {

CrossEntropy* loss_of(DeviceInstruction& instruction) {
  for (Launch& launch : instruction.launches) {
    if (auto* const loss = std::get_if<CrossEntropy>(&launch)) return loss;
  }
  return nullptr;
}

bool of_one_loss(const CrossEntropy& loss, const CrossEntropyGrad& grad) {
  return loss.logits.data == grad.logits.data && loss.labels.data == grad.labels.data &&
         loss.lse == grad.lse && loss.tokens == grad.tokens && loss.vocab == grad.vocab &&
         loss.real == grad.real && loss.first_entry == grad.first_entry &&
         loss.tokens_of_mean == grad.tokens_of_mean && loss.logits.dtype == grad.dlogits.dtype;
}

// Logits may be written over.
bool is_free(const CrossEntropyGrad& grad, const Footprint& footprint) {
  const std::byte* const begin = grad.dlogits.data;
  const std::byte* const end = begin + grad.tokens * grad.vocab * size_bytes(grad.dlogits.dtype);
  return std::none_of(footprint.begin(), footprint.end(), [&](const Touched& touched) {
    if (touched.begin == grad.logits.data && touched.begin == begin) return false;
    return touched.begin < end && begin < touched.end;
  });
}

}  // namespace

void join_loss(DeviceStep& step, const std::vector<Footprint>& footprints) {
  for (std::size_t i = 0; i + 1 < step.instructions.size(); ++i) {
    DeviceInstruction& first = step.instructions[i];
    DeviceInstruction& second = step.instructions[i + 1];
    CrossEntropy* const loss = loss_of(first);
    if (loss == nullptr || first.stream != second.stream || second.launches.empty()) continue;
    const auto* const grad = std::get_if<CrossEntropyGrad>(&second.launches.front());
    if (grad == nullptr || !of_one_loss(*loss, *grad) || !is_free(*grad, footprints[i])) continue;
    loss->dlogits = grad->dlogits;
    second.launches.erase(second.launches.begin());
    for (const std::int32_t before : second.after) {
      if (before != static_cast<std::int32_t>(i)) first.after.push_back(before);
    }
  }
}

}  // namespace orrery::device
