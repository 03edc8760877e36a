/* Bounds of conditions that are quadratic in the inputs and the ReLUs of a small network, one box at a time.
 *
 * `_boxes.c` encloses every product by two lines of its own. A Lyapunov function x' P x is a sum of products that
 * belong together: its form is positive semidefinite, a tangent plane lies below it everywhere, and only the whole sum
 * shows that. Here every feature is an affine form of numbers t in [-1, 1], one per input and one per unstable ReLU
 * (a zonotope), so every row of the condition is a polynomial of degree two in t, all its products together:
 *
 *     row(t) = c + g t + t' Q t.
 *
 * For any diagonal D >= 0 with A = Q + D positive semidefinite and any t0, since t_i^2 <= 1,
 *
 *     row(t) >= c - t0' A t0 - sum_i |g + 2 A t0|_i - sum_i D_i.
 *
 * (the tangent plane at t0 of a convex function, at its smallest corner). A conjunction of rows row_k <= 0 is
 * impossible if one combination with weights >= 0 is positive; the weights are found by bisection.
 *
 * The network is a list of blocks as in `_boxes.c`; products are read by the last block alone. `err` bounds how far a
 * feature is from its form, noise of the blocks (see blocks.py) and rounding included. All is double precision.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "polynomials.h"

#define TRIALS 10 /* weights of a row that are tried: a choice */

/* Keep the last bound's point, plane and gaps. */
static void keep(const Net *net, Scratch *s) {
    size_t size = sizeof(double) * (size_t)s->count;
    memcpy(s->best, s->t, size);
    memcpy(s->best + net->stride, s->grad, size);
    memcpy(s->best + 2 * net->stride, s->gap, size);
}

/* Whether every row of a disjunct holds at the last bound's point: then no combination is positive there. */
static int all_hold(const Net *net, const Scratch *s, int d) {
    for (int k = net->start[d]; k < net->start[d + 1]; k++)
        if (at_point(net, s, s->poly + net->member[k]) > 0) return 0;
    return 1;
}

/* The best bound of base + w row over weights w >= 0 that are tried; adds the best multiple to base. The bound is a
 * concave function of w, as far as it is exact, and the row at the minimiser is its slope. */
static double add_best(const Net *net, Scratch *s, int d, const Poly *row, double best, int *done) {
    double unit = s->base.total / (row->total + 1e-300), low = 0, high = HUGE_VAL, w = unit / 4, chosen = 0;
    for (int k = 0; k < TRIALS && best <= 0; k++) {
        clear_poly(net, s, &s->trial);
        add_poly(net, s, &s->trial, &s->base, 1);
        add_poly(net, s, &s->trial, row, w);
        double bound = minimum(net, s, &s->trial);
        if (bound > best || (bound == best && chosen == 0)) best = bound, chosen = w, keep(net, s);
        if (bound > 0) break;
        if (all_hold(net, s, d)) {
            *done = 1;
            break;
        }
        if (at_point(net, s, row) > 0) low = w;
        else high = w;
        w = high == HUGE_VAL ? w * 8 : low == 0 ? w / 8 : sqrt(low * high);
        if (w > unit * 1e6 || w < unit * 1e-6 || high < low * 1.05) break;
    }
    if (chosen > 0) add_poly(net, s, &s->base, row, chosen);
    return best;
}

/* The best bound of combinations of a disjunct's rows; `lead` is the row that begins. */
static double combine(const Net *net, Scratch *s, int d, int lead) {
    int done = 0;
    clear_poly(net, s, &s->base);
    add_poly(net, s, &s->base, s->poly + lead, 1);
    memcpy(s->t, s->point + (size_t)lead * net->stride, sizeof(double) * (size_t)s->count);
    double best = minimum(net, s, &s->base); /* of the plane that is kept; the row's own bound is another plane's */
    keep(net, s);
    if (all_hold(net, s, d)) return best;
    for (int k = net->start[d]; k < net->start[d + 1] && !done && best <= 0; k++) {
        const Poly *row = s->poly + net->member[k];
        memcpy(s->t, s->best, sizeof(double) * (size_t)s->count);
        if (net->member[k] != lead && at_point(net, s, row) > 0) best = add_best(net, s, d, row, best, &done);
    }
    return best;
}

/* Narrow a box to where a row whose plane has slopes grad and least value bound <= 0 can be <= 0: on input i with radius
 * r, |grad_i| (t_i + 1) <= -bound where grad_i > 0. What this rounds is some units; 1e-12 of it is added, outward. */
