/* fake_state.c - calls of the fakes: counts, failures to inject, violations, run calls. */
#include "fake_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_FUNCTIONS 64
#define MOST_TEXT 65536

typedef struct function {
    const char *name; /* a constant of the fakes */
    int64_t calls;
    int64_t fail_at; /* the count of calls at which to fail; 0: never */
    int error;
} function;

static struct {
    pthread_mutex_t lock;
    function functions[MOST_FUNCTIONS];
    int function_count;
    int violation_count;
    char violations[MOST_TEXT]; /* later ones are counted, but cut */
    size_t length;
    float clock;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* This thread's run call. */
static _Thread_local struct {
    const char *what; /* NULL outside */
    void *stream;
    int depth;
    const void *current;
} run;

static function *find_function(const char *name) {
    for (int i = 0; i < state.function_count; ++i)
        if (strcmp(state.functions[i].name, name) == 0)
            return &state.functions[i];
    if (state.function_count == MOST_FUNCTIONS)
        return &state.functions[MOST_FUNCTIONS - 1];
    function *added = &state.functions[state.function_count++];
    *added = (function){name, 0, 0, 0};
    return added;
}

static int count_call(const char *name) {
    pthread_mutex_lock(&state.lock);
    function *f = find_function(name);
    ++f->calls;
    int error = f->calls == f->fail_at ? f->error : 0;
    pthread_mutex_unlock(&state.lock);
    return error;
}

int fake_enter(const char *name, unsigned rules) {
    int error = count_call(name);
    if ((rules & FAKE_NOT_IN_RUN) && run.what)
        fake_violation("%s is not for run calls", name);
    if ((rules & FAKE_NEEDS_CONTEXT) &&
        (fake_context_current() != fake_context_primary() || fake_context_retain(0) == 0)) {
        fake_violation("%s without the device's primary context", name);
        return FAKE_NO_CONTEXT;
    }
    return error;
}

void fake_violation(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&state.lock);
    ++state.violation_count;
    int length = snprintf(state.violations + state.length, MOST_TEXT - state.length, "%s%s%s\n",
                          run.what ? run.what : "", run.what ? ": " : "", text);
    if (state.length + (size_t)length < MOST_TEXT)
        state.length += (size_t)length;
    else
        state.violations[state.length] = 0;
    pthread_mutex_unlock(&state.lock);
}

void *fake_run_stream(void) {
    return run.stream;
}

void fake_check_stream(const void *stream, const char *what) {
    if (!stream)
        fake_violation("%s on the default stream", what);
    else if (fake_object_check(stream, FAKE_STREAM, what) && run.what && stream != run.stream)
        fake_violation("%s on another stream than the caller's", what);
}

void fake_clock_advance(float milliseconds) {
    pthread_mutex_lock(&state.lock);
    state.clock += milliseconds;
    pthread_mutex_unlock(&state.lock);
}

float fake_clock(void) {
    pthread_mutex_lock(&state.lock);
    const float now = state.clock;
    pthread_mutex_unlock(&state.lock);
    return now;
}

/* ---- For tests ----------------------------------------------------------------------------- */

void fake_cuda_reset(void) {
    pthread_mutex_lock(&state.lock);
    for (int i = 0; i < state.function_count; ++i)
        state.functions[i] = (function){state.functions[i].name, 0, 0, 0};
    state.violation_count = 0;
    state.clock = 0.0f;
    state.length = 0;
    state.violations[0] = 0;
    pthread_mutex_unlock(&state.lock);
    fake_memory_reset_peak();
}

int fake_cuda_violation_count(void) {
    pthread_mutex_lock(&state.lock);
    int count = state.violation_count;
    pthread_mutex_unlock(&state.lock);
    return count;
}

const char *fake_cuda_violations(void) {
    return state.violations;
}

int64_t fake_cuda_calls(const char *name) {
    pthread_mutex_lock(&state.lock);
    int64_t calls = find_function(name)->calls;
    pthread_mutex_unlock(&state.lock);
    return calls;
}

const char *fake_cuda_function(int i) {
    pthread_mutex_lock(&state.lock);
    const char *name = i < state.function_count ? state.functions[i].name : NULL;
    pthread_mutex_unlock(&state.lock);
    return name;
}

void fake_cuda_fail(const char *name, int64_t k, int error) {
    pthread_mutex_lock(&state.lock);
    function *f = find_function(name);
    f->fail_at = f->calls + k;
    f->error = error;
    pthread_mutex_unlock(&state.lock);
}

void fake_cuda_begin_run(void *stream, const char *what) {
    run.what = what;
    run.stream = stream;
    run.depth = fake_cuda_depth();
    run.current = fake_context_current();
}

void fake_cuda_end_run(void) {
    if (fake_cuda_depth() != run.depth || fake_context_current() != run.current)
        fake_violation("left another context current than it found");
    run.what = NULL;
    run.stream = NULL;
}
