/* case_copy.c - a copy of a problem's results. */
#include "case_copy.h"

#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *from, int64_t count, size_t size) {
    const size_t bytes = (size_t)count * size;
    void *to = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(to);
    return from ? memcpy(to, from, bytes) : memset(to, 0, bytes);
}

case_copy case_copy_of(const case_problem *p) {
    const float *const outputs[] = {p->logp, p->lse, p->entropy, p->logp_at_one};
    const int64_t width = p->options.hidden_size, vocab_size = p->options.vocab_size;
    case_copy c;
    for (int i = 0; i < 4; i++)
        c.outputs[i] = copy_of(outputs[i], p->tokens, sizeof(float));
    c.best = copy_of(p->best, p->tokens, sizeof *c.best);
    c.dhidden = copy_of(p->dhidden, p->tokens * width, sizeof(float));
    c.dweight = copy_of(p->dweight, vocab_size * width, sizeof(float));
    c.dbias = copy_of(p->dbias, vocab_size, sizeof(float));
    return c;
}

void case_copy_destroy(case_copy *c) {
    for (int i = 0; i < 4; i++)
        free(c->outputs[i]);
    free(c->best);
    free(c->dhidden);
    free(c->dweight);
    free(c->dbias);
    memset(c, 0, sizeof *c);
}

static int has(const case_problem *p, int output) {
    return (p->options.outputs & 1u << output) != 0;
}

int case_token_is_same(const case_problem *p, int64_t i, const case_copy *c, int64_t there) {
    const float *const outputs[] = {p->logp, p->lse, p->entropy, p->logp_at_one};
    const int64_t width = p->options.hidden_size;
    int same = 1;
    for (int o = 0; o < 4; o++)
        same = same &&
               (!has(p, o) || memcmp(outputs[o] + i, c->outputs[o] + there, sizeof(float)) == 0);
    if (has(p, 4))
        same = same && p->best[i] == c->best[there];
    if (p->options.dhidden_dtype != LGH_DTYPE_NONE)
        same = same && memcmp(p->dhidden + i * width, c->dhidden + there * width,
                              (size_t)width * sizeof(float)) == 0;
    return same;
}

int case_token_is_zero(const case_problem *p, int64_t i) {
    const float *const outputs[] = {p->logp, p->lse, p->entropy, p->logp_at_one};
    const int64_t width = p->options.hidden_size;
    int zero = !has(p, 4) || p->best[i] == -1;
    for (int o = 0; o < 4; o++)
        zero = zero && (!has(p, o) || outputs[o][i] == 0);
    for (int64_t k = 0; k < width && p->options.dhidden_dtype != LGH_DTYPE_NONE; k++)
        zero = zero && p->dhidden[i * width + k] == 0;
    return zero;
}

void case_assert_same_tokens(const case_problem *p, const case_copy *c) {
    for (int64_t i = 0; i < p->tokens; i++)
        if (!case_token_is_same(p, i, c, i))
            fail_msg("token %lld has other bits: logp %.9g and %.9g, lse %.9g and %.9g, dhidden "
                     "%.9g and %.9g",
                     (long long)i, (double)p->logp[i], (double)c->outputs[0][i], (double)p->lse[i],
                     (double)c->outputs[1][i], (double)p->dhidden[i * p->options.hidden_size],
                     (double)c->dhidden[i * p->options.hidden_size]);
}

void case_assert_same_sums(const case_problem *p, const case_copy *c) {
    const size_t entries = (size_t)p->options.vocab_size;
    if (p->options.dweight_dtype != LGH_DTYPE_NONE)
        lgh_assert_same_bytes(p->dweight, c->dweight,
                              entries * (size_t)p->options.hidden_size * sizeof(float), "dweight");
    if (p->options.dbias_dtype != LGH_DTYPE_NONE)
        lgh_assert_same_bytes(p->dbias, c->dbias, entries * sizeof(float), "dbias");
}

void case_assert_same(const case_problem *p, const case_copy *c) {
    case_assert_same_tokens(p, c);
    case_assert_same_sums(p, c);
}
