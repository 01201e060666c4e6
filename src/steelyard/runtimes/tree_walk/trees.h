/* Decision trees laid out for walking: to the last bit the sums of leaf values that LightGBM's own predictor gives.
 *
 * `layout.c` lays out the arrays of a model text, `walk.c` walks, `module.c` is the door for `walker.py`. Whatever the
 * arrays hold, a tree is either refused with a ValueError or can be walked without leaving its memory and without end.
 *
 * Where the speed comes from:
 * - The two children of a node are neighbours, so that a step is `child + !(x <= threshold)`: an addition, not a branch
 *   that the processor guesses wrong every other time. A leaf is its own right child, since no number is <= NaN.
 * - A step waits for memory, not for arithmetic, so some walks go side by side: rows of one tree, or trees of one row.
 *   They go a few steps without looking where they are; those that then stand on a leaf leave the list.
 * - What happens to NaN and zero is decided once per row, not at every node: a node reads a *view* of its feature in
 *   which these were replaced by a number that takes the right way.
 * - Many rows go in batches, each through all trees, so that a tree is fetched once per batch: a small batch leaves the
 *   first cache to its rows, a large one is worth it where a tree is larger than that cache.
 */
#ifndef STEELYARD_TREES_H
#define STEELYARD_TREES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* How a node sees its feature. The order is that of `fill`. */
enum { AS_IS, NAN_IS_ZERO, NAN_LEFT, ZERO_LEFT, ZERO_RIGHT, CATEGORY, KINDS };

#define BY_CATEGORY (UINT32_C(1) << 31)
enum { NOWHERE = 0 }; /* the place of a leaf that is no tree's */

enum { BATCH = 1024 }; /* at most so many rows go through a tree together, or a row through trees */

/* As in walker.py. */
enum { LINK_NONE, LINK_SIGMOID, LINK_SOFTMAX, LINK_EXP, LINK_LOG1P_EXP, LINK_SIGNED_SQUARE, LINKS };

typedef struct {
    union {
        double threshold; /* left if <= */
        uint64_t leaf;    /* a leaf: a NaN, with the leaf's number in its lower half */
        struct {
            uint32_t first, count;
        } words; /* a split by categories: its part of the bit set */
    };
    uint32_t column; /* the view's place in a prepared row; BY_CATEGORY more for a split by categories */
    uint32_t child;  /* the left one; the right one follows. A leaf: its own place - 1 */
} Node;

typedef struct {
    PyObject_HEAD
    Py_ssize_t features, scores, width, trees, views;
    Py_ssize_t batch;        /* rows that go through a tree together */
    int single;              /* values and sums are floats, not doubles */
    int link;
    double parameter;        /* of the link */
    double divisor;          /* of the sums, before the link; 1 for none */
    double tiny;             /* |x| up to here becomes 0 */
    Node *nodes;
    uint32_t *roots;         /* (trees,) */
    int32_t *score;          /* (trees,) the first of `width` sums that a tree adds to */
    unsigned char *branches; /* (trees,) whether a tree splits by categories */
    int32_t *view_feature;   /* (views,), those of one kind together */
    Py_ssize_t kind_start[KINDS + 1];
    uint32_t *words;
    void *values;            /* (leaves, width) */
} Trees;

/* A model text's arrays, trees one after the other: (inner nodes,), with places that count within their tree. */
typedef struct {
    Py_buffer leaves, feature, threshold, decision, left, right, score, values, boundaries, words;
} Grown;

/* Fills `self` from its numbers and `grown`; -1, with an exception set where that is no forest. */
int trees_build(Trees *self, const Grown *grown);

/* Sums (count, scores) of rows (count, features) of floats or doubles. `x` has room for the views of as many rows, or
 * of `batch` rows if these are fewer. Needs no interpreter lock. */
void trees_walk(const Trees *self, const char *rows, int floats, Py_ssize_t count, char *sums, double *x);

#endif
