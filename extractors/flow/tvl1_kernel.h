/* Row kernels of TV-L1, included by tvl1.c once per instruction set.
 *
 * Before each inclusion tvl1.c defines
 *   NAME(f)  the function's name in this variant
 *   TARGET   the attribute that selects the instruction set, or nothing
 *   FUSED    1 where the hardware multiplies and adds with one rounding
 *   LANES    floats in a VEC, then VEC, LOAD, STORE, FILL, IF_LESS (a < b ? yes : no) and FIRST (lane 0 of a, the rest
 *            of the other); where LANES > 1 also MULADD, MAX, MIN, ABS, the estimates RSQRT and RCP, and QUAD_MULADD
 *
 * All arithmetic is float32 and rounds where OpenCV rounds; only the cubic warp uses fused multiply-add as OpenCV does.
 * Where LANES > 1, hypot and division come from estimates and exact remainders: the same result, sooner.
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
/* a / b, correctly rounded, from `inverse`, which is 1 / b correctly rounded (Markstein's theorem). */
INLINE VEC NAME(divide)(VEC a, VEC b, VEC inverse) {
    VEC q = a * inverse;
    return MULADD(MULADD(-q, b, a), inverse, q);
}

/* sqrt(a^2 + b^2), correctly rounded. */
INLINE VEC NAME(hypot)(VEC a, VEC b) {
    a = ABS(a);
    b = ABS(b);
    VEC big = MAX(a, b), small = MIN(a, b), square = big * big;
    VEC sum = MULADD(small, small, square); /* sum + rest = a^2 + b^2 to twice the precision */
    VEC rest = MULADD(small, small, square - sum) + MULADD(big, big, -square);
    VEC inverse = RSQRT(MAX(sum, FILL(1e-30f)));
    VEC root = sum * inverse, half = inverse * 0.5f; /* half becomes 1 / (2 root) */
    VEC miss = MULADD(-root, half, FILL(0.5f));
    root = MULADD(root, miss, root);
    half = MULADD(half, miss, half);
    return MULADD(MULADD(-root, root, sum) + rest, half, root);
}

/* 1 / b, correctly rounded but for one case in thousands, which divide() all but never notices. */
INLINE VEC NAME(inverse)(VEC b) {
    VEC estimate = RCP(b), miss = MULADD(-estimate, b, FILL(1.0f));
    return MULADD(MULADD(miss, miss, miss), estimate, estimate);
}
#else
INLINE VEC NAME(divide)(VEC a, VEC b, VEC inverse) { return inverse != 0.0f ? a / b : 0.0f; }
INLINE VEC NAME(hypot)(VEC a, VEC b) { return (float)__builtin_sqrt((double)a * a + (double)b * b); }
INLINE VEC NAME(inverse)(VEC b) { return (void)b, 1.0f; }
#endif

/* u of LANES pixels from column x on. `above` is the state one row up; `errors` gathers squared changes by column. */
INLINE void NAME(primal)(const float *old, const float *above, const float *data, float *new, float *errors, int x,
                         long s) {
    const float *p = old + x, *d = data + x;
    VEC p11 = LOAD(p + P11 * s), p12 = LOAD(p + P12 * s), p12_above = LOAD(above + P12 * s + x);
    VEC p21 = LOAD(p + P21 * s), p22 = LOAD(p + P22 * s), p22_above = LOAD(above + P22 * s + x);
    VEC div1 = (p11 - LOAD(p + P11 * s - 1)) + (p12 - p12_above);
    VEC div2 = (p21 - LOAD(p + P21 * s - 1)) + (p22 - p22_above);
    if (x == 0) { /* OpenCV adds column 0 in another order */
        div1 = FIRST((p11 + p12) - p12_above, div1);
        div2 = FIRST((p21 + p22) - p22_above, div2);
    }
    VEC u1 = LOAD(p + U1 * s), u2 = LOAD(p + U2 * s), ix = LOAD(d + IX * s), iy = LOAD(d + IY * s);
    VEC grad = ix * ix + iy * iy, limit = grad * L_T;
    VEC rho = LOAD(d + RHO * s) + (ix * u1 + iy * u2);
    VEC factor = NAME(divide)(-rho, grad, LOAD(d + INVERSE * s));
    factor = IF_LESS(limit, rho, FILL(-L_T), factor); /* the threshold step */
    factor = IF_LESS(rho, -limit, FILL(L_T), factor);
    VEC new1 = (u1 + factor * ix) + div1 * THETA;
    VEC new2 = (u2 + factor * iy) + div2 * THETA;
    STORE(new + U1 * s + x, new1);
    STORE(new + U2 * s + x, new2);
    VEC change1 = new1 - u1, change2 = new2 - u2;
    STORE(errors + x, LOAD(errors + x) + (change1 * change1 + change2 * change2));
}

