#include "executor/cuda/cudnn_descriptor.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace orrery::cuda {

void check_cudnn(const Cudnn& library, cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char message[2048] = "";
  library.last_error_string(message, sizeof message);
  fail(ErrorKind::kRuntime, "cuDNN {} can't {}: {}{}{}", to_string(library.library.version), what,
       library.error_string(status), *message != '\0' ? ": " : "", message);
}

Descriptor::Descriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : library_(&library) {
  check_cudnn(library, library.create_descriptor(type, &raw_), "make a descriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) library_->destroy_descriptor(raw_);
}

void Descriptor::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         const void* values, std::size_t count) {
  check_cudnn(*library_, library_->set_attribute(raw_, name, type, static_cast<std::int64_t>(count), values),
              "set an attribute");
}

Descriptor& Descriptor::finalize(const char* what) {
  check_cudnn(*library_, library_->finalize(raw_), what);
  return *this;
}

std::string Descriptor::get_text(cudnnBackendAttributeName_t name) const {
  std::int64_t size = 0;
  check_cudnn(*library_, library_->get_attribute(raw_, name, CUDNN_TYPE_CHAR, 0, &size, nullptr),
              "read a text");
  std::string text(static_cast<std::size_t>(size), '\0');
  check_cudnn(*library_, library_->get_attribute(raw_, name, CUDNN_TYPE_CHAR, size, &size, text.data()),
              "read a text");
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::vector<Descriptor> Descriptor::get_all(cudnnBackendAttributeName_t name,
                                            cudnnBackendDescriptorType_t type) const {
  std::int64_t count = 0;
  check_cudnn(*library_,
              library_->get_attribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              "count descriptors");
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    all.emplace_back(*library_, type);
    raw.push_back(all.back().raw());
  }
  if (count == 0) return all;
  std::int64_t got = 0;
  check_cudnn(*library_,
              library_->get_attribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, raw.data()),
              "read descriptors");
  all.resize(static_cast<std::size_t>(got));
  return all;
}

}  // namespace orrery::cuda
