/* From the arrays of a model text to nodes that `walk.c` walks, with everything checked on the way. */
#include "trees.h"

#include <math.h>
#include <string.h>

/* Of a decision type in a model text: two flags, and the type of missing values from the third bit on. */
enum { IS_CATEGORICAL = 1, DEFAULT_LEFT = 2, MISSING_IS_ZERO = 1, MISSING_IS_NAN = 2 };

static const uint64_t QUIET_NAN = UINT64_C(0x7ff8000000000000);

enum { SMALL_TREE = 1024, SMALL_BATCH = 256, LEAST_BATCH = 64, MOST_VIEWS = 1 << 19 }; /* nodes, rows, rows, numbers */

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

static Py_ssize_t batch_of(const Trees *self, Py_ssize_t nodes)
{
    Py_ssize_t batch = nodes > SMALL_TREE * self->trees ? BATCH : SMALL_BATCH;
    while (batch > LEAST_BATCH && batch * self->views > MOST_VIEWS)
        batch /= 2;
    return batch;
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

int trees_build(Trees *self, const Grown *grown)
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
        self->batch = batch_of(self, 2 * all);
        failed = 0;
        for (Py_ssize_t tree = 0; tree < self->trees && !failed; tree++) {
            self->roots[tree] = (uint32_t)root;
            failed = lay_out(self, grown, tree, leaves_before - tree, leaves_before, leaves[tree], root, places,
                             scratch, scratch + 2 * (Py_ssize_t)most);
            leaves_before += leaves[tree];
            root += 2 * leaves[tree] - 1;
        }
    }
    PyMem_Free(places);
    PyMem_Free(scratch);
    return failed;
}
