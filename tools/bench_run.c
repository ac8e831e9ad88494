/* bench_run.c - the order of work of the bench, shape by shape. */
#include "bench_run.h"

#include "bench_product.h"
#include "bench_report.h"
#include "error.h"
#include "progress.h"

#include <stdio.h>
#include <string.h>

#define SEED 1

/* What lives as long as one shape is measured. */
typedef struct bench {
    const lgh_tool_bench_settings *settings;
    lgh_tool_gpu gpu;
    lgh__threads *threads;
    lgh_tool_progress progress;
    int64_t steps; /* shown so far */
    lgh_tool_tensors tensors;
    lgh_tool_subject subject;
    lgh_tool_operands operands;
    lgh_tool_product products[LGH_TOOL_PRODUCT_KINDS];
} bench;

/* The five steps of a shape. */
#define STEPS 5

static void show_step(bench *b, const char *note) {
    lgh_tool_progress_show(&b->progress, b->steps++, note);
}

/* ---- One shape ----------------------------------------------------------------------------- */

static lgh_status prepare(bench *b, lgh_tool_result *result) {
    const lgh_tool_bench_settings *s = b->settings;
    show_step(b, "random tensors");
    FORWARD(lgh_tool_tensors_create(&b->tensors, &result->shape, SEED, b->threads));
    show_step(b, "plan");
    FORWARD(lgh_tool_subject_open(&b->subject, &result->shape, s->budget_bytes, s->token_block));
    FORWARD(lgh_tool_subject_load(&b->subject, &b->gpu, &b->tensors));
    FORWARD(lgh_plan_describe(b->subject.plan, result->engine, sizeof result->engine, NULL));
    result->engine[strcspn(result->engine, "\n")] = '\0';
    result->plan = b->subject.plan_times;
    result->forward_bytes = b->subject.workspaces[LGH_PASS_FORWARD].bytes;
    result->backward_bytes = b->subject.workspaces[LGH_PASS_BACKWARD].bytes;
    result->beyond_budget = b->subject.beyond_budget;
    return LGH_SUCCESS;
}

static lgh_status check(bench *b, lgh_tool_result *result) {
    result->is_checked = b->settings->check;
    show_step(b, "check against float64");
    if (!result->is_checked)
        return LGH_SUCCESS;
    return lgh_tool_verify(&result->verdict, &b->subject, &b->gpu, &b->tensors, b->threads);
}

static lgh_status select_products(bench *b, lgh_tool_result *result) {
    const lgh_tool_subject *s = &b->subject;
    result->has_products = b->settings->products;
    show_step(b, "fastest products");
    if (!result->has_products)
        return LGH_SUCCESS;
    FORWARD(lgh_tool_operands_open(&b->operands, &b->gpu, &result->shape, s->hidden, s->weight,
                                   s->dweight));
    for (int kind = 0; kind < LGH_TOOL_PRODUCT_KINDS; ++kind) {
        FORWARD(lgh_tool_product_select(&b->products[kind], &b->gpu, &b->operands, &result->shape,
                                        (lgh_tool_product_kind)kind, b->settings->quick ? 1 : 2));
        result->variants[kind] = b->products[kind].variant;
    }
    return LGH_SUCCESS;
}

static lgh_status measure_rounds(bench *b, lgh_tool_result *result) {
    lgh_tool_measured things[LGH_TOOL_PRODUCT_KINDS + 2] = {
        {.work = lgh_tool_subject_forward, .subject = &b->subject},
        {.work = lgh_tool_subject_both, .subject = &b->subject}};
    size_t count = 2;
    const int rounds = b->settings->rounds;
    for (int kind = 0; result->has_products && kind < LGH_TOOL_PRODUCT_KINDS; ++kind)
        things[count++] =
            (lgh_tool_measured){.work = lgh_tool_product_run, .subject = &b->products[kind]};
    FORWARD(lgh_tool_measure(things, count, rounds, &b->gpu));
    result->forward = lgh_tool_times_of(things[0].samples, rounds);
    result->both = lgh_tool_times_of(things[1].samples, rounds);
    for (size_t i = 2; i < count; ++i)
        result->products[i - 2] = lgh_tool_times_of(things[i].samples, rounds);
    return LGH_SUCCESS;
}

static lgh_status measure(bench *b, lgh_tool_result *result) {
    FORWARD(select_products(b, result));
    show_step(b, "rounds");
    FORWARD(measure_rounds(b, result));
    FORWARD(lgh_tool_measure_host(lgh_tool_subject_forward, &b->subject, &b->gpu,
                                  &result->host_forward));
    return lgh_tool_measure_host(lgh_tool_subject_backward, &b->subject, &b->gpu,
                                 &result->host_backward);
}

static lgh_status run_shape(bench *b, lgh_tool_result *result, int *right) {
    FORWARD(prepare(b, result));
    FORWARD(check(b, result));
    *right = !result->is_checked || result->verdict.right;
    if (*right)
        FORWARD(measure(b, result));
    return LGH_SUCCESS;
}

static void print_shape(const lgh_tool_result *result, int right) {
    lgh_tool_report_shape(&result->shape);
    if (result->is_checked)
        lgh_tool_report_verdict(&result->verdict);
    if (right)
        lgh_tool_report_times(result);
}

static lgh_status bench_shape(bench *b, lgh_tool_result *result, int *right) {
    b->steps = 0;
    lgh_tool_progress_start(&b->progress, stderr, result->shape.name, STEPS);
    lgh_status status = run_shape(b, result, right);
    lgh_tool_progress_end(&b->progress);
    if (status == LGH_SUCCESS)
        print_shape(result, *right);
    lgh_tool_operands_close(&b->operands);
    lgh_tool_subject_close(&b->subject);
    lgh_tool_tensors_free(&b->tensors);
    return status;
}

/* ---- All shapes ---------------------------------------------------------------------------- */

/* The context loads every shared library, so that no plan's time includes that. */
static lgh_status print_header(void) {
    char device[128];
    lgh_context *context;
    FORWARD(lgh_tool_context_open(&context, LGH_DEVICE_CUDA));
    lgh_status status = lgh_context_device_name(context, device, sizeof device);
    if (status == LGH_SUCCESS)
        lgh_tool_report_header(device);
    lgh_context_destroy(context);
    return status;
}

static lgh_status bench_all(bench *b, int *right) {
    const lgh_tool_shapes *shapes = &b->settings->shapes;
    lgh_tool_result results[sizeof shapes->items / sizeof shapes->items[0]] = {{.is_checked = 0}};
    size_t count = 0;
    lgh_status status = LGH_SUCCESS;
    for (; count < shapes->count && *right && status == LGH_SUCCESS; ++count) {
        results[count].shape = shapes->items[count];
        status = bench_shape(b, &results[count], right);
    }
    /* The last one has no times if it was not right or failed. */
    lgh_tool_report_summary(results, *right && status == LGH_SUCCESS ? count : count - 1);
    return status;
}

lgh_status lgh_tool_bench_run(const lgh_tool_bench_settings *settings, int *right) {
    bench b = {.settings = settings};
    lgh_status status;
    *right = 1;
    FORWARD(print_header());
    GOTO_IF(status, lgh_tool_gpu_open(&b.gpu), open_gpu);
    GOTO_IF(status, lgh__threads_create(&b.threads, 0), create_threads);
    status = bench_all(&b, right);
    lgh__threads_destroy(b.threads);
create_threads:
    lgh_tool_gpu_close(&b.gpu);
open_gpu:
    return status;
}
