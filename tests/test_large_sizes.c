/* test_large_sizes.c - matrices of more than 2^31 elements, more than 2^32 logits, and rows more
 * than 2^31 elements apart, checked on some rows and on those at the very end. Offsets of 32 bits
 * were seen in CCE. For a GPU: tens of GB of memory. */
#include "case_copy.h"
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"

static void copy(void *to, const void *from, size_t bytes) {
    lgh_assert_success(lgh_memory_copy(lgh_test_context(), to, from, bytes, device_stream()));
}

/* Skips the case where the GPU has less memory. */
static void *allocate(size_t bytes) {
    void *memory;
    const lgh_status status = lgh_memory_allocate(lgh_test_context(), bytes, &memory);
    if (status == LGH_ERROR_OUT_OF_MEMORY)
        lgh_test_skip("%s", lgh_last_error());
    lgh_assert_success(status);
    return memory;
}

static void release(void *memory) {
    lgh_memory_free(lgh_test_context(), memory);
}

/* Repeats the first `have` bytes to the end. */
static void repeat(void *memory, size_t bytes, size_t have) {
    while (have < bytes) {
        const size_t more = have < bytes - have ? have : bytes - have;
        copy((char *)memory + have, memory, more);
        have += more;
    }
}

static void *host(size_t count, size_t size) {
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

/* ---- V D > 2^31 ------------------------------------------------------------------------------
 * Row 2^18 of 2^13 elements begins at element 2^31 and byte 2^32. The rows before it repeat BASE
 * rows, those from it on are others: an offset that wraps finds other numbers. */

enum { D = 8192, BASE = 1024, FIRST_FAR = 262144, FAR = 256, V = FIRST_FAR + FAR, N = 40 };
enum { DISTINCT = BASE + FAR, SAMPLES = 10 };

static const int64_t samples[SAMPLES] = {
    0, 1, 255, 131072, FIRST_FAR - 1, FIRST_FAR, FIRST_FAR + 1, FIRST_FAR + 100, V - 2, V - 1};

typedef struct huge_problem {
    lgh_plan_options options;
    uint16_t *rows;   /* [DISTINCT, D] */
    uint16_t *hidden; /* [N, D] */
    int64_t targets[N];
    float grad_logp[N], grad_entropy[N], temperature;
    float logp[N], lse[N], entropy[N], *dhidden;
    lgh_plan *plan;
    void *device_weight, *device_dweight, *device_rest, *workspace;
    size_t workspace_bytes;
} huge_problem;

/* The distinct row that row v of the weight is. */
static int64_t distinct(int64_t v) {
    return v < FIRST_FAR ? v % BASE : BASE + v - FIRST_FAR;
}

static huge_problem huge_open(lgh_dtype dweight) {
    huge_problem h = {.options = LGH_PLAN_OPTIONS_INIT, .temperature = 0.7f};
    lgh_random random = {26};
    h.options.hidden_size = D;
    h.options.vocab_size = V;
    h.options.max_tokens = N;
    h.options.dweight_dtype = dweight;
    h.rows = host((size_t)DISTINCT * D, sizeof *h.rows);
    h.hidden = host((size_t)N * D, sizeof *h.hidden);
    h.dhidden = host((size_t)N * D, sizeof *h.dhidden);
    lgh_random_fill_bf16(&random, h.rows, (size_t)DISTINCT * D, 2 / sqrt(D));
    lgh_random_fill_bf16(&random, h.hidden, (size_t)N * D, 1.0);
    lgh_random_fill_fp32(&random, h.grad_logp, N, 1.0);
    lgh_random_fill_fp32(&random, h.grad_entropy, N, 1.0);
    for (int i = 0; i < N; i++)
        h.targets[i] = i < SAMPLES - 2 ? samples[i] : lgh_random_below(&random, V - 2);
    const size_t row = D * sizeof *h.rows;
    h.device_weight = allocate((size_t)V * row);
    copy(h.device_weight, h.rows, BASE * row);
    repeat(h.device_weight, (size_t)FIRST_FAR * row, BASE * row);
    copy((char *)h.device_weight + (size_t)FIRST_FAR * row, h.rows + (size_t)BASE * D, FAR * row);
    h.device_dweight = allocate((size_t)V * D * lgh_dtype_size(dweight));
    return h;
}

static void huge_close(huge_problem *h) {
    lgh_plan_destroy(h->plan);
    release(h->device_weight);
    release(h->device_dweight);
    release(h->device_rest);
    release(h->workspace);
    free(h->rows);
    free(h->hidden);
    free(h->dhidden);
}

/* The small arrays on the device, one behind the other. */
typedef struct huge_rest {
    _Alignas(16) uint16_t hidden[(size_t)N * D];
    _Alignas(16) float dhidden[(size_t)N * D];
    int64_t targets[N];
    float grad_logp[N], grad_entropy[N], logp[N], lse[N], entropy[N];
} huge_rest;

static void huge_call(const huge_problem *h, huge_rest *d) {
    lgh_forward_args f = LGH_FORWARD_ARGS_INIT;
    lgh_backward_args b = LGH_BACKWARD_ARGS_INIT;
    f.hidden = b.hidden = (lgh_const_matrix){d->hidden, N, D, D, LGH_BF16};
    f.weight = b.weight = (lgh_const_matrix){h->device_weight, V, D, D, LGH_BF16};
    f.targets = b.targets = d->targets;
    f.temperature = b.temperature = (lgh_value){NULL, 0, h->temperature};
    f.logp = d->logp;
    b.lse = f.lse = d->lse;
    b.entropy = f.entropy = d->entropy;
    b.grad_logp = (lgh_value){d->grad_logp, 1, 0};
    b.grad_entropy = (lgh_value){d->grad_entropy, 1, 0};
    b.dhidden = (lgh_matrix){d->dhidden, N, D, D, LGH_FP32};
    b.dweight = (lgh_matrix){h->device_dweight, V, D, D, h->options.dweight_dtype};
    lgh_assert_success(lgh_forward(h->plan, &f, h->workspace, h->workspace_bytes, device_stream()));
    lgh_assert_success(
        lgh_backward(h->plan, &b, h->workspace, h->workspace_bytes, device_stream()));
}

static void huge_run(huge_problem *h) {
    huge_rest *rest = host(1, sizeof *rest);
    size_t forward, backward;
    memcpy(rest->hidden, h->hidden, sizeof rest->hidden);
    memcpy(rest->targets, h->targets, sizeof rest->targets);
    memcpy(rest->grad_logp, h->grad_logp, sizeof rest->grad_logp);
    memcpy(rest->grad_entropy, h->grad_entropy, sizeof rest->grad_entropy);
    lgh_assert_success(lgh_plan_create(&h->plan, lgh_test_context(), &h->options));
    lgh_assert_success(lgh_plan_workspace_size(h->plan, LGH_PASS_FORWARD, N, &forward, NULL));
    lgh_assert_success(lgh_plan_workspace_size(h->plan, LGH_PASS_BACKWARD, N, &backward, NULL));
    h->workspace_bytes = forward > backward ? forward : backward;
    h->workspace = allocate(h->workspace_bytes);
    h->device_rest = allocate(sizeof *rest);
    copy(h->device_rest, rest, sizeof *rest);
    huge_call(h, h->device_rest);
    copy(rest, h->device_rest, sizeof *rest);
    memcpy(h->logp, rest->logp, sizeof h->logp);
    memcpy(h->lse, rest->lse, sizeof h->lse);
    memcpy(h->entropy, rest->entropy, sizeof h->entropy);
    memcpy(h->dhidden, rest->dhidden, sizeof rest->dhidden);
    free(rest);
}

/* A token's right results; `wrapped`: as if the far rows were the first ones of the weight. */
typedef struct huge_token {
    double logp, lse, entropy, max_abs_z;
    double dhidden[D];
} huge_token;

static double huge_z(const huge_problem *h, int token, int64_t row) {
    double x = 0;
    for (int k = 0; k < D; k++)
        x += reference_element(h->hidden, LGH_BF16, (int64_t)token * D + k) *
             reference_element(h->rows, LGH_BF16, row * D + k);
    return x / (double)h->temperature;
}

static void huge_expect(huge_token *e, const huge_problem *h, int i, int wrapped) {
    static double z[DISTINCT], count[DISTINCT];
    const int64_t target = h->targets[i];
    double largest = -INFINITY, sum = 0, mean = 0;
    *e = (huge_token){0};
    for (int r = 0; r < DISTINCT; r++) {
        count[r] = r < BASE ? FIRST_FAR / BASE + (wrapped && r < FAR) : !wrapped;
        z[r] = huge_z(h, i, r);
        largest = fmax(largest, z[r]);
        e->max_abs_z = fmax(e->max_abs_z, fabs(z[r]));
    }
    for (int r = 0; r < DISTINCT; r++)
        sum += count[r] * exp(z[r] - largest);
    e->lse = largest + log(sum);
    for (int r = 0; r < DISTINCT; r++)
        mean += count[r] * exp(z[r] - e->lse) * z[r];
    e->entropy = e->lse - mean;
    const int64_t row = wrapped && target >= FIRST_FAR ? target - FIRST_FAR : distinct(target);
    e->logp = z[row] - e->lse;
    for (int r = 0; r < DISTINCT; r++) {
        const double p = exp(z[r] - e->lse), g = (double)h->grad_logp[i];
        const double of_entropy = (double)h->grad_entropy[i] * p * (z[r] - e->lse + e->entropy);
        const double dx =
            (g * (r == row) - count[r] * (g * p + of_entropy)) / (double)h->temperature;
        for (int k = 0; k < D; k++)
            e->dhidden[k] += dx * reference_element(h->rows, LGH_BF16, (int64_t)r * D + k);
    }
}

/* Against the oracle, and against that of a call whose offsets wrap. */
static void check_huge_tokens(const huge_problem *h) {
    static huge_token right, faulty;
    double *all = host((size_t)N * D, sizeof *all), *wrapped = host((size_t)N * D, sizeof *all);
    int shows = 0;
    for (int i = 0; i < N; i++) {
        huge_expect(&right, h, i, 0);
        huge_expect(&faulty, h, i, 1);
        memcpy(all + (size_t)i * D, right.dhidden, sizeof right.dhidden);
        memcpy(wrapped + (size_t)i * D, faulty.dhidden, sizeof faulty.dhidden);
        const double tolerance = promise_outputs(right.max_abs_z, D, LGH_BF16);
        lgh_assert_close((double)h->logp[i], right.logp, tolerance, "logp");
        lgh_assert_close((double)h->lse[i], right.lse, tolerance, "lse");
        lgh_assert_close((double)h->entropy[i], right.entropy, tolerance, "entropy");
        shows += h->targets[i] >= FIRST_FAR && fabs((double)h->logp[i] - faulty.logp) > tolerance;
    }
    assert_true(shows > 2);
    const double gradient = promise_gradients(LGH_BF16, LGH_FP32, D);
    lgh_assert_relative_l2(h->dhidden, all, (size_t)N * D, gradient, "dhidden");
    assert_true(lgh_relative_l2(h->dhidden, wrapped, (size_t)N * D) > gradient);
    free(all);
    free(wrapped);
}

/* Row v of dweight for the lse and entropy that the library gave, which were checked; `row` is the
 * distinct row that it is taken to be. */
static void huge_expect_row(double *to, const huge_problem *h, int64_t v, int64_t row) {
    memset(to, 0, D * sizeof *to);
    for (int i = 0; i < N; i++) {
        const double z = huge_z(h, i, row), log_p = z - (double)h->lse[i], p = exp(log_p);
        const double dx = ((double)h->grad_logp[i] * ((h->targets[i] == v) - p) -
                           (double)h->grad_entropy[i] * p * (log_p + (double)h->entropy[i])) /
                          (double)h->temperature;
        for (int k = 0; k < D; k++)
            to[k] += dx * reference_element(h->hidden, LGH_BF16, (int64_t)i * D + k);
    }
}

static void read_row(float *to, const huge_problem *h, int64_t v) {
    const lgh_dtype dtype = h->options.dweight_dtype;
    const size_t bytes = D * lgh_dtype_size(dtype);
    void *row = host(bytes, 1);
    copy(row, (char *)h->device_dweight + (size_t)v * bytes, bytes);
    for (int k = 0; k < D; k++)
        to[k] = (float)reference_element(row, dtype, k);
    free(row);
}

/* Targets' rows, others, and those at the very end. Rows of no target have a gradient that many
 * small roundings make up: the promise is about all of such rows. */
static void check_huge_rows(const huge_problem *h) {
    static float actual[SAMPLES * D];
    static double right[SAMPLES * D], faulty[SAMPLES * D];
    const double tolerance = promise_gradients(LGH_BF16, h->options.dweight_dtype, D);
    const int targets = SAMPLES - 2; /* samples that are a token's target; the last two are none */
    for (int s = 0; s < SAMPLES; s++) {
        read_row(actual + (size_t)s * D, h, samples[s]);
        huge_expect_row(right + (size_t)s * D, h, samples[s], distinct(samples[s]));
        huge_expect_row(faulty + (size_t)s * D, h, samples[s],
                        samples[s] < FIRST_FAR ? BASE : samples[s] - FIRST_FAR);
    }
    lgh_assert_relative_l2(actual, right, (size_t)targets * D, tolerance, "rows of targets");
    lgh_assert_relative_l2(actual + (size_t)targets * D, right + (size_t)targets * D, 2 * D,
                           tolerance, "the last rows");
    assert_true(lgh_relative_l2(actual + (size_t)targets * D, faulty + (size_t)targets * D, 2 * D) >
                tolerance);
}

static void check_huge(lgh_dtype dweight) {
    huge_problem h = huge_open(dweight);
    huge_run(&h);
    check_huge_tokens(&h);
    check_huge_rows(&h);
    huge_close(&h);
}

static void a_weight_of_more_than_2_31_elements_is_whole(void **state) {
    (void)state;
    check_huge(LGH_FP32);
}

static void a_weight_of_more_than_2_31_elements_is_whole_in_bf16(void **state) {
    (void)state;
    check_huge(LGH_BF16);
}

/* ---- N V > 2^32 ------------------------------------------------------------------------------ */

enum { MANY = 32768, WIDTH = 64, VOCAB = 262400, PICKED = 6 };

static const int64_t picked[PICKED] = {0, 1, 16383, 16384, MANY - 2, MANY - 1};

/* The problem of the picked tokens alone, its results taken from those of all. */
static case_problem pick(const case_problem *all) {
    case_problem p = case_of(PICKED, WIDTH, VOCAB);
    case_value *const to[] = {&p.grad_logp, &p.grad_entropy, &p.grad_lse};
    const case_value *const from[] = {&all->grad_logp, &all->grad_entropy, &all->grad_lse};
    const size_t row = WIDTH * sizeof(uint16_t), floats = WIDTH * sizeof(float);
    p.temperature = all->temperature;
    case_open(&p);
    memcpy(p.weight, all->weight, VOCAB * row);
    for (int i = 0; i < PICKED; i++) {
        memcpy((char *)p.hidden + (size_t)i * row,
               (const char *)all->hidden + (size_t)picked[i] * row, row);
        memcpy(p.dhidden + (size_t)i * WIDTH, all->dhidden + (size_t)picked[i] * WIDTH, floats);
        p.targets[i] = all->targets[picked[i]];
        p.logp[i] = all->logp[picked[i]];
        p.lse[i] = all->lse[picked[i]];
        p.entropy[i] = all->entropy[picked[i]];
        p.logp_at_one[i] = all->logp_at_one[picked[i]];
        p.best[i] = all->best[picked[i]];
        for (int g = 0; g < 3; g++) {
            to[g]->form = CASE_VECTOR;
            to[g]->values[i] = from[g]->values[picked[i]];
        }
    }
    return p;
}

/* Tokens against the oracle, and against that of tokens 2^32 logits before: the faulty ones. */
static void check_picked(const case_problem *all) {
    case_problem p = pick(all);
    case_expected right = case_expect(&p, NULL);
    case_assert_outputs(&p, &right);
    case_assert_best(&p, &right);
    case_assert_gradients(&p, &right, CASE_DHIDDEN);
    memmove(p.hidden, (char *)p.hidden + WIDTH * sizeof(uint16_t),
            (PICKED - 1) * WIDTH * sizeof(uint16_t));
    case_expected faulty = case_expect(&p, NULL);
    case_assert_outputs_outside(&p, &faulty, LGH_OUTPUT_LOGP | LGH_OUTPUT_LSE | LGH_OUTPUT_ENTROPY);
    case_assert_gradients_outside(&p, &faulty, CASE_DHIDDEN);
    case_expected_destroy(&right);
    case_expected_destroy(&faulty);
    case_close(&p);
}

/* The last rows of dweight, as a shard of the vocabulary, for the lse and entropy that the library
 * gave: of a target elsewhere, the oracle leaves the target's term out. */
static void check_last_rows(const case_problem *all) {
    enum { LAST = 16, FIRST = VOCAB - LAST };
    lgh_plan_options options = case_host_options(all);
    lgh_backward_args args = case_host_backward_args(all);
    double *dweight = host((size_t)LAST * WIDTH, sizeof *dweight);
    const reference_gradients gradients = {.dweight = dweight};
    options.vocab_size = LAST;
    options.vocab_start = FIRST;
    options.vocab_valid = VOCAB;
    args.weight.data = (const char *)args.weight.data + (size_t)FIRST * WIDTH * sizeof(uint16_t);
    args.weight.rows = LAST;
    args.lse = all->lse;
    args.entropy = all->entropy;
    reference_backward(&options, &args, NULL, &gradients);
    const float *actual = all->dweight + (size_t)FIRST * WIDTH;
    lgh_assert_relative_l2(actual, dweight, (size_t)LAST * WIDTH,
                           promise_gradients(LGH_BF16, LGH_FP32, WIDTH), "the last rows");
    assert_true(lgh_relative_l2(all->dweight, dweight, (size_t)LAST * WIDTH) >
                promise_gradients(LGH_BF16, LGH_FP32, WIDTH));
    free(dweight);
}

static void more_than_2_32_logits_are_right(void **state) {
    (void)state;
    case_problem p = case_of(MANY, WIDTH, VOCAB);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 26, 1.0, 0.25);
    p.targets[MANY - 1] = VOCAB - 1;
    p.targets[0] = VOCAB - 2;
    case_run(&p);
    check_picked(&p);
    check_last_rows(&p);
    case_close(&p);
}

