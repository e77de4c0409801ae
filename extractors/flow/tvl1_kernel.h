/* Row kernels of TV-L1, included by tvl1_variants.h once per instruction set.
 *
 * Before each inclusion tvl1_variants.h defines
 *   NAME(f)  the function's name in this variant
 *   TARGET   the attribute that selects the instruction set, or nothing
 *   FUSED    1 where the hardware multiplies and adds with one rounding
 *   LANES    floats in a VEC, then VEC, LOAD, STORE, FILL, MULADD (a * b + c), IF_LESS (a < b ? yes : no) and FIRST
 *            (lane 0 of a, the rest of the other); where LANES > 1 MULADD rounds once, and there are MAX_ABS and MIN_ABS
 *            (of either sign), DIFFER (whether any lane does), the estimate RSQRT and QUAD_MULADD; and the estimate RCP
 *            where two quotients come sooner from it than from two divisions
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
    return (float)((double)a * b + c); /* the product is exact in double; the sum rounds twice in one of 2^29 cases */
#endif
}

#if LANES > 1
/* A norm in double precision, as hypotf computes it; slow. */
ROWS VEC NAME(exact_norm)(VEC dx, VEC dy) {
    float a[LANES], b[LANES];
    STORE(a, dx);
    STORE(b, dy);
    for (int i = 0; i < LANES; i++)
        a[i] = (float)__builtin_sqrt((double)a[i] * a[i] + (double)b[i] * b[i]) * TAUT + 1.0f;
    return LOAD(a);
}

/* norm[k] = TAUT * sqrt(dx[k]^2 + dy[k]^2) + 1 for the n chains. One root in some ten million lies so close to the middle
 * of two floats that float arithmetic cannot tell how it rounds, and one that rounds otherwise than OpenCV's may grow to
 * pixels where a pair hardly settles; norms in doubt are computed again in double.
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
    EACH(n) rest[k] = (MULADD(-root[k], root[k], sum[k]) + rest[k]) * half[k]; /* what the root lacks */
    EACH(n) norm[k] = MULADD(rest[k], FILL(1.0f + ROOT_DOUBT), root[k]) * TAUT + 1.0f;
    EACH(n) root[k] = MULADD(rest[k], FILL(1.0f - ROOT_DOUBT), root[k]) * TAUT + 1.0f;
    EACH(n) if (__builtin_expect(DIFFER(norm[k], root[k]), 0)) norm[k] = NAME(exact_norm)(dx[k], dy[k]);
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

/* Warping a row; samples are bicubic. */

/* Cubic weights of the fraction x, A = -0.75, rounded as OpenCV 5 rounds them. */
INLINE void NAME(cubic)(float x, float *w0, float *w1, float *w2, float *w3) {
    float y = 1.0f - x, xx = x * x;
    float a = -0.75f * (x * (y * y)), b = NAME(fused)(NAME(fused)(1.25f, x, -2.25f), xx, 1.0f), d = -0.75f * (xx * y);
    *w0 = a;
    *w1 = b;
    *w2 = 1.0f - a - b - d;
    *w3 = d;
}

