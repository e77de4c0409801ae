/* Row kernels of TV-L1, included by tvl1_variants.h once per instruction set.
 *
 * Before each inclusion tvl1_variants.h defines
 *   NAME(f)  the function's name in this variant
 *   TARGET   the attribute that selects the instruction set, or nothing
 *   FUSED    1 where the hardware multiplies and adds with one rounding
 *   LANES    floats in a VEC, then VEC, LOAD, STORE, FILL, MULADD (a * b + c), IF_LESS (a < b ? yes : no) and FIRST
 *            (lane 0 of a, the rest of the other); where LANES > 1 MULADD rounds once, and there are MAX_ABS and MIN_ABS
 *            (of either sign), the estimate RSQRT and QUAD_MULADD; and the estimate RCP where two quotients come
 *            sooner from it than from two divisions
 *   CHAINS   roots in flight at a time; EACH(n) repeats a statement for the first n of them, as k
 *
 * All arithmetic is float32 and rounds where OpenCV rounds; only the cubic warp uses fused multiply-add as OpenCV does.
 * The sum of squared changes alone has an order and roundings of its own, see inner_loop().
 * Where LANES > 1, hypot comes from an estimate and exact remainders, and where there is an RCP so does division by it:
 * the same result, sooner.
 */

#define INLINE TARGET static inline __attribute__((always_inline))
#define ROWS TARGET static __attribute__((noinline))

INLINE float NAME(fused)(float a, float b, float c) {
#if FUSED
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c); /* the product is exact in double */
#endif
}

#if LANES > 1
/* norm[k] = TAUT * sqrt(dx[k]^2 + dy[k]^2) + 1 for the n chains, the root correctly rounded wherever the sum can notice.
 * The chains go in lockstep: a processor looks ahead about a hundred operations, fewer than two roots take. */
INLINE void NAME(norms)(const VEC *dx, const VEC *dy, VEC *norm, int n) {
    VEC big[CHAINS], small[CHAINS], square[CHAINS], sum[CHAINS], rest[CHAINS], root[CHAINS], half[CHAINS], miss[CHAINS];
    EACH(n) big[k] = MAX_ABS(dx[k], dy[k]);
    EACH(n) small[k] = MIN_ABS(dx[k], dy[k]);
    EACH(n) square[k] = MULADD(big[k], big[k], FILL(1e-30f)); /* never 0, and too little to change a norm */
    EACH(n) sum[k] = MULADD(small[k], small[k], square[k]);
    EACH(n) half[k] = RSQRT(sum[k]);
    EACH(n) rest[k] = MULADD(big[k], big[k], -square[k]); /* sum + rest = dx^2 + dy^2 to twice the precision */
    EACH(n) rest[k] = MULADD(small[k], small[k], square[k] - sum[k]) + rest[k];
    EACH(n) root[k] = sum[k] * half[k];
    EACH(n) half[k] = half[k] * 0.5f; /* becomes 1 / (2 root) */
    EACH(n) miss[k] = MULADD(-root[k], half[k], FILL(0.5f));
    EACH(n) root[k] = MULADD(root[k], miss[k], root[k]);
    EACH(n) half[k] = MULADD(half[k], miss[k], half[k]);
    EACH(n) rest[k] = MULADD(-root[k], root[k], sum[k]) + rest[k];
    EACH(n) norm[k] = MULADD(rest[k], half[k], root[k]) * TAUT + 1.0f;
}
#else
INLINE void NAME(norms)(const VEC *dx, const VEC *dy, VEC *norm, int n) {
    EACH(n) norm[k] = (float)__builtin_sqrt((double)dx[k] * dx[k] + (double)dy[k] * dy[k]) * TAUT + 1.0f;
}
#endif

/* a[k] and b[k] divided by c[k], for the n chains. */
#ifdef RCP
/* a / b, correctly rounded, from `inverse`, which is 1 / b correctly rounded (Markstein's theorem). */
INLINE VEC NAME(divide)(VEC a, VEC b, VEC inverse) {
    VEC q = a * inverse;
    return MULADD(MULADD(-q, b, a), inverse, q);
}

