/* The Python side: the type `Trees`, made from a model text's arrays, and its one method. It knows no numpy: arrays
 * come through the buffer protocol. */
#include "trees.h"

#include <string.h>

enum { LONG_WALKS = 2000 }; /* rows times trees from which other threads may run meanwhile: some 20 µs */

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

static PyObject *call_walk(Trees *self, PyObject *const *arguments, Py_ssize_t count)
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
        const Py_ssize_t batch = given < self->batch ? given : self->batch;
        double *x = given == wanted ? PyMem_Malloc((self->views * batch + 1) * sizeof(double)) : NULL;
        if (given != wanted) {
            PyErr_SetString(PyExc_ValueError, "as many sums as rows are needed");
        } else if (!x) {
            PyErr_NoMemory();
        } else {
            PyThreadState *state = given * self->trees > LONG_WALKS ? PyEval_SaveThread() : NULL;
            trees_walk(self, rows.buf, rows.format[0] == 'f', given, sums.buf, x);
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

PyDoc_STRVAR(trees_doc, "Trees of a model text; see _walk.pyi. Raises ValueError for what is no tree.");

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
            self->scores > INT32_MAX || (self->single && self->width != 1) || self->link < 0 || self->link >= LINKS) {
            PyErr_SetString(PyExc_ValueError, "a number about the model is out of range");
            failed = 1;
        } else {
            failed = trees_build(self, &grown);
        }
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
    {"walk", (PyCFunction)(void (*)(void))call_walk, METH_FASTCALL, walk_doc},
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
    .m_doc = "Decision trees, walked: see trees.h.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    return PyModuleDef_Init(&module);
}
