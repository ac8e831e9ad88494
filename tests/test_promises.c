/* test_promises.c - the bitwise promise: equal calls give equal bits, and a token's results do not
 * depend on how many tokens there are, where it stands, who its neighbours are, or how the tokens
 * are divided into blocks. A chunk size that moved the ratio of two policies was seen in trl. */
#include "case_oracle.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More than one chunk of the vocabulary in either pass, the last of them not whole. */
enum { VOCAB = 9001, WIDTH = 40 };

static int on_cpu(void) {
    return lgh_test_device() == LGH_DEVICE_CPU;
}

static float *copy(const float *values, int64_t count) {
    const size_t bytes = (size_t)count * sizeof *values;
    float *copied = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copied);
    return memcpy(copied, values, bytes);
}

static case_problem random_problem(int64_t tokens, lgh_dtype operands, lgh_dtype results) {
    case_problem p = case_of(tokens, WIDTH, VOCAB);
    case_set_operands(&p, operands);
    case_set_results(&p, results);
    p.temperature = 0.7f;
    case_open(&p);
    case_fill(&p, 32, 1.0, 0.4);
    p.targets[tokens / 2] = -100;
    return p;
}

/* ---- Call after call ------------------------------------------------------------------------- */

/* What a call wrote; widened from BF16, which keeps the bits. */
typedef struct results {
    float *outputs[4];
    float *dhidden;
    float *dweight;
} results;

static results results_of(const case_problem *p) {
    const int64_t n = p->tokens;
    return (results){
        {copy(p->logp, n), copy(p->lse, n), copy(p->entropy, n), copy(p->logp_at_one, n)},
        copy(p->dhidden, n * WIDTH),
        copy(p->dweight, (int64_t)VOCAB * WIDTH)};
}

static void results_destroy(results *r) {
    for (int i = 0; i < 4; i++)
        free(r->outputs[i]);
    free(r->dhidden);
    free(r->dweight);
}

static void assert_same_results(const case_problem *p, const results *r) {
    const size_t n = (size_t)p->tokens * sizeof(float);
    lgh_assert_same_bytes(p->logp, r->outputs[0], n, "logp");
    lgh_assert_same_bytes(p->lse, r->outputs[1], n, "lse");
    lgh_assert_same_bytes(p->entropy, r->outputs[2], n, "entropy");
    lgh_assert_same_bytes(p->logp_at_one, r->outputs[3], n, "logp_at_one");
    lgh_assert_same_bytes(p->dhidden, r->dhidden, n * WIDTH, "dhidden");
    lgh_assert_same_bytes(p->dweight, r->dweight, (size_t)VOCAB * WIDTH * sizeof(float), "dweight");
}

/* Both passes on a workspace that holds this byte before either. */
static void run_on_workspace_of(case_problem *p, int byte) {
    device_buffer_fill(&p->device.workspace[LGH_PASS_FORWARD], byte);
    device_buffer_fill(&p->device.workspace[LGH_PASS_BACKWARD], byte);
    case_forward(p);
    case_backward(p);
}

/* The last bit that BF16 has of one element of token 0 shows in its results and in dweight. */
static void assert_smallest_change_shows(case_problem *p, const results *before) {
    ((unsigned char *)p->hidden)[lgh_dtype_size(p->options.hidden_dtype) - 2] ^= 1;
    case_upload(p);
    case_forward(p);
    case_backward(p);
    assert_memory_not_equal(p->lse, before->outputs[1], sizeof(float));
    assert_memory_not_equal(p->dhidden, before->dhidden, WIDTH * sizeof(float));
    assert_memory_not_equal(p->dweight, before->dweight, (size_t)VOCAB * WIDTH * sizeof(float));
    assert_memory_equal(p->lse + 1, before->outputs[1] + 1, sizeof(float));
}

static void check_calls(lgh_dtype operands, lgh_dtype gradients) {
    case_problem p = random_problem(on_cpu() ? 10 : 700, operands, gradients);
    p.options.token_block = on_cpu() ? 0 : 256;
    case_run(&p);
    results first = results_of(&p);
    for (int call = 2; call <= 100; call++) {
        run_on_workspace_of(&p, call % 2 ? 0x7f : 0x00);
        if (call == 2 || call == 100)
            assert_same_results(&p, &first);
    }
    assert_smallest_change_shows(&p, &first);
    results_destroy(&first);
    case_close(&p);
}

static void calls_1_2_and_100_give_the_same_bits(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_calls(*dtype, LGH_FP32);
}

static void calls_1_2_and_100_give_the_same_bits_in_bf16(void **state) {
    (void)state;
    check_calls(LGH_BF16, LGH_BF16);
}

/* ---- A token among others -------------------------------------------------------------------- */

enum { PROBES = 3 };

/* A token with all that its results may depend on, and those results. */
typedef struct probe {
    char hidden[WIDTH * sizeof(float)];
    int64_t target;
    float gradients[3];
    float outputs[4];
    float dhidden[WIDTH];
} probe;

static char *hidden_of(const case_problem *p, int64_t token, size_t *bytes) {
    *bytes = WIDTH * lgh_dtype_size(p->options.hidden_dtype);
    return (char *)p->hidden + (size_t)token * *bytes;
}

