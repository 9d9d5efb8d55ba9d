/* The hot path of `_scope.py` in C.

Python is the specification. C does what nearly every scope needs, and hands everything else to the
Python method, before it has changed anything: a range to open, a place that is new, an event loop,
times that do not fit into 64 bits. So nothing is described twice except the few lines that are hot.

The types here are the bases of Python's classes of the same names; `Scope` takes its remaining
methods from the Python class. See `_compiled.py`.

All of it relies on the global lock: a free-threaded build uses Python instead. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <structmember.h>
#include <time.h>
#ifdef __linux__
#include <fcntl.h>
#include <unistd.h>
#endif

#ifdef Py_GIL_DISABLED
#error "not audited without the global lock"
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are packed as they lie in memory, which a ledger has in little-endian order"
#endif

#if PY_VERSION_HEX < 0x030C0000
#define READ_ONLY READONLY
#define OBJECT T_OBJECT
#define BOOLEAN T_BOOL
#define SIZE T_PYSSIZET
#else
#define READ_ONLY Py_READONLY
#define OBJECT _Py_T_OBJECT
#define BOOLEAN Py_T_BOOL
#define SIZE Py_T_PYSSIZET
#endif

#define TRUE_OBJECT(x) ((x) != NULL && (x) != Py_None)

typedef unsigned __int128 uint128;

/* What Python tells us; see `bind` and `complete`. */
static PyTypeObject *scope_type, *scope_base, *node_base, *cursor_base, *recording_base,
    *recorder_base;
static PyTypeObject *node_type, *cursor_type, *recording_type;
static PyObject *spec_enter, *spec_exit, *spec_add_time; /* the Python methods */
static PyObject *spec_call;              /* the Python `call_linked` */
static PyObject *task_track;             /* `_spans.task_track` */
static PyObject *enter_range, *leave_range; /* `_range_slot.enter` and `leave` */
static int ranges_open;                  /* whether `_range_slot` is filled */
static unsigned long ranges_filled;      /* how often it was filled or emptied */
static PyObject *in_loop;                /* `_cursor.IN_LOOP` */
static PyObject *modules;                /* `sys.modules` */
static PyObject *perf_counter_ns;        /* NULL if `monotonic` is another clock */
static PyObject *running_loop;           /* `asyncio._get_running_loop`, once asyncio is there */
static PyCFunction variable_get, variable_set;
static PyObject *str_asyncio, *str_depth, *str_get_running_loop, *str_skip_closed_parents,
    *str_key, *str_abandon, *str_waits, *str_releases, *str_meets, *str_loop_of_thread;

/* Objects of Python's classes that derive from one of ours: their own slots are Python's, and are
gone by now, so that a class's own `tp_clear` must not look for them again. */
#define DEALLOC(of) \
    static void of##_dealloc(PyObject *self) \
    { \
        PyTypeObject *type = Py_TYPE(self); \
        PyObject_GC_UnTrack(self); \
        of##_clear(self); \
        type->tp_free(self); \
        Py_DECREF(type); \
    }

/* For an object from a list of spare ones, which still has its type: what `PyObject_Init` does,
without its calls. */
static inline void
revive(PyObject *object)
{
#if defined(Py_REF_DEBUG) || defined(Py_TRACE_REFS)
    _Py_NewReference(object);
#else
    Py_SET_REFCNT(object, 1);
#endif
}

/* Nodes */

enum {
    COUNT, TOTAL, LAST, MINIMUM, MAXIMUM, ENTERED, FOLDED, BUSY, SINCE, UNTIL, LIMIT, ROOM,
    NUMBERS
};
#define NONE INT64_MIN /* stands for Python's None */

typedef struct {
    PyObject_HEAD
    int64_t number[NUMBERS];
    uint64_t squares_high, squares_low;
    PyObject *wide; /* a dict of the numbers that do not fit, or NULL if all do */
    PyObject *places, *latest, *window, *interval, *track;
    char linked;
} Node;

typedef struct {
    PyObject_HEAD
    PyObject *scope; /* a Scope */
    PyObject *owner, *track;
} Cursor;

typedef struct {
    PyObject_HEAD
    PyObject *clock, *get_cursor, *set_cursor, *enabled, *off;
} Recording;

enum { NOT_STARTED, STARTED, STARTED_WIDE };

typedef struct Scope {
    PyObject_HEAD
    Recording *recording;
    PyObject *place;
    Node *node;
    struct Scope *parent;
    PyObject *track, *range;
    PyObject *started_wide;
    int64_t started;
    char has_started, crosses_tasks;
} Scope;

static PyObject *
get_number(PyObject *self, void *which)
{
    Node *node = (Node *)self;
    Py_ssize_t index = (Py_ssize_t)which;
    if (node->wide != NULL) {
        PyObject *name = PyLong_FromSsize_t(index);
        PyObject *found = name ? PyDict_GetItemWithError(node->wide, name) : NULL;
        Py_XDECREF(name);
        if (found != NULL || PyErr_Occurred()) {
            Py_XINCREF(found);
            return found;
        }
    }
    if (index < NUMBERS) {
        if (node->number[index] == NONE) {
            Py_RETURN_NONE;
        }
        return PyLong_FromLongLong(node->number[index]);
    }
    if (!node->squares_high) {
        return PyLong_FromUnsignedLongLong(node->squares_low);
    }
    PyObject *high = PyLong_FromUnsignedLongLong(node->squares_high);
    PyObject *low = PyLong_FromUnsignedLongLong(node->squares_low);
    PyObject *bits = PyLong_FromLong(64);
    PyObject *shifted = high && bits ? PyNumber_Lshift(high, bits) : NULL;
    PyObject *result = shifted && low ? PyNumber_Or(shifted, low) : NULL;
    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    return result;
}

/* Whether `value` fits into the number, and is there now. */
static int
fits(Node *node, Py_ssize_t index, PyObject *value)
{
    if (index < NUMBERS && value == Py_None) {
        node->number[index] = NONE;
        return 1;
    }
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    if (index < NUMBERS) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow || number == NONE) {
            return 0;
        }
        node->number[index] = number;
        return 1;
    }
    PyObject *bits = PyLong_FromLong(64);
    PyObject *shifted = bits ? PyNumber_Rshift(value, bits) : NULL;
    Py_XDECREF(bits);
    uint64_t high = shifted ? PyLong_AsUnsignedLongLong(shifted) : 0;
    Py_XDECREF(shifted);
    if (PyErr_Occurred()) { /* negative, or too large */
        PyErr_Clear();
        return 0;
    }
    node->squares_high = high;
    node->squares_low = PyLong_AsUnsignedLongLongMask(value);
    return 1;
}

static int
set_number(PyObject *self, PyObject *value, void *which)
{
    Node *node = (Node *)self;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "a node keeps its numbers");
        return -1;
    }
    int fitted = fits(node, (Py_ssize_t)which, value);
    if (fitted && node->wide == NULL) {
        return 0;
    }
    PyObject *name = PyLong_FromSsize_t((Py_ssize_t)which);
    if (name == NULL || (node->wide == NULL && (node->wide = PyDict_New()) == NULL)) {
        Py_XDECREF(name);
        return -1;
    }
    PyObject *wide = node->wide; /* held: an old value's `__del__` may set a number */
    Py_INCREF(wide);
    int failed = 0;
    if (!fitted) {
        failed = PyDict_SetItem(wide, name, value);
    }
    else if (PyDict_Contains(wide, name) == 1) {
        failed = PyDict_DelItem(wide, name);
    }
    Py_DECREF(name);
    Py_DECREF(wide);
    if (node->wide != NULL && PyDict_GET_SIZE(node->wide) == 0) {
        Py_CLEAR(node->wide);
    }
    return failed;
}

