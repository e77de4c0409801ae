/* A band of rows of one pair, included by tvl1_cluster.cu: what a block of threads keeps of it, and what each thread
 * does in each phase. Between phases the threads of all blocks of the cluster wait for each other.
 */

/* Planes in a block's shared memory. A row follows each plane of u (of the band below), one precedes P12 and P22 (of
 * the band above). Three planes of u take turns: two hold u, the third what the median makes, or an iteration's
 * changes. P11 is not the first, so that the pixel left of column 0 can be read, though it is not used. */
enum { P12, P22, P11, P21, TURNS, PLANES = TURNS + 3 };

/* A block's rows, and where they are. */
struct Band {
    float *memory;
    int rank, blocks, w, h, per; /* per: rows of a full band */
    int row0, rows, n, stride;   /* its first row, its rows and pixels; floats of a plane */
    int u1, u2, spare;           /* where the planes that take turns begin */
};

/* What a thread keeps of its pixels: number k is pixel tid + k * THREADS of the band. */
struct Thread {
    float ix[PIXELS], iy[PIXELS], rho[PIXELS];
    unsigned inside, left, right, last; /* bit k: in the band, in column 0, in the last column, in the last row */
    float error;
};

DEVICE float *plane_of(const Band &b, int plane) {
    return b.memory + plane * b.stride + (plane == P12 || plane == P22 ? b.w : 0);
}

DEVICE Band band_of(float *memory, int rank, int blocks, int w, int h) {
    Band b;
    b.memory = memory;
    b.rank = rank; b.blocks = blocks; b.w = w; b.h = h;
    b.per = (h + blocks - 1) / blocks;
    b.row0 = rank * b.per;
    b.rows = h - b.row0 < b.per ? h - b.row0 : b.per;
    b.rows = b.rows < 0 ? 0 : b.rows;
    b.n = b.rows * w;
    b.stride = (b.per + 1) * w;
    b.u1 = TURNS * b.stride; b.u2 = b.u1 + b.stride; b.spare = b.u2 + b.stride;
    return b;
}

/* Where each of the thread's pixels is, zero p, and u from the flow (2, h, w). */
DEVICE void begin(const Band &b, Thread &t, int tid, const float *flow) {
    t.inside = t.left = t.right = t.last = 0;
    for (int i = tid; i < TURNS * b.stride; i += THREADS)
        b.memory[i] = 0.0f;
    for (int k = 0; k < PIXELS; k++) {
        int i = tid + k * THREADS, y = i / b.w, x = i - y * b.w;
        if (i >= b.n)
            break;
        t.inside |= 1u << k;
        t.left |= (unsigned)(x == 0) << k;
        t.right |= (unsigned)(x == b.w - 1) << k;
        t.last |= (unsigned)(b.row0 + y == b.h - 1) << k;
        b.memory[b.u1 + i] = flow[b.row0 * b.w + i];
        b.memory[b.u2 + i] = flow[(b.h + b.row0) * b.w + i];
    }
}

/* a / b from 1 / b, correctly rounded (Markstein). */
DEVICE float divide(float a, float b, float inverse) {
    float q = MUL(a, inverse);
    return FMA(FMA(-q, b, a), inverse, q);
}

DEVICE float reciprocal(float b) {
    float estimate = RCP(b), miss = FMA(-estimate, b, 1.0f);
    return FMA(FMA(miss, miss, miss), estimate, estimate);
}

/* 1 + TAUT * sqrt(a^2 + b^2), each operation rounded once; false where it may not have been, which is rare. */
DEVICE bool norm_of(float a, float b, float &norm) {
    float big = fmaxf(fabsf(a), fabsf(b)), small = fminf(fabsf(a), fabsf(b));
    float square = FMA(big, big, 1e-30f); /* never 0, and too little to change a norm */
    float sum = FMA(small, small, square);
    float rest = ADD(FMA(small, small, SUB(square, sum)), FMA(big, big, -square)); /* what the sum lacks */
    float inverse = RSQ(sum), root = MUL(sum, inverse), half = MUL(inverse, 0.5f), miss = FMA(-root, half, 0.5f);
    root = FMA(root, miss, root);
    half = FMA(half, miss, half);
    float lacks = MUL(ADD(FMA(-root, root, sum), rest), half); /* of the root, to some 24 bits */
    norm = ADD(MUL(FMA(lacks, 1.0f + DOUBT, root), TAUT), 1.0f);
    return norm == ADD(MUL(FMA(lacks, 1.0f - DOUBT, root), TAUT), 1.0f);
}

