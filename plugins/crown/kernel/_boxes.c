/* Linear bounds of a small network of ReLUs and products on many boxes, one box at a time.
 *
 * The batched tensor engine treats every neuron of every box alike; on small boxes nine neurons of ten are
 * stable, and only the unstable ones need a backward pass. This kernel does exactly that work.
 *
 * The network is a list of blocks. Block k computes z_k = W_k f + b_k from the feature vector
 * f = (x, g_1(z_1), ..., g_{k-1}(z_{k-1})), reading only the columns [first_k, last_k). g is the ReLU, or for a block of
 * products z = (u, v) the vector of all u_m v_m, which has half as many entries. The last block holds the
 * rows of the output condition minus their right-hand sides: a disjunct is impossible on a box if one of its
 * rows is positive there. noise_k bounds the rounding error of one entry of z_k (see program.py): a coefficient
 * c on that entry is charged |c| noise.
 *
 * Everything is double precision; sums may be reassociated freely, the error analysis does not mind.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define FAST __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define FAST
#endif

#define UNIT 1.1102230246251565e-16 /* 2^-53, the unit roundoff */
#define MORE 64 /* roundings of single entries beside those of a sum: far more than there are */
#define UNDERFLOW 1e-280 /* more than products below the normal numbers can add up to */

typedef struct {
    int inputs, blocks, features, neurons, rows, disjuncts;
    const int32_t *size, *first, *last; /* per block */
    const double *weight, *bias, *noise;
    const int32_t *disjunct; /* per row of the last block */
    const uint8_t *strict;   /* per row */
    const uint8_t *kind;     /* per row of the hidden blocks */
    const int64_t *offset;   /* of each block's weight; -1: its rows are sparse */
    /* row i of a sparse block: entry[e] at column[e], e from begin[i] to begin[i + 1]; begin has all rows, dense ones empty */
    const int64_t *begin;
    const int32_t *column;
    const double *entry;
} Net;

enum { RELU = 0, FACTOR = 1, EQUAL_FACTOR = 2 }; /* EQUAL_FACTOR: both factors of the product are the same */

typedef struct {
    double *coef;               /* features: the row that is being pushed back */
    /* per neuron: alpha z <= relu(z) <= s z + t. Of a product u v the two factors hold its lines together:
     * slope_low of both are the coefficients of the line below, slope_up of the line above; lift[u] is the constant
     * of the line above, lift[v] of the line below. */
    double *slope_low, *slope_up, *lift;
    double *low, *up;           /* per factor: its interval on the box */
    double *base, *gap; /* per neuron: the lower line's gap, and what the current row's looseness owes to it */
    double *spread;             /* per neuron: inputs coefficients of its upper line, times widths */
    double *row_coef, *row_bound; /* per row: coefficients over x, and the lower bound */
} Scratch;

/* c += a * w over n entries; the compiler vectorises this. */
FAST static void axpy(double *restrict c, const double *restrict w, double a, int n) {
    for (int i = 0; i < n; i++) c[i] += a * w[i];
}

/* Block k's features: one per ReLU, one per two factors. */
static int outputs(const Net *net, int k, int neuron) {
    return net->kind[neuron] == RELU ? net->size[k] : net->size[k] / 2;
}

/* What one number on the way of a row may have added to it: every neuron adds its bias and its lift to the constant. The
 * noise of the blocks is charged for as many roundings (see blocks.py). */
static double additions(const Net *net) { return net->features + 2.0 * net->neurons + MORE; }

/* Add c times pre-activation m of block j, which is neuron id, to the row. */
static void add_row(const Net *net, Scratch *s, int j, int m, int id, double c, double *bias, double *error) {
    int width = net->last[j] - net->first[j];
    if (c == 0.0) return;
    *bias += c * net->bias[id];
    *error += fabs(c) * net->noise[id];
    if (net->offset[j] < 0) {
        for (int64_t e = net->begin[id]; e < net->begin[id + 1]; e++) s->coef[net->column[e]] += c * net->entry[e];
        return;
    }
    axpy(s->coef + net->first[j], net->weight + net->offset[j] + (int64_t)m * width, c, width);
}

/* Replace coefficients on the products of block j by the lines of their factors. */
static void push_products(const Net *net, Scratch *s, int j, int neuron, int feature, double sign, double *bias,
                          double *error, int record) {
    int n = net->size[j] / 2;
    double many = additions(net) * UNIT;
    for (int m = 0; m < n; m++) {
        double a = s->coef[feature + m];
        if (a == 0.0) continue;
        int u = neuron + m, v = u + n, below = a * sign > 0;
        double lift = s->lift[below ? v : u];
        const double *slope = below ? s->slope_low : s->slope_up;
        *bias += a * lift;
        *error += fabs(a * lift) * many;
        if (record) s->gap[u] = s->gap[v] = fabs(a) * s->base[u] / 2;
        add_row(net, s, j, m, u, a * slope[u], bias, error);
        add_row(net, s, j, m + n, v, a * slope[v], bias, error);
    }
}

