/* Warping a row of TV-L1, included by tvl1_kernel.h; samples are bicubic. */

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
