/* bench_run.c - the order of work of the bench, shape by shape. */
#include "bench_run.h"

#include "bench_cost.h"
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
    lgh_tool_device device;
    lgh__threads *threads;
    lgh_tool_progress progress;
    int64_t steps; /* shown so far */
    lgh_tool_tensors tensors;
    lgh_tool_buffers buffers;
    lgh_tool_feature timed, checked;
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

/* What is timed is what a trainer needs every step: dhidden in the model's dtype, dweight added to
 * its FP32 main_grad. What else can be wrong is checked once, with a plan of its own. */
static void choose_features(bench *b) {
    b->timed = (lgh_tool_feature){
        .name = "as timed: logp, lse, entropy, grad_logp",
        .calls = LGH_TOOL_BOTH,
        .outputs = LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY,
        .dhidden = b->settings->dtypes->hidden,
        .dweight = LGH_FP32,
        .accumulates = 1,
    };
    b->checked = b->timed;
    b->checked.name = "every output and gradient, bias";
    b->checked.outputs = LGH_OUTPUT_ALL;
    b->checked.bias = LGH_FP32;
    b->checked.dbias = 1;
    b->checked.grad_entropy = 1;
    b->checked.grad_lse = 1;
}

static lgh_status prepare_tensors(bench *b, const lgh_tool_shape *shape) {
    show_step(b, "random tensors");
    FORWARD(lgh_tool_tensors_create(&b->tensors, shape, b->settings->dtypes, SEED, b->threads));
    return lgh_tool_buffers_open(&b->buffers, &b->device, &b->tensors, 1);
}

static lgh_status prepare_plan(bench *b, lgh_tool_result *result) {
    const lgh_tool_limits *limits = &b->settings->limits;
    show_step(b, "plan");
    FORWARD(lgh_tool_subject_time_plan(&result->plan, &b->buffers, &b->timed, limits));
    FORWARD(lgh_tool_subject_open(&b->subject, &b->buffers, &b->timed, limits));
    FORWARD(lgh_plan_describe(b->subject.plan, result->engine, sizeof result->engine, NULL));
    result->engine[strcspn(result->engine, "\n")] = '\0';
    result->forward_bytes = b->subject.workspaces[LGH_PASS_FORWARD].bytes;
    result->backward_bytes = b->subject.workspaces[LGH_PASS_BACKWARD].bytes;
    result->beyond_budget = b->subject.beyond_budget;
    return LGH_SUCCESS;
}

static lgh_status check_everything(bench *b, lgh_tool_result *result) {
    lgh_tool_subject subject;
    FORWARD(lgh_tool_subject_open(&subject, &b->buffers, &b->checked, &b->settings->limits));
    lgh_status status = lgh_tool_verify(&result->verdicts[1], &subject, b->threads);
    lgh_tool_subject_close(&subject);
    return status;
}

static lgh_status check(bench *b, lgh_tool_result *result, int *right) {
    result->is_checked = b->settings->check;
    show_step(b, "check against float64");
    if (!result->is_checked)
        return LGH_SUCCESS;
    FORWARD(lgh_tool_verify(&result->verdicts[0], &b->subject, b->threads));
    FORWARD(check_everything(b, result));
    *right = result->verdicts[0].right && result->verdicts[1].right;
    return LGH_SUCCESS;
}

static lgh_status select_products(bench *b, lgh_tool_result *result) {
    result->has_products = b->settings->products;
    show_step(b, "fastest products");
    if (!result->has_products)
        return LGH_SUCCESS;
    FORWARD(lgh_tool_operands_open(&b->operands, &b->buffers));
    for (int kind = 0; kind < LGH_TOOL_PRODUCT_KINDS; ++kind) {
        FORWARD(lgh_tool_product_select(&b->products[kind], &b->operands,
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
    FORWARD(lgh_tool_measure(things, count, rounds, &b->device));
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
    FORWARD(lgh_tool_measure_host(lgh_tool_subject_forward, &b->subject, &b->device,
                                  &result->host_forward));
    return lgh_tool_measure_host(lgh_tool_subject_backward, &b->subject, &b->device,
                                 &result->host_backward);
}

static lgh_status run_shape(bench *b, lgh_tool_result *result, int *right) {
    FORWARD(prepare_tensors(b, &result->shape));
    FORWARD(prepare_plan(b, result));
    FORWARD(check(b, result, right));
    if (*right)
        FORWARD(measure(b, result));
    return LGH_SUCCESS;
}

static void print_shape(const bench *b, const lgh_tool_result *result, int right) {
    lgh_tool_report_shape(&result->shape);
    if (result->is_checked) {
        lgh_tool_report_verdict(b->timed.name, &result->verdicts[0]);
        lgh_tool_report_verdict(b->checked.name, &result->verdicts[1]);
    }
    if (right)
        lgh_tool_report_times(result);
}

static void close_shape(bench *b) {
    lgh_tool_operands_close(&b->operands);
    lgh_tool_subject_close(&b->subject);
    lgh_tool_buffers_close(&b->buffers);
    lgh_tool_tensors_free(&b->tensors);
}

static lgh_status bench_shape(bench *b, lgh_tool_result *result, int *right) {
    b->steps = 0;
    lgh_tool_progress_start(&b->progress, stderr, result->shape.name, STEPS);
    lgh_status status = run_shape(b, result, right);
    lgh_tool_progress_end(&b->progress);
    if (status == LGH_SUCCESS)
        print_shape(b, result, *right);
    close_shape(b);
    return status;
}

static lgh_status bench_features(bench *b, const lgh_tool_shape *shape, int *right) {
    lgh_tool_report_shape(shape);
    b->steps = 0;
    lgh_tool_progress_start(&b->progress, stderr, shape->name, 1);
    lgh_status status = prepare_tensors(b, shape);
    lgh_tool_progress_end(&b->progress);
    if (status == LGH_SUCCESS)
        status = lgh_tool_costs_run(&b->buffers, b->settings, b->threads, right);
    close_shape(b);
    return status;
}

/* ---- All shapes ---------------------------------------------------------------------------- */

/* The context loads every shared library, so that no plan's time includes that. */
static lgh_status print_header(const lgh_tool_bench_settings *settings) {
    char device[128];
    lgh_context *context;
    FORWARD(lgh_tool_context_open(&context, settings->device));
    lgh_status status = lgh_context_device_name(context, device, sizeof device);
    if (status == LGH_SUCCESS)
        lgh_tool_report_header(device, settings->dtypes);
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

static lgh_status cost_all(bench *b, int *right) {
    const lgh_tool_shapes *shapes = &b->settings->shapes;
    for (size_t i = 0; i < shapes->count && *right; ++i)
        FORWARD(bench_features(b, &shapes->items[i], right));
    return LGH_SUCCESS;
}

lgh_status lgh_tool_bench_run(const lgh_tool_bench_settings *settings, int *right) {
    bench b = {.settings = settings};
    lgh_status status;
    *right = 1;
    choose_features(&b);
    FORWARD(print_header(settings));
    GOTO_IF(status, lgh_tool_device_open(&b.device, settings->device), open_device);
    GOTO_IF(status, lgh__threads_create(&b.threads, 0), create_threads);
    status = settings->features ? cost_all(&b, right) : bench_all(&b, right);
    lgh__threads_destroy(b.threads);
create_threads:
    lgh_tool_device_close(&b.device);
open_device:
    return status;
}
