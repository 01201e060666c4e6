/* The walk: rows in, sums of leaf values out. What makes it fast is told in trees.h. */
#include "trees.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "sums would not round as LightGBM's do"
#endif

enum { LANES = 8, STEPS = 4 }; /* walks side by side, and their steps until those that arrived are left out */

static const double NEARLY_ZERO = 1e-35f; /* up to here a number counts as zero: rounded to a float on purpose */

/* One row's views. */
static void fill(const Trees *self, const char *row, int floats, double *x)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const Py_ssize_t stop = self->kind_start[kind + 1];
        for (Py_ssize_t view = self->kind_start[kind]; view < stop; view++) {
            const Py_ssize_t feature = self->view_feature[view];
            double value;
            if (floats) {
                float narrow;
                memcpy(&narrow, row + feature * sizeof(float), sizeof(float));
                value = narrow;
            } else {
                memcpy(&value, row + feature * sizeof(double), sizeof(double));
            }
            const double size = fabs(value);
            switch (kind) {
            case AS_IS: /* NaN is <= nothing: right */
                value = size <= self->tiny ? 0.0 : value;
                break;
            case NAN_IS_ZERO:
                value = size > self->tiny ? value : 0.0;
                break;
            case NAN_LEFT:
                value = isnan(value) ? -INFINITY : size <= self->tiny ? 0.0 : value;
                break;
            case ZERO_LEFT:
                value = size > NEARLY_ZERO ? value : -INFINITY;
                break;
            case ZERO_RIGHT:
                value = size > NEARLY_ZERO ? value : NAN;
                break;
            default: /* a category is a whole number from 0 to 2^31 - 1, cut off after the point */
                value = value > -1.0 && value < 2147483648.0 ? trunc(value) : -1.0;
            }
            x[view] = value;
        }
    }
}

/* A list of walks: number i stands at node at[i] and belongs to who[i], a row of the batch or a tree. */
typedef struct {
    uint32_t at[BATCH + LANES], who[BATCH + LANES];
    uint32_t leaf[BATCH + 1]; /* where each walk ended, by whom it belongs to; the last is nobody's */
} Walks;

/* All of `count` walks to their leaves. Each reads the row at x + who * stride. */
static inline __attribute__((always_inline)) void descend(const Node *nodes, const double *x, const size_t stride,
                                                          Walks *walks, Py_ssize_t count)
{
    while (count) {
        Py_ssize_t kept = 0;
        for (int lane = 0; lane < LANES; lane++) { /* so that the last group is full */
            walks->at[count + lane] = NOWHERE;
            walks->who[count + lane] = BATCH;
        }
        for (Py_ssize_t first = 0; first < count; first += LANES) {
            uint32_t at[LANES];
            const double *row[LANES];
#pragma GCC unroll 8
            for (int lane = 0; lane < LANES; lane++) {
                at[lane] = walks->at[first + lane];
                row[lane] = x + (stride ? walks->who[first + lane] % BATCH * stride : 0);
            }
#pragma GCC unroll 8
            for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 8
                for (int lane = 0; lane < LANES; lane++) {
                    const Node *node = nodes + at[lane];
                    at[lane] = node->child + !(row[lane][node->column] <= node->threshold);
                }
            }
#pragma GCC unroll 8
            for (int lane = 0; lane < LANES; lane++) {
                const uint32_t who = walks->who[first + lane];
                walks->leaf[who] = at[lane];
                walks->at[kept] = at[lane];
                walks->who[kept] = who;
                kept += nodes[at[lane]].child + 1 != at[lane];
            }
        }
        count = kept;
    }
}

/* One walk of a tree that splits by categories. */
static uint32_t descend_branches(const Trees *self, const double *row, uint32_t at)
{
    for (;;) {
        const Node *node = self->nodes + at;
        if (node->child + 1 == at)
            return at;
        if (node->column < BY_CATEGORY) {
            at = node->child + !(row[node->column] <= node->threshold);
        } else {
            const int32_t category = (int32_t)row[node->column - BY_CATEGORY];
            const uint32_t word = (uint32_t)category / 32; /* -1 is beyond every set */
            const int found = word < node->words.count && self->words[node->words.first + word] >> (category & 31) & 1;
            at = node->child + !found;
        }
    }
}

/* Adds the values of the leaf `at` to one row's sums. */
static inline void add(const Trees *self, Py_ssize_t tree, uint32_t at, char *sums)
{
    const size_t leaf = (uint32_t)self->nodes[at].leaf;
    if (self->single) {
        ((float *)sums)[self->score[tree]] += ((const float *)self->values)[leaf];
        return;
    }
    double *to = (double *)sums + self->score[tree];
    const double *from = (const double *)self->values + leaf * self->width;
    to[0] += from[0];
    for (Py_ssize_t place = 1; place < self->width; place++)
        to[place] += from[place];
}