/* a * b + c with one rounding, for the four channels of a pixel. */
INLINE quad NAME(fused_quad)(quad a, float b, quad c) {
#ifdef QUAD_MULADD
    return QUAD_MULADD(a, b, c);
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

/* Samples of one pixel from the interleaved image: four channels a tap. */
INLINE void NAME(sample)(const float *corner, long pitch, const float *across, const float *down, float *warped, int s) {
    quad sum = NAME(sum_taps)(corner, across, s) * down[0];
    sum = NAME(fused_quad)(NAME(sum_taps)(corner + 4 * pitch, across, s), down[s], sum);
    sum = NAME(fused_quad)(NAME(sum_taps)(corner + 8 * pitch, across, s), down[2 * s], sum);
    sum = NAME(fused_quad)(NAME(sum_taps)(corner + 12 * pitch, across, s), down[3 * s], sum);
    warped[0] = sum[0];
    warped[s] = sum[1];
    warped[2 * s] = sum[2];
}

#if LANES == 16
/* Samples of 16 neighbouring pixels from the planes, tap by tap from two registers of a row; returns 0, having done
 * nothing, where the motion spreads their taps too far for that. */
INLINE int NAME(sample_block)(const float *planes, long plane, long pitch, const int *ix, const int *iy,
                              const float *across, const float *down, float *warped, int s) {
    const long left = ix[8] - 14, top = iy[8] - 1;
    const __m512i rows = _mm512_sub_epi32(_mm512_loadu_si512(iy), _mm512_set1_epi32((int)top));
    const __m512i tap = _mm512_sub_epi32(_mm512_loadu_si512(ix), _mm512_set1_epi32((int)left + 1));
    /* where the 4 x 4 taps begin: up to two rows below `top`, up to 28 columns right of `left` */
    if (_mm512_cmpgt_epu32_mask(tap, _mm512_set1_epi32(28)) | _mm512_cmpgt_epu32_mask(rows, _mm512_set1_epi32(2)))
        return 0;
    const __mmask16 begins[3] = {_mm512_cmpeq_epi32_mask(rows, _mm512_setzero_si512()),
                                 _mm512_cmpeq_epi32_mask(rows, _mm512_set1_epi32(1)),
                                 _mm512_cmpeq_epi32_mask(rows, _mm512_set1_epi32(2))};
    const int first = begins[0] ? 0 : begins[1] ? 1 : 2, last = begins[2] ? 2 : begins[1] ? 1 : 0;
    __m512i taps[4];
    for (int k = 0; k < 4; k++)
        taps[k] = _mm512_add_epi32(tap, _mm512_set1_epi32(k));
    const float *row = planes + (top - 1 + first + BORDER) * pitch + left + BORDER;
    __m512 sums[3];
    for (int c = 0; c < 3; c++)
        sums[c] = FILL(-0.0f); /* what a sum starts from to be a product, to the sign */
    for (int r = first; r < last + 4; r++, row += pitch) {
        __mmask16 within = 0;
        __m512 weight = FILL(0.0f);
        for (int b = first; b <= last; b++)
            if (r - b >= 0 && r - b < 4) {
                weight = _mm512_mask_loadu_ps(weight, begins[b], down + (r - b) * s);
                within |= begins[b];
            }
        for (int c = 0; c < 3; c++) {
            const __m512 near = LOAD(row + c * plane), far = LOAD(row + c * plane + 16);
            __m512 sum = _mm512_permutex2var_ps(near, taps[0], far) * LOAD(across);
            for (int k = 1; k < 4; k++)
                sum = MULADD(_mm512_permutex2var_ps(near, taps[k], far), LOAD(across + k * s), sum);
            sums[c] = _mm512_mask3_fmadd_ps(sum, weight, sums[c], within);
        }
    }
    for (int c = 0; c < 3; c++)
        STORE(warped + c * s, sums[c]);
    return 1;
}
#endif

/* Warp one row: samples I1, I1x and I1y at x + u1, y + u2 and fills the row's constants. They lie in `image` as pixels
 * of four, and in `planes` as planes, both with BORDER zero pixels around. `scratch` holds 13 rows. */
ROWS void NAME(warp_row)(const float *image, const float *planes, const float *i0, const float *u1, const float *u2,
                         float *data, float *scratch, int y, int w, int h, int s) {
    float *across = scratch, *down = scratch + 4 * s, *warped = scratch + 8 * s;
    int *left = (int *)(scratch + 11 * s), *top = (int *)(scratch + 12 * s);
    const long pitch = w + 2 * BORDER;
    INDEPENDENT
    for (int x = 0; x < w; x++) {
        float px = (float)x + u1[x], py = (float)y + u2[x];
        int ix = (int)px, iy = (int)py;
        ix -= (float)ix > px;
        iy -= (float)iy > py;
        NAME(cubic)(px - (float)ix, across + x, across + s + x, across + 2 * s + x, across + 3 * s + x);
        NAME(cubic)(py - (float)iy, down + x, down + s + x, down + 2 * s + x, down + 3 * s + x);
        ix = ix > -3 ? ix : -3; /* farther out every tap is zero just the same */
        ix = ix < w + 1 ? ix : w + 1;
        iy = iy > -3 ? iy : -3;
        iy = iy < h + 1 ? iy : h + 1;
        left[x] = ix;
        top[x] = iy;
    }
    for (int x = 0; x < w;) {
        int end = x + 16 < w ? x + 16 : w;
#if LANES == 16
        const int at = end - 16; /* the last block goes over pixels that were done */
        if (w >= 16 && NAME(sample_block)(planes, pitch * (h + 2 * BORDER), pitch, left + at, top + at, across + at,
                                            down + at, warped + at, s))
            x = end;
#endif
        for (; x < end; x++)
            NAME(sample)(image + 4 * ((top[x] - 1 + BORDER) * pitch + left[x] - 1 + BORDER), pitch, across + x,
                         down + x, warped + x, s);
    }
    (void)planes;
    const float *later = warped, *ix = warped + s, *iy = warped + 2 * s;
    float *gx = data + IX * s, *gy = data + IY * s, *rho_c = data + RHO * s;
    INDEPENDENT
    for (int x = 0; x < w; x++) {
        gx[x] = ix[x];
        gy[x] = iy[x];
        rho_c[x] = ((later[x] - ix[x] * u1[x]) - iy[x] * u2[x]) - i0[x];
    }
}

/* The 5 x 5 median of a plane: two rows at a time, in place. A row's windows of five
 * are sorted once, two such rows are merged once, and both serve every window that they are part of.
 */

#define WINDOW(row) {row[x], row[x + 1], row[x + 2], row[x + 3], row[x + 4]}
#define FIVE(p) (p)[x], (p)[s + x], (p)[2 * s + x], (p)[3 * s + x], (p)[4 * s + x]
#define STORE_FIVE(p, a, i) \
    (p)[x] = a[i], (p)[s + x] = a[i + 1], (p)[2 * s + x] = a[i + 2], (p)[3 * s + x] = a[i + 3], (p)[4 * s + x] = a[i + 4]

INLINE void NAME(sort_five)(float *v) { SORT_COLUMN }

/* The sixth of the eleven values in `middle` (6) and `row` (5), both sorted. */
INLINE float NAME(sixth)(const float *middle, const float *row) {
    float v[11] = {middle[0], middle[1], middle[2], middle[3], middle[4], middle[5],
                   row[4], row[3], row[2], row[1], row[0]};
    HIGH(6, 0) HIGH(7, 1) HIGH(8, 2) HIGH(9, 3) HIGH(10, 4) LOW(0, 1) LOW(2, 3) LOW(4, 5) LOW(0, 2) LOW(0, 4)
    return v[0];
}

/* Windows of five of one row, sorted: the k-th smallest in sorted[k * s + x]. */
ROWS void NAME(sort_row)(const float *row, float *sorted, int w, long s) {
    INDEPENDENT
    for (int x = 0; x < ((w + 15) & ~15); x++) {
        float v[5] = WINDOW(row);
        NAME(sort_five)(v);
        STORE_FIVE(sorted, v, 0);
    }
}

/* Medians of rows y and y + 1 from rows y + 2 and y + 3, and from what was sorted before: `first` is row y - 2 and becomes
 * y + 2, `last` is y + 1 and becomes y + 3, `merged` is y - 1 with y and becomes y + 1 with y + 2. */
ROWS void NAME(median_rows)(const float *row2, const float *row3, float *first, float *last, float *merged, float *out0,
                            float *out1, int w, long s) {
    INDEPENDENT
    for (int x = 0; x < ((w + 15) & ~15); x++) {
        const float begin[5] = {FIVE(first)};
        float row[5] = WINDOW(row2), end[5] = WINDOW(row3);
        NAME(sort_five)(row);
        NAME(sort_five)(end);
        float v[20] = {FIVE(last), row[1], row[2], row[3], row[0], row[4], FIVE(merged), FIVE(merged + 5 * s)};
        MERGE_ROWS
        STORE_FIVE(merged, v, 0);
        STORE_FIVE(merged + 5 * s, v, 5);
        STORE_FIVE(first, row, 0);
        STORE_FIVE(last, end, 0);
        FIND_MIDDLE
        const float middle[6] = {MIDDLE};
        out0[x] = NAME(sixth)(middle, begin);
        out1[x] = NAME(sixth)(middle, end);
    }
}

#undef WINDOW
#undef FIVE
#undef STORE_FIVE

/* Row y of a plane with two replicated pixels at either end; the row nearest to y where it lies outside. */
INLINE const float *NAME(widen)(const float *plane, long pitch, float *wide, int y, int w, int h) {
    const float *row = plane + (y < h ? y : h - 1) * pitch;
    wide[0] = wide[1] = row[0];
    memcpy(wide + 2, row, sizeof(float) * w);
    wide[w + 2] = wide[w + 3] = row[w - 1];
    return wide;
}

/* Replace a plane, whose rows lie `pitch` apart, by its median. `scratch` holds MEDIAN_ROWS rows of `s` floats. */
ROWS void NAME(median)(float *plane, long pitch, float *scratch, int w, int h, int s) {
    float *wide = scratch, *first = wide + 2 * s, *next = first + 5 * s, *last = next + 5 * s, *merged = last + 5 * s;
    NAME(sort_row)(NAME(widen)(plane, pitch, wide, 0, w, h), first, w, s); /* above the plane all rows are row 0 */
    NAME(sort_row)(NAME(widen)(plane, pitch, wide, 1, w, h), last, w, s);
    memcpy(next, first, sizeof(float) * 5 * s);
    EACH(10) memcpy(merged + k * s, first + k / 2 * s, sizeof(float) * s);
    for (int y = 0; y < h; y += 2) {
        const float *row2 = NAME(widen)(plane, pitch, wide, y + 2, w, h);
        const float *row3 = NAME(widen)(plane, pitch, wide + s, y + 3, w, h);
        float *out = plane + y * pitch;
        NAME(median_rows)(row2, row3, first, last, merged, out, y + 1 < h ? out + pitch : merged + 10 * s, w, s);
        float *t = first;
        first = next;
        next = t;
    }
}

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
#undef DIFFER
#undef RCP
#undef IF_LESS
#undef FIRST
#undef QUAD_MULADD