INLINE void NAME(divide_both)(VEC *a, VEC *b, const VEC *c, int n) {
    VEC estimate[CHAINS], miss[CHAINS];
    VEC inverse[CHAINS]; /* correctly rounded but for one case in thousands, which divide() all but never notices */
    EACH(n) estimate[k] = RCP(c[k]);
    EACH(n) miss[k] = MULADD(-estimate[k], c[k], FILL(1.0f));
    EACH(n) inverse[k] = MULADD(MULADD(miss[k], miss[k], miss[k]), estimate[k], estimate[k]);
    EACH(n) a[k] = NAME(divide)(a[k], c[k], inverse[k]);
    EACH(n) b[k] = NAME(divide)(b[k], c[k], inverse[k]);
}
#else
INLINE void NAME(divide_both)(VEC *a, VEC *b, const VEC *c, int n) {
    EACH(n) a[k] = a[k] / c[k];
    EACH(n) b[k] = b[k] / c[k];
}
#endif

/* u of n times LANES pixels from column x on. `above` is the state one row up; `errors` gathers squared changes by
 * column. */
INLINE void NAME(primal)(const float *old, const float *above, const float *data, float *new, float *errors, int x,
                         long s, int n) {
    VEC u1[CHAINS], u2[CHAINS], ix[CHAINS], iy[CHAINS], div1[CHAINS], div2[CHAINS], rho[CHAINS], step[CHAINS];
#define AT(plane) ((plane) * s + x + k * LANES)
    EACH(n) {
        VEC p11 = LOAD(old + AT(P11)), p12 = LOAD(old + AT(P12)), p12_above = LOAD(above + AT(P12));
        VEC p21 = LOAD(old + AT(P21)), p22 = LOAD(old + AT(P22)), p22_above = LOAD(above + AT(P22));
        div1[k] = (p11 - LOAD(old + AT(P11) - 1)) + (p12 - p12_above);
        div2[k] = (p21 - LOAD(old + AT(P21) - 1)) + (p22 - p22_above);
        if (x == 0 && k == 0) { /* OpenCV adds column 0 in another order */
            div1[k] = FIRST((p11 + p12) - p12_above, div1[k]);
            div2[k] = FIRST((p21 + p22) - p22_above, div2[k]);
        }
    }
    EACH(n) u1[k] = LOAD(old + AT(U1));
    EACH(n) u2[k] = LOAD(old + AT(U2));
    EACH(n) ix[k] = LOAD(data + AT(IX));
    EACH(n) iy[k] = LOAD(data + AT(IY));
    EACH(n) rho[k] = LOAD(data + AT(RHO)) + (ix[k] * u1[k] + iy[k] * u2[k]);
    EACH(n) { /* the threshold step, downwards */
        VEC grad = ix[k] * ix[k] + iy[k] * iy[k], limit = grad * L_T;
        VEC ratio = IF_LESS(FILL(FLT_EPSILON), grad, rho[k] / grad, FILL(0.0f));
        ratio = IF_LESS(limit, rho[k], FILL(L_T), ratio);
        step[k] = IF_LESS(rho[k], -limit, FILL(-L_T), ratio);
    }
    EACH(n) {
        VEC new1 = (u1[k] - step[k] * ix[k]) + div1[k] * THETA, new2 = (u2[k] - step[k] * iy[k]) + div2[k] * THETA;
        VEC change1 = new1 - u1[k], change2 = new2 - u2[k];
        STORE(new + AT(U1), new1);
        STORE(new + AT(U2), new2);
        STORE(errors + AT(0), MULADD(change1, change1, MULADD(change2, change2, LOAD(errors + AT(0)))));
    }
#undef AT
}

