/* TV-L1 optical flow at one scale of the image pyramid: the iteration of OpenCV 5's DualTVL1OpticalFlow with its
 * defaults, rounding for rounding. extractors/flow/tvl1.py makes the pyramid and calls this once per scale.
 *
 * tvl1_scale.h holds the work at a scale; tvl1_kernel.h and tvl1_warp.h that on rows, compiled once per instruction
 * set; the processor's best is chosen at run time.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif

#define WARPS 5
#define OUTER 10
#define INNER 30
#define EPSILON 0.01
#define TAUT ((float)(0.25 / 0.3))
#define L_T ((float)(0.15 * 0.3))
#define THETA 0.3f

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
#ifdef __FP_FAST_FMAF
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
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, b, c)
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, a) _mm256_storeu_ps(p, a)
#define FILL(a) _mm256_set1_ps(a)
#define MULADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ABS(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a)
#define MAX_ABS(a, b) _mm256_max_ps(ABS(a), ABS(b))
#define MIN_ABS(a, b) _mm256_min_ps(ABS(a), ABS(b))
#define RSQRT(a) _mm256_rsqrt_ps(a)
#define IF_LESS(a, b, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define FIRST(a, rest) _mm256_blend_ps(rest, a, 1)
#include "tvl1_kernel.h"

#define NAME(f) f##_avx512
#define TARGET __attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512cd,avx512bw,avx512dq,avx512vl")))
#define FUSED 1
#define LANES 16
#define CHAINS 4
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, b, c)
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, a) _mm512_storeu_ps(p, a)
#define FILL(a) _mm512_set1_ps(a)
#define MULADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MAX_ABS(a, b) _mm512_range_ps(a, b, 0xb)
#define MIN_ABS(a, b) _mm512_range_ps(a, b, 0xa)
#define RSQRT(a) _mm512_rsqrt14_ps(a)
#define RCP(a) _mm512_rcp14_ps(a)
#define IF_LESS(a, b, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes)
#define FIRST(a, rest) _mm512_mask_blend_ps(1, rest, a)
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
}

#include "tvl1_scale.h"

static PyObject *workspace_size(PyObject *module, PyObject *args) {
    int w, h;
    struct field f;
    if (!PyArg_ParseTuple(args, "ii", &w, &h))
        return NULL;
    return PyLong_FromSize_t(sizeof(float) * (lay_out(&f, NULL, w, h) + 16));
}

static PyObject *solve_scale(PyObject *module, PyObject *args) {
    Py_buffer i0, i1, u1, u2, memory;
    int w, h, variant;
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*iii", &i0, &i1, &u1, &u2, &memory, &w, &h, &variant))
        return NULL;
    struct field f;
    Py_ssize_t plane = (Py_ssize_t)sizeof(float) * w * h;
    int fits = w >= 3 && h >= 3 && i0.len == plane && i1.len == plane && u1.len == plane && u2.len == plane &&
               memory.len >= (Py_ssize_t)(sizeof(float) * (lay_out(&f, NULL, w, h) + 16)) && variant >= 0 &&
               variant < variant_count;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        float *aligned = (float *)(((uintptr_t)memory.buf + 63) & ~(uintptr_t)63);
#if X86
        unsigned mode = _mm_getcsr();
        _mm_setcsr(mode | 0x8040); /* flush subnormal numbers to zero */
#endif
        solve(variants[variant].kernel, i0.buf, i1.buf, u1.buf, u2.buf, aligned, w, h);
#if X86
        _mm_setcsr(mode);
#endif
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&i0);
    PyBuffer_Release(&i1);
    PyBuffer_Release(&u1);
    PyBuffer_Release(&u2);
    PyBuffer_Release(&memory);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "buffers do not match the size, or no such variant");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *variant_names(PyObject *module, PyObject *unused) {
    PyObject *names = PyTuple_New(variant_count);
    for (int i = 0; names && i < variant_count; i++)
        PyTuple_SET_ITEM(names, i, PyUnicode_FromString(variants[i].name));
    return names;
}

static PyMethodDef methods[] = {
    {"workspace_size", workspace_size, METH_VARARGS, "workspace_size(w, h): bytes solve_scale needs."},
    {"solve_scale", solve_scale, METH_VARARGS,
     "solve_scale(i0, i1, u1, u2, workspace, w, h, variant): improves the flow u1, u2 in place, without the GIL."},
    {"variants", variant_names, METH_NOARGS, "Names of the instruction sets this processor runs, slowest first."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tvl1", "TV-L1 optical flow.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__tvl1(void) {
    if (!variant_count)
        find_variants();
    return PyModule_Create(&definition);
}