static int
node_traverse(PyObject *self, visitproc visit, void *arg)
{
    Node *node = (Node *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(node->wide);
    Py_VISIT(node->places);
    Py_VISIT(node->latest);
    Py_VISIT(node->window);
    Py_VISIT(node->interval);
    Py_VISIT(node->track);
    return 0;
}

static int
node_clear(PyObject *self)
{
    Node *node = (Node *)self;
    Py_CLEAR(node->wide);
    Py_CLEAR(node->places);
    Py_CLEAR(node->latest);
    Py_CLEAR(node->window);
    Py_CLEAR(node->interval);
    Py_CLEAR(node->track);
    return 0;
}

DEALLOC(node)

#define NUMBER(name, which) {name, get_number, set_number, NULL, (void *)(Py_ssize_t)(which)}
static PyGetSetDef node_getset[] = {
    NUMBER("count", COUNT), NUMBER("total", TOTAL), NUMBER("last", LAST),
    NUMBER("minimum", MINIMUM), NUMBER("maximum", MAXIMUM), NUMBER("entered", ENTERED),
    NUMBER("folded", FOLDED), NUMBER("busy", BUSY), NUMBER("since", SINCE),
    NUMBER("until", UNTIL), NUMBER("limit", LIMIT), NUMBER("room", ROOM),
    NUMBER("squares", NUMBERS), {NULL},
};
#define SLOT(type, name) {#name, OBJECT, offsetof(type, name), 0, NULL}
static PyMemberDef node_members[] = {
    SLOT(Node, places), SLOT(Node, latest), SLOT(Node, window), SLOT(Node, interval),
    SLOT(Node, track), {"linked", BOOLEAN, offsetof(Node, linked), 0, NULL}, {NULL},
};
/* A reference to an object of one of our types, or to None. */
typedef struct {
    Py_ssize_t offset;
    PyTypeObject **type;
} Reference;

static PyObject *
get_reference(PyObject *self, void *closure)
{
    PyObject *found = *(PyObject **)((char *)self + ((Reference *)closure)->offset);
    found = found == NULL ? Py_None : found;
    Py_INCREF(found);
    return found;
}

static int
set_reference(PyObject *self, PyObject *value, void *closure)
{
    Reference *reference = closure;
    if (value == Py_None) {
        value = NULL;
    }
    if (value != NULL && !PyObject_TypeCheck(value, *reference->type)) {
        PyErr_Format(PyExc_TypeError, "expected a %s, not a %s", (*reference->type)->tp_name,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    PyObject **place = (PyObject **)((char *)self + reference->offset);
    Py_XINCREF(value);
    Py_XSETREF(*place, value);
    return 0;
}

/* Cursors */

static int
cursor_traverse(PyObject *self, visitproc visit, void *arg)
{
    Cursor *cursor = (Cursor *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(cursor->scope);
    Py_VISIT(cursor->owner);
    Py_VISIT(cursor->track);
    return 0;
}

static int
cursor_clear(PyObject *self)
{
    Cursor *cursor = (Cursor *)self;
    Py_CLEAR(cursor->scope);
    Py_CLEAR(cursor->owner);
    Py_CLEAR(cursor->track);
    return 0;
}

DEALLOC(cursor)

static Reference cursor_scope = {offsetof(Cursor, scope), &scope_base};
static PyGetSetDef cursor_getset[] = {
    {"scope", get_reference, set_reference, NULL, &cursor_scope}, {NULL},
};
static PyMemberDef cursor_members[] = {SLOT(Cursor, owner), SLOT(Cursor, track), {NULL}};

/* Recordings */

static int
recording_traverse(PyObject *self, visitproc visit, void *arg)
{
    Recording *recording = (Recording *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(recording->clock);
    Py_VISIT(recording->get_cursor);
    Py_VISIT(recording->set_cursor);
    Py_VISIT(recording->enabled);
    Py_VISIT(recording->off);
    return 0;
}

static int
recording_clear(PyObject *self)
{
    Recording *recording = (Recording *)self;
    Py_CLEAR(recording->clock);
    Py_CLEAR(recording->get_cursor);
    Py_CLEAR(recording->set_cursor);
    Py_CLEAR(recording->enabled);
    Py_CLEAR(recording->off);
    return 0;
}

DEALLOC(recording)

static PyMemberDef recording_members[] = {
    SLOT(Recording, clock), SLOT(Recording, get_cursor), SLOT(Recording, set_cursor),
    SLOT(Recording, enabled),
    {"_off", OBJECT, offsetof(Recording, off), 0, NULL}, {NULL},
};

/* Clocks */

static int64_t
monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A clock. A value that does not fit becomes `*wide`. -1 if the clock raises. */
static inline int
read_clock(PyObject *clock, int64_t *now, PyObject **wide)
{
    *wide = NULL;
    if (clock == perf_counter_ns && perf_counter_ns != NULL) {
        *now = monotonic();
        return 0;
    }
    if (clock == NULL) {
        PyErr_SetString(PyExc_AttributeError, "clock");
        return -1;
    }
    Py_INCREF(clock);
    PyObject *value = PyObject_CallNoArgs(clock);
    Py_DECREF(clock);
    if (value == NULL) {
        return -1;
    }
    int overflow = 1;
    *now = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    if (overflow) {
        *wide = value;
    }
    else {
        Py_DECREF(value);
    }
    return 0;
}

static PyObject *
now_of(PyObject *clock)
{
    int64_t now;
    PyObject *wide;
    if (read_clock(clock, &now, &wide) < 0) {
        return NULL;
    }
    return wide != NULL ? wide : PyLong_FromLongLong(now);
}

/* `_spans.recorder` */

typedef struct {
    PyObject_HEAD
    PyObject *interval, *add, *crowd, *end_top_level;
} Recorder;

static Recorder *recorder;

static int
recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Recorder *of = (Recorder *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of->interval);
    Py_VISIT(of->add);
    Py_VISIT(of->crowd);
    Py_VISIT(of->end_top_level);
    return 0;
}

static int
recorder_clear(PyObject *self)
{
    Recorder *of = (Recorder *)self;
    Py_CLEAR(of->interval);
    Py_CLEAR(of->add);
    Py_CLEAR(of->crowd);
    Py_CLEAR(of->end_top_level);
    return 0;
}

DEALLOC(recorder)

static PyMemberDef recorder_members[] = {
    SLOT(Recorder, interval), SLOT(Recorder, add), SLOT(Recorder, crowd),
    SLOT(Recorder, end_top_level), {NULL},
};

/* Threads and tasks */

/* Whether an event loop runs in this thread; -1 for an exception. */
static int
loop_runs(void)
{
    if (running_loop == NULL) {
        PyObject *asyncio = PyDict_GetItemWithError(modules, str_asyncio);
        if (asyncio == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        running_loop = PyObject_GetAttr(asyncio, str_get_running_loop);
        if (running_loop == NULL) { /* it is being imported */
            PyErr_Clear();
            return 0;
        }
    }
#if PY_VERSION_HEX < 0x030E0000
    /* A thread that has never run a loop lacks this entry. To ask asyncio itself takes microseconds
    after each wait, when its code is in no cache. */
    if (PyCFunction_CheckExact(running_loop)) {
        PyObject *of_thread = PyThreadState_GetDict();
        if (of_thread != NULL && PyDict_GetItemWithError(of_thread, str_loop_of_thread) == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
#endif
    PyObject *loop = PyObject_CallNoArgs(running_loop);
    if (loop == NULL) {
        return -1;
    }
    Py_DECREF(loop);
    return loop != Py_None;
}

static PyObject *
this_thread(void)
{
    return PyLong_FromUnsignedLong(PyThread_get_thread_ident());
}

/* `_spans.Linked` */

typedef struct {
    PyObject_HEAD
    PyObject *track, *role, *keys;
} Linked;
static PyTypeObject *linked_type;

static void
linked_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Linked *)self)->track);
    Py_XDECREF(((Linked *)self)->role);
    Py_XDECREF(((Linked *)self)->keys);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
make_linked(PyObject *track, PyObject *role, PyObject *keys)
{
    Linked *linked = PyObject_New(Linked, linked_type);
    if (linked != NULL) {
        Py_INCREF(track);
        Py_INCREF(role);
        Py_INCREF(keys);
        *linked = (Linked){.ob_base = linked->ob_base, track, role, keys};
    }
    return (PyObject *)linked;
}

static PyObject *
linked_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *track, *role, *keys;
    if (!PyArg_ParseTuple(args, "OOO", &track, &role, &keys)) {
        return NULL;
    }
    return make_linked(track, role, keys);
}

static PyMemberDef linked_members[] = {
    {"track", OBJECT, offsetof(Linked, track), READ_ONLY, NULL},
    {"role", OBJECT, offsetof(Linked, role), READ_ONLY, NULL},
    {"keys", OBJECT, offsetof(Linked, keys), READ_ONLY, NULL},
    {NULL},
};

/* The rows of `_spans.py` */

typedef struct {
    PyObject *node, *track;
    int64_t start, end;
} Row;

typedef struct {
    PyObject_HEAD
    Row *row;
    Py_ssize_t count, room;
    PyObject *clock, *end_interval, *marks, *sent;
    Py_ssize_t most, lost;
    char spared, takes_sent;
} Rows;

static PyTypeObject *rows_type;

/* Memory of rows that are gone, as new memory is slow to touch. */
#define MOST_KEPT (1 << 16) /* rows */
static Row *spare_row;
static Py_ssize_t spare_room;

/* Room for one more row. Doubles, so it moves each row twice at most. */
static int
rows_grow(Rows *rows)
{
    if (rows->count < rows->room) {
        return 0;
    }
    if (rows->row == NULL && spare_row != NULL) {
        rows->row = spare_row;
        rows->room = spare_room;
        spare_row = NULL;
        return 0;
    }
    Py_ssize_t room = rows->room ? 2 * rows->room : 1024;
    Row *row = PyMem_Realloc(rows->row, room * sizeof(Row));
    if (row == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    rows->row = row;
    rows->room = room;
    return 0;
}

/* A time of a ledger: 64 bits, which is 292 years. */
static int
to_time(PyObject *value, int64_t *time)
{
    PyObject *number = PyNumber_Long(value); /* a clock may count in floats */
    if (number == NULL) {
        return -1;
    }
    int beyond;
    *time = PyLong_AsLongLongAndOverflow(number, &beyond);
    Py_DECREF(number);
    if (beyond) {
        *time = beyond < 0 ? INT64_MIN : INT64_MAX;
    }
    return 0;
}

static PyObject *
rows_append(PyObject *self, PyObject *given)
{
    Rows *rows = (Rows *)self;
    PyObject *node, *started, *ended, *track;
    int64_t start, end;
    if (!PyArg_ParseTuple(given, "OOOO", &node, &started, &ended, &track)
        || to_time(started, &start) < 0 || to_time(ended, &end) < 0 || rows_grow(rows) < 0) {
        return NULL;
    }
    Py_INCREF(node);
    Py_INCREF(track);
    rows->row[rows->count++] = (Row){node, track, start, end};
    Py_RETURN_NONE;
}

/* Only hands the memory over: scopes wait for nothing. */
static PyObject *
rows_take(PyObject *self, PyObject *unused)
{
    Rows *taken = (Rows *)rows_type->tp_alloc(rows_type, 0);
    if (taken == NULL) {
        return NULL;
    }
    Rows *rows = (Rows *)self;
    taken->row = rows->row;
    taken->count = rows->count;
    taken->room = rows->room;
    rows->row = NULL;
    rows->count = rows->room = 0;
    return (PyObject *)taken;
}

static PyObject *
rows_values(PyObject *self, PyObject *unused)
{
    Rows *rows = (Rows *)self;
    Py_ssize_t count = rows->count;
    PyObject *list = PyList_New(4 * count);
    for (Py_ssize_t index = 0; list != NULL && index < count; index++) {
        Row *row = &rows->row[index];
        PyObject *start = PyLong_FromLongLong(row->start);
        PyObject *end = PyLong_FromLongLong(row->end);
        if (start == NULL || end == NULL) {
            Py_XDECREF(start);
            Py_XDECREF(end);
            Py_CLEAR(list);
            break;
        }
        Py_INCREF(row->node);
        Py_INCREF(row->track);
        PyList_SET_ITEM(list, 4 * index, row->node);
        PyList_SET_ITEM(list, 4 * index + 1, start);
        PyList_SET_ITEM(list, 4 * index + 2, end);
        PyList_SET_ITEM(list, 4 * index + 3, row->track);
    }
    return list;
}

/* The value of a key as an integer: 1, 0 without one, -1 for an exception. */
static int
find_integer(PyObject *dict, PyObject *key, int64_t *value)
{
    PyObject *found = PyDict_GetItemWithError(dict, key);
    if (found == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    *value = PyLong_AsLongLong(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 1;
}

#define KEY 8 /* bytes of a key that need no hash: see `Rows.pack` */
#define NOT_RANDOM "\xff\xff\xff\xff\xff\xff\xff\xff" /* see `_linked.py` */

/* Whether all links of a track can be packed here. */
static int
has_plain_keys(Linked *linked)
{
    int known = linked->role == str_waits || linked->role == str_releases
                || linked->role == str_meets;
    if (!known || !PyTuple_CheckExact(linked->keys)) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(linked->keys); index++) {
        PyObject *key = PyTuple_GET_ITEM(linked->keys, index);
        if (!PyBytes_CheckExact(key) || PyBytes_GET_SIZE(key) != KEY) {
            return 0;
        }
    }
    return 1;
}

static int
add_links(PyObject *links, Linked *linked, int64_t code, int64_t start, int64_t end)
{
    struct {
        int64_t code, start, end;
        char key[KEY];
        int64_t role;
    } link = {code, start, end, {0}, 0};
    link.role = linked->role == str_waits ? 0 : linked->role == str_releases ? 1 : 2;
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(linked->keys); index++) {
        memcpy(link.key, PyBytes_AS_STRING(PyTuple_GET_ITEM(linked->keys, index)), KEY);
        PyObject *packed = PyBytes_FromStringAndSize((char *)&link, sizeof(link));
        int failed = packed == NULL || PyList_Append(links, packed) < 0;
        Py_XDECREF(packed);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
rows_pack(PyObject *self, PyObject *given)
{
    Rows *rows = (Rows *)self;
    PyObject *places, *tracks, *links, *code_of;
    if (!PyArg_ParseTuple(given, "O!O!O!O", &PyDict_Type, &places, &PyDict_Type, &tracks,
                          &PyList_Type, &links, &code_of)) {
        return NULL;
    }
    Py_ssize_t count = rows->count;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, 3 * sizeof(int64_t) * count);
    if (packed == NULL) {
        return NULL;
    }
    char *to = PyBytes_AS_STRING(packed);
    PyObject *last = NULL; /* the track of the row before, and its number */
    int64_t number = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        Row row = rows->row[index];
        Linked *linked = Py_TYPE(row.track) == linked_type ? (Linked *)row.track : NULL;
        PyObject *track = linked != NULL ? linked->track : row.track;
        int64_t place = 0;
        int known = linked == NULL || has_plain_keys(linked)
                        ? find_integer(places, row.node, &place) : 0;
        if (known > 0 && track != last) {
            known = find_integer(tracks, track, &number);
            last = known > 0 ? track : NULL;
        }
        int64_t code = place + number;
        if (known > 0 && linked != NULL) {
            known = add_links(links, linked, code, row.start, row.end) < 0 ? -1 : 1;
        }
        if (!known) {
            PyObject *found = PyObject_CallFunction(code_of, "OLLO", row.node, (long long)row.start,
                                                    (long long)row.end, row.track);
            code = found ? PyLong_AsLongLong(found) : -1;
            Py_XDECREF(found);
            last = NULL; /* there may be a track anew */
        }
        if (known < 0 || PyErr_Occurred()) {
            Py_DECREF(packed);
            return NULL;
        }
        int64_t integers[] = {code, row.start, row.end};
        memcpy(to, integers, sizeof(integers));
        to += sizeof(integers);
    }
    return packed;
}

static int
rows_init(PyObject *self, PyObject *args, PyObject *names)
{
    Rows *rows = (Rows *)self;
    PyObject *clock, *end_interval;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OnO", &clock, &most, &end_interval)) {
        return -1;
    }
    PyObject *marks = PyList_New(0), *sent = PyList_New(0);
    if (marks == NULL || sent == NULL) {
        Py_XDECREF(marks);
        Py_XDECREF(sent);
        return -1;
    }
    Py_INCREF(clock);
    Py_XSETREF(rows->clock, clock);
    Py_INCREF(end_interval);
    Py_XSETREF(rows->end_interval, end_interval);
    Py_XSETREF(rows->marks, marks);
    Py_XSETREF(rows->sent, sent);
    rows->most = most;
    return 0;
}

static PyObject *
rows_full(PyObject *self, void *unused)
{
    return PyBool_FromLong(((Rows *)self)->count > ((Rows *)self)->most);
}

static int
note(Rows *rows, PyObject *what, PyObject *ends)
{
    if (rows->marks == NULL) {
        PyErr_SetString(PyExc_AttributeError, "rows that were taken have no marks");
        return -1;
    }
    if (PyList_GET_SIZE(rows->marks) >= rows->most) {
        rows->lost++;
        return 0;
    }
    PyObject *time = now_of(rows->clock);
    PyObject *mark = time ? PyTuple_Pack(3, what, time, ends) : NULL;
    Py_XDECREF(time);
    int failed = mark == NULL || PyList_Append(rows->marks, mark) < 0;
    Py_XDECREF(mark);
    return -failed;
}

static PyObject *
rows_note(PyObject *self, PyObject *what)
{
    if (note((Rows *)self, what, Py_False) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
rows_mark(PyObject *self, PyObject *what)
{
    Rows *rows = (Rows *)self;
    if (note(rows, what, Py_True) < 0) {
        return NULL;
    }
    PyObject *crowd = recorder->crowd;
    if (!rows->spared || rows->count > rows->most || crowd == NULL || !PyList_CheckExact(crowd)
        || PyList_GET_SIZE(crowd)) {
        return PyObject_CallNoArgs(rows->end_interval);
    }
    if (TRUE_OBJECT(recorder->interval)) {
        PyObject *interval = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
        if (interval == NULL) {
            return NULL;
        }
        Py_SETREF(recorder->interval, interval);
    }
    Py_RETURN_NONE;
}

static PyObject *
rows_note_sent(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Rows *rows = (Rows *)self;
    if (count != 3 || rows->sent == NULL) {
        PyErr_SetString(PyExc_TypeError, "expected when it was begun, a key, and the keys needed");
        return NULL;
    }
    if (!rows->takes_sent || !TRUE_OBJECT(recorder->interval)) {
        Py_RETURN_NONE;
    }
    int runs = loop_runs();
    PyObject *track = runs < 0 ? NULL : runs ? PyObject_CallNoArgs(task_track) : this_thread();
    PyObject *time = track != NULL ? now_of(rows->clock) : NULL;
    PyObject *row = time != NULL ? PyTuple_Pack(5, track, args[0], time, args[1], args[2]) : NULL;
    Py_XDECREF(track);
    Py_XDECREF(time);
    int failed = row == NULL || PyList_Append(rows->sent, row) < 0;
    Py_XDECREF(row);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int
rows_traverse(PyObject *self, visitproc visit, void *arg)
{
    Rows *rows = (Rows *)self;
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t index = 0; index < rows->count; index++) {
        Py_VISIT(rows->row[index].node);
        Py_VISIT(rows->row[index].track);
    }
    Py_VISIT(rows->clock);
    Py_VISIT(rows->end_interval);
    Py_VISIT(rows->marks);
    Py_VISIT(rows->sent);
    return 0;
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    Py_CLEAR(rows->clock);
    Py_CLEAR(rows->end_interval);
    Py_CLEAR(rows->marks);
    Py_CLEAR(rows->sent);
    Row *row = rows->row;
    Py_ssize_t count = rows->count, room = rows->room;
    rows->row = NULL;
    rows->count = rows->room = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        Py_DECREF(row[index].node);
        Py_DECREF(row[index].track);
    }
    if (row != NULL && spare_row == NULL && room <= MOST_KEPT) {
        spare_row = row;
        spare_room = room;
    }
    else {
        PyMem_Free(row);
    }
    return 0;
}

DEALLOC(rows)

static PyMethodDef rows_methods[] = {
    {"append", rows_append, METH_O, NULL},
    {"take", rows_take, METH_NOARGS, NULL},
    {"values", rows_values, METH_NOARGS, NULL},
    {"pack", rows_pack, METH_VARARGS, NULL},
    {"note", rows_note, METH_O, NULL},
    {"mark", rows_mark, METH_O, NULL},
    {"note_sent", (PyCFunction)(void (*)(void))rows_note_sent, METH_FASTCALL, NULL},
    {NULL},
};

static PyGetSetDef rows_getset[] = {{"full", rows_full, NULL, NULL, NULL}, {NULL}};
static PyMemberDef rows_members[] = {
    {"marks", OBJECT, offsetof(Rows, marks), READ_ONLY, NULL},
    {"sent", OBJECT, offsetof(Rows, sent), READ_ONLY, NULL},
    {"lost", SIZE, offsetof(Rows, lost), 0, NULL},
    {"spared", BOOLEAN, offsetof(Rows, spared), 0, NULL},
    {"takes_sent", BOOLEAN, offsetof(Rows, takes_sent), 0, NULL},
    {NULL},
};

/* Scopes */

#define MOST_FREE 64
static Scope *free_scopes[MOST_FREE];
static int free_scope_count;

static int
scope_traverse(PyObject *self, visitproc visit, void *arg)
{
    Scope *scope = (Scope *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(scope->recording);
    Py_VISIT(scope->place);
    Py_VISIT(scope->node);
    Py_VISIT(scope->parent);
    Py_VISIT(scope->track);
    Py_VISIT(scope->range);
    Py_VISIT(scope->started_wide);
    return 0;
}

static int
scope_clear(PyObject *self)
{
    Scope *scope = (Scope *)self;
    Py_CLEAR(scope->recording);
    Py_CLEAR(scope->place);
    Py_CLEAR(scope->node);
    Py_CLEAR(scope->parent);
    Py_CLEAR(scope->track);
    Py_CLEAR(scope->range);
    Py_CLEAR(scope->started_wide);
    return 0;
}

static void
scope_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, scope_dealloc) /* scopes hold their parents: a chain may be long */
    scope_clear(self);
    if (type == scope_type && free_scope_count < MOST_FREE) {
        free_scopes[free_scope_count++] = (Scope *)self; /* with its reference to the type */
    }
    else {
        type->tp_free(self);
        Py_DECREF(type);
    }
    Py_TRASHCAN_END
}

/* A scope that is not open; both arguments are held by it. */
static Scope *
new_scope(PyObject *recording, PyObject *place)
{
    Scope *scope;
    if (free_scope_count) {
        scope = free_scopes[--free_scope_count];
        revive((PyObject *)scope);
    }
    else {
        scope = PyObject_GC_New(Scope, scope_type);
        if (scope == NULL) {
            return NULL;
        }
        scope->node = NULL;
        scope->parent = NULL;
        scope->track = scope->range = scope->started_wide = NULL;
    }
    Py_INCREF(recording);
    Py_INCREF(place);
    scope->recording = (Recording *)recording;
    scope->place = place;
    scope->has_started = NOT_STARTED;
    scope->crosses_tasks = 0;
    PyObject_GC_Track(scope);
    return scope;
}

/* `Recording.add_time`, which has the reasons. */
static PyObject *
add_time(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || Py_TYPE(args[0]) != recording_type) {
        PyErr_SetString(PyExc_TypeError, "expected a Recording and four arguments");
        return NULL;
    }
    Recording *recording = (Recording *)args[0];
    int plain = args[2] == Py_None && args[3] == Py_None && args[4] == Py_None;
    if (plain && recording->enabled == Py_False && recording->off != NULL) {
        PyObject *off = PyDict_GetItemWithError(recording->off, args[1]);
        if (off != NULL || PyErr_Occurred()) {
            Py_XINCREF(off);
            return off;
        }
    }
    if (!plain || recording->enabled != Py_True) {
        return PyObject_Vectorcall(spec_add_time, args, count, NULL);
    }
    return (PyObject *)new_scope(args[0], args[1]);
}

static PyObject *
get_started(PyObject *self, void *unused)
{
    Scope *scope = (Scope *)self;
    if (scope->has_started == STARTED) {
        return PyLong_FromLongLong(scope->started);
    }
    PyObject *found = scope->has_started == STARTED_WIDE && scope->started_wide != NULL
                          ? scope->started_wide : Py_None;
    Py_INCREF(found);
    return found;
}

static void
start(Scope *scope, int64_t now, PyObject *wide)
{
    scope->started = now;
    scope->has_started = wide ? STARTED_WIDE : STARTED;
    if (wide != NULL || scope->started_wide != NULL) {
        Py_XSETREF(scope->started_wide, wide);
    }
}

static int
set_started(PyObject *self, PyObject *value, void *unused)
{
    Scope *scope = (Scope *)self;
    if (value == NULL || value == Py_None) {
        scope->has_started = NOT_STARTED;
        Py_CLEAR(scope->started_wide);
        return 0;
    }
    int overflow = 1;
    long long now = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    if (overflow) {
        Py_INCREF(value);
        start(scope, 0, value);
    }
    else {
        start(scope, now, NULL);
    }
    return 0;
}

/* The context variable of a bound `get` or `set`; NULL if it is something else. Borrowed. */
static inline PyObject *
variable_of(PyObject *method, PyCFunction function)
{
    if (method == NULL || !PyCFunction_CheckExact(method)
        || PyCFunction_GET_FUNCTION(method) != function) {
        return NULL;
    }
    PyObject *variable = PyCFunction_GET_SELF(method);
    return variable != NULL && PyContextVar_CheckExact(variable) ? variable : NULL;
}

static inline int
is_this_thread(PyObject *track)
{
    if (track == NULL || !PyLong_CheckExact(track)) {
        return 0;
    }
    return PyLong_AsUnsignedLongMask(track) == PyThread_get_thread_ident();
}

/* In an event loop: the next cursor. See `_cursor.py`. */
static int
set_loop_cursor(Scope *self, PyObject *variable)
{
    Cursor *cursor = (Cursor *)cursor_type->tp_alloc(cursor_type, 0);
    if (cursor == NULL) {
        return -1;
    }
    Py_INCREF(self);
    cursor->scope = (PyObject *)self;
    Py_INCREF(in_loop);
    cursor->owner = in_loop;
    PyObject *token = PyContextVar_Set(variable, (PyObject *)cursor);
    Py_DECREF(cursor);
    if (token == NULL) {
        return -1;
    }
    Py_DECREF(token);
    if (TRUE_OBJECT(recorder->interval)) {
        PyObject *track = PyObject_CallNoArgs(task_track);
        if (track == NULL) {
            return -1;
        }
        Py_XSETREF(self->track, track);
    }
    return 0;
}

/* Ranges that are opened and closed without a call of Python: a backend in C puts a capsule of this
table, named `RANGE_TABLE`, into its ranges' type as `_range_table`. Python opens the first range of
each name, and what `label_of` makes of that range opens all others while the slot stays as it is.
None of these functions runs Python code. */
typedef struct {
    PyTypeObject *type;                                    /* of the ranges */
    PyObject *(*label_of)(PyObject *range);                /* a new reference, or NULL */
    PyObject *(*open)(PyObject *label, int crosses_tasks); /* an open range, or NULL */
    void (*close)(PyObject *range);
} RangeTable;
#define RANGE_TABLE "gpuprof_timing.range_table.1"
#define MOST_LABELS 4096 /* names made from data would fill the memory */

static const RangeTable *range_table;
static PyObject *range_labels; /* by name; None where Python has to open the range */

static inline int
has_range_table(PyObject *range)
{
    return range_table != NULL && Py_TYPE(range) == range_table->type;
}

/* Never fails: what is not remembered, Python opens. */
static void
remember_range(PyObject *name, PyObject *range)
{
    if (!has_range_table(range)) {
        PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(range), "_range_table");
        if (capsule != NULL && PyCapsule_IsValid(capsule, RANGE_TABLE)) {
            PyDict_Clear(range_labels); /* of another table */
            range_table = PyCapsule_GetPointer(capsule, RANGE_TABLE);
        }
        Py_XDECREF(capsule);
        PyErr_Clear();
    }
    PyObject *label = Py_None;
    if (has_range_table(range)) {
        label = range_table->label_of(range);
    }
    else {
        Py_INCREF(label);
    }
    if (PyDict_GET_SIZE(range_labels) >= MOST_LABELS) {
        PyDict_Clear(range_labels);
    }
    if (label == NULL || PyDict_SetItem(range_labels, name, label) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(label);
}

/* Open a range by its label: 1, or 0 where Python has to. */
static int
open_by_label(Scope *self, PyObject *label, int may_be_in_loop)
{
    if (label == NULL || label == Py_None) {
        return 0;
    }
    const RangeTable *table = range_table; /* both held: the slot may be filled anew meanwhile */
    Py_INCREF(label);
    int crosses_tasks = self->crosses_tasks || (may_be_in_loop && loop_runs());
    PyObject *range = PyErr_Occurred() ? NULL : table->open(label, crosses_tasks);
    Py_DECREF(label);
    if (range == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_XSETREF(self->range, range);
    return 1;
}

/* `_range_slot.enter` */
static int
open_range(Scope *self, PyObject *place, int may_be_in_loop)
{
    PyObject *name = place;
    if (PyUnicode_CheckExact(place)) {
        Py_INCREF(name);
    }
    else if ((name = PyObject_GetAttr((PyObject *)self, str_key)) == NULL) {
        return -1;
    }
    int plain = PyUnicode_CheckExact(name); /* its look-up runs no code and cannot fail */
    PyObject *label = plain ? PyDict_GetItemWithError(range_labels, name) : NULL;
    int opened = open_by_label(self, label, may_be_in_loop);
    if (!opened) {
        unsigned long filled = ranges_filled;
        PyObject *given[2] = {name, self->crosses_tasks ? Py_True : Py_False};
        PyObject *range = PyObject_Vectorcall(enter_range, given, 2, NULL);
        if (plain && label == NULL && TRUE_OBJECT(range) && filled == ranges_filled) {
            remember_range(name, range);
        }
        opened = range != NULL;
        Py_XSETREF(self->range, range);
    }
    Py_DECREF(name);
    return opened ? 0 : -1;
}

/* `_range_slot.leave` */
static int
end_range(PyObject *range, PyObject **given)
{
    if (has_range_table(range)) {
        range_table->close(range);
        return 0;
    }
    given[0] = range;
    Py_INCREF(range);
    PyObject *done = PyObject_Vectorcall(leave_range, given, 4, NULL);
    Py_DECREF(range);
    Py_XDECREF(done);
    return -(done == NULL);
}

/* `Scope._abandon`, with the exception that is set. */
static void
abandon(Scope *self)
{
    Py_CLEAR(self->node);
    if (!TRUE_OBJECT(self->range)) {
        return;
    }
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)self, str_abandon, error);
    if (done == NULL) { /* another one, on the way */
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(kind, error, trace);
}

/* `Scope.__enter__` of `_scope.py`, which has the reasons. */
static PyObject *
enter_held(Scope *self, Recording *recording, PyObject *key)
{
    if (self->node != NULL || recording == NULL || key == NULL) {
        goto specification;
    }
    PyObject *variable = variable_of(recording->get_cursor, variable_get);
    if (variable == NULL) {
        goto specification;
    }
    PyObject *found;
    if (PyContextVar_Get(variable, NULL, &found) < 0) {
        return NULL;
    }
    if (found == NULL || Py_TYPE(found) != cursor_type) {
        Py_XDECREF(found);
        goto specification;
    }
    Cursor *cursor = (Cursor *)found;
    Scope *parent = (Scope *)cursor->scope;
    while (parent != NULL && parent->node == NULL) {
        parent = parent->parent;
    }
    if (parent == NULL || parent->node->places == NULL
        || !PyDict_CheckExact(parent->node->places)) {
        Py_DECREF(cursor);
        goto specification;
    }
    Node *above = parent->node;
    PyObject *places = above->places;
    Py_INCREF(above); /* the look-up may run a key's code */
    Py_INCREF(places);
    if (parent != self->parent) {
        Py_INCREF(parent);
        Py_XSETREF(self->parent, parent);
    }
    Node *node = (Node *)PyDict_GetItemWithError(places, key);
    Py_XINCREF(node);
    Py_DECREF(places);
    if (node == NULL || Py_TYPE(node) != node_type || node->wide != NULL) {
        Py_XDECREF(node);
        Py_DECREF(above);
        Py_DECREF(cursor);
        if (PyErr_Occurred()) {
            return NULL;
        }
        goto specification;
    }
    int here = is_this_thread(cursor->track);
    if (here) {
        int runs = loop_runs();
        if (runs) {
            Py_DECREF(above);
            Py_DECREF(node);
            Py_DECREF(cursor);
            if (runs < 0) {
                return NULL;
            }
            goto specification;
        }
    }
    else if (cursor->owner != in_loop
             || variable_of(recording->set_cursor, variable_set) != variable) {
        Py_DECREF(above);
        Py_DECREF(node);
        Py_DECREF(cursor);
        goto specification;
    }
    self->has_started = NOT_STARTED;
    if (TRUE_OBJECT(self->range)) {
        Py_CLEAR(self->range);
    }
    Py_INCREF(node);
    Py_XSETREF(self->node, node); /* a key may have entered it */
    int failed = 0;
    if (here) {
        Py_INCREF(self);
        Py_XSETREF(cursor->scope, (PyObject *)self);
        if (self->track != cursor->track) {
            Py_XINCREF(cursor->track);
            Py_XSETREF(self->track, cursor->track);
        }
    }
    else {
        Py_CLEAR(self->track);
        failed = set_loop_cursor(self, variable);
    }
    Py_DECREF(cursor);
    if (!failed && ranges_open && recording->enabled == Py_True) {
        failed = open_range(self, key, !here);
    }
    if (!failed && node != above) {
        int64_t now;
        PyObject *wide;
        failed = read_clock(recording->clock, &now, &wide);
        if (!failed) {
            start(self, now, wide);
            Py_INCREF(self);
            Py_XSETREF(node->latest, (PyObject *)self);
        }
    }
    Py_DECREF(above);
    if (failed) { /* no `with` will leave it */
        abandon(self);
        Py_DECREF(node);
        return NULL;
    }
    node->number[ENTERED]++;
    Py_DECREF(node);
    Py_INCREF(self);
    return (PyObject *)self;

specification:
    return PyObject_CallOneArg(spec_enter, (PyObject *)self);
}

static PyObject *
enter(Scope *self)
{
    Recording *recording = self->recording; /* both held: what is called may set them */
    PyObject *key = self->place;
    Py_XINCREF(recording);
    Py_XINCREF(key);
    PyObject *result = enter_held(self, recording, key);
    Py_XDECREF(key);
    Py_XDECREF(recording);
    return result;
}

/* Whether a scope ends in a way that only Python knows. */
static inline int
ends_in_python(Scope *self, Node *node)
{
    return node->wide != NULL || TRUE_OBJECT(node->window)
           || self->recording == NULL || self->has_started == STARTED_WIDE;
}

/* A call that is kept by itself. */
static int
add_row(Scope *self, Node *node, int64_t ended)
{
    PyObject *add = recorder->add;
    if (add != NULL && PyCFunction_CheckExact(add) && PyCFunction_GET_FUNCTION(add) == rows_append) {
        Rows *rows = (Rows *)PyCFunction_GET_SELF(add);
        if (rows_grow(rows) < 0) {
            return -1;
        }
        PyObject *track = self->track;
        if (TRUE_OBJECT(track)) {
            Py_INCREF(track);
        }
        else {
            track = this_thread();
            if (track == NULL) {
                return -1;
            }
        }
        Py_INCREF(node);
        rows->row[rows->count++] = (Row){(PyObject *)node, track, self->started, ended};
    }
    PyObject *crowd = recorder->crowd;
    if (crowd != NULL && PyList_CheckExact(crowd) && PyList_GET_SIZE(crowd)) {
        PyObject *depth = PyObject_GetAttr((PyObject *)node, str_depth);
        if (depth == NULL) {
            return -1;
        }
        long level = PyLong_AsLong(depth);
        Py_DECREF(depth);
        if (level == -1 && PyErr_Occurred()) {
            return -1;
        }
        PyObject *end = recorder->end_top_level;
        if (level == 1 && end != NULL) {
            Py_INCREF(end);
            PyObject *done = PyObject_CallNoArgs(end);
            Py_DECREF(end);
            Py_XDECREF(done);
            return done == NULL ? -1 : 0;
        }
    }
    return 0;
}

/* `Scope.__exit__` of `_scope.py`, which has the reasons. */
static PyObject *
leave(Scope *self, PyObject *const *args)
{
    PyObject *given[4] = {(PyObject *)self, args[0], args[1], args[2]};
    Recording *recording = self->recording;
    Node *node = self->node;
    if (recording == NULL || (node != NULL && ends_in_python(self, node))) {
        goto specification;
    }
    int64_t now;
    PyObject *wide;
    if (read_clock(recording->clock, &now, &wide) < 0) {
        /* a signal's handler has raised: leave now, nothing else will */
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        PyObject *left = PyObject_Vectorcall(spec_exit, given, 4, NULL);
        if (left == NULL) {
            Py_XDECREF(kind);
            Py_XDECREF(error);
            Py_XDECREF(trace);
            return NULL;
        }
        Py_DECREF(left);
        PyErr_Restore(kind, error, trace);
        return NULL;
    }
    node = self->node; /* a clock of the user's may do anything */
    if (node == NULL) {
        Py_XDECREF(wide);
        Py_RETURN_NONE; /* not entered, or left already */
    }
    if (wide != NULL || ends_in_python(self, node)) {
        Py_XDECREF(wide);
        goto specification;
    }
    int64_t *number = node->number;
    int64_t room = NONE, duration = 0, total = 0;
    if (self->has_started) {
        uint128 squares = (uint128)node->squares_high << 64 | node->squares_low;
        if (__builtin_sub_overflow(now, self->started, &duration)
            || __builtin_add_overflow(number[TOTAL], duration, &total)
            || __builtin_add_overflow(squares, (uint128)((__int128)duration * duration), &squares)) {
            goto specification;
        }
        node->squares_high = (uint64_t)(squares >> 64);
        node->squares_low = (uint64_t)squares;
    }
    self->node = NULL; /* the reference is ours now */
    number[COUNT]++;
    if (self->has_started) {
        number[TOTAL] = total;
        number[LAST] = duration;
        if (duration < number[MINIMUM]) {
            number[MINIMUM] = duration;
        }
        if (duration > number[MAXIMUM]) {
            number[MAXIMUM] = duration;
        }
        PyObject *interval = recorder->interval;
        if (TRUE_OBJECT(interval)) {
            if (node->interval == interval) {
                room = number[ROOM];
            }
            else {
                room = number[LIMIT];
                Py_INCREF(interval);
                Py_XSETREF(node->interval, interval);
            }
            if (room > 0) {
                number[ROOM] = room - 1;
            }
            else if (room == 0) {
                if (!number[FOLDED]) {
                    number[SINCE] = self->started;
                    room = -1; /* the first one */
                }
                else if (self->started < number[SINCE]) {
                    number[SINCE] = self->started;
                }
                number[FOLDED]++;
                number[BUSY] += duration;
                number[UNTIL] = now;
                if (node->track != self->track) {
                    Py_XINCREF(self->track);
                    Py_XSETREF(node->track, self->track);
                }
            }
        }
    }
    int failed = 0;
    if (self->parent != NULL && self->parent->node == NULL) {
        PyObject *done = PyObject_CallMethodNoArgs((PyObject *)self, str_skip_closed_parents);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    if (!failed && TRUE_OBJECT(self->range)) {
        failed = end_range(self->range, given);
    }
    if (!failed && room > 0) {
        failed = add_row(self, node, now);
    }
    else if (!failed && room == -1) {
        failed = PyList_Append(recorder->crowd, (PyObject *)node) < 0;
    }
    Py_DECREF(node);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;

specification:
    return PyObject_Vectorcall(spec_exit, given, 4, NULL);
}

/* Calls inside of linked scopes: `_linked.py` has the reasons */

/* The node of a linked scope of this name, were it entered now; NULL if it is not known, or not
linked. `inside` tells whether it is the innermost open scope's. Borrowed. */
static Node *
linked_node(Recording *recording, PyObject *name, int *inside)
{
    PyObject *variable = variable_of(recording->get_cursor, variable_get), *found = NULL;
    if (recording->enabled != Py_True || variable == NULL || !PyUnicode_CheckExact(name)
        || PyContextVar_Get(variable, NULL, &found) < 0 || found == NULL) {
        PyErr_Clear();
        return NULL;
    }
    Scope *scope = Py_TYPE(found) == cursor_type ? (Scope *)((Cursor *)found)->scope : NULL;
    Py_DECREF(found); /* its context has it */
    while (scope != NULL && scope->node == NULL) {
        scope = scope->parent;
    }
    PyObject *places = scope != NULL ? scope->node->places : NULL;
    if (places == NULL || !PyDict_CheckExact(places)) {
        return NULL;
    }
    Node *above = scope->node;
    Py_INCREF(places); /* the look-up may run a key's code */
    Node *node = (Node *)PyDict_GetItemWithError(places, name);
    *inside = node == above;
    Py_DECREF(places);
    if (node == NULL || Py_TYPE(node) != node_type || !node->linked) {
        PyErr_Clear();
        return NULL;
    }
    return node;
}

/* Hand the exception that is set to `on_fault`. What is no `Exception` stays set: -1. */
static int
hand_over(PyObject *on_fault)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    PyObject *done = PyObject_CallOneArg(on_fault, error);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Leave with the exception that is set, which stays so. */
static void
leave_raising(Scope *scope)
{
    PyObject *raised[3];
    PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
    PyErr_NormalizeException(&raised[0], &raised[1], &raised[2]);
    if (raised[2] != NULL) {
        PyException_SetTraceback(raised[1], raised[2]);
    }
    PyObject *given[3] = {raised[0], raised[1], raised[2] != NULL ? raised[2] : Py_None};
    PyObject *done = leave(scope, given);
    if (done == NULL) { /* another one, on the way */
        Py_XDECREF(raised[0]);
        Py_XDECREF(raised[1]);
        Py_XDECREF(raised[2]);
        return;
    }
    Py_DECREF(done);
    PyErr_Restore(raised[0], raised[1], raised[2]);
}

/* Give the scope's span its key. */
static int
link_span(Scope *scope, PyObject *waits_for, PyObject *key, PyObject *result)
{
    PyObject *keys = key;
    if (PyCallable_Check(key)) {
        keys = PyObject_CallOneArg(key, result);
        if (keys == NULL) {
            return -1;
        }
    }
    else {
        Py_INCREF(keys);
    }
    if (!TRUE_OBJECT(recorder->interval) || keys == Py_None
        || (PyTuple_CheckExact(keys) && !PyTuple_GET_SIZE(keys))) {
        Py_DECREF(keys);
        return 0;
    }
    if (!PyTuple_CheckExact(keys)) {
        PyObject *one = PyTuple_Pack(1, keys);
        Py_DECREF(keys);
        if ((keys = one) == NULL) {
            return -1;
        }
    }
    PyObject *role = str_waits; /* as `_ROLES` */
    if (waits_for == Py_None || PyUnicode_CompareWithASCIIString(waits_for, "nothing") == 0) {
        role = str_releases;
    }
    else if (PyUnicode_CompareWithASCIIString(waits_for, "barrier") == 0) {
        role = str_meets;
    }
    PyObject *track = scope->track;
    if (TRUE_OBJECT(track)) {
        Py_INCREF(track);
    }
    else {
        track = this_thread();
    }
    PyObject *linked = track != NULL ? make_linked(track, role, keys) : NULL;
    Py_XDECREF(track);
    Py_DECREF(keys);
    if (linked == NULL) {
        return -1;
    }
    Py_XSETREF(scope->track, linked);
    return 0;
}

/* An open scope; NULL if `on_fault` has the reason, or an exception is set. */
static Scope *
open_linked(PyObject *recording, PyObject *name, PyObject *on_fault)
{
    Scope *scope = new_scope(recording, name);
    PyObject *entered = scope != NULL ? enter(scope) : NULL;
    if (entered == NULL) {
        Py_CLEAR(scope);
        hand_over(on_fault);
        return NULL;
    }
    Py_DECREF(entered);
    return scope;
}

/* Close the scope of a call. Returns the call's result, or NULL. */
static PyObject *
close_linked(Scope *scope, PyObject *waits_for, PyObject *key, PyObject *result, PyObject *on_fault)
{
    if (result != NULL && scope->node != NULL && link_span(scope, waits_for, key, result) < 0
        && hand_over(on_fault) < 0) {
        Py_CLEAR(result);
    }
    if (result == NULL) {
        leave_raising(scope);
        Py_DECREF(scope);
        return NULL;
    }
    PyObject *nothing[3] = {Py_None, Py_None, Py_None};
    PyObject *left = leave(scope, nothing);
    Py_DECREF(scope);
    if (left == NULL) {
        Py_CLEAR(result);
    }
    Py_XDECREF(left);
    return result;
}

/* `call_linked` of `_linked.py`: recording, name, waits_for, key, function, args, kwargs, and
on_fault. The node is linked, so a plain scope does for it. */
static PyObject *
call_linked(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 8 || Py_TYPE(args[0]) != recording_type || !PyTuple_CheckExact(args[5])
        || !PyDict_CheckExact(args[6]) || (args[2] != Py_None && !PyUnicode_Check(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "expected what the Python function takes");
        return NULL;
    }
    PyObject *waits_for = args[2], *function = args[4], *on_fault = args[7];
    int inside = 0;
    Node *node = linked_node((Recording *)args[0], args[1], &inside);
    if (node == NULL) {
        return PyObject_Vectorcall(spec_call, args, count, NULL);
    }
    if (inside && waits_for == Py_None) {
        return PyObject_Call(function, args[5], args[6]);
    }
    Scope *scope = open_linked(args[0], args[1], on_fault);
    if (scope == NULL) {
        return PyErr_Occurred() ? NULL : PyObject_Call(function, args[5], args[6]);
    }
    PyObject *result = PyObject_Call(function, args[5], args[6]);
    return close_linked(scope, waits_for, args[3], result, on_fault);
}

/* `KeyOf` of `_linked.py`, which has the reasons */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *kind, *id_of, *otherwise;
    char is_short;
} KeyOf;

static PyTypeObject *key_of_type;

static PyObject *
find_key(KeyOf *of, PyObject *object)
{
    if (of->is_short && (PyObject *)Py_TYPE(object) == of->kind) {
        PyObject *id = PyObject_CallOneArg(of->id_of, object);
        if (id == NULL) {
            return NULL;
        }
        Py_ssize_t size = PyBytes_CheckExact(id) ? PyBytes_GET_SIZE(id) : 0;
        int is_plain = size && (size < KEY || memcmp(PyBytes_AS_STRING(id), NOT_RANDOM, KEY));
        PyObject *key = NULL;
        if (is_plain) {
            key = PyBytes_FromStringAndSize(PyBytes_AS_STRING(id), size < KEY ? size : KEY);
        }
        Py_DECREF(id);
        if (is_plain) {
            return key;
        }
    }
    return PyObject_CallOneArg(of->otherwise, object);
}

static PyObject *
key_of_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "expected one object");
        return NULL;
    }
    return find_key((KeyOf *)self, args[0]);
}