/* The same in double, as hypotf is computed; slow. */
DEVICE float exact_norm(float a, float b) {
    return ADD(MUL((float)sqrt((double)a * a + (double)b * b), TAUT), 1.0f);
}

/* u of the thread's pixels from p; leaves each pixel's squared change in the spare plane, and their sum. */
DEVICE void primal(const Band &b, Thread &t, int tid) {
    float *u1 = b.memory + b.u1 + tid, *u2 = b.memory + b.u2 + tid, *change = b.memory + b.spare + tid;
    const float *p11 = plane_of(b, P11) + tid, *p12 = plane_of(b, P12) + tid;
    const float *p21 = plane_of(b, P21) + tid, *p22 = plane_of(b, P22) + tid;
    const float *above1 = p12 - b.w, *above2 = p22 - b.w;
    t.error = 0.0f;
    EACH_PIXEL if (t.inside >> k & 1) {
        const int i = k * THREADS;
        float div1 = ADD(SUB(p11[i], p11[i - 1]), SUB(p12[i], above1[i]));
        float div2 = ADD(SUB(p21[i], p21[i - 1]), SUB(p22[i], above2[i]));
        div1 = t.left >> k & 1 ? SUB(ADD(p11[i], p12[i]), above1[i]) : div1; /* OpenCV adds column 0 in another order */
        div2 = t.left >> k & 1 ? SUB(ADD(p21[i], p22[i]), above2[i]) : div2;
        float ix = t.ix[k], iy = t.iy[k], old1 = u1[i], old2 = u2[i];
        float square = ADD(MUL(ix, ix), MUL(iy, iy)), limit = MUL(square, L_T);
        float rho = ADD(t.rho[k], ADD(MUL(ix, old1), MUL(iy, old2)));
        float step = square > FLAT ? divide(-rho, square, reciprocal(square)) : 0.0f; /* the threshold step */
        step = rho > limit ? -L_T : step;
        step = rho < -limit ? L_T : step;
        float new1 = ADD(ADD(old1, MUL(step, ix)), MUL(div1, THETA));
        float new2 = ADD(ADD(old2, MUL(step, iy)), MUL(div2, THETA));
        float change1 = SUB(new1, old1), change2 = SUB(new2, old2);
        float squared = ADD(MUL(change1, change1), MUL(change2, change2));
        u1[i] = new1;
        u2[i] = new2;
        change[i] = squared;
        t.error += squared;
    }
}

/* The first row of the band's u to the block above, of pixels that this thread wrote itself. */
DEVICE void push_up(const Band &b, int tid, float *above) {
    for (int i = tid; i < b.w && b.n; i += THREADS) {
        above[b.u1 + b.per * b.w + i] = b.memory[b.u1 + i];
        above[b.u2 + b.per * b.w + i] = b.memory[b.u2 + i];
    }
}

/* The last row of the band's p to the block below, likewise. */
DEVICE void push_down(const Band &b, int tid, float *below) {
    const int first = b.n - b.w;
    for (int i = first + ((tid - first) & (THREADS - 1)); i < b.n; i += THREADS) {
        below[P12 * b.stride + i - first] = plane_of(b, P12)[i];
        below[P22 * b.stride + i - first] = plane_of(b, P22)[i];
    }
}

/* The dual variable of one component of the flow from its forward differences. */
DEVICE void dual_step(float dx, float dy, float norm, float &p1, float &p2) {
    float inverse = reciprocal(norm);
    p1 = divide(ADD(p1, MUL(dx, TAUT)), norm, inverse);
    p2 = divide(ADD(p2, MUL(dy, TAUT)), norm, inverse);
}

