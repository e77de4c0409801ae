/* TV-L1 optical flow at one scale of the image pyramid, as a module of Python: tvl1_variants.h in C.
 * extractors/flow/tvl1.py makes the pyramid and calls this once per scale.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tvl1_variants.h"

static PyObject *workspace_size(PyObject *module, PyObject *args) {
    int w, h;
    if (!PyArg_ParseTuple(args, "ii", &w, &h))
        return NULL;
    return PyLong_FromSize_t(workspace_bytes(w, h));
}

static PyObject *solve_scale(PyObject *module, PyObject *args) {
    Py_buffer i0, i1, u1, u2, memory;
    int w, h, variant;
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*iii", &i0, &i1, &u1, &u2, &memory, &w, &h, &variant))
        return NULL;
    Py_ssize_t plane = (Py_ssize_t)sizeof(float) * w * h;
    int fits = w >= 3 && h >= 3 && i0.len == plane && i1.len == plane && u1.len == plane && u2.len == plane &&
               memory.len >= (Py_ssize_t)workspace_bytes(w, h) && variant >= 0 && variant < variant_count;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        solve_in(memory.buf, variant, i0.buf, i1.buf, u1.buf, u2.buf, w, h);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&i0);
    PyBuffer_Release(&i1);
    PyBuffer_Release(&u1);
    PyBuffer_Release(&u2);
    PyBuffer_Release(&memory);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "buffers do not match the size, or no such variant");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *variant_names(PyObject *module, PyObject *unused) {
    PyObject *names = PyTuple_New(variant_count);
    for (int i = 0; names && i < variant_count; i++)
        PyTuple_SET_ITEM(names, i, PyUnicode_FromString(variants[i].name));
    return names;
}

static PyMethodDef methods[] = {
    {"workspace_size", workspace_size, METH_VARARGS, "workspace_size(w, h): bytes solve_scale needs."},
    {"solve_scale", solve_scale, METH_VARARGS,
     "solve_scale(i0, i1, u1, u2, workspace, w, h, variant): improves the flow u1, u2 in place, without the GIL."},
    {"variants", variant_names, METH_NOARGS, "Names of the instruction sets this processor runs, slowest first."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tvl1", "TV-L1 optical flow.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__tvl1(void) {
    if (!variant_count)
        find_variants();
    return PyModule_Create(&definition);
}
