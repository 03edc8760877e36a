/* Rows of a condition as polynomials of degree two over a zonotope, and proved lower bounds of them: see _quadratics.c. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 1.1102230246251565e-16 /* 2^-53, the unit roundoff */
#define MORE 64 /* roundings of single entries beside those of a sum: far more than there are */
#define UNDERFLOW 1e-280 /* more than products below the normal numbers can add up to */
#define SWEEPS 6 /* of coordinate descent towards the minimiser: a choice, any point gives a bound */

typedef struct {
    int inputs, blocks, features, neurons, rows, disjuncts, stride;
    const int32_t *size, *first, *last; /* per block */
    const double *weight, *bias, *noise;
    const int32_t *start, *member; /* disjunct d has the rows member[start[d]], ..., member[start[d + 1] - 1], each once */
    const uint8_t *strict;         /* per row */
    const uint8_t *kind;           /* per row of the hidden blocks */
    const int64_t *offset;         /* of each block's weight */
} Net;

enum { RELU = 0 }; /* other kinds are factors of products, see _boxes.c */

/* c + g t + t' Q t and `err`; `total` is the sum of the absolute values of all coefficients */
typedef struct {
    int curved; /* whether Q is not 0 */
    double c, err, total;
    double *g, *q;
} Poly;

typedef struct {
    int count;                              /* numbers t in use */
    double *coef, *centre, *err, *size;     /* of every feature's form; size: |centre| + sum |coef| */
    double *fcoef, *fcentre, *ferr, *fsize; /* of every factor's */
    int *factor, *second;                   /* per feature: the places of its factors; -1 if it is no product */
    double *share;                          /* per t and input: how much of a ReLU's gap is owed to the input */
    double *row, *a, *chol;                 /* a form, or a solution; the convex matrix and its factor */
    double *t, *grad, *gap;                 /* of the last bound: about the minimiser; the plane; the looseness of each t */
    double *best;                           /* the same three of the best combination */
    double *bound, *plane, *point;          /* of every row by itself */
    double *hull;
    Poly *poly, base, trial;
} Scratch;

/* One row of block k over the features as a form; writes row, returns the centre. */
static double make_form(const Net *net, Scratch *s, int k, int m, int id, double *err, double *size) {
    const double *w = net->weight + net->offset[k] + (int64_t)m * (net->last[k] - net->first[k]);
    double c = net->bias[id], e = net->noise[id], all = fabs(c);
    memset(s->row, 0, sizeof(double) * (size_t)net->stride);
    for (int j = net->first[k]; j < net->last[k]; j++, w++) {
        if (*w == 0 || (s->size[j] == 0 && s->err[j] == 0)) continue; /* inactive */
        const double *coef = s->coef + (size_t)j * net->stride;
        for (int i = 0; i < s->count; i++) s->row[i] += *w * coef[i];
        c += *w * s->centre[j];
        e += fabs(*w) * s->err[j];
        all += fabs(*w) * s->size[j];
    }
    *err = e * 1.01 + all * (net->features + MORE) * 2 * UNIT + UNDERFLOW;
    *size = fabs(c);
    for (int i = 0; i < s->count; i++) *size += fabs(s->row[i]);
    return c;
}

/* The form of a ReLU that may be on both sides: slope z + lift / 2 + t lift / 2, parallel lines through both kinks. */
static void relax_relu(const Net *net, Scratch *s, int f, double c, double err, double size, double low, double up) {
    double slope = up / (up - low), *coef = s->coef + (size_t)f * net->stride;
    double half = (slope * (-low + 16 * UNIT * (up - low)) + 1e-300) / 2, wide = 1e-300;
    double *share = s->share + (size_t)s->count * net->inputs;
    memset(share, 0, sizeof(double) * (size_t)net->inputs);
    for (int i = 0; i < s->count; i++) {
        double part = fabs(s->row[i]);
        wide += part;
        if (i < net->inputs) share[i] += part;
        else
            for (int x = 0; x < net->inputs; x++) share[x] += part * s->share[(size_t)i * net->inputs + x];
        coef[i] = slope * s->row[i];
    }
    for (int x = 0; x < net->inputs; x++) share[x] /= wide;
    coef[s->count++] = half * (1 + 16 * UNIT);
    s->centre[f] = slope * c + half;
    s->err[f] = slope * err * 1.01 + (slope * size + half) * MORE * UNIT;
    s->size[f] = (slope * size + 2 * half) * 1.01;
}