ROWS void NAME(primal_row)(const float *old, const float *above, const float *data, float *new, float *errors, int w,
                           long s) {
    int padded = (w + 15) & ~15, x = LANES;
    NAME(primal)(old, above, data, new, errors, 0, s, 1);
#if CHAINS > 2
    for (; x + CHAINS / 2 * LANES <= padded; x += CHAINS / 2 * LANES)
        NAME(primal)(old, above, data, new, errors, x, s, CHAINS / 2);
#endif
    INDEPENDENT
    for (; x < padded; x += LANES)
        NAME(primal)(old, above, data, new, errors, x, s, 1);
    float *u1 = new + U1 * s, *u2 = new + U2 * s;
    u1[w] = u1[w - 1]; /* so that the last column's forward difference is zero */
    u2[w] = u2[w - 1];
}

/* The dual variable p of n / 2 times LANES pixels from column x on: a chain for each flow component of each VEC. `below`
 * is u one row down. */
INLINE void NAME(dual)(const float *old, const float *u, const float *below, float *new, int x, long s, int n) {
    VEC dx[CHAINS], dy[CHAINS], p1[CHAINS], p2[CHAINS], norm[CHAINS];
#define AT(k, plane) ((plane + k % 2) * s + x + k / 2 * LANES)
#define P_AT(k, plane) ((plane + k % 2 * (P21 - P11)) * s + x + k / 2 * LANES)
    EACH(n) {
        VEC here = LOAD(u + AT(k, U1));
        dx[k] = LOAD(u + AT(k, U1) + 1) - here;
        dy[k] = LOAD(below + AT(k, U1)) - here;
    }
    NAME(norms)(dx, dy, norm, n);
    EACH(n) p1[k] = LOAD(old + P_AT(k, P11)) + dx[k] * TAUT;
    EACH(n) p2[k] = LOAD(old + P_AT(k, P12)) + dy[k] * TAUT;
    NAME(divide_both)(p1, p2, norm, n);
    EACH(n) STORE(new + P_AT(k, P11), p1[k]);
    EACH(n) STORE(new + P_AT(k, P12), p2[k]);
#undef AT
#undef P_AT
}

/* p of one row from u of this row and of the one below (the same row at the bottom). */
ROWS void NAME(dual_row)(const float *old, const float *u, const float *below, float *new, int w, long s) {
    int padded = (w + 15) & ~15, x = 0;
#if CHAINS > 2
    for (; x + CHAINS / 2 * LANES <= padded; x += CHAINS / 2 * LANES)
        NAME(dual)(old, u, below, new, x, s, CHAINS);
#endif
    INDEPENDENT
    for (; x < padded; x += LANES)
        NAME(dual)(old, u, below, new, x, s, 2);
}

/* `steps` iterations from state `old` to state `new` in one pass: iteration j works j rows behind iteration 0. */
ROWS void NAME(iterate)(const float *old, float *new, const float *data, float *errors, int steps, int w, int h,
                        int s) {
    long state = STATE_PLANES * (long)s, constant = DATA_PLANES * (long)s;
    for (int t = 0; t < h + steps; t++) {
        for (int j = 0; j < steps; j++) {
            int y = t - j;
            const float *from = j ? new : old;
            if (y >= 0 && y < h)
                NAME(primal_row)(from + y * state, from + (y - 1) * state, data + y * constant, new + y * state,
                                 errors + (long)j * s, w, s);
            if (y >= 1 && y <= h)
                NAME(dual_row)(from + (y - 1) * state, new + (y - 1) * state, new + (y < h ? y : y - 1) * state,
                               new + (y - 1) * state, w, s);
        }
    }
}

#include "tvl1_warp.h"
#include "tvl1_median_rows.h"

static const struct kernel NAME(kernel) = {NAME(iterate), NAME(warp_row), NAME(median)};

#undef INLINE
#undef ROWS
#undef NAME
#undef TARGET
#undef FUSED
#undef LANES
#undef VEC
#undef LOAD
#undef STORE
#undef FILL
#undef MULADD
#undef MAX_ABS
#undef MIN_ABS
#undef CHAINS
#undef RSQRT
#undef RCP
#undef IF_LESS
#undef FIRST
#undef QUAD_MULADD
