#pragma once
// Sixteen floats at once, of one set of vector instructions, and the functions of them that the kernels need.
// Included by loops_*.cpp alone, each of which says by ORRERY_ISA which set it is compiled for. Everything
// here is internal to the source that includes it, and no template of the standard library is called: the
// linker would take one source's copy for all, with instructions that a machine may not have.

#include <cstddef>
#include <cstdint>

#ifndef ORRERY_ISA
#define ORRERY_ISA 0
#endif
#if ORRERY_ISA > 0 && defined(__x86_64__)
#include <immintrin.h>
#endif

#define ORRERY_INLINE [[gnu::always_inline]] static inline

namespace orrery::host {
namespace {

// Part: one register. Test: what a comparison of two gives.
#if ORRERY_ISA == 2 && defined(__AVX512F__)
using Part = __m512;
using Test = __mmask16;
ORRERY_INLINE Part part_load(const float* x) { return _mm512_loadu_ps(x); }
ORRERY_INLINE void part_store(float* x, Part a) { _mm512_storeu_ps(x, a); }
ORRERY_INLINE Part part_all(float x) { return _mm512_set1_ps(x); }
ORRERY_INLINE Part add(Part a, Part b) { return _mm512_add_ps(a, b); }
ORRERY_INLINE Part sub(Part a, Part b) { return _mm512_sub_ps(a, b); }
ORRERY_INLINE Part mul(Part a, Part b) { return _mm512_mul_ps(a, b); }
ORRERY_INLINE Part div(Part a, Part b) { return _mm512_div_ps(a, b); }
ORRERY_INLINE Part root(Part a) { return _mm512_sqrt_ps(a); }
ORRERY_INLINE Part fma(Part a, Part b, Part c) { return _mm512_fmadd_ps(a, b, c); }
ORRERY_INLINE Part max(Part a, Part b) { return _mm512_max_ps(a, b); }
ORRERY_INLINE Part min(Part a, Part b) { return _mm512_min_ps(a, b); }
ORRERY_INLINE Test less(Part a, Part b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
ORRERY_INLINE Part choose(Test t, Part yes, Part no) { return _mm512_mask_blend_ps(t, no, yes); }
ORRERY_INLINE Part power_of_two(Part shifted) {
  const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3F800000)));
}
ORRERY_INLINE Part part_within(const std::int32_t* x, std::int32_t low, std::int32_t high, Part yes,
                               Part no) {
  const __m512i at = _mm512_loadu_si512(x);
  const Test t = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(low)) &
                 _mm512_cmple_epi32_mask(at, _mm512_set1_epi32(high));
  return choose(t, yes, no);
}
#elif ORRERY_ISA == 1 && defined(__AVX2__)
using Part = __m256;
using Test = __m256;
ORRERY_INLINE Part part_load(const float* x) { return _mm256_loadu_ps(x); }
ORRERY_INLINE void part_store(float* x, Part a) { _mm256_storeu_ps(x, a); }
ORRERY_INLINE Part part_all(float x) { return _mm256_set1_ps(x); }
ORRERY_INLINE Part add(Part a, Part b) { return _mm256_add_ps(a, b); }
ORRERY_INLINE Part sub(Part a, Part b) { return _mm256_sub_ps(a, b); }
ORRERY_INLINE Part mul(Part a, Part b) { return _mm256_mul_ps(a, b); }
ORRERY_INLINE Part div(Part a, Part b) { return _mm256_div_ps(a, b); }
ORRERY_INLINE Part root(Part a) { return _mm256_sqrt_ps(a); }
ORRERY_INLINE Part fma(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }
ORRERY_INLINE Part max(Part a, Part b) { return _mm256_max_ps(a, b); }
ORRERY_INLINE Part min(Part a, Part b) { return _mm256_min_ps(a, b); }
ORRERY_INLINE Test less(Part a, Part b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
ORRERY_INLINE Part choose(Test t, Part yes, Part no) { return _mm256_blendv_ps(no, yes, t); }
ORRERY_INLINE Part power_of_two(Part shifted) {
  const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3F800000)));
}
ORRERY_INLINE Part part_within(const std::int32_t* x, std::int32_t low, std::int32_t high, Part yes,
                               Part no) {
  const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), at),
                                      _mm256_cmpgt_epi32(at, _mm256_set1_epi32(high)));
  return choose(_mm256_castsi256_ps(out), no, yes);
}
#else
using Part = float;
using Test = bool;
ORRERY_INLINE Part part_load(const float* x) { return *x; }
ORRERY_INLINE void part_store(float* x, Part a) { *x = a; }
ORRERY_INLINE Part part_all(float x) { return x; }
ORRERY_INLINE Part add(Part a, Part b) { return a + b; }
ORRERY_INLINE Part sub(Part a, Part b) { return a - b; }
ORRERY_INLINE Part mul(Part a, Part b) { return a * b; }
ORRERY_INLINE Part div(Part a, Part b) { return a / b; }
ORRERY_INLINE Part root(Part a) { return __builtin_sqrtf(a); }
ORRERY_INLINE Part fma(Part a, Part b, Part c) { return __builtin_fmaf(a, b, c); }
ORRERY_INLINE Part max(Part a, Part b) { return a > b ? a : b; }
ORRERY_INLINE Part min(Part a, Part b) { return a < b ? a : b; }
ORRERY_INLINE Test less(Part a, Part b) { return a < b; }
ORRERY_INLINE Part choose(Test t, Part yes, Part no) { return t ? yes : no; }
ORRERY_INLINE Part power_of_two(Part shifted) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + 0x3F800000u;
  __builtin_memcpy(&shifted, &bits, sizeof(bits));
  return shifted;
}
ORRERY_INLINE Part part_within(const std::int32_t* x, std::int32_t low, std::int32_t high, Part yes,
                               Part no) {
  return *x >= low && *x <= high ? yes : no;
}
#endif

