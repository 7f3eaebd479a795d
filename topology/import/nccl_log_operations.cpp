// Operations that ranks enter (NCCL_DEBUG_SUBSYS=COLL).
#include "topology/import/log_text.hpp"
#include "topology/import/nccl_log_view.hpp"

namespace orrery::nccl_log {

std::optional<LogOperation> read_operation(const Message& message, std::string& pointer) {
  log_text::Cursor cursor(message.text);
  LogOperation operation;
  operation.function = std::string(cursor.until(":"));
  if (!cursor.skip(": opCount ")) return std::nullopt;
  const auto number = cursor.hex();
  if (!number || !cursor.seek(" count ")) return std::nullopt;
  const auto elements = cursor.long_integer();
  if (!elements || *elements < 0 || !cursor.seek(" comm 0x")) return std::nullopt;
  pointer = std::string(cursor.word());
  if (pointer.find("...") != std::string::npos) pointer.clear();
  operation.number = *number;
  operation.elements = *elements;
  operation.line = message.line;
  return operation;
}

}  // namespace orrery::nccl_log