static PyObject *
key_of_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *kind, *id_of, *otherwise;
    if (!PyArg_ParseTuple(args, "OOO", &kind, &id_of, &otherwise)) {
        return NULL;
    }
    KeyOf *of = (KeyOf *)type->tp_alloc(type, 0);
    if (of != NULL) {
        Py_INCREF(kind);
        Py_INCREF(id_of);
        Py_INCREF(otherwise);
        of->call = key_of_call;
        of->kind = kind;
        of->id_of = id_of;
        of->otherwise = otherwise;
        of->is_short = 1;
    }
    return (PyObject *)of;
}

static int
key_of_traverse(PyObject *self, visitproc visit, void *arg)
{
    KeyOf *of = (KeyOf *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of->kind);
    Py_VISIT(of->id_of);
    Py_VISIT(of->otherwise);
    return 0;
}

static int
key_of_clear(PyObject *self)
{
    KeyOf *of = (KeyOf *)self;
    Py_CLEAR(of->kind);
    Py_CLEAR(of->id_of);
    Py_CLEAR(of->otherwise);
    return 0;
}

DEALLOC(key_of)

static PyMemberDef key_of_members[] = {
    {"__vectorcalloffset__", SIZE, offsetof(KeyOf, call), READ_ONLY, NULL},
    SLOT(KeyOf, kind),
    {"is_short", BOOLEAN, offsetof(KeyOf, is_short), 0, NULL},
    {NULL},
};
static PyType_Slot key_of_slots[] = {
    {Py_tp_new, key_of_new}, {Py_tp_dealloc, key_of_dealloc},
    {Py_tp_traverse, key_of_traverse}, {Py_tp_clear, key_of_clear},
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, key_of_members}, {0, NULL},
};
static PyType_Spec key_of_spec = {
    "gpuprof_timing._hot.KeyOf", sizeof(KeyOf), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, key_of_slots,
};

