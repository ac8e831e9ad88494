/* bench_report.c - what the bench prints: Markdown, to be pasted as it is. */
#include "bench_report.h"

#include "cublaslt.h"

#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)

/* ---- Header -------------------------------------------------------------------------------- */

/* The kernel module says its version in one line; nothing else here needs the management library.
 */
static void print_driver(void) {
    char version[64] = "";
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (!file)
        return;
    if (fgets(version, sizeof version, file)) {
        version[strcspn(version, "\n")] = '\0';
        printf(", driver %s", version);
    }
    fclose(file);
}

void lgh_tool_report_header(const char *device, const lgh_tool_dtypes *dtypes) {
    const int version = lgh_version();
    const size_t cublaslt = lgh__cublaslt_version();
    printf("%s", device);
    print_driver();
    printf(", loggerhead %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    if (cublaslt > 0)
        printf(", cuBLASLt %zu.%zu.%zu", cublaslt / 10000, cublaslt / 100 % 100, cublaslt % 100);
    printf("\n%s: hidden ~ N(0, 1), weight ~ N(0, 1/D); random targets, T = 0.7, dL/dlogp ~ "
           "N(0, 1).\n",
           dtypes->name);
    fflush(stdout);
}

void lgh_tool_report_shape(const lgh_tool_shape *shape) {
    printf("\n### %s: N=%lld, D=%lld, V=%lld\n", shape->name, (long long)shape->tokens,
           (long long)shape->hidden, (long long)shape->vocab);
    fflush(stdout);
}

/* ---- Verdict ------------------------------------------------------------------------------- */

static const char *mark(int is_right) {
    return is_right ? "ok" : "FAIL";
}

static void print_memory(const lgh_tool_verdict *verdict) {
    if (verdict->used_before > 0)
        printf("- device memory in use before and after the first calls: %.1f and %.1f MiB: %s\n",
               (double)verdict->used_before / MIB, (double)verdict->used_after / MIB,
               mark(verdict->used_before == verdict->used_after));
}

void lgh_tool_report_verdict(const char *what, const lgh_tool_verdict *verdict) {
    static const char *const names[LGH_TOOL_ERRORS] = {"logp",
                                                       "lse",
                                                       "entropy",
                                                       "logp at T = 1",
                                                       "logit of best",
                                                       "dhidden",
                                                       "dweight, no targets",
                                                       "dweight, targets",
                                                       "dbias, no targets",
                                                       "dbias, targets"};
    printf("\n| %s, against float64 | rows | error | promised | |\n|---|---|---|---|---|\n", what);
    for (int i = 0; i < LGH_TOOL_ERRORS; ++i) {
        const lgh_tool_error *e = &verdict->errors[i];
        if (e->rows > 0)
            printf("| %s | %lld | %.1e | %.1e | %s |\n", names[i], (long long)e->rows, e->error,
                   e->promise, mark(lgh_tool_error_holds(e)));
    }
    printf("\nGradients: relative L2; all else: largest absolute error.\n");
    printf("- two runs bit-equal (all of these, dweight and dbias on those rows): %s\n",
           mark(verdict->equal));
    printf("- nothing written behind the workspaces: %s\n", mark(verdict->intact));
    print_memory(verdict);
    if (!verdict->right)
        printf("\nFAIL: not all of this is as promised, so nothing more is run.\n");
    fflush(stdout);
}

/* ---- Times --------------------------------------------------------------------------------- */

static double tflops(const lgh_tool_shape *s, int products, double milliseconds) {
    return 2e-9 * products * (double)s->tokens * (double)s->hidden * (double)s->vocab /
           milliseconds;
}

static void print_times(const lgh_tool_result *r, const char *what, const lgh_tool_times *t,
                        int products) {
    printf("| %s | %.3f | %.3f to %.3f | %.1f |", what, t->median, t->least, t->most,
           tflops(&r->shape, products, t->median));
}

static void print_product(const lgh_tool_result *r, lgh_tool_product_kind kind) {
    static const char *const names[] = {"logits", "dhidden", "dweight"};
    char variant[64], what[128];
    lgh_tool_variant_name(&r->variants[kind], variant, sizeof variant);
    snprintf(what, sizeof what, "product: %s, %s", names[kind], variant);
    print_times(r, what, &r->products[kind], 1);
    printf(" |\n");
}

/* logits + dhidden + dweight, with the logits `times` over. */
static double products_time(const lgh_tool_result *r, int times) {
    return times * r->products[LGH_TOOL_LOGITS].median + r->products[LGH_TOOL_DHIDDEN].median +
           r->products[LGH_TOOL_DWEIGHT].median;
}

static void print_ratio(const lgh_tool_result *r, double milliseconds, double products,
                        const char *unit) {
    if (r->has_products)
        printf(" %.3f x %s |\n", milliseconds / products, unit);
    else
        printf(" |\n");
}

void lgh_tool_report_times(const lgh_tool_result *r) {
    printf("\n| measured | median ms | least to most | TFLOP/s | |\n|---|---|---|---|---|\n");
    for (int kind = 0; r->has_products && kind < LGH_TOOL_PRODUCT_KINDS; ++kind)
        print_product(r, (lgh_tool_product_kind)kind);
    print_times(r, "forward (logp, lse, entropy)", &r->forward, 1);
    print_ratio(r, r->forward.median, r->products[LGH_TOOL_LOGITS].median, "product");
    print_times(r, "forward + backward", &r->both, 4);
    print_ratio(r, r->both.median, products_time(r, 2), "4 products");
    printf("\n- workspace, as queried: forward %.1f MiB, backward %.1f MiB",
           (double)r->forward_bytes / MIB, (double)r->backward_bytes / MIB);
    if (r->beyond_budget > 0)
        printf(" (%.1f MiB of it beyond the budget)", (double)r->beyond_budget / MIB);
    printf("\n- host time of a call: forward %.0f us, backward %.0f us\n", 1e6 * r->host_forward,
           1e6 * r->host_backward);
    printf("- plan (%s), with the shared libraries loaded: cold cache %.0f ms, warm cache in a new "
           "context %.1f ms\n",
           r->engine, 1e3 * r->plan.cold, 1e3 * r->plan.warm);
    fflush(stdout);
}

/* ---- Summary ------------------------------------------------------------------------------- */

static void print_row(const lgh_tool_result *r) {
    printf("| %s | %lld, %lld, %lld |", r->shape.name, (long long)r->shape.tokens,
           (long long)r->shape.hidden, (long long)r->shape.vocab);
    if (r->has_products)
        printf(" %.2f / %.2f / %.2f | %.2f | %.3f | %.2f | %.3f |",
               r->products[LGH_TOOL_LOGITS].median, r->products[LGH_TOOL_DHIDDEN].median,
               r->products[LGH_TOOL_DWEIGHT].median, r->forward.median,
               r->forward.median / r->products[LGH_TOOL_LOGITS].median, r->both.median,
               r->both.median / products_time(r, 2));
    else
        printf(" - | %.2f | - | %.2f | - |", r->forward.median, r->both.median);
    printf(" %.0f / %.0f |", (double)r->forward_bytes / MIB, (double)r->backward_bytes / MIB);
    if (r->is_checked)
        printf(" %.1e", r->verdicts[0].errors[LGH_TOOL_ERROR_LOGP].error);
    printf(" |\n");
}

void lgh_tool_report_summary(const lgh_tool_result *results, size_t count) {
    if (count == 0)
        return;
    printf("\n| shape | N, D, V | products ms: logits / dH / dW | forward ms | / product | "
           "forward + backward ms | / 4 products | workspace MiB | error of logp |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < count; ++i)
        print_row(&results[i]);
    fflush(stdout);
}
