/* `ranges.py` in C, on NVTX's own header. Python is the specification, and has the reasons.

Ranges can be opened and closed by C without a call of Python: `gpuprof_timing` finds `table` at
the type of a range. All of it relies on the global lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>

#ifdef Py_GIL_DISABLED
#error "not audited without the global lock"
#endif

#define MOST_NAMES 4096
#define MOST_FREE 64

/* As in `gpuprof_timing/_hot.c`. */
typedef struct {
    PyTypeObject *type;                                  /* of the ranges */
    PyObject *(*label_of)(PyObject *range);              /* by which C opens another one */
    PyObject *(*open)(PyObject *label, int crosses_tasks); /* an open range, or NULL */
    void (*close)(PyObject *range);
} RangeTable;
#define RANGE_TABLE "gpuprof_timing.range_table.1"

static nvtxDomainHandle_t domain;
static PyObject *texts; /* the registered strings by name: NVTX keeps them for ever */

/* What a range of a name shows. */
typedef struct {
    PyObject_HEAD
    nvtxEventAttributes_t attributes;
} Label;

static PyTypeObject label_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gpuprof_nsight._nvtx.compiled.Label",
    .tp_basicsize = sizeof(Label),
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* Ranges */

enum { MADE, PUSHED, STARTED, ENDED };

typedef struct Range {
    PyObject_HEAD
    Label *label;
    struct Range *below; /* on its thread's stack, which holds it */
    nvtxRangeId_t number;
    char state, crosses_tasks;
} Range;

static __thread Range *top; /* a thread that ends with ranges open leaves them in memory */
static Range *free_ranges[MOST_FREE];
static int free_range_count;
static PyTypeObject range_type;

static Range *
make_range(Label *label, int crosses_tasks)
{
    Range *range;
    if (free_range_count) {
        range = free_ranges[--free_range_count];
        PyObject_Init((PyObject *)range, &range_type);
    }
    else {
        range = PyObject_New(Range, &range_type);
        if (range == NULL) {
            return NULL;
        }
    }
    Py_INCREF(label);
    range->label = label;
    range->below = NULL;
    range->state = MADE;
    range->crosses_tasks = (char)crosses_tasks;
    return range;
}

static void
range_dealloc(PyObject *self)
{
    Range *range = (Range *)self;
    Py_DECREF(range->label);
    if (free_range_count < MOST_FREE) {
        free_ranges[free_range_count++] = range;
    }
    else {
        PyObject_Free(self);
    }
}

static void
begin_range(Range *range)
{
    if (range->crosses_tasks) {
        range->state = STARTED;
        range->number = nvtxDomainRangeStartEx(domain, &range->label->attributes);
        return;
    }
    range->state = PUSHED;
    range->below = top;
    Py_INCREF(range);
    top = range;
    nvtxDomainRangePushEx(domain, &range->label->attributes);
}

/* NVTX pops the top of the calling thread's stack: a range that ends out of order, or in another
thread, waits until its own thread has it on top. */
static void
end_range(PyObject *self)
{
    Range *range = (Range *)self;
    char was = range->state;
    range->state = ENDED;
    if (was == STARTED) {
        nvtxDomainRangeEnd(domain, range->number);
    }
    else if (was == PUSHED && range == top) {
        while (top != NULL && top->state == ENDED) {
            Range *over = top;
            top = over->below;
            nvtxDomainRangePop(domain);
            Py_DECREF(over);
        }
    }
}

static PyObject *
range_enter(PyObject *self, PyObject *unused)
{
    if (((Range *)self)->state != MADE) {
        PyErr_SetString(PyExc_RuntimeError, "this range was entered before; open another one");
        return NULL;
    }
    begin_range((Range *)self);
    Py_RETURN_NONE;
}

static PyObject *
range_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    end_range(self);
    Py_RETURN_NONE;
}

static PyMethodDef range_methods[] = {
    {"__enter__", range_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))range_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyTypeObject range_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gpuprof_nsight._nvtx.compiled.Range",
    .tp_basicsize = sizeof(Range),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = range_dealloc,
    .tp_methods = range_methods,
};

static PyObject *
label_of(PyObject *range)
{
    PyObject *label = (PyObject *)((Range *)range)->label;
    Py_INCREF(label);
    return label;
}

static PyObject *
open_label(PyObject *label, int crosses_tasks)
{
    Range *range = make_range((Label *)label, crosses_tasks);
    if (range != NULL) {
        begin_range(range);
    }
    return (PyObject *)range;
}

static const RangeTable table = {&range_type, label_of, open_label, end_range};

/* The ranges of one worker group and step */

typedef struct {
    PyObject_HEAD
    PyObject *labels; /* by name */
    uint32_t category, color;
    int64_t step;
    char has_step;
} Ranges;

