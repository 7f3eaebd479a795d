#pragma once
// What the two ways to the gradients of norms share.

#include "executor/cuda/kernels_device.cuh"
#include "executor/device/launch.hpp"

namespace orrery::cuda {

template <class T>
struct GradArrays {
  const T *x, *weight, *dy, *residual;  // weight, residual: or none.
  T* dx;
  float* largest;  // Of dx, or none.
  std::int64_t rows;
  int width;
  float epsilon;
};

template <class T>
GradArrays<T> grad_arrays(const device::NormGrad& n) {
  return {typed<const T>(n.x.data),
          typed<const T>(n.weight.data),
          typed<const T>(n.dy.data),
          typed<const T>(n.residual.data),
          typed<T>(n.dx.data),
          n.largest,
          n.rows,
          static_cast<int>(n.width),
          n.epsilon};
}

// Any width, by passes over memory: one for dx, one for each of dweight and dbias. `in_access`: elements of a
// thread's access, of 16 bytes where rows and addresses allow it, else 1.
std::int64_t read_workspace_bytes(const device::NormGrad& n, int in_access);
void launch_read(const device::NormGrad& n, int in_access, std::byte* workspace, Stream stream);

}  // namespace orrery::cuda
