/* The 5 x 5 median of a plane of TV-L1, included by tvl1_kernel.h: two rows at a time, in place. A row's windows of five
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