/* p of the thread's pixels from u. Those whose norm is in doubt are done again, one by one. */
DEVICE void dual(const Band &b, const Thread &t, int tid) {
    const float *u1 = b.memory + b.u1 + tid, *u2 = b.memory + b.u2 + tid, *below1 = u1 + b.w, *below2 = u2 + b.w;
    float *p11 = plane_of(b, P11) + tid, *p12 = plane_of(b, P12) + tid;
    float *p21 = plane_of(b, P21) + tid, *p22 = plane_of(b, P22) + tid;
    unsigned doubtful = 0;
    EACH_PIXEL if (t.inside >> k & 1) {
        const int i = k * THREADS;
        const bool right = t.right >> k & 1, last = t.last >> k & 1;
        float here1 = u1[i], here2 = u2[i], new11 = p11[i], new12 = p12[i], new21 = p21[i], new22 = p22[i];
        float dx1 = right ? 0.0f : SUB(u1[i + 1], here1), dy1 = last ? 0.0f : SUB(below1[i], here1);
        float dx2 = right ? 0.0f : SUB(u2[i + 1], here2), dy2 = last ? 0.0f : SUB(below2[i], here2);
        float norm1, norm2;
        const bool sure1 = norm_of(dx1, dy1, norm1), sure2 = norm_of(dx2, dy2, norm2);
        dual_step(dx1, dy1, norm1, new11, new12);
        dual_step(dx2, dy2, norm2, new21, new22);
        if (sure1 && sure2) {
            p11[i] = new11;
            p12[i] = new12;
            p21[i] = new21;
            p22[i] = new22;
        } else
            doubtful |= 1u << k;
    }
    for (int k = 0; doubtful >> k; k++) {
        const int i = k * THREADS;
        const bool right = t.right >> k & 1, last = t.last >> k & 1;
        if (doubtful >> k & 1) {
            float dx = right ? 0.0f : SUB(u1[i + 1], u1[i]), dy = last ? 0.0f : SUB(below1[i], u1[i]);
            dual_step(dx, dy, exact_norm(dx, dy), p11[i], p12[i]);
            dx = right ? 0.0f : SUB(u2[i + 1], u2[i]);
            dy = last ? 0.0f : SUB(below2[i], u2[i]);
            dual_step(dx, dy, exact_norm(dx, dy), p21[i], p22[i]);
        }
    }
}

/* Medians of the 5 x 5 windows, edges replicated, of the plane at `from` into that at `to`. A window reaches two rows
 * into the neighbouring bands, whose blocks' memory is `above` and `below`. */
DEVICE void medians(const Band &b, const Thread &t, int tid, int from, int to, const float *above, const float *below) {
    for (int k = 0; k < PIXELS && t.inside >> k & 1; k++) {
        const int i = tid + k * THREADS, y = i / b.w, x = i - y * b.w;
        float v[25];
        UNROLL for (int j = 0; j < 5; j++) {
            int row = y + j - 2;
            row = row < -b.row0 ? -b.row0 : row > b.h - 1 - b.row0 ? b.h - 1 - b.row0 : row;
            const float *line = b.memory;
            if (row < 0) { line = above; row += b.per; }
            else if (row >= b.per) { line = below; row -= b.per; }
            line += from + row * b.w;
            UNROLL for (int c = 0; c < 5; c++) {
                int column = x + c - 2;
                v[5 * j + c] = line[column < 0 ? 0 : column > b.w - 1 ? b.w - 1 : column];
            }
        }
        UNROLL for (int c = 0; c < 5; c++) {
            float w5[5] = {v[c], v[5 + c], v[10 + c], v[15 + c], v[20 + c]};
            { float *v = w5; SORT_COLUMN }
            v[c] = w5[0]; v[5 + c] = w5[1]; v[10 + c] = w5[2]; v[15 + c] = w5[3]; v[20 + c] = w5[4];
        }
        FIND_MEDIAN
        b.memory[to + i] = v[MEDIAN_WIRE];
    }
}

