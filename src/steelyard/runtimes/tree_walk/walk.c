/* Decision trees laid out for walking, and the walk: rows in, sums of leaf values out, to the last bit what LightGBM's
 * own predictor gives.
 *
 * Used by `walker.py`, which hands over the arrays of a model text. Whatever these arrays hold, a tree is either refused
 * with a ValueError or can be walked without leaving its memory and without end. Nothing here knows Python's numpy: rows
 * and sums come through the buffer protocol.
 *
 * Where the speed comes from:
 * - The two children of a node are neighbours, so that a step is `child + !(x <= threshold)`: an addition, not a branch
 *   that the processor guesses wrong every other time. A leaf is its own right child, since no number is <= NaN.
 * - A step waits for memory, not for arithmetic, so LANES walks go side by side: rows of one tree, or trees of one row.
 *   They go STEPS steps without looking where they are; those that then stand on a leaf leave the list.
 * - What happens to NaN and zero is decided once per row, not at every node: a node reads a *view* of its feature in
 *   which these were replaced by a number that takes the right way.
 * - Many rows go in batches, each through all trees, so that a tree is fetched once per batch.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "sums would not round as LightGBM's do"
#endif

enum { LANES = 8, STEPS = 4, BATCH = 128 }; /* walks in a group, steps of a trip, rows (or trees of one row) at once */
enum { LONG_WALKS = 2000 }; /* rows times trees from which other threads may run meanwhile: some 20 µs */

/* How a node sees its feature. The order is that of `fill`. */
enum { AS_IS, NAN_IS_ZERO, NAN_LEFT, ZERO_LEFT, ZERO_RIGHT, CATEGORY, KINDS };

/* Of a decision type in a model text: two flags, and the type of missing values from the third bit on. */
enum { IS_CATEGORICAL = 1, DEFAULT_LEFT = 2, MISSING_IS_ZERO = 1, MISSING_IS_NAN = 2 };

static const double NEARLY_ZERO = 1e-35f; /* up to here a number counts as zero: rounded to a float on purpose */
static const uint64_t QUIET_NAN = UINT64_C(0x7ff8000000000000);

static const uint32_t BY_CATEGORY = UINT32_C(1) << 31;
enum { NOWHERE = 0 }; /* the place of a leaf that is no tree's */

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

/* ---- Walking ---- */

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
        for (Py_ssize_t tree = 0; tree < trees; tree++)
            add(self, first + tree, walks->leaf[tree], sums);
    }
}

/* Up to BATCH rows: tree by tree, rows side by side. */
static void walk_rows(const Trees *self, const double *x, Py_ssize_t rows, char *sums, Py_ssize_t sum_bytes, Walks *walks)
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
            total += sums[k] = exp(sums[k] - highest);
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

static void walk(const Trees *self, const char *rows, int floats, Py_ssize_t count, char *sums, double *x)
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
    const Py_ssize_t batch = count < LANES / 2 ? 1 : BATCH;
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

/* The number of rows of a matrix of floats or doubles with that many columns, or -1. */
static Py_ssize_t rows_of(const Py_buffer *buffer, Py_ssize_t columns, const char *formats)
{
    if (buffer->ndim != 2 || buffer->shape[1] != columns || !buffer->format || !buffer->format[0] ||
        buffer->format[1] || !strchr(formats, buffer->format[0])) {
        PyErr_SetString(PyExc_ValueError, "a contiguous matrix of another shape or type is needed");
        return -1;
    }
    return buffer->shape[0];
}

PyDoc_STRVAR(walk_doc, "walk(rows, sums)\n--\n\n"
                       "Fill `sums` (rows, scores) from `rows` (rows, features) of doubles or floats.");

