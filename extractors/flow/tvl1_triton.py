"""One scale of TV-L1 for a batch of pairs as three Triton kernels, for extractors/flow/tvl1_gpu.py on a CUDA device.

Warp and median filter take one launch each, and so do all of the up to 30 inner iterations. The GPU runs as many
programs as fit at once. They share the pixels of all pairs that have not converged, and wait for each other after each
iteration, so that no pair is iterated after it has converged. The launch ends when all pairs have converged. An
iteration reads u, p and the warp's data, and writes the other copy of u and p: 60 bytes per pixel; neighbouring rows
come from the cache. Rounding is the same as in tvl1.c except for one square root in ten million. The error is summed in
integers, because their sum does not depend on the order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lstr.extractors.flow import tvl1
from lstr.extractors.flow.tvl1 import MEDIAN_WIRE, OUTER, WARPS, comparators

INNER = tl.constexpr(tvl1.INNER)
TAUT = tl.constexpr(tvl1.TAUT)
L_T = tl.constexpr(tvl1.L_T)
THETA = tl.constexpr(tvl1.THETA)
FLAT = tl.constexpr(tvl1.FLAT)
UNIT = tl.constexpr(2.0**32)  # integer scale of the summed squared change; a tile that moves adds at least one
MOVES = 2**62  # initial error, above every bound
# wire 5 k + c holds row k and column c of a window: sort each column, then find the median
NETWORK = [(5 * i + c, 5 * j + c) for c in range(5) for i, j in comparators("SORT_COLUMN")]
NETWORK += comparators("FIND_MEDIAN")
# packed in ten bits per comparator: kernels can read global integers, but tuples only in newer versions of Triton
WIRES = tl.constexpr(sum((i | j << 5) << 10 * c for c, (i, j) in enumerate(NETWORK)))
COMPARATORS = tl.constexpr(len(NETWORK))
OUT_WIRE = tl.constexpr(MEDIAN_WIRE)
SIZES = ("h", "w", "n_pairs")  # not specialised: one compilation serves all values
BUSY = tl.constexpr(65536)  # a barrier's counter: arrived programs in the lower 16 bits, programs with work above

TILE = tl.constexpr(512)  # pixels that a program works on at a time, one per thread
PROGRAMS_PER_PROCESSOR = 2  # with REGISTERS per thread this many can always run at once
REGISTERS = 64  # per thread; the kernel needs no more


def solve_scale(i0: Tensor, i1: Tensor, u: Tensor) -> Tensor:
    """Return the flow u (B, 2, H, W) float32, refined at one scale of the images i0, i1 (B, H, W) float32."""
    n_pairs, h, w = i0.shape
    n = h * w
    planes = tvl1.image_planes(i1)
    flow = u.new_empty(3, n_pairs, 2, n)  # two alternating copies, and the output of the median filter
    flow[0] = u.flatten(2)
    dual = u.new_zeros(2, n_pairs, 4, n)
    data = u.new_empty(n_pairs, 3, n)
    # the squared change after each iteration; zero after the pair has converged
    errors = torch.zeros(WARPS, OUTER * INNER.value + 1, n_pairs, dtype=torch.int64, device=u.device)
    errors[:, 0] = MOVES
    arrivals = torch.zeros(WARPS, OUTER, triton.next_power_of_2(INNER.value), dtype=torch.int32, device=u.device)
    bound = tvl1.stop_bound(h, w) * UNIT.value
    tiles = triton.cdiv(n, TILE.value)
    at_once = 1  # Triton's interpreter runs programs in sequence
    if u.device.type == "cuda":  # programs wait for each other, so all must run at once
        at_once = PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(u.device).multi_processor_count
    programs = min(at_once, n_pairs * tiles)
    strict = dict(enable_fp_fusion=False, num_warps=TILE.value // 32)
    for warp in range(WARPS):
        warp_kernel[tiles, n_pairs](planes, i0, flow, data, h, w, **strict)
        for outer in range(OUTER):
            step = outer * INNER.value
            median_kernel[tiles, 2 * n_pairs](flow, errors[warp, step], h, w, n_pairs, bound, **strict)
            iterate_kernel[programs,](
                flow, dual, data, errors[warp, step], arrivals[warp, outer], h, w, n_pairs, bound,
                launch_cooperative_grid=programs > 1, maxnreg=REGISTERS, **strict,
            )  # fmt: skip
    return flow[0].view(u.shape)


@triton.jit
def primal(u, p, data, at, n, inside, first, left, above):
    """Return old and new u1, u2 and the dual p of pixels `at`.

    `first` marks column 0, which OpenCV sums in another order. `left` has p11 and p21 of the pixels to the left,
    `above` p12 and p22 of the pixels above.
    """
    u1, u2 = tl.load(u + at, inside, 0.0), tl.load(u + n + at, inside, 0.0)
    p11, p12 = tl.load(p + at, inside, 0.0), tl.load(p + n + at, inside, 0.0)
    p21, p22 = tl.load(p + 2 * n + at, inside, 0.0), tl.load(p + 3 * n + at, inside, 0.0)
    ix, iy = tl.load(data + at, inside, 0.0), tl.load(data + n + at, inside, 0.0)
    div1 = tl.where(first, (p11 + p12) - above[0], (p11 - left[0]) + (p12 - above[0]))
    div2 = tl.where(first, (p21 + p22) - above[1], (p21 - left[1]) + (p22 - above[1]))
    square = ix * ix + iy * iy
    limit = square * L_T
    rho = tl.load(data + 2 * n + at, inside, 0.0) + (ix * u1 + iy * u2)
    factor = tl.where(square > FLAT, tl.div_rn(-rho, tl.where(square > FLAT, square, 1.0)), 0.0)
    factor = tl.where(rho > limit, -L_T, factor)
    factor = tl.where(rho < -limit, L_T, factor)
    new1 = (u1 + factor * ix) + div1 * THETA
    new2 = (u2 + factor * iy) + div2 * THETA
    return u1, u2, new1, new2, p11, p12, p21, p22


@triton.jit
def dual_step(dx, dy, p1, p2):
    """Return the dual variable of one flow component from its forward differences."""
    big, small = tl.maximum(tl.abs(dx), tl.abs(dy)), tl.minimum(tl.abs(dx), tl.abs(dy))
    square = big * big
    total = tl.fma(small, small, square)
    rest = tl.fma(small, small, square - total) + tl.fma(big, big, -square)  # rounding error of `total`
    root = tl.sqrt_rn(total)
    miss = tl.fma(-root, root, total) + rest
    root += miss * (0.5 / tl.maximum(root, 1e-15))  # as if rounded once, like hypot in OpenCV
    norm = root * TAUT + 1.0
    return tl.div_rn(p1 + dx * TAUT, norm), tl.div_rn(p2 + dy * TAUT, norm)


@triton.jit
def wait_for_all(arrival, busy):
    """Wait until all programs have arrived and their writes are visible. Returns the number of `busy` programs."""
    tl.debug_barrier()
    tl.atomic_add(arrival, 1 + busy * BUSY, sem="release")
    seen = tl.atomic_add(arrival, 0, sem="acquire")  # one request per program; a load would take one per warp
    while seen % BUSY < tl.num_programs(0):
        seen = tl.atomic_add(arrival, 0, sem="acquire")
    tl.debug_barrier()
    return seen // BUSY


@triton.jit(do_not_specialize=SIZES)
def iterate_kernel(flow, dual, data, errors, arrivals, h, w, n_pairs, bound):
    """Run up to INNER iterations of flow (3, B, 2, N) and dual (2, B, 4, N); all programs must run at the same time.

    The input flow is copy 2, the output copy 0. The first row of errors (INNER + 1, B) is the error before the first
    iteration; arrivals (INNER,) starts with zeros.
    """
    n = h * w
    tiles = tl.cdiv(n, TILE)
    k = 0
    busy_programs = 1
    while (k < INNER) & (busy_programs > 0):
        old = k % 2
        busy = 0
        for tile in range(tl.program_id(0), n_pairs * tiles, tl.num_programs(0)):
            pair = (tile // tiles).to(tl.int64)
            at = tile % tiles * TILE + tl.arange(0, TILE)
            inside = at < n
            u = flow + (tl.where(k == 0, 2, old) * n_pairs + pair) * 2 * n
            p = dual + (old * n_pairs + pair) * 4 * n
            new_u = flow + ((1 - old) * n_pairs + pair) * 2 * n
            new_p = dual + ((1 - old) * n_pairs + pair) * 4 * n
            error = tl.load(errors + k * n_pairs + pair)
            if error.to(tl.float32) > bound:
                busy = 1
                d = data + pair * 3 * n
                x = at % w
                to_right, to_below = inside & (x < w - 1), at < n - w
                left, above = inside & (x > 0), inside & (at >= w)
                u1, u2, new1, new2, p11, p12, p21, p22 = primal(
                    u, p, d, at, n, inside, x == 0,
                    (tl.load(p + at - 1, left, 0.0), tl.load(p + 2 * n + at - 1, left, 0.0)),
                    (tl.load(p + n + at - w, above, 0.0), tl.load(p + 3 * n + at - w, above, 0.0)),
                )  # fmt: skip
                above = to_right & (at >= w)
                _, _, right1, right2, _, _, _, _ = primal(
                    u, p, d, at + 1, n, to_right, False, (p11, p21),
                    (tl.load(p + n + at + 1 - w, above, 0.0), tl.load(p + 3 * n + at + 1 - w, above, 0.0)),
                )  # fmt: skip
                left = to_below & (x > 0)
                _, _, below1, below2, _, _, _, _ = primal(
                    u, p, d, at + w, n, to_below, x == 0,
                    (tl.load(p + at + w - 1, left, 0.0), tl.load(p + 2 * n + at + w - 1, left, 0.0)), (p12, p22),
                )  # fmt: skip
                p11, p12 = dual_step(
                    tl.where(to_right, right1 - new1, 0.0), tl.where(to_below, below1 - new1, 0.0), p11, p12
                )
                p21, p22 = dual_step(
                    tl.where(to_right, right2 - new2, 0.0), tl.where(to_below, below2 - new2, 0.0), p21, p22
                )
                tl.store(new_u + at, new1, inside)
                tl.store(new_u + n + at, new2, inside)
                tl.store(new_p + at, p11, inside)
                tl.store(new_p + n + at, p12, inside)
                tl.store(new_p + 2 * n + at, p21, inside)
                tl.store(new_p + 3 * n + at, p22, inside)
                change = (new1 - u1) * (new1 - u1) + (new2 - u2) * (new2 - u2)
                change = tl.sum(tl.where(inside, change, 0.0)) * UNIT
                tl.atomic_add(errors + (k + 1) * n_pairs + pair, change.to(tl.int64) + 1, sem="relaxed")
            elif (error > 0) & (old == 1):
                # The pair converged in copy 1: move it to copy 0. INNER is even, so one iteration is left for this.
                for plane in tl.static_range(2):
                    tl.store(new_u + plane * n + at, tl.load(u + plane * n + at, inside, 0.0), inside)
                for plane in tl.static_range(4):
                    tl.store(new_p + plane * n + at, tl.load(p + plane * n + at, inside, 0.0), inside)
        busy_programs = wait_for_all(arrivals + k, busy)
        k += 1


@triton.jit
def compare(v: tl.tuple, i: tl.constexpr, j: tl.constexpr) -> tl.tuple:
    """Return the wires v with wires i and j in ascending order."""
    low, high = tl.minimum(v[i], v[j]), tl.maximum(v[i], v[j])
    v = v[:i] + (low,) + v[i + 1 :]
    return v[:j] + (high,) + v[j + 1 :]


@triton.jit(do_not_specialize=SIZES)
def median_kernel(flow, errors, h, w, n_pairs, bound):
    """Write 5 x 5 medians of copy 0 of flow (3, B, 2, N) to copy 2, for moving pairs; edges are replicated."""
    n = h * w
    plane = tl.program_id(1).to(tl.int64)
    if tl.load(errors + plane // 2).to(tl.float32) > bound:
        at = tl.program_id(0) * TILE + tl.arange(0, TILE)
        u = flow + plane * n
        y, x = at // w, at % w
        v: tl.tuple = ()  # the window, row by row
        for j in tl.static_range(5):
            row = u + tl.minimum(tl.maximum(y + (j - 2), 0), h - 1) * w
            for i in tl.static_range(5):
                v = v + (tl.load(row + tl.minimum(tl.maximum(x + (i - 2), 0), w - 1)),)
        for c in tl.static_range(COMPARATORS):
            v = compare(v, (WIRES >> 10 * c) % 32, (WIRES >> 10 * c + 5) % 32)
        tl.store(flow + (4 * n_pairs + plane) * n + at, v[OUT_WIRE], at < n)


@triton.jit
def cubic(x):
    """Return the weights of the four taps around the fraction x, rounded like cv2.remap of OpenCV 5."""
    y = 1.0 - x
    xx = x * x
    w0, w3 = -0.75 * (x * (y * y)), -0.75 * (xx * y)
    w1 = tl.fma(tl.fma(x, 1.25, -2.25), xx, 1.0)
    return w0, w1, ((1.0 - w0) - w1) - w3, w3


@triton.jit
def across(image, y, x, h, w, inside, weights):
    """Return the weighted sum of four pixels of row y from column x - 1; zero outside the image."""
    row_inside = inside & (y >= 0) & (y < h)
    row = image + y * w + x
    total = tl.load(row - 1, row_inside & (x >= 1) & (x <= w), 0.0) * weights[0]
    total = tl.fma(tl.load(row, row_inside & (x >= 0) & (x < w), 0.0), weights[1], total)
    total = tl.fma(tl.load(row + 1, row_inside & (x >= -1) & (x < w - 1), 0.0), weights[2], total)
    return tl.fma(tl.load(row + 2, row_inside & (x >= -2) & (x < w - 2), 0.0), weights[3], total)


@triton.jit(do_not_specialize=SIZES)
def warp_kernel(planes, i0, flow, data, h, w):
    """Write a warp's data (B, 3, N) by copy 0 of the flow: gradient and constant part of the brightness error."""
    n = h * w
    pair = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < n
    u1 = tl.load(flow + pair * 2 * n + at, inside, 0.0)
    u2 = tl.load(flow + (pair * 2 + 1) * n + at, inside, 0.0)
    px, py = (at % w).to(tl.float32) + u1, (at // w).to(tl.float32) + u2
    x, y = tl.floor(px), tl.floor(py)
    weights_x, weights_y = cubic(px - x), cubic(py - y)
    # beyond these limits every tap is zero
    x = tl.minimum(tl.maximum(x, -3.0), (w + 1).to(tl.float32)).to(tl.int32)
    y = tl.minimum(tl.maximum(y, -3.0), (h + 1).to(tl.float32)).to(tl.int32)
    warped: tl.tuple = ()
    for plane in tl.static_range(3):
        image = planes + (pair * 3 + plane) * n
        total = across(image, y - 1, x, h, w, inside, weights_x) * weights_y[0]
        total = tl.fma(across(image, y, x, h, w, inside, weights_x), weights_y[1], total)
        total = tl.fma(across(image, y + 1, x, h, w, inside, weights_x), weights_y[2], total)
        total = tl.fma(across(image, y + 2, x, h, w, inside, weights_x), weights_y[3], total)
        warped = warped + (total,)
    rho = ((warped[0] - warped[1] * u1) - warped[2] * u2) - tl.load(i0 + pair * n + at, inside, 0.0)
    tl.store(data + pair * 3 * n + at, warped[1], inside)
    tl.store(data + (pair * 3 + 1) * n + at, warped[2], inside)
    tl.store(data + (pair * 3 + 2) * n + at, rho, inside)