/* `link_calls` of `_linked.py`, which has the reasons */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    KeyOf *key_of;
    PyObject *recording, *name, *waits_for, *function, *other, *on_fault, *dict;
} LinkedCalls;

/* A call's arguments as a tuple and a mapping; both NULL with an exception. */
static void
take_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **positional,
               PyObject **named)
{
    *positional = PyTuple_New(count);
    *named = PyDict_New();
    int failed = *positional == NULL || *named == NULL;
    for (Py_ssize_t index = 0; !failed && index < count; index++) {
        Py_INCREF(args[index]);
        PyTuple_SET_ITEM(*positional, index, args[index]);
    }
    for (Py_ssize_t index = 0; !failed && names != NULL && index < PyTuple_GET_SIZE(names);
         index++) {
        failed = PyDict_SetItem(*named, PyTuple_GET_ITEM(names, index), args[count + index]) < 0;
    }
    if (failed) {
        Py_CLEAR(*positional);
        Py_CLEAR(*named);
    }
}

static PyObject *
linked_calls_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    LinkedCalls *of = (LinkedCalls *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (!count || (PyObject *)Py_TYPE(args[0]) != of->key_of->kind) {
        return PyObject_Vectorcall(of->other, args, flags, names);
    }
    PyObject *key = find_key(of->key_of, args[0]), *result = NULL;
    if (key == NULL) {
        return hand_over(of->on_fault) < 0 ? NULL
                                           : PyObject_Vectorcall(of->function, args, flags, names);
    }
    int inside = 0;
    if (linked_node((Recording *)of->recording, of->name, &inside) == NULL) {
        PyObject *positional, *named;
        take_arguments(args, count, names, &positional, &named);
        PyObject *given[] = {of->recording, of->name, of->waits_for, key, of->function, positional,
                             named, of->on_fault};
        result = named != NULL ? PyObject_Vectorcall(spec_call, given, 8, NULL) : NULL;
        Py_XDECREF(positional);
        Py_XDECREF(named);
    }
    else if (inside && of->waits_for == Py_None) {
        result = PyObject_Vectorcall(of->function, args, flags, names);
    }
    else {
        Scope *scope = open_linked(of->recording, of->name, of->on_fault);
        if (scope != NULL || !PyErr_Occurred()) {
            result = PyObject_Vectorcall(of->function, args, flags, names);
        }
        if (scope != NULL) {
            result = close_linked(scope, of->waits_for, key, result, of->on_fault);
        }
    }
    Py_DECREF(key);
    return result;
}

