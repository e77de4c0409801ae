/* TV-L1 at one scale, included by tvl1_variants.h: its memory, the median, the loops and when they end.
 *
 * Speed comes from doing several iterations in one pass over the rows (iteration j one row behind iteration j - 1), and
 * in place, so that the state is read and written once a pass and fits the caches. An earlier state is kept: a pass that
 * went beyond the stopping iteration is done again from there, shorter.
 */

#define SLACK 64 /* floats between the parts of the workspace */
#define MARGIN 1.3 /* only while the error is expected above this many bounds another iteration joins a pass */
#define RISKY 1.1 /* with an error below this many bounds the state is kept, as the next may be in doubt or too far, */
#define BEHIND 6 /* where the one kept before is at least so many iterations behind */
#define SLOWEST 0.9 /* errors are taken to shrink at least so fast, or a pass would go too far too often */

/* The parts of one scale's memory. */
struct field {
    int w, h, s; /* width, height, and floats from a row of one plane to the same row of the next plane */
    float *old, *new; /* state before and after a pass; a row of zeros lies above each */
    float *data, *errors, *image, *planes, *rows;
};

/* Lay the parts out from `memory` on; returns how many floats they take. */
static size_t lay_out(struct field *f, float *memory, int w, int h) {
    size_t s = (w + 1 + 15) & ~15, state = (h + 1) * STATE_PLANES * s + SLACK;
    *f = (struct field){.w = w, .h = h, .s = (int)s};
    size_t at = SLACK;
#define PART(name, size) f->name = memory + at; at += (((size) + 15) & ~(size_t)15) + SLACK;
    PART(old, state)
    PART(new, state)
    PART(data, h * DATA_PLANES * s)
    PART(errors, MAX_STEPS * s)
    PART(image, 4 * (w + 2 * BORDER) * (size_t)(h + 2 * BORDER))
    PART(planes, 3 * (w + 2 * BORDER) * (size_t)(h + 2 * BORDER))
    PART(rows, MEDIAN_ROWS * (s + 32))
    f->old += STATE_PLANES * s;
    f->new += STATE_PLANES * s;
    return at;
}

static float *row_of(const struct field *f, float *state, int y) { return state + (long)y * STATE_PLANES * f->s; }

/* Zeros around an image of w x h pixels of `floats` each, which begins BORDER pixels and rows into the memory. */
static void clear_border(float *memory, long w, long h, long floats) {
    const long pitch = (w + 2 * BORDER) * floats, side = BORDER * floats;
    memset(memory, 0, sizeof(float) * (BORDER * pitch + side));
    for (long y = BORDER; y < h + BORDER; y++) /* the right side of a row and the left side of the next */
        memset(memory + (y + 1) * pitch - side, 0, sizeof(float) * 2 * side);
    memset(memory + (h + BORDER) * pitch + side, 0, sizeof(float) * (BORDER * pitch - side));
}

