/* One scale of TV-L1 for many pairs in one launch: OpenCV 5's DualTVL1 with its defaults, rounding for rounding.
 *
 * A pair belongs to a cluster of thread blocks, a band of rows to each block. For the whole scale u and p live in
 * shared memory and what a warp made in registers; the rows next to a band are pushed into its block's shared memory.
 * Clusters take pairs from a queue until it is empty, and each pair stops by itself, so that one that never settles (a
 * scene cut) delays only its own cluster.
 *
 * Before CUDA compiles it (NVRTC; no header but the two here) PIXELS, THREADS and CLUSTERS are defined. Without CUDA
 * the same source is a C++ library that runs the threads of each phase one after the other: a test compares it with
 * tvl1.c.
 */
#ifndef PIXELS
#define PIXELS 15 /* of a thread, at most */
#endif
#ifndef THREADS
#define THREADS 512 /* of a block */
#endif
#ifndef CLUSTERS
#define CLUSTERS 1 /* whether blocks work together: sm_90 and later */
#endif
#define MOST_BLOCKS 16 /* of a cluster */
#define WARPS 5
#define OUTER 10
#define INNER 30
#define TAUT ((float)(0.25 / 0.3))
#define L_T ((float)(0.15 * 0.3))
#define THETA 0.3f
#define FLAT 1.1920928955078125e-07f /* a squared gradient up to this explains no brightness */
#define DOUBT 3.814697265625e-06f /* 2^-18: a correction of a root may be off by less, relatively */

