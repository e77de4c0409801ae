/* TV-L1 optical flow at one scale of the image pyramid, without Python: the iteration of OpenCV 5's DualTVL1OpticalFlow
 * with its defaults, rounding for rounding, for each instruction set that this compiler and processor know.
 *
 * tvl1_scale.h holds the work at a scale; tvl1_kernel.h that on rows, compiled once per instruction set; the
 * processor's best is chosen at run time.
 */

#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define ARM 1
#include <arm_neon.h>
#else
#define ARM 0
#endif

#define WARPS 5
#define OUTER 10
#define INNER 30
#define EPSILON 0.01
#define TAUT ((float)(0.25 / 0.3))
#define L_T ((float)(0.15 * 0.3))
#define THETA 0.3f

/* Of a root's last correction, four times what the roughest estimate (RSQRT of AVX2, 12 bits) leaves uncertain. */
#define ROOT_DOUBT 0x1p-18f

#define BORDER 4 /* zero pixels around the image that is warped */
#define MAX_STEPS 5 /* iterations in one pass */
#define MEDIAN_ROWS 28 /* of scratch memory */

/* Planes of a row of the state, and of a row's constants. Rows of all planes lie together. */
enum { U1, U2, P11, P12, P21, P22, STATE_PLANES };
enum { IX, IY, RHO, DATA_PLANES };

typedef float quad __attribute__((vector_size(16))); /* the channels of a pixel */
typedef quad loose_quad __attribute__((aligned(4), may_alias)); /* one anywhere in memory */

struct kernel {
    void (*iterate)(const float *old, float *new, const float *data, float *errors, int steps, int w, int h, int s);
    void (*warp_row)(const float *image, const float *planes, const float *i0, const float *u1, const float *u2,
                     float *data, float *scratch, int y, int w, int h, int s);
    void (*median)(float *plane, long pitch, float *scratch, int w, int h, int s);
};

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

#define EACH(n) for (int k = 0; k < n; k++)
#include "tvl1_median.h"
#define LESS(i, j) (v[i] < v[j] ? v[i] : v[j])
#define MORE(i, j) (v[i] > v[j] ? v[i] : v[j])
#define LOW(i, j) v[i] = LESS(i, j);
#define HIGH(i, j) v[j] = MORE(i, j);
#define SORT(i, j) { float low = LESS(i, j); v[j] = MORE(i, j); v[i] = low; }

#define NAME(f) f##_plain
#define TARGET
#if defined(__FP_FAST_FMAF) || ARM /* clang does not say it */
#define FUSED 1
#else
#define FUSED 0
#endif
#define LANES 1
#define CHAINS 2
#define VEC float
#define LOAD(p) (*(p))
#define STORE(p, a) (*(p) = (a))
#define FILL(a) (a)
#define MULADD(a, b, c) ((a) * (b) + (c))
#define IF_LESS(a, b, yes, no) ((a) < (b) ? (yes) : (no))
#define FIRST(a, rest) (a)
#include "tvl1_kernel.h"

#if X86
#define NAME(f) f##_avx2
#define TARGET __attribute__((target("avx2,fma,bmi,bmi2")))
#define FUSED 1
#define LANES 8
#define CHAINS 2
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, _mm_set1_ps(b), c)
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, a) _mm256_storeu_ps(p, a)
#define FILL(a) _mm256_set1_ps(a)
#define MULADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ABS(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a)
#define MAX_ABS(a, b) _mm256_max_ps(ABS(a), ABS(b))
#define MIN_ABS(a, b) _mm256_min_ps(ABS(a), ABS(b))
#define DIFFER(a, b) _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ))
#define RSQRT(a) _mm256_rsqrt_ps(a)
#define IF_LESS(a, b, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define FIRST(a, rest) _mm256_blend_ps(rest, a, 1)
#include "tvl1_kernel.h"