static PyObject *
linked_calls_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *given[7];
    if (!PyArg_ParseTuple(args, "OO!UOO!OO", &given[0], recording_type, &given[1], &given[2],
                          &given[3], key_of_type, &given[4], &given[5], &given[6])) {
        return NULL;
    }
    LinkedCalls *of = (LinkedCalls *)type->tp_alloc(type, 0);
    if (of != NULL) {
        PyObject **fields[] = {&of->function, &of->recording, &of->name, &of->waits_for,
                               (PyObject **)&of->key_of, &of->other, &of->on_fault};
        for (size_t index = 0; index < 7; index++) {
            Py_INCREF(given[index]);
            *fields[index] = given[index];
        }
        of->call = linked_calls_call;
    }
    return (PyObject *)of;
}

static int
linked_calls_traverse(PyObject *self, visitproc visit, void *arg)
{
    LinkedCalls *of = (LinkedCalls *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of->key_of);
    Py_VISIT(of->recording);
    Py_VISIT(of->waits_for);
    Py_VISIT(of->function);
    Py_VISIT(of->other);
    Py_VISIT(of->on_fault);
    Py_VISIT(of->dict);
    return 0;
}

static int
linked_calls_clear(PyObject *self)
{
    LinkedCalls *of = (LinkedCalls *)self;
    Py_CLEAR(of->key_of);
    Py_CLEAR(of->recording);
    Py_CLEAR(of->name);
    Py_CLEAR(of->waits_for);
    Py_CLEAR(of->function);
    Py_CLEAR(of->other);
    Py_CLEAR(of->on_fault);
    Py_CLEAR(of->dict);
    return 0;
}