static PyObject *trees_walk(Trees *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer rows, sums;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "walk takes rows and sums");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &rows, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &sums, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    PyObject *result = NULL;
    const Py_ssize_t given = rows_of(&rows, self->features, "df");
    const Py_ssize_t wanted = rows_of(&sums, self->scores, self->single ? "f" : "d");
    if (given >= 0 && wanted >= 0) {
        const Py_ssize_t batch = given < BATCH ? given : BATCH;
        double *x = given == wanted ? PyMem_Malloc((self->views * batch + 1) * sizeof(double)) : NULL;
        if (given != wanted) {
            PyErr_SetString(PyExc_ValueError, "as many sums as rows are needed");
        } else if (!x) {
            PyErr_NoMemory();
        } else {
            PyThreadState *state = given * self->trees > LONG_WALKS ? PyEval_SaveThread() : NULL;
            walk(self, rows.buf, rows.format[0] == 'f', given, sums.buf, x);
            if (state)
                PyEval_RestoreThread(state);
            result = Py_NewRef(Py_None);
        }
        PyMem_Free(x);
    }
    PyBuffer_Release(&sums);
    PyBuffer_Release(&rows);
    return result;
}

/* ---- Laying out ---- */

/* A model text's arrays, trees one after the other: (inner nodes,), with places that count within their tree. */
typedef struct {
    Py_buffer leaves, feature, threshold, decision, left, right, score, values, boundaries, words;
} Grown;

static int kind_of(int decision)
{
    const int missing = decision >> 2 & 3, left = decision & DEFAULT_LEFT;
    if (decision & IS_CATEGORICAL)
        return CATEGORY;
    if (missing == MISSING_IS_ZERO)
        return left ? ZERO_LEFT : ZERO_RIGHT;
    if (missing == MISSING_IS_NAN)
        return left ? NAN_LEFT : AS_IS;
    return NAN_IS_ZERO;
}

static int refuse(const char *sentence)
{
    PyErr_SetString(PyExc_ValueError, sentence);
    return -1;
}

/* Numbers the views that nodes need, those of one kind together; `places` (KINDS, features) gets their numbers. */
static int number_views(Trees *self, const Grown *grown, Py_ssize_t inner, int32_t *places)
{
    const int32_t *feature = grown->feature.buf;
    const unsigned char *decision = grown->decision.buf;
    for (Py_ssize_t node = 0; node < inner; node++) {
        if (feature[node] < 0 || feature[node] >= self->features)
            return refuse("a split is by a feature that does not exist");
        places[kind_of(decision[node]) * self->features + feature[node]] = 1;
    }
    Py_ssize_t views = 0;
    for (Py_ssize_t place = 0; place < KINDS * self->features; place++)
        views += places[place];
    if (views > INT32_MAX / KINDS)
        return refuse("there are too many features");
    self->views = views;
    self->view_feature = PyMem_Calloc(views + 1, sizeof(int32_t));
    if (!self->view_feature) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t next = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        self->kind_start[kind] = next;
        for (Py_ssize_t place = 0; place < self->features; place++) {
            if (places[kind * self->features + place]) {
                self->view_feature[next] = (int32_t)place;
                places[kind * self->features + place] = (int32_t)next++;
            }
        }
    }
    self->kind_start[KINDS] = next;
    return 0;
}

/* One tree's nodes from `root` on; `from` (its node count,) is scratch. Left children come first, so that the way left
 * stays close. A tree that its leaves cannot fill, because a node is reached twice, does not fit its place. */