static void contract(const Net *net, const Scratch *s, const double *grad, double bound, const double *lo,
                     const double *hi, double *newlo, double *newhi) {
    for (int i = 0; i < net->inputs; i++) {
        double room = -bound / fabs(grad[i]) * s->coef[(size_t)i * net->stride + i];
        room += fabs(room) * 1e-12 + (fabs(lo[i]) + fabs(hi[i])) * 1e-15;
        if (!(room >= 0) || !(grad[i] != 0)) continue;
        if (grad[i] > 0 && lo[i] + room < newhi[i]) newhi[i] = lo[i] + room;
        if (grad[i] < 0 && hi[i] - room > newlo[i]) newlo[i] = hi[i] - room;
    }
}

/* Bounds of all rows by themselves; row r is in uses[r] disjuncts. Returns 1 if one that is in all cannot hold. */
static int bound_rows(const Net *net, Scratch *s, const int32_t *uses) {
    for (int r = 0; r < net->rows; r++) {
        make_poly(net, s, r);
        memset(s->t, 0, sizeof(double) * (size_t)s->count);
        s->bound[r] = minimum(net, s, s->poly + r);
        if (s->bound[r] > 0 && uses[r] == net->disjuncts) return 1;
        memcpy(s->point + (size_t)r * net->stride, s->t, sizeof(double) * (size_t)s->count);
        memcpy(s->plane + (size_t)r * net->stride, s->grad, sizeof(double) * (size_t)s->count);
    }
    return 0;
}

/* One disjunct's rows by themselves: 1 if one of them cannot hold. Otherwise `lead` is the best one, newlo and newhi are
 * what is left of the box. */
static int row_by_row(const Net *net, const Scratch *s, int d, const double *lo, const double *hi, double *newlo,
                      double *newhi, int *lead) {
    size_t size = sizeof(double) * (size_t)net->inputs;
    *lead = net->member[net->start[d]];
    memcpy(newlo, lo, size);
    memcpy(newhi, hi, size);
    for (int k = net->start[d]; k < net->start[d + 1]; k++) {
        int r = net->member[k];
        if (s->bound[r] > 0 || (s->bound[r] == 0 && net->strict[r])) return 1;
        if (s->bound[r] / s->poly[r].total > s->bound[*lead] / s->poly[*lead].total) *lead = r;
        contract(net, s, s->plane + (size_t)r * net->stride, s->bound[r], lo, hi, newlo, newhi);
    }
    for (int i = 0; i < net->inputs; i++)
        if (newlo[i] > newhi[i]) return 1;
    return 0;
}

/* What splitting each input may gain: how curved the best combination is along it, and its part of the ReLUs' gaps.
 * Slopes are left out: planes are exact, and searches that follow them need twice the boxes (lsnc_relu). */
static void rate(const Net *net, const Scratch *s, double *score) {
    const double *grad = s->best + net->stride;
    for (int i = 0; i < s->count; i++) {
        const double *share = s->share + (size_t)i * net->inputs, *q = s->base.q + (size_t)i * net->stride;
        for (int j = 0; j < s->count && i < net->inputs; j++) score[i] += fabs(q[j]);
        for (int x = 0; x < net->inputs && i >= net->inputs; x++) score[x] += share[x] * fabs(grad[i]);
    }
}

/* Decide one box. Returns 1 if every disjunct is impossible. Otherwise narrows the box in place, writes the
 * score of splitting each input, the point that minimises the most promising combination, and its bound. */
static int one_box(const Net *net, Scratch *s, const int32_t *uses, int8_t *phase, double *lo, double *hi,
                   double *score, double *corner, double *margin) {
    int n = net->inputs, open = 0;
    double *hull = s->hull, *newlo = hull + 2 * n, *newhi = hull + 3 * n;
    memset(score, 0, sizeof(double) * (size_t)n);
    *margin = HUGE_VAL;
    forms(net, s, phase, lo, hi);
    if (bound_rows(net, s, uses)) return 1;
    for (int i = 0; i < n; i++) hull[i] = HUGE_VAL, hull[n + i] = -HUGE_VAL;
    for (int d = 0; d < net->disjuncts; d++) {
        int lead;
        if (row_by_row(net, s, d, lo, hi, newlo, newhi, &lead)) continue;
        if (!open) { /* one open disjunct is enough to keep the box: combinations for others are not tried */
            double bound = combine(net, s, d, lead);
            if (bound > 0) continue;
            contract(net, s, s->best + net->stride, bound, lo, hi, newlo, newhi);
            open = 1, *margin = bound;
            rate(net, s, score);
            for (int i = 0; i < n; i++) {
                double x = s->centre[i] + s->best[i] * s->coef[(size_t)i * net->stride + i];
                corner[i] = x > hi[i] ? hi[i] : x >= lo[i] ? x : lo[i];
            }
        }
        for (int i = 0; i < n; i++) hull[i] = fmin(hull[i], newlo[i]), hull[n + i] = fmax(hull[n + i], newhi[i]);
    }
    for (int i = 0; i < n && open; i++) open = hull[i] <= hull[n + i];
    if (!open) return 1;
    for (int i = 0; i < n; i++) lo[i] = hull[i], hi[i] = hull[n + i];
    return 0;
}