DEALLOC(linked_calls)

/* Pickled by its name, as a function is. */
static PyObject *
linked_calls_reduce(PyObject *self, PyObject *unused)
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef linked_calls_methods[] = {
    {"__reduce__", linked_calls_reduce, METH_NOARGS, NULL}, {NULL},
};
static PyMemberDef linked_calls_members[] = {
    {"__vectorcalloffset__", SIZE, offsetof(LinkedCalls, call), READ_ONLY, NULL},
    {"__dictoffset__", SIZE, offsetof(LinkedCalls, dict), READ_ONLY, NULL},
    {NULL},
};
static PyGetSetDef linked_calls_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL},
};
static PyType_Slot linked_calls_slots[] = {
    {Py_tp_new, linked_calls_new}, {Py_tp_dealloc, linked_calls_dealloc},
    {Py_tp_traverse, linked_calls_traverse}, {Py_tp_clear, linked_calls_clear},
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, linked_calls_members},
    {Py_tp_methods, linked_calls_methods}, {Py_tp_getset, linked_calls_getset}, {0, NULL},
};
static PyType_Spec linked_calls_spec = {
    "gpuprof_timing._hot.LinkedCalls", sizeof(LinkedCalls), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, linked_calls_slots,
};
static PyTypeObject *linked_calls_type;

/* `follow` of `_linked.py`, which has the reasons */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *clock, *then, *note, *dict;
    KeyOf *key_of;
} Followed;

/* Whether a call has arguments of the job's; what cannot be asked counts as some. */
static int
has_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count > 2) {
        return 1;
    }
    for (Py_ssize_t index = 0; names != NULL && index < PyTuple_GET_SIZE(names); index++) {
        PyObject *name = PyTuple_GET_ITEM(names, index);
        if (PyUnicode_CompareWithASCIIString(name, "args") == 0
            || PyUnicode_CompareWithASCIIString(name, "kwargs") == 0) {
            if (PyObject_IsTrue(args[count + index])) {
                PyErr_Clear();
                return 1;
            }
        }
    }
    return 0;
}

/* Note a call by its result's key: 1, or 0 where that has failed; -1 for what is no `Exception`. */
static int
note_key(Followed *of, PyObject *started, PyObject *result)
{
    PyObject *key = find_key(of->key_of, result), *needs = key != NULL ? PyTuple_New(0) : NULL;
    PyObject *given[3] = {started, key, needs};
    PyObject *done = needs != NULL ? PyObject_Vectorcall(of->note, given, 3, NULL) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(needs);
    Py_XDECREF(done);
    if (done == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return 0;
    }
    return done == NULL ? -1 : 1;
}

static PyObject *
followed_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Followed *of = (Followed *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject *started = now_of(of->clock);
    PyObject *result = started != NULL ? PyObject_Vectorcall(of->function, args, flags, names)
                                       : NULL;
    if (result == NULL) {
        Py_XDECREF(started);
        return NULL;
    }
    PyObject *positional = NULL, *named = NULL;
    int failed = 0;
    int passes_arguments = has_arguments(args, count, names);
    if (!passes_arguments && of->note != NULL
        && (PyObject *)Py_TYPE(result) == of->key_of->kind) {
        int noted = note_key(of, started, result);
        if (noted) {
            Py_DECREF(started);
            if (noted < 0) {
                Py_CLEAR(result);
            }
            return result;
        }
    }
    if (passes_arguments) {
        take_arguments(args, count, names, &positional, &named);
        failed = named == NULL;
    }
    if (!failed) {
        PyObject *given[4] = {started, result, positional != NULL ? positional : Py_None,
                              named != NULL ? named : Py_None};
        PyObject *done = PyObject_Vectorcall(of->then, given, 4, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_DECREF(started);
    Py_XDECREF(positional);
    Py_XDECREF(named);
    if (failed) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *
followed_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *function, *clock, *then, *key_of = NULL, *note = NULL;
    if (!PyArg_ParseTuple(args, "OOO|O!O", &function, &clock, &then, key_of_type, &key_of, &note)) {
        return NULL;
    }
    Followed *followed = (Followed *)type->tp_alloc(type, 0);
    if (followed != NULL) {
        Py_INCREF(function);
        Py_INCREF(clock);
        Py_INCREF(then);
        Py_XINCREF(key_of);
        Py_XINCREF(note);
        followed->key_of = (KeyOf *)key_of;
        followed->note = note;
        followed->call = followed_call;
        followed->function = function;
        followed->clock = clock;
        followed->then = then;
    }
    return (PyObject *)followed;
}

static int
followed_traverse(PyObject *self, visitproc visit, void *arg)
{
    Followed *followed = (Followed *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(followed->function);
    Py_VISIT(followed->clock);
    Py_VISIT(followed->then);
    Py_VISIT(followed->note);
    Py_VISIT(followed->dict);
    Py_VISIT(followed->key_of);
    return 0;
}

static int
followed_clear(PyObject *self)
{
    Followed *followed = (Followed *)self;
    Py_CLEAR(followed->function);
    Py_CLEAR(followed->clock);
    Py_CLEAR(followed->then);
    Py_CLEAR(followed->note);
    Py_CLEAR(followed->dict);
    Py_CLEAR(followed->key_of);
    return 0;
}

DEALLOC(followed)

/* As a function does: it is a method of the class that has it. */
static PyObject *
followed_get(PyObject *self, PyObject *object, PyObject *type)
{
    if (object == NULL || object == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, object);
}

static PyMemberDef followed_members[] = {
    {"__vectorcalloffset__", SIZE, offsetof(Followed, call), READ_ONLY, NULL},
    {"__dictoffset__", SIZE, offsetof(Followed, dict), READ_ONLY, NULL},
    {NULL},
};
static PyGetSetDef followed_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL},
};
static PyType_Slot followed_slots[] = {
    {Py_tp_new, followed_new}, {Py_tp_dealloc, followed_dealloc},
    {Py_tp_traverse, followed_traverse}, {Py_tp_clear, followed_clear},
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_descr_get, followed_get},
    {Py_tp_members, followed_members}, {Py_tp_getset, followed_getset}, {0, NULL},
};
static PyType_Spec followed_spec = {
    "gpuprof_timing._hot.Followed", sizeof(Followed), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_METHOD_DESCRIPTOR,
    followed_slots,
};
static PyTypeObject *followed_type;

/* Bound methods that come from a list of spare ones: Python's own cost a fifth of a scope. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Scope *scope;
} Bound;

static Bound *free_bounds[MOST_FREE];
static int free_bound_count;

/* A call that no `with` makes: what is wrong about it, if anything is, says Python. */
static PyObject *
call_method(PyObject *function, Scope *scope, PyObject *const *args, size_t flags, PyObject *names)
{
    PyObject *method = PyMethod_New(function, (PyObject *)scope);
    PyObject *result = method ? PyObject_Vectorcall(method, args, PyVectorcall_NARGS(flags), names)
                              : NULL;
    Py_XDECREF(method);
    return result;
}