static int lay_out(Trees *self, const Grown *grown, Py_ssize_t tree, Py_ssize_t inner_before, int32_t leaves_before,
                   int32_t leaves, int32_t root, const int32_t *places, int32_t *from, int32_t *open)
{
    const int32_t *feature = (const int32_t *)grown->feature.buf + inner_before;
    const double *threshold = (const double *)grown->threshold.buf + inner_before;
    const unsigned char *decision = (const unsigned char *)grown->decision.buf + inner_before;
    const int32_t *left = (const int32_t *)grown->left.buf + inner_before;
    const int32_t *right = (const int32_t *)grown->right.buf + inner_before;
    const int32_t *boundaries = grown->boundaries.buf;
    const Py_ssize_t sets = grown->boundaries.len / (Py_ssize_t)sizeof(int32_t) - 1;
    const int32_t room = 2 * leaves - 1;
    int32_t used = 1, waiting = 1;
    from[0] = leaves > 1 ? 0 : -1;
    open[0] = 0;
    while (waiting) {
        const int32_t place = open[--waiting];
        const int32_t source = from[place];
        Node *node = self->nodes + root + place;
        if (source < 0) {
            if (~source >= leaves)
                return refuse("a tree has a leaf that does not exist");
            node->leaf = QUIET_NAN | (uint32_t)(leaves_before + ~source);
            node->column = 0;
            node->child = (uint32_t)(root + place - 1);
            continue;
        }
        if (source >= leaves - 1)
            return refuse("a tree has a node that does not exist");
        if (used + 2 > room)
            return refuse("a tree has a node that is reached twice");
        const int kind = kind_of(decision[source]);
        const uint32_t column = (uint32_t)places[kind * self->features + feature[source]];
        node->column = kind == CATEGORY ? BY_CATEGORY + column : column;
        node->child = (uint32_t)(root + used);
        if (kind == CATEGORY) {
            if (!(threshold[source] >= 0 && threshold[source] < (double)sets))
                return refuse("a split is by a set of categories that does not exist");
            const Py_ssize_t set = (Py_ssize_t)threshold[source];
            node->words.first = (uint32_t)boundaries[set];
            node->words.count = (uint32_t)(boundaries[set + 1] - boundaries[set]);
            self->branches[tree] = 1;
        } else {
            if (isnan(threshold[source]))
                return refuse("a threshold is not a number");
            node->threshold = threshold[source];
        }
        from[used] = left[source];
        from[used + 1] = right[source];
        open[waiting++] = used + 1;
        open[waiting++] = used;
        used += 2;
    }
    return used == room ? 0 : refuse("a tree has nodes that nothing leads to");
}

static int check_sizes(const Trees *self, const Grown *grown, Py_ssize_t inner, Py_ssize_t leaves)
{
    const Py_ssize_t size = self->single ? sizeof(float) : sizeof(double);
    const Py_ssize_t words = grown->words.len / (Py_ssize_t)sizeof(uint32_t);
    const Py_ssize_t bounds = grown->boundaries.len / (Py_ssize_t)sizeof(int32_t);
    const int32_t *boundaries = grown->boundaries.buf;
    if (grown->feature.len != inner * (Py_ssize_t)sizeof(int32_t) ||
        grown->threshold.len != inner * (Py_ssize_t)sizeof(double) || grown->decision.len != inner ||
        grown->left.len != inner * (Py_ssize_t)sizeof(int32_t) ||
        grown->right.len != inner * (Py_ssize_t)sizeof(int32_t) ||
        grown->score.len != self->trees * (Py_ssize_t)sizeof(int32_t) ||
        grown->values.len / size / self->width != leaves || grown->values.len % (size * self->width))
        return refuse("the arrays of the trees have different lengths");
    if (bounds < 1 || boundaries[0] != 0 || boundaries[bounds - 1] != words)
        return refuse("the sets of categories have other bounds than words");
    for (Py_ssize_t set = 1; set < bounds; set++)
        if (boundaries[set] < boundaries[set - 1])
            return refuse("the sets of categories overlap");
    const int32_t *score = grown->score.buf;
    for (Py_ssize_t tree = 0; tree < self->trees; tree++)
        if (score[tree] < 0 || score[tree] > self->scores - self->width)
            return refuse("a tree counts for a score that does not exist");
    return 0;
}

static void *copy_of(const void *source, Py_ssize_t size)
{
    void *result = PyMem_Malloc(size ? size : 1);
    if (!result)
        PyErr_NoMemory();
    else if (size)
        memcpy(result, source, size);
    return result;
}

