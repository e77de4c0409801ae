/* TV-L1 optical flow at one scale of the image pyramid: the iteration of OpenCV 5's DualTVL1OpticalFlow with its
 * defaults, rounding for rounding. extractors/flow/tvl1.py makes the pyramid and calls this once per scale.
 *
 * Speed comes from doing several iterations in one pass over the rows (iteration j one row behind iteration j - 1), so
 * that the state is read from memory once a pass. A pass that went beyond the stopping iteration is done again from the
 * state before it, shorter.
 *
 * tvl1_kernel.h holds the work on rows, compiled once per instruction set; the processor's best is chosen at run time.
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
#define MAX_STEPS 4 /* iterations in one pass */
#define SLACK 64 /* floats between the parts of the workspace */

/* Planes of a row of the state, and of a row's constants. Rows of all planes lie together. */
enum { U1, U2, P11, P12, P21, P22, STATE_PLANES };
enum { IX, IY, RHO, INVERSE, DATA_PLANES };

typedef float quad __attribute__((vector_size(16))); /* the channels of a pixel */
typedef quad loose_quad __attribute__((aligned(4), may_alias)); /* one anywhere in memory */

struct kernel {
    void (*iterate)(const float *old, float *new, const float *data, float *errors, int steps, int w, int h, int s);
    void (*warp_row)(const float *image, const float *i0, const float *u1, const float *u2, float *data,
                     float *scratch, int y, int w, int h, int s);
    void (*median_row)(const float *const *rows, float *sorted, float *out, int w, int s);
};

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

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
#define VEC float
#define LOAD(p) (*(p))
#define STORE(p, a) (*(p) = (a))
#define FILL(a) (a)
#define IF_LESS(a, b, yes, no) ((a) < (b) ? (yes) : (no))
#define FIRST(a, rest) (a)
#include "tvl1_kernel.h"

#if X86
#define NAME(f) f##_avx2
#define TARGET __attribute__((target("avx2,fma,bmi,bmi2")))
#define FUSED 1
#define LANES 8
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, b, c)
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, a) _mm256_storeu_ps(p, a)
#define FILL(a) _mm256_set1_ps(a)
#define MULADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define MAX(a, b) _mm256_max_ps(a, b)
#define MIN(a, b) _mm256_min_ps(a, b)
#define ABS(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a)
#define RSQRT(a) _mm256_rsqrt_ps(a)
#define RCP(a) _mm256_rcp_ps(a)
#define IF_LESS(a, b, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define FIRST(a, rest) _mm256_blend_ps(rest, a, 1)
#include "tvl1_kernel.h"

#define NAME(f) f##_avx512
#define TARGET __attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512cd,avx512bw,avx512dq,avx512vl")))
#define FUSED 1
#define LANES 16
#define QUAD_MULADD(a, b, c) _mm_fmadd_ps(a, b, c)
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, a) _mm512_storeu_ps(p, a)
#define FILL(a) _mm512_set1_ps(a)
#define MULADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MAX(a, b) _mm512_max_ps(a, b)
#define MIN(a, b) _mm512_min_ps(a, b)
#define ABS(a) _mm512_abs_ps(a)
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

/* The parts of one scale's memory. */
struct field {
    int w, h, s; /* width, height, and floats from a row of one plane to the same row of the next plane */
    float *old, *new; /* state before and after a pass; a row of zeros lies above each */
    float *data, *errors, *image, *rows;
};

static int stride_of(int w) { return (w + 1 + 15) & ~15; }

/* Lay the parts out from `memory` on; returns how many floats they take. */
static size_t lay_out(struct field *f, float *memory, int w, int h) {
    size_t s = stride_of(w), state = (h + 1) * STATE_PLANES * s + SLACK;
    *f = (struct field){.w = w, .h = h, .s = (int)s};
    size_t at = SLACK;
#define PART(name, size) f->name = memory + at; at += (((size) + 15) & ~(size_t)15) + SLACK;
    PART(old, state)
    PART(new, state)
    PART(data, h * DATA_PLANES * s)
    PART(errors, MAX_STEPS * s)
    PART(image, 4 * (w + 2 * BORDER) * (size_t)(h + 2 * BORDER))
    PART(rows, 16 * (s + 32))
    f->old += STATE_PLANES * s;
    f->new += STATE_PLANES * s;
    return at;
}

static void swap(struct field *f) {
    float *t = f->old;
    f->old = f->new;
    f->new = t;
}

static float *row_of(const struct field *f, float *state, int y) { return state + (long)y * STATE_PLANES * f->s; }

/* Store I1 and its centred gradient (one-sided at the edges, still halved) as pixels of four inside a zero border. */
static void prepare_image(const struct field *f, const float *i1) {
    int w = f->w, h = f->h, pitch = 4 * (w + 2 * BORDER);
    memset(f->image, 0, sizeof(float) * pitch * (h + 2 * BORDER));
    for (int y = 0; y < h; y++) {
        const float *here = i1 + (long)y * w, *above = y ? here - w : here, *below = y < h - 1 ? here + w : here;
        float *out = f->image + (long)(y + BORDER) * pitch + 4 * BORDER;
        for (int x = 0; x < w; x++) {
            int left = x ? x - 1 : x, right = x < w - 1 ? x + 1 : x;
            out[4 * x] = here[x];
            out[4 * x + 1] = 0.5f * (here[right] - here[left]);
            out[4 * x + 2] = 0.5f * (below[x] - above[x]);
        }
    }
}