static PyObject *
bound_enter(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) || names != NULL) {
        return call_method(spec_enter, ((Bound *)self)->scope, args, flags, names);
    }
    return enter(((Bound *)self)->scope);
}

static PyObject *
bound_exit(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 3 || names != NULL) {
        return call_method(spec_exit, ((Bound *)self)->scope, args, flags, names);
    }
    return leave(((Bound *)self)->scope, args);
}

static void
bound_dealloc(PyObject *self)
{
    Scope *scope = ((Bound *)self)->scope;
    if (free_bound_count < MOST_FREE) {
        free_bounds[free_bound_count++] = (Bound *)self;
    }
    else {
        PyObject_Free(self);
    }
    Py_DECREF(scope);
}

static PyTypeObject bound_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gpuprof_timing._hot.bound_method",
    .tp_basicsize = sizeof(Bound),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Bound, call),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = bound_dealloc,
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc call; /* of the method that is not bound */
    vectorcallfunc bound;
} Method;

static PyObject *
method_get(PyObject *self, PyObject *object, PyObject *type)
{
    if (object == NULL || !PyObject_TypeCheck(object, scope_base)) {
        Py_INCREF(self);
        return self;
    }
    Bound *bound;
    if (free_bound_count) {
        bound = free_bounds[--free_bound_count];
        revive((PyObject *)bound);
    }
    else {
        bound = PyObject_New(Bound, &bound_type);
        if (bound == NULL) {
            return NULL;
        }
    }
    Py_INCREF(object);
    bound->scope = (Scope *)object;
    bound->call = ((Method *)self)->bound;
    return (PyObject *)bound;
}

static PyObject *
method_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 1 || !PyObject_TypeCheck(args[0], scope_base)) {
        PyErr_SetString(PyExc_TypeError, "expected a Scope");
        return NULL;
    }
    PyObject *bound = method_get(self, args[0], NULL);
    PyObject *result = bound ? PyObject_Vectorcall(bound, args + 1, count - 1, names) : NULL;
    Py_XDECREF(bound);
    return result;
}

static PyTypeObject method_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gpuprof_timing._hot.method",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Method, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = method_get,
};

static PyObject *
make_method(vectorcallfunc bound)
{
    Method *method = PyObject_New(Method, &method_type);
    if (method != NULL) {
        method->call = method_call;
        method->bound = bound;
    }
    return (PyObject *)method;
}

static Reference scope_recording = {offsetof(Scope, recording), &recording_base};
static Reference scope_node = {offsetof(Scope, node), &node_base};
static Reference scope_parent = {offsetof(Scope, parent), &scope_base};
static PyGetSetDef scope_getset[] = {
    {"recording", get_reference, set_reference, NULL, &scope_recording},
    {"node", get_reference, set_reference, NULL, &scope_node},
    {"parent", get_reference, set_reference, NULL, &scope_parent},
    {"started", get_started, set_started, NULL, NULL},
    {NULL},
};
static PyMemberDef scope_members[] = {
    SLOT(Scope, place),
    SLOT(Scope, track),
    {"_range", OBJECT, offsetof(Scope, range), 0, NULL},
    {"_crosses_tasks", BOOLEAN, offsetof(Scope, crosses_tasks), 0, NULL},
    {NULL},
};

/* The types */

#define BASE_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC)
static PyType_Slot node_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, node_dealloc},
    {Py_tp_traverse, node_traverse}, {Py_tp_clear, node_clear},
    {Py_tp_getset, node_getset}, {Py_tp_members, node_members}, {0, NULL},
};
static PyType_Spec node_spec = {
    "gpuprof_timing._hot.Node", sizeof(Node), 0, BASE_FLAGS, node_slots,
};
static PyType_Slot cursor_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, cursor_dealloc},
    {Py_tp_traverse, cursor_traverse}, {Py_tp_clear, cursor_clear},
    {Py_tp_getset, cursor_getset}, {Py_tp_members, cursor_members}, {0, NULL},
};
static PyType_Spec cursor_spec = {
    "gpuprof_timing._hot.Cursor", sizeof(Cursor), 0, BASE_FLAGS, cursor_slots,
};
static PyType_Slot recording_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, recording_dealloc},
    {Py_tp_traverse, recording_traverse}, {Py_tp_clear, recording_clear},
    {Py_tp_members, recording_members}, {0, NULL},
};
static PyType_Spec recording_spec = {
    "gpuprof_timing._hot.Recording", sizeof(Recording), 0, BASE_FLAGS, recording_slots,
};
static PyType_Slot recorder_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_traverse, recorder_traverse}, {Py_tp_clear, recorder_clear},
    {Py_tp_members, recorder_members}, {0, NULL},
};
static PyType_Spec recorder_spec = {
    "gpuprof_timing._hot.Recorder", sizeof(Recorder), 0, BASE_FLAGS, recorder_slots,
};
static PyType_Slot rows_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, rows_dealloc},
    {Py_tp_traverse, rows_traverse}, {Py_tp_clear, rows_clear},
    {Py_tp_methods, rows_methods}, {Py_tp_getset, rows_getset},
    {Py_tp_members, rows_members}, {Py_tp_init, rows_init}, {0, NULL},
};
static PyType_Spec rows_spec = {
    "gpuprof_timing._hot.Rows", sizeof(Rows), 0, BASE_FLAGS, rows_slots,
};
static PyType_Slot scope_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, scope_dealloc},
    {Py_tp_traverse, scope_traverse}, {Py_tp_clear, scope_clear},
    {Py_tp_getset, scope_getset}, {Py_tp_members, scope_members}, {0, NULL},
};
static PyType_Spec scope_spec = {
    "gpuprof_timing._hot.Scope", sizeof(Scope), 0, BASE_FLAGS, scope_slots,
};

static PyType_Slot linked_slots[] = {
    {Py_tp_new, linked_new}, {Py_tp_dealloc, linked_dealloc},
    {Py_tp_members, linked_members}, {0, NULL},
};
static PyType_Spec linked_spec = {
    "gpuprof_timing._hot.Linked", sizeof(Linked), 0, Py_TPFLAGS_DEFAULT, linked_slots,
};

/* What Python tells us */

static void
keep(PyObject **where, PyObject *object)
{
    Py_INCREF(object);
    Py_XSETREF(*where, object);
}

/* `_spans.recorder`, `_spans.task_track`, `_cursor.IN_LOOP`, `_range_slot.enter` and `leave`. */
static PyObject *
bind(PyObject *module, PyObject *args)
{
    PyObject *given[5];
    if (!PyArg_ParseTuple(args, "O!OOOO", recorder_base, &given[0], &given[1], &given[2],
                          &given[3], &given[4])) {
        return NULL;
    }
    keep(&enter_range, given[3]);
    keep(&leave_range, given[4]);
    keep((PyObject **)&recorder, given[0]);
    keep(&task_track, given[1]);
    keep(&in_loop, given[2]);
    Py_RETURN_NONE;
}

static PyObject *
open_ranges(PyObject *module, PyObject *whether)
{
    int open = PyObject_IsTrue(whether);
    if (open < 0) {
        return NULL;
    }
    ranges_open = open;
    ranges_filled++;
    PyDict_Clear(range_labels);
    Py_RETURN_NONE;
}

/* The Python `__enter__` and `__exit__`. */
static PyObject *
specify(PyObject *module, PyObject *args)
{
    PyObject *given[2];
    if (!PyArg_ParseTuple(args, "OO", &given[0], &given[1])) {
        return NULL;
    }
    keep(&spec_enter, given[0]);
    keep(&spec_exit, given[1]);
    Py_RETURN_NONE;
}

/* The Python `call_linked`. */
static PyObject *
specify_call(PyObject *module, PyObject *function)
{
    keep(&spec_call, function);
    Py_RETURN_NONE;
}

/* A Python class that derives from one of ours. */
static PyObject *
complete(PyObject *module, PyObject *given)
{
    PyTypeObject *type = (PyTypeObject *)given;
    if (!PyType_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "expected a class");
        return NULL;
    }
    if (PyType_IsSubtype(type, node_base)) {
        keep((PyObject **)&node_type, given);
    }
    else if (PyType_IsSubtype(type, cursor_base)) {
        keep((PyObject **)&cursor_type, given);
    }
    else if (PyType_IsSubtype(type, recording_base)) {
        PyObject *method = PyObject_GetAttrString(given, "add_time");
        if (method == NULL) {
            return NULL;
        }
        Py_XSETREF(spec_add_time, method);
        keep((PyObject **)&recording_type, given);
    }
    Py_RETURN_NONE;
}

static PyObject *
claim(PyObject *module, PyObject *unused)
{
    static int claimed;
    return PyBool_FromLong(!claimed++);
}

/* The stacks of all threads, in Python 3.11 only.

There a frame object is made when somebody asks for it, which may run the garbage collector, and
with it any Python code: the thread whose frame it is can go on meanwhile, and the object is then
written into memory that belongs to another frame. So `sys._current_frames` and `f_back` are not
safe for other threads, and this reads the interpreter's frames instead. While it does, it allocates
nothing of Python's. Earlier releases have frame objects only, and later ones collect garbage at
another moment. */

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* it is defined again */
#include "internal/pycore_frame.h"
#include "internal/pycore_runtime.h"
#undef Py_BUILD_CORE

typedef struct {
    PyObject *code;
    PyObject *globals;
    int instruction;
} Called;

typedef struct {
    unsigned long thread;
    uint64_t key;
    size_t first;
    size_t count;
    PyObject *number; /* the key */
    int is_known;
} Walked;

static Called *called;
static Walked *walked;
static size_t most_called, most_walked;

static int
make_room(void **items, size_t *most, size_t needed, size_t size)
{
    if (needed <= *most)
        return 1;
    void *larger = realloc(*items, 2 * needed * size);
    if (larger == NULL)
        return 0;
    *items = larger;
    *most = 2 * needed;
    return 1;
}