static int build(Trees *self, const Grown *grown)
{
    const int32_t *leaves = grown->leaves.buf;
    self->trees = grown->leaves.len / (Py_ssize_t)sizeof(int32_t);
    Py_ssize_t all = 0;
    int32_t most = 1;
    for (Py_ssize_t tree = 0; tree < self->trees; tree++) {
        if (leaves[tree] < 1)
            return refuse("a tree has no leaves");
        all += leaves[tree];
        most = leaves[tree] > most ? leaves[tree] : most;
    }
    if (all > INT32_MAX / 2)
        return refuse("there are too many leaves");
    const Py_ssize_t inner = all - self->trees;
    if (check_sizes(self, grown, inner, all) < 0)
        return -1;
    self->nodes = PyMem_Calloc(2 * all + 1, sizeof(Node));
    self->roots = PyMem_Calloc(self->trees + 1, sizeof(uint32_t));
    self->branches = PyMem_Calloc(self->trees + 1, 1);
    self->score = copy_of(grown->score.buf, grown->score.len);
    self->words = copy_of(grown->words.buf, grown->words.len);
    self->values = copy_of(grown->values.buf, grown->values.len);
    int32_t *places = PyMem_Calloc(KINDS * self->features + 1, sizeof(int32_t));
    int32_t *scratch = PyMem_Calloc(4 * (Py_ssize_t)most, sizeof(int32_t));
    int failed = -1;
    if (!self->nodes || !self->roots || !self->branches || !self->score || !self->words || !self->values || !places ||
        !scratch) {
        PyErr_NoMemory();
    } else if (number_views(self, grown, inner, places) == 0) {
        int32_t leaves_before = 0, root = NOWHERE + 1;
        self->nodes[NOWHERE] = (Node){.leaf = QUIET_NAN, .child = (uint32_t)(NOWHERE - 1)};
        failed = 0;
        for (Py_ssize_t tree = 0; tree < self->trees && !failed; tree++) {
            self->roots[tree] = (uint32_t)root;
            failed = lay_out(self, grown, tree, leaves_before - tree, leaves_before, leaves[tree], root, places, scratch,
                             scratch + 2 * (Py_ssize_t)most);
            leaves_before += leaves[tree];
            root += 2 * leaves[tree] - 1;
        }
    }
    PyMem_Free(places);
    PyMem_Free(scratch);
    return failed;
}

PyDoc_STRVAR(trees_doc, "Trees(*, features, scores, width, single, link, parameter, divisor, tiny, leaves, feature, …)\n--\n\n"
                        "Trees of a model text; see _walk.pyi. Raises ValueError for what is no tree.");

static PyObject *trees_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"features", "scores", "width", "single", "link", "parameter", "divisor", "tiny", "leaves",
                            "feature", "threshold", "decision", "left", "right", "score", "values", "boundaries",
                            "words", NULL};
    Trees *self = (Trees *)type->tp_alloc(type, 0);
    Grown grown = {0};
    if (!self)
        return NULL;
    int failed = !PyArg_ParseTupleAndKeywords(
        arguments, keywords, "$nnnpidddy*y*y*y*y*y*y*y*y*y*", names, &self->features, &self->scores, &self->width,
        &self->single, &self->link, &self->parameter, &self->divisor, &self->tiny, &grown.leaves, &grown.feature,
        &grown.threshold, &grown.decision, &grown.left, &grown.right, &grown.score, &grown.values, &grown.boundaries,
        &grown.words);
    if (!failed) {
        if (self->features < 0 || self->features > INT32_MAX / KINDS || self->width < 1 || self->scores < self->width ||
            self->scores > INT32_MAX || (self->single && self->width != 1) || self->link < 0 || self->link >= LINKS)
            failed = refuse("a number about the model is out of range");
        else
            failed = build(self, &grown);
    }
    for (Py_buffer *buffer = &grown.leaves; buffer <= &grown.words; buffer++)
        PyBuffer_Release(buffer);
    if (failed) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void trees_dealloc(Trees *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->nodes);
    PyMem_Free(self->roots);
    PyMem_Free(self->score);
    PyMem_Free(self->branches);
    PyMem_Free(self->view_feature);
    PyMem_Free(self->words);
    PyMem_Free(self->values);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef trees_methods[] = {
    {"walk", (PyCFunction)(void (*)(void))trees_walk, METH_FASTCALL, walk_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot trees_slots[] = {
    {Py_tp_doc, (void *)trees_doc},
    {Py_tp_new, trees_new},
    {Py_tp_dealloc, trees_dealloc},
    {Py_tp_methods, trees_methods},
    {0, NULL},
};

static PyType_Spec trees_spec = {
    .name = "steelyard.runtimes.tree_walk._walk.Trees",
    .basicsize = sizeof(Trees),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trees_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &trees_spec, NULL);
    if (!type)
        return -1;
    const int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_walk",
    .m_doc = "Decision trees, walked: see walk.c.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    return PyModuleDef_Init(&module);
}
