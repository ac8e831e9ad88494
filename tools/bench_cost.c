/* bench_cost.c - what each optional output and feature costs, in per cent of the pass without. */
#include "bench_cost.h"

#include "bench_measure.h"
#include "bench_report.h"
#include "error.h"
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 32 /* features with the same calls */

/* The time with a live list, over the time without and over the share of rows that it names, is to
 * be no more than this. */
#define LIVE_OVERHEAD 1.3

/* The features with the same calls. */
typedef struct group {
    const lgh_tool_buffers *buffers;
    const lgh_tool_bench_settings *settings;
    lgh__threads *threads;
    lgh_tool_progress progress;
    size_t count;
    const lgh_tool_feature *features[MOST];
    lgh_tool_subject subjects[MOST];
    lgh_tool_verdict verdicts[MOST];
    lgh_tool_measured measured[MOST];
} group;

static const char *const titles[] = {[LGH_TOOL_FORWARD] = "forward pass",
                                     [LGH_TOOL_BACKWARD] = "backward pass",
                                     [LGH_TOOL_BOTH] = "forward and backward pass"};

static lgh_status collect(group *g, lgh_tool_calls calls) {
    for (size_t i = 0; i < lgh_tool_feature_count; ++i) {
        if (lgh_tool_features[i].calls != calls)
            continue;
        RETURN_IF(g->count == MOST, LGH_ERROR_INTERNAL, "more than %d features of one kind", MOST);
        g->features[g->count++] = &lgh_tool_features[i];
    }
    return LGH_SUCCESS;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

/* A backward pass that is measured by itself reads what a forward pass of the same plan wrote. */
static lgh_status prepare(group *g, size_t i, int *right) {
    lgh_tool_subject *subject = &g->subjects[i];
    g->measured[i] = (lgh_tool_measured){.work = lgh_tool_subject_run, .subject = subject};
    lgh_tool_progress_show(&g->progress, (int64_t)i, g->features[i]->name);
    FORWARD(lgh_tool_subject_open(subject, g->buffers, g->features[i], &g->settings->limits));
    if (!g->settings->check)
        return lgh_tool_subject_forward(subject, g->buffers->device->stream);
    FORWARD(lgh_tool_verify(&g->verdicts[i], subject, g->threads));
    *right = g->verdicts[i].right;
    return LGH_SUCCESS;
}

static lgh_status measure(group *g, size_t *prepared, int *right) {
    for (*prepared = 0; *prepared < g->count && *right; ++*prepared)
        FORWARD(prepare(g, *prepared, right));
    if (!*right)
        return LGH_SUCCESS;
    lgh_tool_progress_show(&g->progress, (int64_t)g->count, "rounds");
    return lgh_tool_measure(g->measured, g->count, g->settings->rounds, g->buffers->device);
}

/* ---- Printing ------------------------------------------------------------------------------ */

static double live_share(const group *g, size_t i) {
    const int64_t tokens = g->buffers->tensors->shape.tokens;
    return (double)lgh_tool_feature_live(g->features[i], tokens) / (double)tokens;
}

static void print_over_base(const group *g, size_t i, double over_base) {
    const double share = live_share(g, i);
    if (i == 0)
        printf("base |");
    else if (g->features[i]->live_step <= 1)
        printf("%+.1f %% |", 100.0 * (over_base - 1.0));
    else
        printf("%.1f %% of it; wanted: %.1f %% of rows x %.1f = %.1f %% |", 100.0 * over_base,
               100.0 * share, LIVE_OVERHEAD, 100.0 * share * LIVE_OVERHEAD);
}

static void print_cost(const group *g, size_t i) {
    const int rounds = g->settings->rounds;
    const lgh_tool_times base = lgh_tool_times_of(g->measured[0].samples, rounds);
    const lgh_tool_times times = lgh_tool_times_of(g->measured[i].samples, rounds);
    printf("| %s | %.3f | %.3f to %.3f | ", g->features[i]->name, times.median, times.least,
           times.most);
    print_over_base(g, i, times.median / base.median);
    if (g->settings->check)
        printf(" %.2f", lgh_tool_verdict_share(&g->verdicts[i]));
    printf(" |\n");
}

static void print_costs(const group *g, lgh_tool_calls calls) {
    printf("\n| %s | median ms | least to most | over the base | error / promise |\n"
           "|---|---|---|---|---|\n",
           titles[calls]);
    for (size_t i = 0; i < g->count; ++i)
        print_cost(g, i);
    fflush(stdout);
}

static void print_failure(const group *g, size_t i, lgh_tool_calls calls) {
    char what[128];
    snprintf(what, sizeof what, "%s: %s", titles[calls], g->features[i]->name);
    lgh_tool_report_verdict(what, &g->verdicts[i]);
}

/* ---- All ----------------------------------------------------------------------------------- */

static lgh_status run_group(group *g, lgh_tool_calls calls, int *right) {
    size_t prepared;
    FORWARD(collect(g, calls));
    lgh_tool_progress_start(&g->progress, stderr, titles[calls], (int64_t)g->count + 1);
    lgh_status status = measure(g, &prepared, right);
    lgh_tool_progress_end(&g->progress);
    if (status == LGH_SUCCESS && *right)
        print_costs(g, calls);
    else if (status == LGH_SUCCESS)
        print_failure(g, prepared - 1, calls);
    for (size_t i = 0; i < g->count; ++i)
        lgh_tool_subject_close(&g->subjects[i]);
    return status;
}

lgh_status lgh_tool_costs_run(const lgh_tool_buffers *buffers,
                              const lgh_tool_bench_settings *settings, lgh__threads *threads,
                              int *right) {
    for (int calls = LGH_TOOL_FORWARD; calls <= LGH_TOOL_BOTH && *right; ++calls) {
        group *g = calloc(1, sizeof *g);
        RETURN_IF(!g, LGH_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", sizeof *g);
        g->buffers = buffers;
        g->settings = settings;
        g->threads = threads;
        lgh_status status = run_group(g, (lgh_tool_calls)calls, right);
        free(g);
        FORWARD(status);
    }
    return LGH_SUCCESS;
}
