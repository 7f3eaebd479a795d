#include "executor/kernels/onednn.hpp"

#ifdef ORRERY_HAVE_ONEDNN
#include <dnnl.h>

#include "base/error.hpp"
#endif

namespace orrery::host {

bool have_onednn() {
#ifdef ORRERY_HAVE_ONEDNN
  return true;
#else
  return false;
#endif
}

#ifdef ORRERY_HAVE_ONEDNN

bool onednn_gemm(std::size_t m, std::size_t n, std::size_t k, const Matrix& a, const Matrix& b, float* c,
                 std::size_t ldc, bool accumulate) {
  if ((a.row_stride != 1 && a.column_stride != 1) || (b.row_stride != 1 && b.column_stride != 1))
    return false;
  const bool a_plain = a.column_stride == 1, b_plain = b.column_stride == 1;
  const auto size = [](std::size_t x) { return static_cast<dnnl_dim_t>(x); };
  const dnnl_status_t status =
      dnnl_sgemm(a_plain ? 'N' : 'T', b_plain ? 'N' : 'T', size(m), size(n), size(k), 1.0f, a.data,
                 size(a_plain ? a.row_stride : a.column_stride), b.data,
                 size(b_plain ? b.row_stride : b.column_stride), accumulate ? 1.0f : 0.0f, c, size(ldc));
  if (status != dnnl_success) {
    fail(ErrorKind::kRuntime, "oneDNN: sgemm of {} x {} x {} answered {}; run with the own products instead",
         m, n, k, static_cast<int>(status));
  }
  return true;
}

#else

bool onednn_gemm(std::size_t, std::size_t, std::size_t, const Matrix&, const Matrix&, float*, std::size_t,
                 bool) {
  return false;
}

#endif

}  // namespace orrery::host