#ifdef __CUDACC__
#define DEVICE __device__ __forceinline__
#define FMA(a, b, c) __fmaf_rn(a, b, c)
#define MUL(a, b) __fmul_rn(a, b)
#define ADD(a, b) __fadd_rn(a, b)
#define SUB(a, b) __fsub_rn(a, b)
#define UNROLL _Pragma("unroll")
DEVICE float RCP(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float RSQ(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
#include <cmath>
#include <vector>
#ifdef __SSE__
#include <xmmintrin.h>
#endif
#define DEVICE static inline
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define MUL(a, b) ((a) * (b))
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define UNROLL
/* estimates about as far off as the GPU's, one unit in the last place */
static inline float RCP(float x) { return 1.0f / x * (1 + 6e-8f); }
static inline float RSQ(float x) { return 1.0f / sqrtf(x) * (1 - 1e-7f); }
#endif

#define EACH_PIXEL UNROLL for (int k = 0; k < PIXELS; k++)
#include "tvl1_median.h"
#define LESS(i, j) fminf(v[i], v[j])
#define MORE(i, j) fmaxf(v[i], v[j])
#define LOW(i, j) v[i] = LESS(i, j);
#define HIGH(i, j) v[j] = MORE(i, j);
#define SORT(i, j) { float low = LESS(i, j); v[j] = MORE(i, j); v[i] = low; }
#include "tvl1_band.h"

#ifdef __CUDACC__
DEVICE unsigned block_rank() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE unsigned block_count() { unsigned n; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); return n; }

#if CLUSTERS
DEVICE void wait_for_blocks() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* The same variable in the shared memory of another block of the cluster. */
template <class T> DEVICE T *of_block(T *mine, unsigned rank) {
    unsigned long long theirs;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
    return (T *)theirs;
}
#else
DEVICE void wait_for_blocks() { __syncthreads(); }
template <class T> DEVICE T *of_block(T *mine, unsigned) { return mine; }
#endif

/* The flow (B, 2, h, w) improved in place at one scale, from planes (B, 3, h, w) and i0 (B, h, w). The queue is one
 * integer, 0. The grid is clusters times blocks. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
solve_scale(const float *planes, const float *i0, float *flow, int *queue, int n_pairs, int h, int w, float bound) {
    extern __shared__ __align__(16) float memory[];
    __shared__ int next;
    __shared__ double partial[THREADS / 32], sums[MOST_BLOCKS];
    __shared__ float ordered;
#if CLUSTERS
    const int rank = block_rank(), blocks = block_count();
#else
    const int rank = 0, blocks = 1;
#endif
    const int tid = threadIdx.x;
    const long long n = (long long)h * w;
    Band b = band_of(memory, rank, blocks, w, h);
    float *above = of_block(memory, rank > 0 ? rank - 1 : 0);
    float *below = of_block(memory, rank < blocks - 1 ? rank + 1 : rank);
    const bool has_above = rank > 0 && b.rows, has_below = b.rows && b.row0 + b.rows < h;
    Thread t;
    for (;;) {
        if (rank == 0 && tid == 0) {
            const int taken = atomicAdd(queue, 1);
            for (int r = 0; r < blocks; r++)
                *of_block(&next, r) = taken;
        }
        wait_for_blocks();
        const int pair = next;
        if (pair >= n_pairs)
            break;
        float *u = flow + pair * 2 * n;
        begin(b, t, tid, u);
        wait_for_blocks();
        for (int number = 0; number < WARPS; number++) {
            warp(b, t, tid, planes + pair * 3 * n, i0 + pair * n);
            bool moving = true;
            for (int outer = 0; outer < OUTER && moving; outer++) {
                medians(b, t, tid, b.u1, b.spare, above, below);
                turn(b, b.u1);
                wait_for_blocks();
                medians(b, t, tid, b.u2, b.spare, above, below);
                turn(b, b.u2);
                wait_for_blocks(); /* the first iteration overwrites the spare plane */
                for (int inner = 0; inner < INNER && moving; inner++) {
                    primal(b, t, tid);
                    if (has_above)
                        push_up(b, tid, above);
                    double error = t.error;
                    for (int s = 16; s; s >>= 1)
                        error += __shfl_xor_sync(~0u, error, s);
                    if (tid % 32 == 0)
                        partial[tid / 32] = error;
                    wait_for_blocks(); /* u and the rows next to it have come */
                    if (tid < 32) {
                        double sum = tid < THREADS / 32 ? partial[tid] : 0.0;
                        for (int s = 16; s; s >>= 1)
                            sum += __shfl_xor_sync(~0u, sum, s);
                        if (tid < blocks)
                            *of_block(&sums[rank], tid) = sum;
                    }
                    dual(b, t, tid);
                    if (has_below)
                        push_down(b, tid, below);
                    wait_for_blocks(); /* p, the rows next to it and the sums have come */
                    double total = 0.0;
                    for (int r = 0; r < blocks; r++)
                        total += sums[r];
                    moving = total > bound;
                    if (in_doubt(b, total, bound)) { /* decided by the sum in OpenCV's order, band after band */
                        for (int r = 0; r < blocks; r++) {
                            if (r == rank && tid == 0) {
                                const float sum = ordered_sum(b, r ? ordered : 0.0f);
                                if (r < blocks - 1)
                                    *of_block(&ordered, r + 1) = sum;
                                else
                                    for (int every = 0; every < blocks; every++)
                                        *of_block(&ordered, every) = sum;
                            }
                            wait_for_blocks();
                        }
                        moving = ordered > bound;
                    }
                }
            }
        }
        for (int i = tid; i < b.n; i += THREADS) {
            u[b.row0 * w + i] = b.memory[b.u1 + i];
            u[n + b.row0 * w + i] = b.memory[b.u2 + i];
        }
    }
}
#else
/* The same for one pair on the host with clusters of `blocks`. */
extern "C" void solve_on_host(const float *planes, const float *i0, float *flow, int h, int w, float bound, int blocks,
                              int warps, int outers, int inners) {
    std::vector<std::vector<float>> memory(blocks);
    std::vector<Band> bands;
    std::vector<std::vector<Thread>> threads(blocks, std::vector<Thread>(THREADS));
    for (int r = 0; r < blocks; r++) {
        Band b = band_of(nullptr, r, blocks, w, h);
        memory[r].assign((size_t)PLANES * b.stride, NAN); /* what shared memory holds at first */
        b.memory = memory[r].data();
        bands.push_back(b);
    }
#define EACH(what) \
    for (int r = 0; r < blocks; r++) \
        for (int tid = 0; tid < THREADS; tid++) { \
            Band &b = bands[r]; \
            Thread &t = threads[r][tid]; \
            (void)b, (void)t; \
            what; \
        }
#define EACH_BAND(what) for (int r = 0; r < blocks; r++) { Band &b = bands[r]; what; }
#define ABOVE (r > 0 ? memory[r - 1].data() : nullptr)
#define BELOW (r < blocks - 1 ? memory[r + 1].data() : nullptr)
#ifdef __SSE__
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); /* subnormal numbers count as zero, as they do on the GPU */
#endif
    EACH(begin(b, t, tid, flow))
    for (int number = 0; number < warps; number++) {
        EACH(warp(b, t, tid, planes, i0))
        bool moving = true;
        for (int outer = 0; outer < outers && moving; outer++) {
            EACH(medians(b, t, tid, b.u1, b.spare, ABOVE, BELOW))
            EACH_BAND(turn(b, b.u1))
            EACH(medians(b, t, tid, b.u2, b.spare, ABOVE, BELOW))
            EACH_BAND(turn(b, b.u2))
            for (int inner = 0; inner < inners && moving; inner++) {
                EACH(primal(b, t, tid); if (r > 0 && b.rows) push_up(b, tid, ABOVE))
                double total = 0.0;
                EACH(total += t.error)
                EACH(dual(b, t, tid); if (b.rows && b.row0 + b.rows < h) push_down(b, tid, BELOW))
                moving = total > bound;
                if (in_doubt(bands[0], total, bound)) {
                    float ordered = 0.0f;
                    EACH_BAND(ordered = ordered_sum(b, ordered))
                    moving = ordered > bound;
                }
            }
        }
    }
    EACH_BAND(for (int i = 0; i < b.n; i++) {
        flow[b.row0 * w + i] = b.memory[b.u1 + i];
        flow[(h + b.row0) * w + i] = b.memory[b.u2 + i];
    })
#ifdef __SSE__
    _mm_setcsr(mode);
#endif
}
#endif