/* Weights of the four taps around the fraction x, rounded as cv2.remap of OpenCV 5 rounds them. */
DEVICE void cubic(float x, float *weight) {
    float y = SUB(1.0f, x), xx = MUL(x, x);
    weight[0] = MUL(-0.75f, MUL(x, MUL(y, y)));
    weight[1] = FMA(FMA(1.25f, x, -2.25f), xx, 1.0f);
    weight[3] = MUL(-0.75f, MUL(xx, y));
    weight[2] = SUB(SUB(SUB(1.0f, weight[0]), weight[1]), weight[3]);
}

/* One plane sampled at tap (x, y) with the weights; zero outside the image. */
DEVICE float sample(const float *image, int w, int h, int x, int y, const float *across, const float *down) {
    float total = 0.0f;
    UNROLL for (int j = 0; j < 4; j++) {
        const bool inside = y + j - 1 >= 0 && y + j - 1 < h;
        const float *row = image + (y + j - 1) * w + x - 1;
        float line = 0.0f;
        UNROLL for (int i = 0; i < 4; i++) {
            float tap = inside && x + i - 1 >= 0 && x + i - 1 < w ? row[i] : 0.0f;
            line = i ? FMA(tap, across[i], line) : MUL(tap, across[0]);
        }
        total = j ? FMA(line, down[j], total) : MUL(line, down[0]);
    }
    return total;
}

/* Gradient and constant part of the brightness error where u points, from planes (3, h, w): the later image and its
 * gradient, and the earlier image i0 (h, w). */
DEVICE void warp(const Band &b, Thread &t, int tid, const float *planes, const float *i0) {
    for (int at = 0; at < PIXELS && t.inside >> at & 1; at++) {
        const int i = tid + at * THREADS, yb = i / b.w, x = i - yb * b.w, y = b.row0 + yb;
        float u1 = b.memory[b.u1 + i], u2 = b.memory[b.u2 + i];
        float px = ADD((float)x, u1), py = ADD((float)y, u2), fx = floorf(px), fy = floorf(py), across[4], down[4];
        cubic(SUB(px, fx), across);
        cubic(SUB(py, fy), down);
        /* farther out every tap is zero just the same */
        int x0 = (int)fminf(fmaxf(fx, -3.0f), (float)(b.w + 1)), y0 = (int)fminf(fmaxf(fy, -3.0f), (float)(b.h + 1));
        const int n = b.w * b.h;
        float later = sample(planes, b.w, b.h, x0, y0, across, down);
        float ix = sample(planes + n, b.w, b.h, x0, y0, across, down);
        float iy = sample(planes + 2 * n, b.w, b.h, x0, y0, across, down);
        float rho = SUB(SUB(SUB(later, MUL(ix, u1)), MUL(iy, u2)), i0[y * b.w + x]);
        EACH_PIXEL { /* registers have no index at run time */
            t.ix[k] = k == at ? ix : t.ix[k];
            t.iy[k] = k == at ? iy : t.iy[k];
            t.rho[k] = k == at ? rho : t.rho[k];
        }
    }
}

/* The sum of a band's changes added to `sum` one after the other in float, as OpenCV does. */
DEVICE float ordered_sum(const Band &b, float sum) {
    const float *change = b.memory + b.spare;
    for (int i = 0; i < b.n; i++)
        sum = ADD(sum, change[i]);
    return sum;
}

/* OpenCV's float sum is within a rounding for each term of the true one, ours within far fewer. */
DEVICE bool in_doubt(const Band &b, double total, float bound) {
    const double doubt = (b.w + 2.0) * (b.h + 2.0) / (1 << 24);
    return total > bound * (1.0 - doubt) && total <= bound * (1.0 + doubt);
}

/* After the medians of u1 and of u2: which planes hold them. */
DEVICE void turn(Band &b, int &plane) {
    const int made = b.spare;
    b.spare = plane;
    plane = made;
}