/* Forms of all features and factors on the box; sets phases. */
static void forms(const Net *net, Scratch *s, int8_t *phase, const double *lo, const double *hi) {
    int id = 0, f = net->inputs, factors = 0, n = net->inputs;
    size_t all = (size_t)net->features * (size_t)net->stride;
    memset(s->coef, 0, sizeof(double) * all);
    s->count = n;
    for (int i = 0; i < n; i++) {
        double c = lo[i] / 2 + hi[i] / 2, r = fmax(hi[i] - c, c - lo[i]);
        r = r > 0 ? r * (1 + 4 * UNIT) + 1e-300 : 0;
        s->centre[i] = c, s->err[i] = 0, s->size[i] = fabs(c) + r;
        s->coef[(size_t)i * net->stride + i] = r;
        for (int x = 0; x < n; x++) s->share[(size_t)i * n + x] = x == i;
    }
    for (int k = 0; k + 1 < net->blocks; k++) {
        int rows = net->size[k], product = net->kind[id] != RELU, half = rows / 2;
        for (int m = 0; m < rows; m++, id++) {
            double err, size, c;
            if (product) {
                c = make_form(net, s, k, m, id, &err, &size);
                memcpy(s->fcoef + (size_t)factors * net->stride, s->row, sizeof(double) * (size_t)net->stride);
                s->fcentre[factors] = c, s->ferr[factors] = err, s->fsize[factors] = size;
                if (m < half) s->factor[f + m] = factors;
                else s->second[f + m - half] = factors;
                factors++;
                continue;
            }
            s->factor[f + m] = -1;
            s->centre[f + m] = s->err[f + m] = s->size[f + m] = 0;
            if (phase[id] < 0) continue;
            c = make_form(net, s, k, m, id, &err, &size);
            double room = (size - fabs(c)) + err * 1.01 + size * (net->stride + MORE) * UNIT;
            double low = c - room, up = c + room;
            if (low >= 0) phase[id] = 1;
            if (up <= 0) {
                phase[id] = -1;
                continue;
            }
            if (phase[id] > 0) {
                memcpy(s->coef + (size_t)(f + m) * net->stride, s->row, sizeof(double) * (size_t)net->stride);
                s->centre[f + m] = c, s->err[f + m] = err, s->size[f + m] = size;
            } else
                relax_relu(net, s, f + m, c, err, size, low, up);
        }
        f += product ? half : rows;
    }
}

/* Add w times the product of two factors to a polynomial; returns the size of what was added. */
static double add_product(const Net *net, const Scratch *s, Poly *p, double w, int u, int v) {
    const double *a = s->fcoef + (size_t)u * net->stride, *b = s->fcoef + (size_t)v * net->stride;
    double c = s->fcentre[u], d = s->fcentre[v];
    p->c += w * c * d;
    for (int i = 0; i < s->count; i++) {
        double *q = p->q + (size_t)i * net->stride, wa = w * a[i];
        p->g[i] += w * (c * b[i] + d * a[i]);
        if (wa == 0) continue;
        for (int j = 0; j < s->count; j++) q[j] += wa * b[j];
    }
    p->err += fabs(w) * (s->ferr[u] * s->fsize[v] + s->ferr[v] * s->fsize[u] + s->ferr[u] * s->ferr[v]) * 1.01;
    return fabs(w) * s->fsize[u] * s->fsize[v];
}

