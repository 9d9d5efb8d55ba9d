/* The least that a context manager written in C can do that takes the time twice. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    long long started, ended;
} Clocked;

static long long
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static PyObject *
enter(PyObject *self, PyObject *unused)
{
    ((Clocked *)self)->started = now();
    Py_INCREF(self);
    return self;
}

static PyObject *
leave(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    ((Clocked *)self)->ended = now();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, NULL},
    {NULL},
};

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "floor.Clocked",
    .tp_basicsize = sizeof(Clocked),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = PyType_GenericNew,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "floor", NULL, -1, NULL};

PyMODINIT_FUNC
PyInit_floor(void)
{
    PyObject *module = PyType_Ready(&type) < 0 ? NULL : PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Clocked", (PyObject *)&type) < 0) {
        return NULL;
    }
    return module;
}