/* Replace plane U1 or U2 of the state by its 5 x 5 median. The last five source rows are kept aside, widened. */
static void median(const struct kernel *kernel, const struct field *f, int plane) {
    int w = f->w, h = f->h, pitch = f->s + 32;
    for (int y = -2; y < h; y++) {
        int below = y + 2 < h ? y + 2 : h - 1;
        float *kept = f->rows + (y + 2) % 5 * pitch;
        if (y + 2 < h) {
            const float *source = row_of(f, f->old, below) + plane * f->s;
            kept[0] = kept[1] = source[0];
            memcpy(kept + 2, source, sizeof(float) * w);
            kept[w + 2] = kept[w + 3] = source[w - 1];
        }
        if (y >= 0) {
            const float *window[5];
            for (int k = -2; k <= 2; k++) {
                int r = y + k < 0 ? 0 : y + k < h ? y + k : h - 1;
                window[k + 2] = f->rows + r % 5 * pitch;
            }
            float *out = row_of(f, f->old, y) + plane * f->s;
            kernel->median_row(window, f->rows + 5 * pitch, out, w, pitch);
        }
    }
}

/* Squared change of u from state old to state new, summed one pixel after the other in float as OpenCV does. */
static float exact_error(const struct field *f) {
    float error = 0.0f;
    for (int y = 0; y < f->h; y++) {
        const float *old = row_of(f, f->old, y), *new = row_of(f, f->new, y);
        for (int x = 0; x < f->w; x++) {
            float d1 = new[x] - old[x], d2 = new[f->s + x] - old[f->s + x];
            error += d1 * d1 + d2 * d2;
        }
    }
    return error;
}

/* Iterations from `old` to `new`; errors[j] becomes the squared change of iteration j, in an order of its own. */
static void pass(const struct kernel *kernel, const struct field *f, int steps, double *errors) {
    memset(f->errors, 0, sizeof(float) * MAX_STEPS * f->s);
    kernel->iterate(f->old, f->new, f->data, f->errors, steps, f->w, f->h, f->s);
    for (int j = 0; j < steps; j++) {
        errors[j] = 0.0;
        for (int x = 0; x < f->w; x++)
            errors[j] += f->errors[(long)j * f->s + x];
    }
}

/* How many iterations to risk in one pass: all but the last must be expected to leave the error above the bound. */
static int steps_ahead(double before, double last, double bound) {
    int steps = 1;
    if (before > 0.0 && last < before)
        for (double ratio = last / before, next = last * ratio; steps < MAX_STEPS && next > bound; next *= ratio)
            steps++;
    return steps;
}

/* Up to INNER iterations; returns 1 when the change fell to the bound, which ends the warp. */
static int inner_loop(const struct kernel *kernel, struct field *f) {
    const float bound = (float)(EPSILON * EPSILON * ((double)f->w * f->h));
    /* OpenCV's float sum is within a rounding for each term of the true one, ours within one for each row */
    const double doubt = ((double)f->w + 2.0) * (f->h + 2.0) / (1 << 24);
    double before = 0.0, last = 0.0, errors[MAX_STEPS];
    int sure = 0; /* how long the next pass must be, where a pass went too far */
    for (int n = 0; n < INNER;) {
        int steps = sure ? sure : steps_ahead(before, last, bound * (1.0 + doubt)), stop = -1;
        if (steps > INNER - n)
            steps = INNER - n;
        pass(kernel, f, steps, errors);
        for (int j = 0; j < steps && stop < 0; j++)
            if (!(errors[j] > bound * (1.0 + doubt)))
                stop = j;
        if (stop >= 0 && stop < steps - 1) { /* too far: again from the old state, up to that iteration */
            sure = stop + 1;
            continue;
        }
        int ended = stop >= 0 && errors[stop] < bound * (1.0 - doubt);
        if (stop >= 0 && !ended) { /* in doubt: decided by the sum in OpenCV's order, from the states around it */
            if (steps > 1) {
                sure = steps - 1;
                continue;
            }
            ended = exact_error(f) <= bound;
        }
        swap(f);
        n += steps;
        if (ended)
            return 1;
        before = steps > 1 ? errors[steps - 2] : last;
        last = errors[steps - 1];
        sure = 0;
    }
    return 0;
}

/* Improve the flow (u1, u2) from i0 to i1 at one scale. */
static void solve(const struct kernel *kernel, const float *i0, const float *i1, float *u1, float *u2, float *memory,
                  int w, int h) {
    struct field f;
    size_t floats = lay_out(&f, memory, w, h);
    memset(memory, 0, sizeof(float) * floats);
    prepare_image(&f, i1);
    for (int y = 0; y < h; y++) {
        memcpy(row_of(&f, f.old, y), u1 + (long)y * w, sizeof(float) * w);
        memcpy(row_of(&f, f.old, y) + f.s, u2 + (long)y * w, sizeof(float) * w);
    }
    for (int warp = 0; warp < WARPS; warp++) {
        for (int y = 0; y < h; y++) {
            const float *u = row_of(&f, f.old, y);
            kernel->warp_row(f.image, i0 + (long)y * w, u, u + f.s, f.data + (long)y * DATA_PLANES * f.s, f.rows, y, w,
                             h, f.s);
        }
        for (int outer = 0; outer < OUTER; outer++) {
            median(kernel, &f, U1);
            median(kernel, &f, U2);
            if (inner_loop(kernel, &f))
                break;
        }
    }
    for (int y = 0; y < h; y++) {
        memcpy(u1 + (long)y * w, row_of(&f, f.old, y), sizeof(float) * w);
        memcpy(u2 + (long)y * w, row_of(&f, f.old, y) + f.s, sizeof(float) * w);
    }
}

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