/* Row r of the condition as a polynomial in t; Q is made symmetric. */
static void make_poly(const Net *net, Scratch *s, int r) {
    int k = net->blocks - 1, n = s->count, id = net->neurons + r;
    Poly *p = s->poly + r;
    const double *w = net->weight + net->offset[k] + (int64_t)r * (net->last[k] - net->first[k]);
    double all = fabs(net->bias[id]);
    p->c = net->bias[id], p->err = net->noise[id], p->curved = 0;
    memset(p->g, 0, sizeof(double) * (size_t)n);
    memset(p->q, 0, sizeof(double) * (size_t)n * (size_t)net->stride);
    for (int j = net->first[k]; j < net->last[k]; j++, w++) {
        if (*w == 0) continue;
        if (s->factor[j] >= 0) {
            p->curved = 1;
            all += add_product(net, s, p, *w, s->factor[j], s->second[j]);
            continue;
        }
        const double *coef = s->coef + (size_t)j * net->stride;
        for (int i = 0; i < n; i++) p->g[i] += *w * coef[i];
        p->c += *w * s->centre[j];
        p->err += fabs(*w) * s->err[j] * 1.01;
        all += fabs(*w) * s->size[j];
    }
    p->err = p->err * 1.01 + all * (net->features + MORE) * 8 * UNIT + UNDERFLOW;
    p->total = fabs(p->c);
    for (int i = 0; i < n; i++) {
        p->total += fabs(p->g[i]);
        for (int j = 0; j <= i; j++) {
            double *low = p->q + (size_t)i * net->stride + j, *up = p->q + (size_t)j * net->stride + i;
            *low = *up = (*low + *up) / 2;
            p->total += (i == j ? 1 : 2) * fabs(*low);
        }
    }
}

/* A = Q + D with a Cholesky factor: a pivot that is too small for what is below it is raised (after Gill, Murray
 * and Wright 1981). Writes gap = D >= 0; returns the trace of A, NaN if a number was none. */
static double convexify(const Net *net, Scratch *s, const Poly *p) {
    int n = s->count, stride = net->stride;
    double most = 0, side = 0, trace = 0;
    for (int i = 0; i < n; i++) {
        memcpy(s->a + (size_t)i * stride, p->q + (size_t)i * stride, sizeof(double) * (size_t)n);
        most = fmax(most, fabs(s->a[(size_t)i * stride + i]));
        for (int j = 0; j < i; j++) side = fmax(side, fabs(s->a[(size_t)i * stride + j]));
    }
    double limit = fmax(fmax(most, side / n), 1e-290), least = 1e-13 * limit;
    for (int j = 0; j < n; j++) {
        double *a = s->a + (size_t)j * stride + j, *l = s->chol + (size_t)j * stride, largest = 0, sum = 0;
        for (int k = 0; k < j; k++) sum += l[k] * l[k];
        for (int i = j + 1; i < n; i++) {
            double *below = s->chol + (size_t)i * stride, c = s->a[(size_t)i * stride + j];
            for (int k = 0; k < j; k++) c -= below[k] * l[k];
            below[j] = c;
            largest = fmax(largest, fabs(c));
        }
        double pivot = *a - sum, wanted = fmax(largest * largest / limit, least);
        s->gap[j] = 0;
        if (!(pivot >= wanted)) {
            double old = *a;
            *a += (wanted - pivot) * 1.000001; /* enough for the pivot to be positive after rounding, or it is NaN */
            s->gap[j] = (*a - old) * (1 + 4 * UNIT);
            pivot = *a - sum;
        }
        if (!(pivot > 0)) return NAN;
        l[j] = sqrt(pivot);
        for (int i = j + 1; i < n; i++) s->chol[(size_t)i * stride + j] /= l[j];
        trace += *a;
    }
    return trace;
}

/* The minimiser of c + g t + t' A t over all t, by the factor of A; 1 if it lies in the cube. */
static int solve(const Net *net, Scratch *s, const Poly *p) {
    int n = s->count;
    for (int i = 0; i < n; i++) {
        const double *l = s->chol + (size_t)i * net->stride;
        double sum = -p->g[i] / 2;
        for (int k = 0; k < i; k++) sum -= l[k] * s->row[k];
        s->row[i] = sum / l[i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++) s->row[i] -= s->chol[(size_t)k * net->stride + i] * s->row[k];
        s->row[i] /= s->chol[(size_t)i * net->stride + i];
        if (!(fabs(s->row[i]) <= 1)) return 0;
    }
    memcpy(s->t, s->row, sizeof(double) * (size_t)n);
    return 1;
}

/* Coordinate descent on c + g t + t' A t over the cube, from s->t. */
static void descend(const Net *net, Scratch *s, const Poly *p) {
    int n = s->count, stride = net->stride;
    if (solve(net, s, p)) return;
    for (int i = 0; i < n; i++) {
        s->grad[i] = p->g[i];
        for (int j = 0; j < n; j++) s->grad[i] += 2 * s->a[(size_t)i * stride + j] * s->t[j];
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < n; i++) {
            double curve = 2 * s->a[(size_t)i * stride + i], to = s->t[i];
            to = curve > 0 ? to - s->grad[i] / curve : (s->grad[i] > 0 ? -1 : 1);
            to = to > 1 ? 1 : to >= -1 ? to : -1;
            double step = to - s->t[i];
            if (step == 0) continue;
            s->t[i] = to;
            for (int j = 0; j < n; j++) s->grad[j] += 2 * s->a[(size_t)i * stride + j] * step;
        }
}