/* Push a row over block k's pre-activations, already in s->coef with constant *bias, back to the input.
 * sign +1 bounds from below, -1 from above (then the mirrored lines apply). record: keep gaps. */
static void push_back(const Net *net, Scratch *s, const int8_t *phase, int k, double sign, double *bias,
                      double *error, int record) {
    int neuron = 0, feature = net->inputs;
    double many = additions(net) * UNIT;
    for (int j = 0; j < k; j++) feature += outputs(net, j, neuron), neuron += net->size[j];
    for (int j = k - 1; j >= 0; j--) {
        int n = net->size[j];
        neuron -= n, feature -= outputs(net, j, neuron);
        if (net->kind[neuron] != RELU) {
            push_products(net, s, j, neuron, feature, sign, bias, error, record);
            continue;
        }
        for (int m = 0; m < n; m++) {
            double a = s->coef[feature + m];
            if (a == 0.0) continue;
            int id = neuron + m;
            if (phase[id] < 0) continue;
            double c = a;
            if (phase[id] == 0) {
                if (a * sign > 0) {
                    c = a * s->slope_low[id];
                    if (record) s->gap[id] = fabs(a) * s->base[id];
                } else {
                    c = a * s->slope_up[id];
                    *bias += a * s->lift[id];
                    *error += fabs(a) * s->lift[id] * many;
                    if (record) s->gap[id] = fabs(a) * s->lift[id];
                }
            }
            add_row(net, s, j, m, id, c, bias, error);
        }
    }
}

/* min of coef . x over the box, and the rounding error of computing it */
static double over_box(const double *coef, const double *lo, const double *hi, int n, double *error) {
    double total = 0, size = 0;
    for (int i = 0; i < n; i++) {
        double term = coef[i] > 0 ? coef[i] * lo[i] : coef[i] * hi[i];
        total += term;
        size += fabs(term);
    }
    *error += size * (n + MORE) * UNIT + UNDERFLOW;
    return total;
}

static void load_row(const Net *net, Scratch *s, int k, int m, int id) {
    int width = net->last[k] - net->first[k];
    memset(s->coef, 0, sizeof(double) * (size_t)net->features);
    if (net->offset[k] < 0) {
        for (int64_t e = net->begin[id]; e < net->begin[id + 1]; e++) s->coef[net->column[e]] += net->entry[e];
        return;
    }
    memcpy(s->coef + net->first[k], net->weight + net->offset[k] + (int64_t)m * width,
           sizeof(double) * (size_t)width);
}

/* The lines of a product u v around the centre (c, d) of its factors' intervals with radii r, q:
 * u v = d u + c v - c d + (u - c) (v - d), and the last term lies in [-r q, r q], for a square in [0, r r]. */
static void relax_product(Scratch *s, int u, int v, int equal) {
    double c = (s->low[u] + s->up[u]) / 2, d = (s->low[v] + s->up[v]) / 2;
    double r = fmax(s->up[u] - c, c - s->low[u]), q = fmax(s->up[v] - d, d - s->low[v]);
    double gap = r * q * (1 + 16 * UNIT), reserve = 16 * UNIT * (fabs(c * d) + gap) + 1e-300;
    s->slope_low[u] = s->slope_up[u] = d;
    s->slope_low[v] = s->slope_up[v] = c;
    s->lift[u] = -c * d + gap + reserve;
    s->lift[v] = -c * d - (equal ? 0.0 : gap) - reserve;
    s->base[u] = gap; /* an infinite interval makes the lines NaN or infinite: then the box stays open */
}

/* Bounds of every neuron that is not stable yet; sets phases and lines. `error` is itself a sum, of positive terms,
 * which rounds by far less than a hundredth; the last additions round by a few units, of which MORE are charged. */
