#pragma once
// One descriptor of cuDNN's backend interface: created, given attributes, finalized, read.

#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/libraries.hpp"

namespace orrery::cuda {

// THROWS Error(kRuntime): what was to be done, and what cuDNN says.
void check_cudnn(const Cudnn& library, cudnnStatus_t status, const char* what);

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Cudnn& library, cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(raw_, other.raw_);
    return *this;
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set(name, type, &value, 1);
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
                  std::size_t count) {
    set_raw(name, type, values, count);
    return *this;
  }
  Descriptor& link(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other);
  }
  Descriptor& finalize(const char* what);

  template <class T>
  T get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    T value{};
    std::int64_t count = 0;
    check_cudnn(*library_, library_->get_attribute(raw_, name, type, 1, &count, &value), "read an attribute");
    return value;
  }
  std::string get_text(cudnnBackendAttributeName_t name) const;
  // Descriptors of `type` that this one holds.
  std::vector<Descriptor> get_all(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;

 private:
  void set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
               std::size_t count);

  const Cudnn* library_ = nullptr;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace orrery::cuda
