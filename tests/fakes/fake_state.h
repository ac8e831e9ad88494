/* fake_state.h - what both fakes share: calls, violations, run calls, handles, contexts. */
#ifndef LGH_FAKE_STATE_H
#define LGH_FAKE_STATE_H

#include "fakes.h"

/** Rules of a function. */
enum {
    FAKE_NEEDS_CONTEXT = 1, /* the primary context must be current */
    FAKE_NOT_IN_RUN = 2,    /* it allocates, loads, waits, or is for preparation only */
    FAKE_RELEASES = 4       /* an injected failure is returned after the work */
};

/** fake_enter's result where the context is missing; every other is an injected error. */
#define FAKE_NO_CONTEXT (-1)

/** Counts a call and judges it by the rules. 0: go on. */
FAKE_API int fake_enter(const char *function, unsigned rules);

/** Records a violation, with the name of the run call that it happened in. */
FAKE_API void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The stream of this thread's run call; NULL outside. */
FAKE_API void *fake_run_stream(void);

/** Judges the stream that work is enqueued on. */
FAKE_API void fake_check_stream(const void *stream, const char *what);

/** The device's clock in milliseconds: products move it on, events read it. */
FAKE_API void fake_clock_advance(float milliseconds);
float fake_clock(void);

/* ---- Handles ------------------------------------------------------------------------------- */

typedef enum fake_kind {
    FAKE_CONTEXT,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_LIBRARY,
    FAKE_KERNEL,
    FAKE_CUBLASLT,
    FAKE_KINDS
} fake_kind;

/** What every handle starts with. */
typedef struct fake_object {
    struct fake_object *next;
    fake_kind kind;
    int of_test; /* not the library's: not counted */
} fake_object;

/** A zeroed handle of `bytes` bytes. */
FAKE_API void *fake_object_create(fake_kind kind, size_t bytes);

/** Frees a live handle; 0 and a violation if it is none of that kind. */
FAKE_API int fake_object_destroy(void *object, fake_kind kind);

/** Whether it is a live handle of that kind; a violation if not. */
FAKE_API int fake_object_check(const void *object, fake_kind kind, const char *what);

int fake_object_count(fake_kind kind);

/* ---- Contexts ------------------------------------------------------------------------------ */

int fake_context_push(void *context); /* 0 where the stack is full */
void *fake_context_pop(void);         /* NULL where it is empty */
void *fake_context_current(void);
void *fake_context_primary(void); /* of the one device; its handle lives as long as the process */
int fake_context_retain(int change); /* how often the primary context is retained */

/* ---- Memory -------------------------------------------------------------------------------- */

enum { FAKE_READ = 1, FAKE_WRITE = 2, FAKE_FORGET = 4 };

/** Rows in memory, `stride` bytes apart. */
typedef struct fake_rows {
    const void *data;
    int64_t rows;
    int64_t row_bytes;
    int64_t stride;
} fake_rows;

/**
 * Judges an access: all rows in one live allocation and, with FAKE_READ, written before. Then they
 * count as written with FAKE_WRITE, as not written with FAKE_FORGET. 0 and a violation if it may
 * not happen.
 */
FAKE_API int fake_access(fake_rows rows, unsigned how, const char *what);

/** Copies whether bytes were written from one device range to another. */
void fake_copy_marks(void *to, const void *from, size_t bytes);

/** Whether a pointer belongs to the device rather than the host. */
FAKE_API int fake_is_device(const void *pointer);

/** The library's cuMemAlloc and cuMemFree; 0 on failure. */
void *fake_memory_allocate(size_t bytes, int of_test);
int fake_memory_free(void *memory, const char *what);
void fake_memory_count(fake_cuda_live *live);
void fake_memory_reset_peak(void);
size_t fake_memory_total(void);

#endif