#define NAME(f) f##_avx512
#define TARGET __attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512cd,avx512bw,avx512dq,avx512vl")))
#define FUSED 1
#define LANES 16
#define CHAINS 4
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, _mm_set1_ps(b), c)
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, a) _mm512_storeu_ps(p, a)
#define FILL(a) _mm512_set1_ps(a)
#define MULADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MAX_ABS(a, b) _mm512_range_ps(a, b, 0xb)
#define MIN_ABS(a, b) _mm512_range_ps(a, b, 0xa)
#define DIFFER(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ)
#define RSQRT(a) _mm512_rsqrt14_ps(a)
#define RCP(a) _mm512_rcp14_ps(a)
#define IF_LESS(a, b, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes)
#define FIRST(a, rest) _mm512_mask_blend_ps(1, rest, a)
#include "tvl1_kernel.h"
#endif

#if ARM
/* NEON, which every such processor has. Its estimate has 8 bits, of which one step makes 16. */
static inline float32x4_t estimate_rsqrt(float32x4_t a) {
    float32x4_t estimate = vrsqrteq_f32(a);
    return estimate * vrsqrtsq_f32(a * estimate, estimate);
}

#define NAME(f) f##_neon
#define TARGET
#define FUSED 1
#define LANES 4
#define CHAINS 4
#define QUAD_MULADD(a, b, c) vfmaq_n_f32(c, a, b)
#define VEC float32x4_t
#define LOAD(p) vld1q_f32(p)
#define STORE(p, a) vst1q_f32(p, a)
#define FILL(a) vdupq_n_f32(a)
#define MULADD(a, b, c) vfmaq_f32(c, a, b)
#define MAX_ABS(a, b) vmaxq_f32(vabsq_f32(a), vabsq_f32(b))
#define MIN_ABS(a, b) vminq_f32(vabsq_f32(a), vabsq_f32(b))
#define DIFFER(a, b) (vminvq_u32(vceqq_f32(a, b)) == 0)
#define RSQRT(a) estimate_rsqrt(a)
#define IF_LESS(a, b, yes, no) vbslq_f32(vcltq_f32(a, b), yes, no)
#define FIRST(a, rest) vcopyq_laneq_f32(rest, 0, a, 0)
#include "tvl1_kernel.h"
#endif

/* The kernels this processor can run, slowest first. */
static struct { const char *name; const struct kernel *kernel; } variants[3];
static int variant_count;

static void find_variants(void) {
    variants[variant_count].name = "plain";
    variants[variant_count++].kernel = &kernel_plain;
#if X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
        variants[variant_count].name = "avx2";
        variants[variant_count++].kernel = &kernel_avx2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512cd")) {
            variants[variant_count].name = "avx512";
            variants[variant_count++].kernel = &kernel_avx512;
        }
    }
#endif
#if ARM
    variants[variant_count].name = "neon";
    variants[variant_count++].kernel = &kernel_neon;
#endif
}

#include "tvl1_scale.h"

/* Let the processor flush subnormal numbers to zero; returns the mode before. */
static uint64_t flush_subnormals(void) {
#if X86
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
#elif ARM
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | (uint64_t)1 << 24) : "memory");
    return mode;
#else
    return 0;
#endif
}

static void restore_mode(uint64_t mode) {
#if X86
    _mm_setcsr((unsigned)mode);
#elif ARM
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#else
    (void)mode;
#endif
}

/* Bytes of memory for a scale of this size; wherever it begins, the work in it is aligned. */
static size_t workspace_bytes(int w, int h) {
    struct field f;
    return sizeof(float) * (lay_out(&f, NULL, w, h) + 16);
}

/* Improve the flow (u1, u2) from i0 to i1 at one scale, in a workspace of workspace_bytes(w, h). */
static void solve_in(void *workspace, int variant, const float *i0, const float *i1, float *u1, float *u2, int w, int h) {
    uint64_t mode = flush_subnormals();
    solve(variants[variant].kernel, i0, i1, u1, u2, (float *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63), w, h);
    restore_mode(mode);
}
