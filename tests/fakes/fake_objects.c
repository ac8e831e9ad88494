/* fake_objects.c - handles of the fake driver, and each thread's stack of contexts. */
#include "fake_state.h"

#include <pthread.h>
#include <stdlib.h>

#define MOST_CONTEXTS 16

static const char *const kind_names[FAKE_KINDS] = {
    "context", "stream", "event", "library", "kernel", "cuBLASLt handle",
};

static struct {
    pthread_mutex_t lock;
    fake_object *first;
    int retained;
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

static fake_object primary = {NULL, FAKE_CONTEXT, 0};

static _Thread_local struct {
    void *contexts[MOST_CONTEXTS];
    int depth;
} stack;

void *fake_object_create(fake_kind kind, size_t bytes) {
    fake_object *created = calloc(1, bytes);
    if (!created)
        return NULL;
    created->kind = kind;
    pthread_mutex_lock(&objects.lock);
    created->next = objects.first;
    objects.first = created;
    pthread_mutex_unlock(&objects.lock);
    return created;
}

/* Where the list points to the object; NULL if it is no live handle of that kind. */
static fake_object **find(const void *object, fake_kind kind) {
    for (fake_object **link = &objects.first; *link; link = &(*link)->next)
        if (*link == object)
            return (*link)->kind == kind ? link : NULL;
    return NULL;
}

int fake_object_destroy(void *object, fake_kind kind) {
    pthread_mutex_lock(&objects.lock);
    fake_object **link = find(object, kind);
    if (link)
        *link = (*link)->next;
    pthread_mutex_unlock(&objects.lock);
    if (!link) {
        fake_violation("%p is destroyed, but is no live %s", object, kind_names[kind]);
        return 0;
    }
    free(object);
    return 1;
}

int fake_object_check(const void *object, fake_kind kind, const char *what) {
    pthread_mutex_lock(&objects.lock);
    int live = find(object, kind) != NULL;
    pthread_mutex_unlock(&objects.lock);
    if (!live)
        fake_violation("%s: %p is no live %s", what, object, kind_names[kind]);
    return live;
}

int fake_object_count(fake_kind kind) {
    int count = 0;
    pthread_mutex_lock(&objects.lock);
    for (fake_object *o = objects.first; o; o = o->next)
        count += o->kind == kind && !o->of_test;
    pthread_mutex_unlock(&objects.lock);
    return count;
}

/* ---- Contexts ------------------------------------------------------------------------------ */

int fake_context_push(void *context) {
    if (stack.depth == MOST_CONTEXTS)
        return 0;
    stack.contexts[stack.depth++] = context;
    return 1;
}

void *fake_context_pop(void) {
    return stack.depth > 0 ? stack.contexts[--stack.depth] : NULL;
}

void *fake_context_current(void) {
    return stack.depth > 0 ? stack.contexts[stack.depth - 1] : NULL;
}

void *fake_context_primary(void) {
    return &primary;
}

int fake_context_retain(int change) {
    pthread_mutex_lock(&objects.lock);
    objects.retained += change;
    int retained = objects.retained;
    pthread_mutex_unlock(&objects.lock);
    return retained;
}

/* ---- For tests ----------------------------------------------------------------------------- */

fake_cuda_live fake_cuda_count_live(void) {
    fake_cuda_live live = {0};
    fake_memory_count(&live);
    live.streams = fake_object_count(FAKE_STREAM);
    live.events = fake_object_count(FAKE_EVENT);
    live.libraries = fake_object_count(FAKE_LIBRARY);
    live.cublaslt_handles = fake_object_count(FAKE_CUBLASLT);
    live.retained = fake_context_retain(0);
    return live;
}

void *fake_cuda_stream_create(void) {
    fake_object *stream = fake_object_create(FAKE_STREAM, sizeof *stream);
    if (stream)
        stream->of_test = 1;
    return stream;
}

void fake_cuda_stream_destroy(void *stream) {
    fake_object_destroy(stream, FAKE_STREAM);
}

void *fake_cuda_push_foreign(void) {
    static fake_object foreign = {NULL, FAKE_CONTEXT, 1};
    return fake_context_push(&foreign) ? &foreign : NULL;
}

void *fake_cuda_pop(void) {
    return fake_context_pop();
}

int fake_cuda_depth(void) {
    return stack.depth;
}