static double *take(double **block, size_t count) {
    double *part = *block;
    *block += count;
    return part;
}

/* All scratch memory in one piece; NULL where there is none. */
static double *allocate(const Net *net, Scratch *s, size_t factors) {
    size_t width = (size_t)net->stride, features = (size_t)net->features, rows = (size_t)net->rows;
    size_t n = (size_t)net->inputs, square = width * width;
    size_t total = (features + factors) * (width + 3) + width * n + square * (4 + rows) + width * (9 + 3 * rows) +
                   rows + 4 * n + width;
    double *memory = calloc(total, sizeof(double)), *at = memory;
    s->factor = calloc(2 * features + 1, sizeof(int));
    s->poly = calloc(rows, sizeof(Poly));
    if (memory == NULL || s->factor == NULL || s->poly == NULL) {
        free(memory), free(s->factor), free(s->poly);
        return NULL;
    }
    s->second = s->factor + features;
    for (size_t f = 0; f < features; f++) s->factor[f] = -1;
    s->coef = take(&at, features * width), s->centre = take(&at, features);
    s->err = take(&at, features), s->size = take(&at, features);
    s->fcoef = take(&at, factors * width), s->fcentre = take(&at, factors);
    s->ferr = take(&at, factors), s->fsize = take(&at, factors);
    s->share = take(&at, width * n), s->row = take(&at, width), s->a = take(&at, square);
    s->chol = take(&at, square), s->t = take(&at, width), s->grad = take(&at, width), s->gap = take(&at, width);
    s->best = take(&at, 3 * width), s->bound = take(&at, rows);
    s->plane = take(&at, rows * width), s->point = take(&at, rows * width), s->hull = take(&at, 4 * n);
    s->base.g = take(&at, width), s->base.q = take(&at, square);
    s->trial.g = take(&at, width), s->trial.q = take(&at, square);
    for (size_t r = 0; r < rows; r++) s->poly[r].g = take(&at, width), s->poly[r].q = take(&at, square);
    return memory;
}

static const char *DOC =
    "bound(size, first, last, offset, weight, bias, noise, kind, start, member, uses, strict,\n"
    "      phase, lower, upper, score, corner, margin, closed) -> None\n\n"
    "Decide boxes (rows of lower and upper). Arrays are C-contiguous: int32 size, first, last, start, member, uses;\n"
    "int64 offset; uint8 kind, strict and closed; int8 phase (boxes, neurons), updated; the rest float64.\n";

static PyObject *bound(PyObject *self, PyObject *args) {
    Py_buffer b[19];
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*y*y*w*w*w*w*w*w*w*", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                          &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14], &b[15], &b[16],
                          &b[17], &b[18]))
        return NULL;
    Net net = {.size = b[0].buf, .first = b[1].buf, .last = b[2].buf, .offset = b[3].buf, .weight = b[4].buf,
               .bias = b[5].buf, .noise = b[6].buf, .kind = b[7].buf, .start = b[8].buf, .member = b[9].buf,
               .strict = b[11].buf, .blocks = (int)(b[0].len / 4), .disjuncts = (int)(b[8].len / 4) - 1};
    net.rows = net.size[net.blocks - 1];
    Py_ssize_t boxes = b[18].len;
    net.inputs = boxes ? (int)(b[13].len / 8 / boxes) : 0;
    net.features = net.stride = net.inputs;
    size_t factors = 0;
    for (int k = 0; k + 1 < net.blocks; k++) {
        int relu = net.kind[net.neurons] == RELU;
        net.features += relu ? net.size[k] : net.size[k] / 2, net.stride += relu ? net.size[k] : 0;
        factors += relu ? 0 : (size_t)net.size[k];
        net.neurons += net.size[k];
    }
    Scratch s;
    double *memory;
    Py_BEGIN_ALLOW_THREADS;
    memory = allocate(&net, &s, factors);
    for (Py_ssize_t i = 0; memory != NULL && i < boxes; i++) {
        Py_ssize_t at = i * net.inputs;
        ((uint8_t *)b[18].buf)[i] = (uint8_t)one_box(
            &net, &s, b[10].buf, (int8_t *)b[12].buf + i * net.neurons, (double *)b[13].buf + at,
            (double *)b[14].buf + at, (double *)b[15].buf + at, (double *)b[16].buf + at, (double *)b[17].buf + i);
    }
    if (memory != NULL) free(memory), free(s.factor), free(s.poly);
    Py_END_ALLOW_THREADS;
    for (int i = 0; i < 19; i++) PyBuffer_Release(&b[i]);
    if (memory == NULL) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"bound", bound, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_quadratics", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quadratics(void) {
    methods[0].ml_doc = DOC;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL) PyModule_AddIntConstant(made, "INTERFACE", 1); /* raised with every change of arguments */
    return made;
}