static uint64_t
mixed(uint64_t key, uint64_t value)
{
    key = (key ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return key ^ (key >> 32);
}

/* Fills `called` and `walked`, with what their frames hold. Returns how many threads there are. A
code object is not looked at, as most are of stacks that are known, and in no cache. */
static size_t
walk(size_t most)
{
    size_t threads = 0, calls = 0;
    PyThread_acquire_lock(_PyRuntime.interpreters.mutex, WAIT_LOCK);
    PyThreadState *state = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
    for (; state != NULL; state = PyThreadState_Next(state)) {
        Walked here = {.thread = state->thread_id, .first = calls};
        _PyInterpreterFrame *frame = state->cframe == NULL ? NULL : state->cframe->current_frame;
        for (; frame != NULL && here.count < most; frame = frame->previous) {
            if (!make_room((void **)&called, &most_called, calls + 1, sizeof(Called)))
                break;
            int instruction = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
            called[calls++] = (Called){(PyObject *)frame->f_code, frame->f_globals, instruction};
            here.key = mixed(mixed(here.key, (uintptr_t)frame->f_code), (uint64_t)instruction);
            here.count++;
        }
        if (here.count && make_room((void **)&walked, &most_walked, threads + 1, sizeof(Walked)))
            walked[threads++] = here;
    }
    PyThread_release_lock(_PyRuntime.interpreters.mutex);
    return threads;
}

/* Whether a frame's function has begun: as `_PyFrame_IsIncomplete`, for what `walk` has kept. */
static int
has_begun(const Called *of)
{
    PyCodeObject *code = (PyCodeObject *)of->code;
    return of->instruction >= code->_co_firsttraceable * (int)sizeof(_Py_CODEUNIT);
}

static PyObject *
frames_of(const Called *from, size_t count)
{
    PyObject *frames = PyList_New(0);
    for (size_t at = 0; frames != NULL && at < count; at++) {
        if (!has_begun(from + at))
            continue;
        PyObject *frame = Py_BuildValue("OOi", from[at].code, from[at].globals,
                                        from[at].instruction);
        if (frame == NULL || PyList_Append(frames, frame) < 0)
            Py_CLEAR(frames);
        Py_XDECREF(frame);
    }
    return frames;
}

PyDoc_STRVAR(stacks_doc, "See `gpuprof_timing._stacks.stacks`; one caller at a time.");

static PyObject *
stacks(PyObject *module, PyObject *arguments)
{
    PyObject *known;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyDict_Type, &known, &most))
        return NULL;
    size_t threads = walk(most < 0 ? 0 : (size_t)most);
    int failed = 0;
    /* Until the frames of new stacks are held, nothing may run that could end one: integers are
    not what garbage is collected for. */
    for (size_t at = 0; at < threads; at++) {
        Walked *here = walked + at;
        here->number = PyLong_FromUnsignedLongLong(here->key);
        here->is_known = here->number == NULL ? -1 : PyDict_Contains(known, here->number);
        failed |= here->is_known < 0;
        for (size_t frame = 0; here->is_known == 0 && frame < here->count; frame++) {
            Py_INCREF(called[here->first + frame].code);
            Py_INCREF(called[here->first + frame].globals);
        }
    }
    PyObject *made = failed ? NULL : PyList_New(0);
    for (size_t at = 0; at < threads; at++) {
        const Walked *here = walked + at;
        PyObject *frames = NULL, *row = NULL;
        if (made != NULL)
            frames = here->is_known ? Py_NewRef(Py_None)
                                    : frames_of(called + here->first, here->count);
        if (frames != NULL)
            row = Py_BuildValue("kOO", here->thread, here->number, frames);
        if (row == NULL || PyList_Append(made, row) < 0)
            Py_CLEAR(made);
        Py_XDECREF(here->number);
        Py_XDECREF(frames);
        Py_XDECREF(row);
        for (size_t frame = 0; here->is_known == 0 && frame < here->count; frame++) {
            Py_DECREF(called[here->first + frame].code);
            Py_DECREF(called[here->first + frame].globals);
        }
    }
    return made;
}
#endif

/* `Alarm` of `_stacks.py`, which has the reasons */

typedef struct {
    PyObject_HEAD
    PyThread_type_lock quiet; /* held until it rings */
    int times;                /* the file of the sleeping thread's processor times; -1 without */
    int is_open;
} Alarm;

/* For how many nanoseconds the sleeping thread has been ready to run, without a processor; -1 if
   that is not known. Takes 1 us, and keeps the GIL if the caller has it: Python's own functions for
   files would let the job run on. */
static double
lacked(Alarm *alarm, unsigned long long *slices)
{
#ifdef __linux__
    char text[96];
    unsigned long long ran, ready;
    if (!alarm->is_open) {
        alarm->times = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
        alarm->is_open = 1;
    }
    ssize_t size = alarm->times < 0 ? -1 : pread(alarm->times, text, sizeof text - 1, 0);
    if (size > 0) {
        text[size] = 0;
        /* a kernel that does not count says 0 */
        if (sscanf(text, "%llu %llu %llu", &ran, &ready, slices) == 3 && ran > 0) {
            return (double)ready;
        }
    }
#endif
    return -1.0;
}

static PyObject *
alarm_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Alarm *alarm = (Alarm *)type->tp_alloc(type, 0);
    if (alarm == NULL) {
        return NULL;
    }
    alarm->times = -1;
    alarm->quiet = PyThread_allocate_lock();
    if (alarm->quiet == NULL) {
        Py_DECREF(alarm);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(alarm->quiet, WAIT_LOCK);
    return (PyObject *)alarm;
}

static void
alarm_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Alarm *alarm = (Alarm *)self;
    if (alarm->quiet != NULL) { /* nobody sleeps: the method holds a reference */
        PyThread_acquire_lock(alarm->quiet, NOWAIT_LOCK);
        PyThread_release_lock(alarm->quiet);
        PyThread_free_lock(alarm->quiet);
    }
#ifdef __linux__
    if (alarm->times >= 0) {
        close(alarm->times);
    }
#endif
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
alarm_ring(PyObject *self, PyObject *unused)
{
    Alarm *alarm = (Alarm *)self;
    PyThread_acquire_lock(alarm->quiet, NOWAIT_LOCK); /* it may have rung before */
    PyThread_release_lock(alarm->quiet);
    Py_RETURN_NONE;
}

static PyObject *
alarm_sleep(PyObject *self, PyObject *given)
{
    Alarm *alarm = (Alarm *)self;
    double seconds = PyFloat_AsDouble(given);
    if (seconds == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    PyLockStatus rang;
    int64_t woke;
    double before, after, waited;
    unsigned long long first = 0, last = 0;
    Py_BEGIN_ALLOW_THREADS
    rang = PyThread_acquire_lock_timed(alarm->quiet, (PY_TIMEOUT_T)(fmax(0, seconds) * 1e6), 0);
    before = lacked(alarm, &first);
    woke = monotonic();
    Py_END_ALLOW_THREADS
    if (rang == PY_LOCK_ACQUIRED) {
        PyThread_release_lock(alarm->quiet); /* it keeps ringing */
        Py_RETURN_NONE;
    }
    after = lacked(alarm, &last);
    waited = (double)(monotonic() - woke);
    /* asked for in vain, the GIL wakes a thread every 5 ms; more often, it was given up meanwhile */
    if (before < 0 || after < 0 || (double)(last - first) > waited / 4e6 + 2) {
        return PyFloat_FromDouble(0.0);
    }
    return PyFloat_FromDouble(fmax(0.0, waited - (after - before)) / 1e9);
}

static PyMethodDef alarm_methods[] = {
    {"ring", alarm_ring, METH_NOARGS, NULL}, {"sleep", alarm_sleep, METH_O, NULL}, {NULL},
};
static PyType_Slot alarm_slots[] = {
    {Py_tp_new, alarm_new}, {Py_tp_dealloc, alarm_dealloc}, {Py_tp_methods, alarm_methods},
    {0, NULL},
};
static PyType_Spec alarm_spec = {
    "gpuprof_timing._hot.Alarm", sizeof(Alarm), 0, Py_TPFLAGS_DEFAULT, alarm_slots,
};
static PyTypeObject *alarm_type;

static PyMethodDef functions[] = {
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
    {"stacks", stacks, METH_VARARGS, stacks_doc},
#endif
    {"claim", claim, METH_NOARGS, NULL},
    {"add_time", (PyCFunction)(void (*)(void))add_time, METH_FASTCALL, NULL},
    {"bind", bind, METH_VARARGS, NULL},
    {"open_ranges", open_ranges, METH_O, NULL},
    {"specify", specify, METH_VARARGS, NULL},
    {"specify_call", specify_call, METH_O, NULL},
    {"call_linked", (PyCFunction)(void (*)(void))call_linked, METH_FASTCALL, NULL},
    {"complete", complete, METH_O, NULL},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

static int
intern_names(void)
{
    PyObject **names[] = {&str_asyncio, &str_depth, &str_get_running_loop, &str_skip_closed_parents,
                          &str_key, &str_abandon, &str_waits, &str_releases, &str_meets,
                          &str_loop_of_thread};
    const char *texts[] = {"asyncio", "depth", "_get_running_loop", "_skip_closed_parents",
                           "key", "_abandon", "waits", "releases", "meets",
                           "__asyncio_running_event_loop__"};
    for (size_t index = 0; index < sizeof(names) / sizeof(*names); index++) {
        *names[index] = PyUnicode_InternFromString(texts[index]);
        if (*names[index] == NULL) {
            return -1;
        }
    }
    return 0;
}

/* `time.perf_counter_ns`, if it is the clock that `monotonic` reads. */
static int
find_clock(void)
{
    PyObject *time = PyImport_ImportModule("time");
    PyObject *found = time ? PyObject_GetAttrString(time, "perf_counter_ns") : NULL;
    Py_XDECREF(time);
    if (found == NULL) {
        return -1;
    }
    int64_t before = monotonic();
    PyObject *value = PyObject_CallNoArgs(found);
    int64_t between = value ? PyLong_AsLongLong(value) : -1;
    int64_t after = monotonic();
    Py_XDECREF(value);
    if (PyErr_Occurred()) {
        Py_DECREF(found);
        return -1;
    }
    if (before <= between && between <= after) {
        perf_counter_ns = found;
    }
    else {
        Py_DECREF(found);
    }
    return 0;
}

/* How a context variable's bound methods are recognised. */
static int
find_variable_methods(void)
{
    PyObject *variable = PyContextVar_New("gpuprof_timing", NULL);
    PyObject *get = variable ? PyObject_GetAttrString(variable, "get") : NULL;
    PyObject *set = variable ? PyObject_GetAttrString(variable, "set") : NULL;
    if (get != NULL && set != NULL && PyCFunction_CheckExact(get) && PyCFunction_CheckExact(set)) {
        variable_get = PyCFunction_GET_FUNCTION(get);
        variable_set = PyCFunction_GET_FUNCTION(set);
    }
    Py_XDECREF(variable);
    Py_XDECREF(get);
    Py_XDECREF(set);
    return PyErr_Occurred() ? -1 : 0;
}

PyMODINIT_FUNC
PyInit__hot(void)
{
    modules = PyImport_GetModuleDict();
    Py_INCREF(modules);
    range_labels = PyDict_New();
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || range_labels == NULL || PyType_Ready(&bound_type) < 0
        || PyType_Ready(&method_type) < 0 || intern_names() < 0 || find_clock() < 0
        || find_variable_methods() < 0) {
        return NULL;
    }
    struct {
        PyTypeObject **type;
        PyType_Spec *spec;
        const char *name;
    } types[] = {
        {&node_base, &node_spec, "Node"},
        {&cursor_base, &cursor_spec, "Cursor"},
        {&recording_base, &recording_spec, "Recording"},
        {&recorder_base, &recorder_spec, "Recorder"},
        {&rows_type, &rows_spec, "Rows"},
        {&scope_base, &scope_spec, "Scope"},
        {&linked_type, &linked_spec, "Linked"},
        {&followed_type, &followed_spec, "Followed"},
        {&key_of_type, &key_of_spec, "KeyOf"},
        {&linked_calls_type, &linked_calls_spec, "LinkedCalls"},
        {&alarm_type, &alarm_spec, "Alarm"},
    };
    for (size_t index = 0; index < sizeof(types) / sizeof(*types); index++) {
        *types[index].type = (PyTypeObject *)PyType_FromSpec(types[index].spec);
        if (*types[index].type == NULL
            || PyModule_AddObjectRef(module, types[index].name, (PyObject *)*types[index].type)) {
            return NULL;
        }
    }
    scope_type = scope_base;
    PyObject *methods[] = {make_method(bound_enter), make_method(bound_exit)};
    if (methods[0] == NULL || methods[1] == NULL
        || PyObject_SetAttrString((PyObject *)scope_type, "__enter__", methods[0]) < 0
        || PyObject_SetAttrString((PyObject *)scope_type, "__exit__", methods[1]) < 0) {
        return NULL;
    }
    return module;
}