static void bound_neurons(const Net *net, Scratch *s, int8_t *phase, const double *lo, const double *hi) {
    int id = 0, n = net->inputs;
    for (int k = 0; k + 1 < net->blocks; k++) {
        for (int m = 0; m < net->size[k]; m++, id++) {
            if (phase[id] != 0) continue;
            double bias = net->bias[id], error = net->noise[id];
            load_row(net, s, k, m, id);
            push_back(net, s, phase, k, 1.0, &bias, &error, 0);
            double value = over_box(s->coef, lo, hi, n, &error);
            double low = value + bias - error * 1.01 - fabs(bias) * MORE * UNIT;
            if (low == HUGE_VAL) low = -HUGE_VAL; /* an overflow proves nothing */
            if (low >= 0 && net->kind[id] == RELU) {
                phase[id] = 1;
                continue;
            }
            bias = net->bias[id], error = net->noise[id];
            load_row(net, s, k, m, id);
            push_back(net, s, phase, k, -1.0, &bias, &error, 0);
            for (int i = 0; i < n; i++) {
                s->spread[(size_t)id * n + i] = fabs(s->coef[i]) * (hi[i] - lo[i]);
                s->coef[i] = -s->coef[i];
            }
            value = -over_box(s->coef, lo, hi, n, &error);
            double up = value + bias + error * 1.01 + fabs(bias) * MORE * UNIT;
            if (up == -HUGE_VAL) up = HUGE_VAL;
            if (net->kind[id] != RELU) {
                s->low[id] = low, s->up[id] = up;
                continue;
            }
            if (up <= 0) {
                phase[id] = -1;
                continue;
            }
            double slope = up / (up - low); /* NaN where a bound is infinite: then the box stays open */
            s->slope_up[id] = slope;
            /* the chord must stay above the ReLU after rounding: the reserve is some units of either end */
            s->lift[id] = slope * (-low + 16 * UNIT * (up - low)) + 1e-300;
            s->slope_low[id] = up > -low ? 1.0 : 0.0;
            s->base[id] = up > -low ? -low : up;
        }
        int n_products = net->size[k] / 2, start = id - net->size[k];
        for (int m = 0; net->kind[start] != RELU && m < n_products; m++)
            relax_product(s, start + m, start + n_products + m, net->kind[start + m] == EQUAL_FACTOR);
    }
}

/* Narrow a box to where row <= 0 can hold: coef . x + constant <= row, with minimum `bound` over the box. The quotient
 * and the new end round by a unit or two each (1e-16); 1e-12 of it and nine units of the ends are added, outward. */
static void contract(const double *coef, double bound, const double *lo, const double *hi, double *newlo,
                     double *newhi, int n) {
    for (int i = 0; i < n; i++) {
        double room = -bound / fabs(coef[i]);
        room += fabs(room) * 1e-12 + (fabs(lo[i]) + fabs(hi[i])) * 1e-15;
        if (!(room >= 0) || !(coef[i] != 0)) continue;
        if (coef[i] > 0 && lo[i] + room < newhi[i]) newhi[i] = lo[i] + room;
        if (coef[i] < 0 && hi[i] - room > newlo[i]) newlo[i] = hi[i] - room;
    }
}

static void bound_rows(const Net *net, Scratch *s, const int8_t *phase, const double *lo, const double *hi,
                       double *score) {
    int k = net->blocks - 1, first = net->neurons, n = net->inputs;
    for (int r = 0; r < net->rows; r++) {
        double bias = net->bias[first + r], error = net->noise[first + r];
        memset(s->gap, 0, sizeof(double) * (size_t)net->neurons);
        load_row(net, s, k, r, first + r);
        push_back(net, s, phase, k, 1.0, &bias, &error, 1);
        double value = over_box(s->coef, lo, hi, n, &error);
        s->row_bound[r] = value + bias - error * 1.01 - fabs(bias) * MORE * UNIT;
        if (s->row_bound[r] == HUGE_VAL) s->row_bound[r] = -HUGE_VAL;
        memcpy(s->row_coef + (size_t)r * n, s->coef, sizeof(double) * (size_t)n);
        for (int id = 0; id < net->neurons; id++) {
            if (s->gap[id] == 0) continue;
            double total = 1e-300;
            for (int i = 0; i < n; i++) total += s->spread[(size_t)id * n + i];
            for (int i = 0; i < n; i++) score[i] += s->gap[id] * s->spread[(size_t)id * n + i] / total;
        }
    }
}

/* Decide one box. Returns 1 if every disjunct is impossible. Otherwise narrows the box in place, writes the
 * score of splitting each input, the corner that minimises the most promising row, and the bound. */