/* One row: trees side by side, added in their order. */
static void walk_row(const Trees *self, const double *x, char *sums, Walks *walks)
{
    for (Py_ssize_t first = 0; first < self->trees; first += BATCH) {
        const Py_ssize_t trees = self->trees - first < BATCH ? self->trees - first : BATCH;
        Py_ssize_t count = 0;
        for (Py_ssize_t tree = 0; tree < trees; tree++) {
            if (self->branches[first + tree]) {
                walks->leaf[tree] = descend_branches(self, x, self->roots[first + tree]);
            } else {
                walks->at[count] = self->roots[first + tree];
                walks->who[count++] = (uint32_t)tree;
            }
        }
        descend(self->nodes, x, 0, walks, count);
        if (self->scores == 1 && !self->single) { /* a sum in a register saves a fifth of the time */
            const double *values = self->values;
            double sum = *(double *)sums;
            for (Py_ssize_t tree = 0; tree < trees; tree++)
                sum += values[(uint32_t)self->nodes[walks->leaf[tree]].leaf];
            *(double *)sums = sum;
        } else {
            for (Py_ssize_t tree = 0; tree < trees; tree++)
                add(self, first + tree, walks->leaf[tree], sums);
        }
    }
}

/* One batch: tree by tree, rows side by side. */
static void walk_rows(const Trees *self, const double *x, Py_ssize_t rows, char *sums, Py_ssize_t sum_bytes,
                      Walks *walks)
{
    for (Py_ssize_t tree = 0; tree < self->trees; tree++) {
        if (self->branches[tree]) {
            for (Py_ssize_t row = 0; row < rows; row++)
                walks->leaf[row] = descend_branches(self, x + row * self->views, self->roots[tree]);
        } else {
            for (Py_ssize_t row = 0; row < rows; row++) {
                walks->at[row] = self->roots[tree];
                walks->who[row] = (uint32_t)row;
            }
            descend(self->nodes, x, self->views, walks, rows);
        }
        for (Py_ssize_t row = 0; row < rows; row++)
            add(self, tree, walks->leaf[row], sums + row * sum_bytes);
    }
}

/* From sums to what the objective makes of them, with the operations of LightGBM's objectives. */
static void finish(const Trees *self, double *sums)
{
    const Py_ssize_t scores = self->scores;
    if (self->divisor != 1.0)
        for (Py_ssize_t k = 0; k < scores; k++)
            sums[k] /= self->divisor;
    if (self->link == LINK_SOFTMAX) {
        double highest = sums[0], total = 0.0;
        for (Py_ssize_t k = 1; k < scores; k++)
            highest = sums[k] < highest ? highest : sums[k];
        for (Py_ssize_t k = 0; k < scores; k++)
            total += (sums[k] = exp(sums[k] - highest));
        for (Py_ssize_t k = 0; k < scores; k++)
            sums[k] /= total;
        return;
    }
    for (Py_ssize_t k = 0; k < scores; k++) {
        const double sum = sums[k];
        if (self->link == LINK_SIGMOID)
            sums[k] = 1.0 / (1.0 + exp(-self->parameter * sum));
        else if (self->link == LINK_EXP)
            sums[k] = exp(sum);
        else if (self->link == LINK_LOG1P_EXP)
            sums[k] = log1p(exp(sum));
        else if (self->link == LINK_SIGNED_SQUARE)
            sums[k] = ((sum > 0.0) - (sum < 0.0)) * sum * sum;
    }
}

void trees_walk(const Trees *self, const char *rows, int floats, Py_ssize_t count, char *sums, double *x)
{
    const Py_ssize_t row_bytes = self->features * (floats ? sizeof(float) : sizeof(double));
    const Py_ssize_t sum_bytes = self->scores * (self->single ? sizeof(float) : sizeof(double));
    Walks walks;
    for (Py_ssize_t place = 0; place < count * self->scores; place++) {
        if (self->single)
            ((float *)sums)[place] = -0.0f; /* what adds nothing at all, even to -0 */
        else
            ((double *)sums)[place] = 0.0;
    }
    const Py_ssize_t batch = count < LANES / 2 ? 1 : self->batch;
    for (Py_ssize_t first = 0; first < count; first += batch) {
        const Py_ssize_t some = count - first < batch ? count - first : batch;
        for (Py_ssize_t row = 0; row < some; row++)
            fill(self, rows + (first + row) * row_bytes, floats, x + row * self->views);
        if (batch == 1)
            walk_row(self, x, sums + first * sum_bytes, &walks);
        else
            walk_rows(self, x, some, sums + first * sum_bytes, sum_bytes, &walks);
    }
    if (!self->single && (self->link != LINK_NONE || self->divisor != 1.0))
        for (Py_ssize_t row = 0; row < count; row++)
            finish(self, (double *)sums + row * self->scores);
}
