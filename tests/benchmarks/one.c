/* A module with one function, for the test of the runner of mutants. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *one(PyObject *self, PyObject *args) {
    return PyLong_FromLong(1);
}

static PyMethodDef methods[] = {{"one", one, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_boxes", NULL, -1, methods};

PyMODINIT_FUNC PyInit__boxes(void) {
    return PyModule_Create(&module);
}