static int one_box(const Net *net, Scratch *s, int8_t *phase, double *lo, double *hi, double *score,
                   double *corner, double *margin) {
    int n = net->inputs;
    memset(score, 0, sizeof(double) * (size_t)n);
    bound_neurons(net, s, phase, lo, hi);
    bound_rows(net, s, phase, lo, hi, score);
    double *hull = s->coef; /* free again: 4 n entries are reserved */
    for (int i = 0; i < n; i++) hull[i] = HUGE_VAL, hull[n + i] = -HUGE_VAL;
    double worst = HUGE_VAL;
    int open = 0;
    for (int d = 0; d < net->disjuncts; d++) {
        double best = -HUGE_VAL;
        int impossible = 0, arg = -1;
        double *newlo = hull + 2 * n, *newhi = hull + 3 * n;
        memcpy(newlo, lo, sizeof(double) * (size_t)n);
        memcpy(newhi, hi, sizeof(double) * (size_t)n);
        for (int r = 0; r < net->rows; r++) {
            if (net->disjunct[r] != d) continue;
            double bound = s->row_bound[r];
            if (bound > 0 || (bound == 0 && net->strict[r])) impossible = 1;
            if (bound > best) best = bound, arg = r;
            contract(s->row_coef + (size_t)r * n, bound, lo, hi, newlo, newhi, n);
        }
        for (int i = 0; i < n; i++)
            if (newlo[i] > newhi[i]) impossible = 1;
        if (impossible) continue;
        open = 1;
        for (int i = 0; i < n; i++) {
            if (newlo[i] < hull[i]) hull[i] = newlo[i];
            if (newhi[i] > hull[n + i]) hull[n + i] = newhi[i];
        }
        if (arg >= 0 && best < worst) {
            worst = best;
            const double *coef = s->row_coef + (size_t)arg * n;
            for (int i = 0; i < n; i++) corner[i] = coef[i] > 0 ? lo[i] : hi[i];
        }
    }
    *margin = open ? worst : HUGE_VAL;
    if (!open) return 1;
    for (int i = 0; i < n; i++) lo[i] = hull[i], hi[i] = hull[n + i];
    return 0;
}

static int allocate(const Net *net, Scratch *s) {
    size_t neurons = (size_t)net->neurons + 1, n = (size_t)net->inputs;
    s->coef = calloc((size_t)net->features + 4 * n + 8, sizeof(double));
    double *block = calloc(neurons * (7 + n) + (size_t)net->rows * (n + 1), sizeof(double));
    if (s->coef == NULL || block == NULL) {
        free(s->coef), free(block);
        return 0;
    }
    s->slope_low = block, s->slope_up = block + neurons, s->lift = block + 2 * neurons;
    s->gap = block + 3 * neurons, s->base = block + 4 * neurons;
    s->low = block + 5 * neurons, s->up = block + 6 * neurons;
    s->spread = block + 7 * neurons, s->row_bound = s->spread + neurons * n;
    s->row_coef = s->row_bound + net->rows;
    return 1;
}

static const char *DOC =
    "bound(size, first, last, offset, weight, begin, column, entry, bias, noise, kind, disjunct, strict, disjuncts,\n"
    "      phase, lower, upper, score, corner, margin, closed) -> None\n\n"
    "Decide boxes (rows of lower and upper). Arrays are C-contiguous: int32 size, first, last, column, disjunct;\n"
    "int64 offset, begin; uint8 kind, strict and closed; int8 phase (boxes, neurons), updated; the rest float64.\n";

static PyObject *bound(PyObject *self, PyObject *args) {
    Py_buffer b[20];
    int disjuncts;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*y*y*y*iw*w*w*w*w*w*w*", &b[0], &b[1], &b[2], &b[3], &b[4],
                          &b[17], &b[18], &b[19], &b[5], &b[6], &b[7], &b[8], &b[9], &disjuncts, &b[10], &b[11],
                          &b[12], &b[13], &b[14], &b[15], &b[16]))
        return NULL;
    Net net = {.size = b[0].buf, .first = b[1].buf, .last = b[2].buf, .offset = b[3].buf, .weight = b[4].buf,
               .begin = b[17].buf, .column = b[18].buf, .entry = b[19].buf, .bias = b[5].buf, .noise = b[6].buf,
               .kind = b[7].buf, .disjunct = b[8].buf, .strict = b[9].buf, .disjuncts = disjuncts,
               .blocks = (int)(b[0].len / 4)};
    net.rows = net.size[net.blocks - 1];
    Py_ssize_t boxes = b[16].len;
    net.inputs = boxes ? (int)(b[11].len / 8 / boxes) : 0;
    net.features = net.inputs;
    for (int k = 0; k + 1 < net.blocks; k++)
        net.features += outputs(&net, k, net.neurons), net.neurons += net.size[k];
    Scratch s;
    int ok = 1;
    Py_BEGIN_ALLOW_THREADS;
    ok = allocate(&net, &s);
    for (Py_ssize_t i = 0; ok && i < boxes; i++) {
        Py_ssize_t at = i * net.inputs;
        ((uint8_t *)b[16].buf)[i] = (uint8_t)one_box(
            &net, &s, (int8_t *)b[10].buf + i * net.neurons, (double *)b[11].buf + at,
            (double *)b[12].buf + at, (double *)b[13].buf + at, (double *)b[14].buf + at, (double *)b[15].buf + i);
    }
    if (ok) free(s.coef), free(s.slope_low);
    Py_END_ALLOW_THREADS;
    for (int i = 0; i < 20; i++) PyBuffer_Release(&b[i]);
    if (!ok) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"bound", bound, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_boxes", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__boxes(void) {
    methods[0].ml_doc = DOC;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL) PyModule_AddIntConstant(made, "INTERFACE", 2); /* raised with every change of arguments */
    return made;
}