constexpr std::size_t kLanes = 16;
constexpr std::size_t kPartLanes = sizeof(Part) / sizeof(float);
constexpr std::size_t kParts = kLanes / kPartLanes;

struct Lanes {
  Part part[kParts];
};

#define ORRERY_EACH_PART(expression)                                                          \
  Lanes r;                                                                                    \
  _Pragma("GCC unroll 16") for (std::size_t i = 0; i < kParts; ++i) r.part[i] = (expression); \
  return r

ORRERY_INLINE Lanes load(const float* x) { ORRERY_EACH_PART(part_load(x + i * kPartLanes)); }
ORRERY_INLINE Lanes all(float x) { ORRERY_EACH_PART(part_all(x)); }
ORRERY_INLINE Lanes operator+(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(add(a.part[i], b.part[i])); }
ORRERY_INLINE Lanes operator-(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(sub(a.part[i], b.part[i])); }
ORRERY_INLINE Lanes operator*(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(mul(a.part[i], b.part[i])); }
ORRERY_INLINE Lanes operator/(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(div(a.part[i], b.part[i])); }
ORRERY_INLINE Lanes root(const Lanes& a) { ORRERY_EACH_PART(root(a.part[i])); }
// a · b + c, rounded once.
ORRERY_INLINE Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  ORRERY_EACH_PART(fma(a.part[i], b.part[i], c.part[i]));
}
// Where one is no number: b.
ORRERY_INLINE Lanes max(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(max(a.part[i], b.part[i])); }
ORRERY_INLINE Lanes min(const Lanes& a, const Lanes& b) { ORRERY_EACH_PART(min(a.part[i], b.part[i])); }
// a < b ? yes : no.
ORRERY_INLINE Lanes if_less(const Lanes& a, const Lanes& b, const Lanes& yes, const Lanes& no) {
  ORRERY_EACH_PART(choose(less(a.part[i], b.part[i]), yes.part[i], no.part[i]));
}
// low <= x <= high ? yes : no.
ORRERY_INLINE Lanes if_within(const std::int32_t* x, std::int32_t low, std::int32_t high, const Lanes& yes,
                              const Lanes& no) {
  ORRERY_EACH_PART(part_within(x + i * kPartLanes, low, high, yes.part[i], no.part[i]));
}
// 2^n of n + 1.5 · 2²³, for whole n from −127 (which gives 0) to 127.
ORRERY_INLINE Lanes power_of_two(const Lanes& shifted) { ORRERY_EACH_PART(power_of_two(shifted.part[i])); }
#undef ORRERY_EACH_PART

ORRERY_INLINE void store(float* x, const Lanes& a) {
  for (std::size_t i = 0; i < kParts; ++i) part_store(x + i * kPartLanes, a.part[i]);
}
// The first n of them; the others are `rest`.
ORRERY_INLINE Lanes load_first(const float* x, std::size_t n, float rest) {
  float all_lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) all_lanes[i] = i < n ? x[i] : rest;
  return load(all_lanes);
}
ORRERY_INLINE void store_first(float* x, std::size_t n, const Lanes& a) {
  float all_lanes[kLanes];
  store(all_lanes, a);
  for (std::size_t i = 0; i < n; ++i) x[i] = all_lanes[i];
}