/* The bound without a convex form: every term by itself; the plane is c + g t minus what the terms can reach. */
static double term_by_term(const Net *net, Scratch *s, const Poly *p, double lost) {
    double value = p->c - lost;
    for (int i = 0; i < s->count; i++) {
        const double *q = p->q + (size_t)i * net->stride;
        double gap = fmax(-q[i], 0);
        for (int j = 0; j < s->count; j++) gap += j == i ? 0 : fabs(q[j]);
        value -= fabs(p->g[i]) + gap;
        s->grad[i] = p->g[i], s->gap[i] = gap;
        s->t[i] = p->g[i] > 0 ? -1 : 1;
    }
    return value;
}

/* A proved lower bound of a polynomial over the cube. t: where to start, then about the minimiser; grad: the slopes of
 * a plane that is nowhere above the polynomial and whose least value is the bound; gap: what each t adds to the
 * distance of both.
 *
 * Rounding. The computed factor L of A has L L' = A + E, |E_ij| <= gamma sqrt(A_ii A_jj) (Higham 2002, theorem 10.3),
 * so (t - t0)' A (t - t0) >= -4 gamma n trace(A); the rest is one sum, charged by the size of its terms. */
static double minimum(const Net *net, Scratch *s, const Poly *p) {
    int n = s->count, stride = net->stride;
    double room = ((double)n * n + MORE) * 8 * UNIT, flat = p->c, value = p->c, extra = 0;
    for (int i = 0; i < n; i++) {
        const double *q = p->q + (size_t)i * stride;
        flat -= fabs(p->g[i]) + fmax(-q[i], 0);
        for (int j = 0; p->curved && j < n; j++) flat -= j == i ? 0 : fabs(q[j]);
    }
    double trace = p->curved && !(flat > 0) ? convexify(net, s, p) : NAN;
    if (trace == trace) {
        descend(net, s, p);
        for (int i = 0; i < n; i++) {
            const double *a = s->a + (size_t)i * stride;
            double along = 0;
            for (int j = 0; j < n; j++) along += a[j] * s->t[j];
            s->grad[i] = p->g[i] + 2 * along;
            value -= s->t[i] * along + fabs(s->grad[i]) + s->gap[i];
            extra += s->gap[i];
        }
        value -= p->err * 1.01 + (p->total + extra) * room + 8 * (n + MORE) * UNIT * n * trace;
    }
    if (trace != trace || !(value >= flat)) value = term_by_term(net, s, p, p->err * 1.01 + p->total * room);
    return value < HUGE_VAL ? value : -HUGE_VAL; /* an overflow proves nothing */
}

/* The polynomial at s->t, for the search of weights alone. */
static double at_point(const Net *net, const Scratch *s, const Poly *p) {
    double value = p->c;
    for (int i = 0; i < s->count; i++) {
        double along = p->g[i];
        for (int j = 0; j < s->count; j++) along += p->q[(size_t)i * net->stride + j] * s->t[j];
        value += along * s->t[i];
    }
    return value;
}

/* to += weight p */
static void add_poly(const Net *net, const Scratch *s, Poly *to, const Poly *p, double weight) {
    to->c += weight * p->c;
    to->err += weight * (p->err * 1.01 + p->total * MORE * UNIT);
    to->total += weight * p->total;
    to->curved |= p->curved;
    for (int i = 0; i < s->count; i++) {
        to->g[i] += weight * p->g[i];
        for (int j = 0; j < s->count; j++)
            to->q[(size_t)i * net->stride + j] += weight * p->q[(size_t)i * net->stride + j];
    }
}

static void clear_poly(const Net *net, const Scratch *s, Poly *p) {
    p->c = p->err = p->total = p->curved = 0;
    memset(p->g, 0, sizeof(double) * (size_t)s->count);
    memset(p->q, 0, sizeof(double) * (size_t)s->count * (size_t)net->stride);
}
