/* test_neighbours.c - another user of CUDA in the same process, as a training framework is: it
 * holds the device's primary context, keeps a context current on the thread and has memory of its
 * own. After every call of the library all of that is as it was. */
#include "harness.h"
#include "small_job.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- The other user ------------------------------------------------------------------------ */

enum { BYTES = 1 << 20, PATTERN = 0x5a };

/* The other user's own way to the driver: the version of 2010 of most functions will do. */
typedef struct driver_functions {
    CUresult (*init)(unsigned);
    CUresult (*device)(CUdevice *, int);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUresult (*allocate)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*read)(void *, CUdeviceptr, size_t);
    CUresult (*write)(CUdeviceptr, const void *, size_t);
} driver_functions;

typedef struct other_user {
    driver_functions driver;
    CUdevice device;
    CUcontext primary;
    CUcontext own;     /* another context of the same device */
    CUcontext current; /* one of the two, or NULL: none is */
    CUdeviceptr memory;
} other_user;

static void find(void *into, const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        fail_msg("the CUDA driver has no %s", name);
    memcpy(into, &found, sizeof found);
}

static driver_functions find_driver(void) {
    driver_functions d;
    find(&d.init, "cuInit");
    find(&d.device, "cuDeviceGet");
    find(&d.retain, "cuDevicePrimaryCtxRetain");
    find(&d.release, "cuDevicePrimaryCtxRelease_v2");
    find(&d.create, "cuCtxCreate_v2");
    find(&d.destroy, "cuCtxDestroy_v2");
    find(&d.push, "cuCtxPushCurrent_v2");
    find(&d.pop, "cuCtxPopCurrent_v2");
    find(&d.allocate, "cuMemAlloc_v2");
    find(&d.free, "cuMemFree_v2");
    find(&d.read, "cuMemcpyDtoH_v2");
    find(&d.write, "cuMemcpyHtoD_v2");
    return d;
}

static void succeed(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS)
        fail_msg("%s gave %d", what, (int)result);
}

/* The thread's stack of contexts holds the current one, once, and nothing else. */
static void assert_current_is_kept(const other_user *u, const char *after) {
    CUcontext top = NULL, below = NULL;
    const CUresult has_top = u->driver.pop(&top);
    if (!u->current) {
        if (has_top == CUDA_SUCCESS && top)
            fail_msg("after %s a context is current, and none was before", after);
        return;
    }
    if (has_top != CUDA_SUCCESS || top != u->current)
        fail_msg("after %s another context is current than before", after);
    if (u->driver.pop(&below) == CUDA_SUCCESS && below)
        fail_msg("after %s more contexts are on the thread's stack than before", after);
    succeed(u->driver.push(u->current), "cuCtxPushCurrent");
}

static void assert_memory_is_kept(const other_user *u, const char *after) {
    unsigned char *read = calloc(1, BYTES);
    assert_non_null(read);
    succeed(u->driver.push(u->primary), "cuCtxPushCurrent");
    succeed(u->driver.read(read, u->memory, BYTES), "cuMemcpyDtoH");
    CUcontext popped;
    succeed(u->driver.pop(&popped), "cuCtxPopCurrent");
    for (int i = 0; i < BYTES; i++)
        if (read[i] != PATTERN)
            fail_msg("after %s byte %d of the other user's memory is another", after, i);
    free(read);
}

/* Before the library: it has the primary context first, as a framework would. */
static other_user other_user_open(void) {
    other_user u = {.driver = find_driver()};
    unsigned char *pattern = malloc(BYTES);
    assert_non_null(pattern);
    memset(pattern, PATTERN, BYTES);
    succeed(u.driver.init(0), "cuInit");
    succeed(u.driver.device(&u.device, 0), "cuDeviceGet");
    succeed(u.driver.retain(&u.primary, u.device), "cuDevicePrimaryCtxRetain");
    succeed(u.driver.create(&u.own, 0, u.device), "cuCtxCreate"); /* current now */
    CUcontext popped;
    succeed(u.driver.pop(&popped), "cuCtxPopCurrent");
    assert_ptr_equal(popped, u.own);
    succeed(u.driver.push(u.primary), "cuCtxPushCurrent");
    succeed(u.driver.allocate(&u.memory, BYTES), "cuMemAlloc");
    succeed(u.driver.write(u.memory, pattern, BYTES), "cuMemcpyHtoD");
    succeed(u.driver.pop(&popped), "cuCtxPopCurrent");
    free(pattern);
    return u;
}

static void other_user_close(other_user *u) {
    CUcontext popped;
    succeed(u->driver.push(u->primary), "cuCtxPushCurrent");
    succeed(u->driver.free(u->memory), "cuMemFree");
    succeed(u->driver.pop(&popped), "cuCtxPopCurrent");
    succeed(u->driver.destroy(u->own), "cuCtxDestroy");
    succeed(u->driver.release(u->device), "cuDevicePrimaryCtxRelease");
}