/* ---- Rows far apart ---------------------------------------------------------------------------
 */

enum { APART = 1 << 26, ROWS = 40, ROW_WIDTH = 64, ROW_VOCAB = 1000 };

/* Rows of hidden and dhidden 2^26 elements apart: the last begins past element 2^31. */
static void rows_more_than_2_31_elements_apart_are_found(void **state) {
    (void)state;
    case_problem p = case_of(ROWS, ROW_WIDTH, ROW_VOCAB);
    case_open(&p);
    case_fill(&p, 27, 1.0, 0.3);
    case_run(&p);
    case_copy contiguous = case_copy_of(&p);
    const size_t hidden_row = ROW_WIDTH * 2, dhidden_row = ROW_WIDTH * 4;
    char *hidden = allocate(((size_t)(ROWS - 1) * APART + ROW_WIDTH) * 2);
    char *dhidden = allocate(((size_t)(ROWS - 1) * APART + ROW_WIDTH) * 4);
    lgh_forward_args f = case_forward_args(&p);
    lgh_backward_args b = case_backward_args(&p);
    f.hidden.data = b.hidden.data = hidden;
    f.hidden.row_stride = b.hidden.row_stride = b.dhidden.row_stride = APART;
    b.dhidden.data = dhidden;
    for (size_t i = 0; i < ROWS; i++)
        copy(hidden + i * APART * 2, (const char *)p.hidden + i * hidden_row, hidden_row);
    const device_buffer *w = p.device.workspace;
    case_clear_outputs(&p);
    case_clear_gradients(&p);
    lgh_assert_success(lgh_forward(p.plan, &f, w[0].data, w[0].bytes, device_stream()));
    lgh_assert_success(lgh_backward(p.plan, &b, w[1].data, w[1].bytes, device_stream()));
    case_read_outputs(&p);
    case_read_gradients(&p);
    for (size_t i = 0; i < ROWS; i++)
        copy(p.dhidden + i * ROW_WIDTH, dhidden + i * APART * 4, dhidden_row);
    case_assert_same(&p, &contiguous);
    release(hidden);
    release(dhidden);
    case_copy_destroy(&contiguous);
    case_close(&p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_of_more_than_2_31_elements_is_whole),
        cmocka_unit_test(a_weight_of_more_than_2_31_elements_is_whole_in_bf16),
        cmocka_unit_test(more_than_2_32_logits_are_right),
        cmocka_unit_test(rows_more_than_2_31_elements_apart_are_found),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