ROWS void NAME(primal_row)(const float *old, const float *above, const float *data, float *new, float *errors, int w,
                           long s) {
    NAME(primal)(old, above, data, new, errors, 0, s);
    int padded = (w + 15) & ~15;
    INDEPENDENT
    for (int x = LANES; x < padded; x += LANES)
        NAME(primal)(old, above, data, new, errors, x, s);
    float *u1 = new + U1 * s, *u2 = new + U2 * s;
    u1[w] = u1[w - 1]; /* so that the last column's forward difference is zero */
    u2[w] = u2[w - 1];
}

/* The dual variable (p1, p2) of one flow component u; `below` is u one row down. */
INLINE void NAME(dual)(const float *u, const float *below, const float *old1, const float *old2, float *new1,
                       float *new2) {
    VEC here = LOAD(u), dx = LOAD(u + 1) - here, dy = LOAD(below) - here;
    VEC norm = NAME(hypot)(dx, dy) * TAUT + 1.0f, inverse = NAME(inverse)(norm);
    STORE(new1, NAME(divide)(LOAD(old1) + dx * TAUT, norm, inverse));
    STORE(new2, NAME(divide)(LOAD(old2) + dy * TAUT, norm, inverse));
}

/* p of one row from u of this row and of the one below (the same row at the bottom). */
ROWS void NAME(dual_row)(const float *old, const float *u, const float *below, float *new, int w, long s) {
    int padded = (w + 15) & ~15;
    INDEPENDENT
    for (int x = 0; x < padded; x += LANES) {
        NAME(dual)(u + U1 * s + x, below + U1 * s + x, old + P11 * s + x, old + P12 * s + x, new + P11 * s + x,
                   new + P12 * s + x);
        NAME(dual)(u + U2 * s + x, below + U2 * s + x, old + P21 * s + x, old + P22 * s + x, new + P21 * s + x,
                   new + P22 * s + x);
    }
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

/* Cubic weights of the fraction x, A = -0.75, rounded as OpenCV 5 rounds them. */
INLINE void NAME(cubic)(float x, float *w0, float *w1, float *w2, float *w3) {
    float y = 1.0f - x, xx = x * x;
    *w0 = -0.75f * (x * (y * y));
    *w1 = NAME(fused)(NAME(fused)(1.25f, x, -2.25f), xx, 1.0f);
    *w3 = -0.75f * (xx * y);
    *w2 = 1.0f - *w0 - *w1 - *w3;
}

/* a * b + c with one rounding, for the four channels of a pixel. */
INLINE quad NAME(fused_quad)(quad a, float b, quad c) {
#ifdef QUAD_MULADD
    return QUAD_MULADD(a, _mm_set1_ps(b), c);
#else
    return (quad){NAME(fused)(a[0], b, c[0]), NAME(fused)(a[1], b, c[1]), NAME(fused)(a[2], b, c[2]),
                  NAME(fused)(a[3], b, c[3])};
#endif
}

/* Four neighbouring pixels, weighted; the weights lie s apart. */
INLINE quad NAME(sum_taps)(const float *pixels, const float *weight, int s) {
    const loose_quad *tap = (const loose_quad *)pixels;
    quad sum = tap[0] * weight[0];
    sum = NAME(fused_quad)(tap[1], weight[s], sum);
    sum = NAME(fused_quad)(tap[2], weight[2 * s], sum);
    return NAME(fused_quad)(tap[3], weight[3 * s], sum);
}

/* Warp one row: samples `image` (pixels of I1, I1x, I1y, 0 with a border of BORDER zero pixels) at x + u1, y + u2 and
 * fills the row's constants. `scratch` holds 13 rows. */
ROWS void NAME(warp_row)(const float *image, const float *i0, const float *u1, const float *u2, float *data,
                         float *scratch, int y, int w, int h, int s) {
    float *weight = scratch, *warped = scratch + 8 * s;
    int *offset = (int *)(scratch + 12 * s);
    int pitch = w + 2 * BORDER;
    INDEPENDENT
    for (int x = 0; x < w; x++) {
        float px = (float)x + u1[x], py = (float)y + u2[x];
        int ix = (int)px, iy = (int)py;
        ix -= (float)ix > px;
        iy -= (float)iy > py;
        NAME(cubic)(px - (float)ix, weight + x, weight + s + x, weight + 2 * s + x, weight + 3 * s + x);
        NAME(cubic)(py - (float)iy, weight + 4 * s + x, weight + 5 * s + x, weight + 6 * s + x, weight + 7 * s + x);
        ix = ix > -3 ? ix : -3; /* farther out every tap is zero just the same */
        ix = ix < w + 1 ? ix : w + 1;
        iy = iy > -3 ? iy : -3;
        iy = iy < h + 1 ? iy : h + 1;
        offset[x] = (iy - 1 + BORDER) * pitch + ix - 1 + BORDER;
    }
    for (int x = 0; x < w; x++) {
        const float *corner = image + 4L * offset[x], *across = weight + x, *down = weight + 4 * s + x;
        quad sum = NAME(sum_taps)(corner, across, s) * down[0];
        sum = NAME(fused_quad)(NAME(sum_taps)(corner + 4L * pitch, across, s), down[s], sum);
        sum = NAME(fused_quad)(NAME(sum_taps)(corner + 8L * pitch, across, s), down[2 * s], sum);
        sum = NAME(fused_quad)(NAME(sum_taps)(corner + 12L * pitch, across, s), down[3 * s], sum);
        *(loose_quad *)(warped + 4 * x) = sum;
    }
    float *gx = data + IX * s, *gy = data + IY * s, *rho_c = data + RHO * s;
    float *inverse = data + INVERSE * s;
    INDEPENDENT
    for (int x = 0; x < w; x++) {
        float value = warped[4 * x], ix = warped[4 * x + 1], iy = warped[4 * x + 2];
        float square = ix * ix + iy * iy;
        gx[x] = ix;
        gy[x] = iy;
        rho_c[x] = ((value - ix * u1[x]) - iy * u2[x]) - i0[x];
        inverse[x] = square > FLT_EPSILON ? 1.0f / square : 0.0f;
    }
}

/* Medians of the 5 x 5 windows of one row, from five source rows with two replicated pixels at either end. `sorted`
 * holds five rows of `s` floats. */
ROWS void NAME(median_row)(const float *const *rows, float *sorted, float *out, int w, int s) {
    const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3], *r4 = rows[4];
    INDEPENDENT
    for (int x = 0; x < ((w + 4 + 15) & ~15); x++) {
        float v[5] = {r0[x], r1[x], r2[x], r3[x], r4[x]};
        SORT_COLUMN
        sorted[x] = v[0];
        sorted[s + x] = v[1];
        sorted[2 * s + x] = v[2];
        sorted[3 * s + x] = v[3];
        sorted[4 * s + x] = v[4];
    }
    const float *k0 = sorted, *k1 = k0 + s, *k2 = k1 + s, *k3 = k2 + s, *k4 = k3 + s;
    INDEPENDENT
    for (int x = 0; x < ((w + 15) & ~15); x++) {
        float v[25] = {k0[x], k0[x + 1], k0[x + 2], k0[x + 3], k0[x + 4], k1[x], k1[x + 1], k1[x + 2], k1[x + 3],
                       k1[x + 4], k2[x], k2[x + 1], k2[x + 2], k2[x + 3], k2[x + 4], k3[x], k3[x + 1], k3[x + 2],
                       k3[x + 3], k3[x + 4], k4[x], k4[x + 1], k4[x + 2], k4[x + 3], k4[x + 4]};
        FIND_MEDIAN
        out[x] = v[MEDIAN_WIRE];
    }
}

static const struct kernel NAME(kernel) = {NAME(iterate), NAME(warp_row), NAME(median_row)};

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
#undef MAX
#undef MIN
#undef ABS
#undef RSQRT
#undef RCP
#undef IF_LESS
#undef FIRST
#undef QUAD_MULADD