static void make_current(other_user *u, CUcontext context) {
    CUcontext popped;
    if (u->current)
        succeed(u->driver.pop(&popped), "cuCtxPopCurrent");
    u->current = context;
    if (context)
        succeed(u->driver.push(context), "cuCtxPushCurrent");
    assert_current_is_kept(u, "making it so");
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* The call gives this status, and leaves the other user's context current. */
#define CHECK(user, call, status)                                                                  \
    do {                                                                                           \
        lgh_assert_status((call), (status));                                                       \
        assert_current_is_kept((user), #call);                                                     \
    } while (0)

static void check_failures(const other_user *u, lgh_context *context, const lgh_plan *plan) {
    lgh_plan_options options = small_job_options();
    lgh_context_options nowhere = LGH_CONTEXT_OPTIONS_INIT;
    lgh_forward_args nothing = LGH_FORWARD_ARGS_INIT;
    lgh_plan *none;
    lgh_context *no_context;
    void *memory;
    nowhere.type = LGH_DEVICE_CUDA;
    nowhere.ordinal = 9999;
    CHECK(u, lgh_context_create(&no_context, &nowhere), LGH_ERROR_NO_DEVICE);
    options.backward_budget = 1;
    CHECK(u, lgh_plan_create(&none, context, &options), LGH_ERROR_WORKSPACE);
    options.hidden_dtype = LGH_INT32;
    CHECK(u, lgh_plan_create(&none, context, &options), LGH_ERROR_UNSUPPORTED);
    CHECK(u, lgh_forward(plan, &nothing, NULL, 0, NULL), LGH_ERROR_INVALID_ARGUMENT);
    CHECK(u, lgh_memory_allocate(context, (size_t)1 << 50, &memory), LGH_ERROR_OUT_OF_MEMORY);
}

static void check_list(const other_user *u, lgh_context *context, const lgh_plan *plan) {
    static const int64_t targets[] = {5, -100, 7};
    void *memory;
    int32_t list[4];
    CHECK(u, lgh_memory_allocate(context, 4096, &memory), LGH_SUCCESS);
    CHECK(u, lgh_memory_copy(context, memory, targets, sizeof targets, NULL), LGH_SUCCESS);
    int32_t *rows = (int32_t *)((char *)memory + 256);
    CHECK(u, lgh_live_rows(plan, memory, 3, rows, rows + 3, NULL), LGH_SUCCESS);
    CHECK(u, lgh_memory_copy(context, list, rows, sizeof list, NULL), LGH_SUCCESS);
    lgh_memory_free(context, memory);
    assert_current_is_kept(u, "lgh_memory_free");
    assert_int_equal(list[3], 2);
    assert_int_equal(list[1], 2);
}

static void check_life(other_user *u, small_job *job) {
    const lgh_context_options options = {sizeof options, LGH_DEVICE_CUDA, 0, 0, NULL, NULL};
    lgh_plan_options plan_options = small_job_options();
    lgh_context *context;
    lgh_plan *plan;
    char text[4096];
    plan_options.live_lists = 1;
    CHECK(u, lgh_context_create(&context, &options), LGH_SUCCESS);
    CHECK(u, lgh_context_device_name(context, text, sizeof text), LGH_SUCCESS);
    CHECK(u, lgh_plan_create(&plan, context, &plan_options), LGH_SUCCESS);
    CHECK(u, lgh_plan_describe(plan, text, sizeof text, NULL), LGH_SUCCESS);
    small_job_fill(job, LGH_DEVICE_CUDA, 80);
    job->context = context;
    job->plan = plan;
    small_job_run(job);
    assert_current_is_kept(u, "both passes");
    small_job_check(job);
    check_list(u, context, plan);
    check_failures(u, context, plan);
    assert_memory_is_kept(u, "both passes");
    lgh_plan_destroy(plan);
    assert_current_is_kept(u, "lgh_plan_destroy");
    lgh_context_destroy(context);
    assert_current_is_kept(u, "lgh_context_destroy");
    assert_memory_is_kept(u, "lgh_context_destroy");
}

/* ---- Cases --------------------------------------------------------------------------------- */

/* Asks for a GPU without leaving anything of the library behind. */
static void require_gpu(void) {
    const lgh_context_options options = {sizeof options, LGH_DEVICE_CUDA, 0, 0, NULL, NULL};
    lgh_context *context;
    if (lgh_context_create(&context, &options) != LGH_SUCCESS)
        lgh_test_context(); /* skips or fails the case */
    lgh_context_destroy(context);
}

static void the_thread_keeps_its_context_and_the_other_user_its_memory(void **state) {
    (void)state;
    static small_job jobs[3];
    require_gpu();
    other_user u = other_user_open();
    const CUcontext contexts[] = {u.primary, u.own, NULL};
    for (int i = 0; i < 3; i++) {
        make_current(&u, contexts[i]);
        check_life(&u, &jobs[i]);
        small_job_check_same(&jobs[i], &jobs[0]);
    }
    other_user_close(&u);
}

/* The other user leaves while the library still works. */
static void the_library_outlives_the_other_user(void **state) {
    (void)state;
    static small_job before, after;
    require_gpu();
    other_user u = other_user_open();
    small_job_fill(&before, LGH_DEVICE_CUDA, 81);
    small_job_fill(&after, LGH_DEVICE_CUDA, 81);
    before.context = after.context = lgh_test_context();
    small_job_run(&before);
    assert_memory_is_kept(&u, "both passes");
    other_user_close(&u);
    small_job_run(&after);
    small_job_check(&after);
    small_job_check_same(&after, &before);
}

/* The measure itself: a context that is left behind shows. */
static void a_context_that_is_left_behind_would_show(void **state) {
    (void)state;
    require_gpu();
    other_user u = other_user_open();
    CUcontext top, below;
    make_current(&u, u.primary);
    succeed(u.driver.push(u.primary), "cuCtxPushCurrent");
    succeed(u.driver.pop(&top), "cuCtxPopCurrent");
    assert_int_equal(u.driver.pop(&below), CUDA_SUCCESS);
    assert_ptr_equal(below, u.primary);
    u.current = NULL;
    other_user_close(&u);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_keeps_its_context_and_the_other_user_its_memory),
        cmocka_unit_test(the_library_outlives_the_other_user),
        cmocka_unit_test(a_context_that_is_left_behind_would_show),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