static void take(probe *to, const case_problem *p, int64_t token) {
    size_t bytes;
    const char *hidden = hidden_of(p, token, &bytes);
    memcpy(to->hidden, hidden, bytes);
    to->target = p->targets[token];
    to->gradients[0] = p->grad_logp.values[token];
    to->gradients[1] = p->grad_entropy.values[token];
    to->gradients[2] = p->grad_lse.values[token];
}

static void put(const probe *from, case_problem *p, int64_t token) {
    size_t bytes;
    char *hidden = hidden_of(p, token, &bytes);
    memcpy(hidden, from->hidden, bytes);
    p->targets[token] = from->target;
    p->grad_logp.values[token] = from->gradients[0];
    p->grad_entropy.values[token] = from->gradients[1];
    p->grad_lse.values[token] = from->gradients[2];
}

static void run(case_problem *p, int64_t tokens) {
    p->tokens = tokens;
    case_upload(p);
    case_forward(p);
    case_backward(p);
}

/* The token's results when it is all there is. */
static void run_alone(probe *one, case_problem *p) {
    put(one, p, 0);
    run(p, 1);
    const float outputs[] = {p->logp[0], p->lse[0], p->entropy[0], p->logp_at_one[0]};
    memcpy(one->outputs, outputs, sizeof outputs);
    memcpy(one->dhidden, p->dhidden, sizeof one->dhidden);
    assert_true(outputs[0] < 0 && outputs[2] > 0 && p->dhidden[0] != 0);
}

static void assert_same_token(const probe *one, const case_problem *p, int64_t token) {
    const float outputs[] = {p->logp[token], p->lse[token], p->entropy[token],
                             p->logp_at_one[token]};
    lgh_assert_same_bytes(outputs, one->outputs, sizeof outputs, "logp, lse, entropy, logp_at_one");
    lgh_assert_same_bytes(p->dhidden + token * WIDTH, one->dhidden, sizeof one->dhidden, "dhidden");
}

/* First, last, in the middle, and across the ends of tiles and blocks. */
static int64_t place_of(int i, int64_t tokens) {
    const int64_t places[] = {0, tokens / 2, tokens - 1, 15, 64, 127, 2047};
    return i < 3 ? places[i] : places[i] % tokens;
}

/* Fresh neighbours, one of them not a number and one with a gradient far above all others, and the
 * probes in their places in turn. */
static void check_among(const probe *probes, case_problem *p, int64_t tokens, uint64_t seed) {
    const case_gradient kept[] = {p->grad_logp, p->grad_entropy, p->grad_lse};
    case_gradient *const gradients[] = {&p->grad_logp, &p->grad_entropy, &p->grad_lse};
    lgh_random random = {seed};
    for (int64_t token = 0; token < tokens; token++) {
        for (int64_t k = 0; k < WIDTH; k++)
            case_set_hidden(p, token, k, token == 3 ? NAN : 2 * lgh_random_normal(&random));
        p->targets[token] = lgh_random_below(&random, VOCAB + 30) - 15;
    }
    for (int i = 0; i < 3; i++)
        case_fill_gradient(gradients[i], kept[i].form, seed + (uint64_t)i, tokens);
    p->grad_logp.values[tokens / 3] = 1e6f;
    for (int i = 0; i < 7; i++)
        put(&probes[(i + (int)seed) % PROBES], p, place_of(i, tokens));
    run(p, tokens);
    for (int i = 0; i < 7; i++) {
        const int64_t token = place_of(i, tokens);
        int last = i; /* the probe that was put there last */
        for (int j = i + 1; j < 7; j++)
            last = place_of(j, tokens) == token ? j : last;
        assert_same_token(&probes[(last + (int)seed) % PROBES], p, token);
    }
}

static void check_tokens(lgh_dtype operands, lgh_dtype gradients) {
    static const int64_t blocks[] = {0, 1, 16, 100, 2048};
    const int64_t most = on_cpu() ? 500 : 8192;
    const int64_t counts[] = {1, 2, 127, 130, most};
    char configuration[8192];
    case_problem p = random_problem(most, operands, gradients);
    probe probes[PROBES];
    for (int i = 0; i < PROBES; i++)
        take(&probes[i], &p, i);
    case_plan(&p);
    lgh_assert_success(lgh_plan_describe(p.plan, configuration, sizeof configuration, NULL));
    for (int i = 0; i < PROBES; i++)
        run_alone(&probes[i], &p);
    p.options.configuration = configuration; /* for every token block */
    assert_memory_not_equal(probes[0].outputs, probes[1].outputs, sizeof probes[0].outputs);
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        p.options.token_block = blocks[b];
        case_plan(&p);
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            if (counts[n] <= 130 || blocks[b] != 1)
                check_among(probes, &p, counts[n], 100 * b + n);
    }
    case_close(&p);
}

static void tokens_do_not_depend_on_others(void **state) {
    (void)state;
    for (const lgh_dtype *dtype = case_operand_dtypes(); *dtype != LGH_DTYPE_NONE; dtype++)
        check_tokens(*dtype, LGH_FP32);
}

static void tokens_do_not_depend_on_others_in_bf16(void **state) {
    (void)state;
    check_tokens(LGH_BF16, LGH_BF16);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_1_2_and_100_give_the_same_bits),
        cmocka_unit_test(calls_1_2_and_100_give_the_same_bits_in_bf16),
        cmocka_unit_test(tokens_do_not_depend_on_others),
        cmocka_unit_test(tokens_do_not_depend_on_others_in_bf16),
    };
    return lgh_test_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