/* Store I1 and its centred gradient (one-sided at the edges, still halved) inside a border of zeros. */
static void prepare_image(const struct field *f, const float *i1) {
    const long w = f->w, h = f->h, pitch = w + 2 * BORDER, plane = pitch * (h + 2 * BORDER);
    clear_border(f->image, w, h, 4);
    for (int c = 0; c < 3; c++)
        clear_border(f->planes + c * plane, w, h, 1);
    for (long y = 0; y < h; y++) {
        const float *here = i1 + y * w, *above = y ? here - w : here, *below = y < h - 1 ? here + w : here;
        const long start = (y + BORDER) * pitch + BORDER;
        float *value = f->planes + start, *across = value + plane, *down = across + plane, *pixel = f->image + 4 * start;
        memcpy(value, here, sizeof(float) * w);
        across[0] = 0.5f * (here[1] - here[0]);
        across[w - 1] = 0.5f * (here[w - 1] - here[w - 2]);
        INDEPENDENT
        for (long x = 1; x < w - 1; x++)
            across[x] = 0.5f * (here[x + 1] - here[x - 1]);
        INDEPENDENT
        for (long x = 0; x < w; x++)
            down[x] = 0.5f * (below[x] - above[x]);
        INDEPENDENT
        for (long x = 0; x < w; x++) {
            pixel[4 * x] = value[x];
            pixel[4 * x + 1] = across[x];
            pixel[4 * x + 2] = down[x];
            pixel[4 * x + 3] = 0.0f;
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

/* How far one inner loop has come. */
struct progress {
    int n, kept; /* iterations done, and those done in the state kept in `old`; where n > kept, `new` holds state n */
    double errors[INNER]; /* the squared change of each iteration, summed in an order of its own */
};

/* The next iterations, into `new`. */
static void pass(const struct kernel *kernel, const struct field *f, struct progress *at, int steps) {
    memset(f->errors, 0, sizeof(float) * steps * f->s);
    kernel->iterate(at->n > at->kept ? f->new : f->old, f->new, f->data, f->errors, steps, f->w, f->h, f->s);
    for (int j = 0; j < steps; j++) {
        double error = 0.0;
        for (int x = 0; x < f->w; x++)
            error += f->errors[(long)j * f->s + x];
        at->errors[at->n++] = error;
    }
}

/* Keep the present state. */
static void keep(struct field *f, struct progress *at) {
    if (at->n > at->kept) {
        float *t = f->old;
        f->old = f->new;
        f->new = t;
    }
    at->kept = at->n;
}

/* Exactly n iterations, from the state kept. */
static void replay(const struct kernel *kernel, const struct field *f, struct progress *at, int n) {
    at->n = at->kept;
    while (at->n < n)
        pass(kernel, f, at, n - at->n < MAX_STEPS ? n - at->n : MAX_STEPS);
}

/* How many iterations to risk in one pass: the errors of all but the last are expected well above the bound. Loops of a
 * scale resemble each other: errors are taken to go as in the loop `before`, and on from its end at the last ratio. */
static int steps_ahead(const struct progress *at, const struct progress *before, double bound) {
    const double *errors = at->errors + at->n, *then = before->errors;
    double next = at->n ? errors[-1] : 0.0, ratio = at->n > 1 ? errors[-1] / errors[-2] : 0.5;
    if (ratio > SLOWEST)
        ratio = SLOWEST;
    for (int steps = 1; steps < MAX_STEPS; steps++) {
        int i = at->n + steps - 1;
        if (i < before->n)
            next = i ? next * (then[i] / then[i - 1]) : then[0];
        else
            next *= ratio;
        if (next <= MARGIN * bound)
            return steps;
    }
    return MAX_STEPS;
}

/* Up to INNER iterations; returns whether the change fell to the bound, which ends the warp. `before` is the loop before,
 * with n = 0 where there was none whose change fell, and becomes this one. */
static int inner_loop(const struct kernel *kernel, struct field *f, struct progress *before) {
    const float bound = (float)(EPSILON * EPSILON * ((double)f->w * f->h));
    /* OpenCV's float sum is within a rounding for each term of the true one, ours within two for each row */
    const double doubt = ((double)f->w + 2.0) * (f->h + 2.0) / (1 << 24);
    struct progress at = {0};
    int ended = 0, alone = 0; /* alone: the next iteration must be a pass of its own, from a state that is kept */
    while (at.n < INNER && !ended) {
        int start = at.n, steps = alone ? 1 : steps_ahead(&at, before, bound), stop = start;
        if (steps > INNER - start)
            steps = INNER - start;
        if (alone || (start - at.kept >= BEHIND && at.errors[start - 1] < RISKY * bound))
            keep(f, &at);
        pass(kernel, f, &at, steps);
        while (stop < at.n && at.errors[stop] > bound * (1.0 + doubt))
            stop++;
        if (stop == at.n)
            alone = 0;
        else if (at.errors[stop] < bound * (1.0 - doubt)) {
            if (stop < at.n - 1) /* went too far */
                replay(kernel, f, &at, stop + 1);
            ended = 1;
        } else if (alone) { /* in doubt: decided by the sum in OpenCV's order, from the states around it */
            ended = exact_error(f) <= bound;
            alone = 0;
        } else {
            replay(kernel, f, &at, stop);
            alone = 1;
        }
    }
    keep(f, &at);
    *before = at;
    if (!ended)
        before->n = 0;
    return ended;
}

/* Improve the flow (u1, u2) from i0 to i1 at one scale. */
static void solve(const struct kernel *kernel, const float *i0, const float *i1, float *u1, float *u2, float *memory,
                  int w, int h) {
    struct field f;
    lay_out(&f, memory, w, h);
    const size_t row = sizeof(float) * STATE_PLANES * f.s;
    memset(row_of(&f, f.old, -1), 0, row * (h + 1));
    memset(row_of(&f, f.new, -1), 0, row);
    prepare_image(&f, i1);
    for (int y = 0; y < h; y++) {
        memcpy(row_of(&f, f.old, y), u1 + (long)y * w, sizeof(float) * w);
        memcpy(row_of(&f, f.old, y) + f.s, u2 + (long)y * w, sizeof(float) * w);
    }
    struct progress loop = {0};
    for (int warp = 0; warp < WARPS; warp++) {
        for (int y = 0; y < h; y++) {
            const float *u = row_of(&f, f.old, y);
            kernel->warp_row(f.image, f.planes, i0 + (long)y * w, u, u + f.s, f.data + (long)y * DATA_PLANES * f.s, f.rows, y, w,
                             h, f.s);
        }
        for (int outer = 0; outer < OUTER; outer++) {
            kernel->median(f.old + U1 * f.s, STATE_PLANES * f.s, f.rows, w, h, f.s + 32);
            kernel->median(f.old + U2 * f.s, STATE_PLANES * f.s, f.rows, w, h, f.s + 32);
            if (inner_loop(kernel, &f, &loop))
                break;
        }
    }
    for (int y = 0; y < h; y++) {
        memcpy(u1 + (long)y * w, row_of(&f, f.old, y), sizeof(float) * w);
        memcpy(u2 + (long)y * w, row_of(&f, f.old, y) + f.s, sizeof(float) * w);
    }
}