static PyObject *
ranges_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    unsigned int category, color;
    PyObject *step;
    if (!PyArg_ParseTuple(args, "IIO", &category, &color, &step)) {
        return NULL;
    }
    long long payload = step == Py_None ? 0 : PyLong_AsLongLong(step);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Ranges *ranges = (Ranges *)type->tp_alloc(type, 0);
    if (ranges == NULL) {
        return NULL;
    }
    ranges->category = category;
    ranges->color = color;
    ranges->step = payload;
    ranges->has_step = step != Py_None;
    ranges->labels = PyDict_New();
    if (ranges->labels == NULL) {
        Py_CLEAR(ranges);
    }
    return (PyObject *)ranges;
}

static void
ranges_dealloc(PyObject *self)
{
    Py_XDECREF(((Ranges *)self)->labels);
    Py_TYPE(self)->tp_free(self);
}

/* Keep an object by its name; names made from data would fill the memory. */
static int
remember(PyObject *where, PyObject *name, PyObject *object)
{
    if (PyDict_GET_SIZE(where) >= MOST_NAMES) {
        PyDict_Clear(where);
    }
    return PyDict_SetItem(where, name, object);
}

/* The string that NVTX has registered for a name; NULL with an exception, or without a tool. */
static nvtxStringHandle_t
registered(PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(texts, name);
    if (found != NULL) {
        return PyLong_AsVoidPtr(found);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *text = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
    if (text == NULL) {
        return NULL;
    }
    nvtxStringHandle_t string = nvtxDomainRegisterStringA(domain, PyBytes_AS_STRING(text));
    Py_DECREF(text);
    PyObject *address = PyLong_FromVoidPtr(string);
    int failed = address == NULL || remember(texts, name, address) < 0;
    Py_XDECREF(address);
    return failed ? NULL : string;
}

static Label *
make_label(Ranges *ranges, PyObject *name)
{
    nvtxStringHandle_t string = registered(name);
    if (string == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Label *label = PyObject_New(Label, &label_type);
    if (label == NULL) {
        return NULL;
    }
    label->attributes = (nvtxEventAttributes_t){
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .category = ranges->category,
        .colorType = NVTX_COLOR_ARGB,
        .color = ranges->color,
        .payloadType = ranges->has_step ? NVTX_PAYLOAD_TYPE_INT64 : NVTX_PAYLOAD_UNKNOWN,
        .payload.llValue = ranges->step,
        .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
        .message.registered = string,
    };
    if (remember(ranges->labels, name, (PyObject *)label) < 0) {
        Py_CLEAR(label);
    }
    return label;
}

static PyObject *
ranges_open(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Ranges *ranges = (Ranges *)self;
    if (count != 2 || !PyUnicode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "open() takes a name and whether it crosses tasks");
        return NULL;
    }
    int crosses_tasks = PyObject_IsTrue(args[1]);
    if (crosses_tasks < 0) {
        return NULL;
    }
    Label *label = (Label *)PyDict_GetItemWithError(ranges->labels, args[0]);
    Py_XINCREF(label);
    if (label == NULL && (PyErr_Occurred() || (label = make_label(ranges, args[0])) == NULL)) {
        return NULL;
    }
    Range *range = make_range(label, crosses_tasks);
    Py_DECREF(label);
    return (PyObject *)range;
}

static PyMethodDef ranges_methods[] = {
    {"open", (PyCFunction)(void (*)(void))ranges_open, METH_FASTCALL, NULL},
    {NULL},
};

static PyTypeObject ranges_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gpuprof_nsight._nvtx.compiled.Ranges",
    .tp_basicsize = sizeof(Ranges),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = ranges_new,
    .tp_dealloc = ranges_dealloc,
    .tp_methods = ranges_methods,
};

/* The module */

/* Make the domain, which is one for all, and give a category its name. */
static PyObject *
name_category(PyObject *module, PyObject *args)
{
    const char *of, *name;
    unsigned int category;
    if (!PyArg_ParseTuple(args, "sIs", &of, &category, &name)) {
        return NULL;
    }
    if (domain == NULL) {
        domain = nvtxDomainCreateA(of);
    }
    nvtxDomainNameCategoryA(domain, category, name);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"name_category", name_category, METH_VARARGS, NULL},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit_compiled(void)
{
    texts = PyDict_New();
    PyObject *capsule = PyCapsule_New((void *)&table, RANGE_TABLE, NULL);
    PyObject *module = PyModule_Create(&definition);
    if (texts == NULL || capsule == NULL || module == NULL || PyType_Ready(&label_type) < 0
        || PyType_Ready(&range_type) < 0
        || PyDict_SetItemString(range_type.tp_dict, "_range_table", capsule) < 0
        || PyModule_AddType(module, &ranges_type) < 0) {
        return NULL;
    }
    Py_DECREF(capsule);
    return module;
}