// Over all lanes, halves onto halves.
ORRERY_INLINE float sum_of(const Lanes& a) {
  float x[kLanes];
  store(x, a);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) x[i] += x[i + half];
  }
  return x[0];
}
ORRERY_INLINE float max_of(const Lanes& a) {
  float x[kLanes];
  store(x, a);
  for (std::size_t i = 1; i < kLanes; ++i) x[0] = x[i] > x[0] ? x[i] : x[0];
  return x[0];
}

// e^x to 1 part in 10⁷: x = n · ln 2 + r (Cody & Waite), a polynomial of r (Cephes, expf), times 2^n. 0 below
// −86.6, where results near the smallest normal number; infinite above 88.72.
ORRERY_INLINE Lanes exp(const Lanes& x) {
  const Lanes shift = all(12582912.0f);  // 1.5 · 2²³: adding it rounds to a whole number.
  const Lanes in = min(all(89.0f), max(all(-87.0f), x));
  const Lanes shifted = fma(in, all(1.44269504088896341f), shift);
  const Lanes n = shifted - shift;
  Lanes r = fma(n, all(-0.693359375f), in);
  r = fma(n, all(2.12194440e-4f), r);
  Lanes p = all(1.9875691500e-4f);
  p = fma(p, r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = fma(p, r * r, r) + all(1.0f);
  // In two steps, since 2^128 is none.
  const Lanes y = p * power_of_two(shifted - all(1.0f)) * all(2.0f);
  const Lanes low = if_less(x, all(-86.6f), all(0.0f), y);
  return if_less(all(88.72283f), x, all(__builtin_inff()), low);
}

ORRERY_INLINE Lanes sigmoid(const Lanes& x) { return all(1.0f) / (all(1.0f) + exp(all(0.0f) - x)); }

// tanh x: of small x a polynomial, which keeps its digits (Cephes, tanhf), else 1 − 2 / (e^2|x| + 1).
ORRERY_INLINE Lanes tanh(const Lanes& x) {
  const Lanes zero = all(0.0f), one = all(1.0f), two = all(2.0f);
  const Lanes size = max(x, zero - x);
  const Lanes large = one - two / (exp(size * two) + one);
  const Lanes z = x * x;
  Lanes p = all(-5.70498872745e-3f);
  p = fma(p, z, all(2.06390887954e-2f));
  p = fma(p, z, all(-5.37397155531e-2f));
  p = fma(p, z, all(1.33314422036e-1f));
  p = fma(p, z, all(-3.33332819422e-1f));
  const Lanes small = fma(p * z, x, x);
  return if_less(size, all(0.625f), small, if_less(x, zero, zero - large, large));
}

// 1 + erf x, without cancelling where x is far below 0: e^(−x²) times a polynomial of 1 / |x| (Cephes,
// ndtrf).
ORRERY_INLINE Lanes one_plus_erf(const Lanes& x) {
  const Lanes zero = all(0.0f), one = all(1.0f), z = x * x;
  const Lanes size = max(x, zero - x);
  Lanes t = all(7.853861353153693e-5f);
  constexpr float kNear[] = {-8.010193625184903e-4f, 5.188327685732524e-3f,  -2.685381193529856e-2f,
                             1.128358514861418e-1f,  -3.761262582423300e-1f, 1.128379165726710e+0f};
  for (const float c : kNear) {
    t = fma(t, z, all(c));
  }
  const Lanes near = fma(x, t, one);
  const Lanes q = one / max(one, size), y = q * q;
  Lanes p = all(2.326819970068386e-2f);
  constexpr float kMiddle[] = {-1.387039388740657e-1f, 3.687424674597105e-1f,  -5.824733027278666e-1f,
                               6.210004621745983e-1f,  -4.944515323274145e-1f, 3.404879937665872e-1f,
                               -2.741127028184656e-1f, 5.638259427386472e-1f};
  for (const float c : kMiddle) {
    p = fma(p, y, all(c));
  }
  Lanes w = all(-1.047766399936249e+1f);
  constexpr float kFar[] = {1.297719955372516e+1f,  -7.495518717768503e+0f, 2.921019019210786e+0f,
                            -1.015265279202700e+0f, 4.218463358204948e-1f,  -2.820767439740514e-1f,
                            5.641895067754075e-1f};
  for (const float c : kFar) {
    w = fma(w, y, all(c));
  }
  // The square's rounding error, which the exponential would make large.
  const Lanes lost = fma(x, x, zero - z);
  const Lanes decay = exp(zero - z) * (one - lost);
  const Lanes tail = decay * q * if_less(size, all(2.0f), p, w);
  return if_less(size, one, near, if_less(x, zero, tail, all(2.0f) - tail));
}

}  // namespace
}  // namespace orrery::host
