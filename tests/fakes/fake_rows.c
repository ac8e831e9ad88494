/* fake_rows.c - what the row kernels on the host share. */
#include "fake_rows.h"

#include "fake_state.h"
#include "formulas.h"

#include <math.h>

int fake_rule(int holds, const char *what, const char *rule_text) {
    if (!holds)
        fake_violation("%s: %s", what, rule_text);
    return holds;
}

int fake_vector(const void *data, int64_t rows, int64_t bytes, unsigned how, const char *what) {
    return rows == 0 || fake_access((fake_rows){data, rows, bytes, bytes}, how, what);
}

int fake_element(const void *data, int64_t i, int64_t bytes, unsigned how, const char *what) {
    return fake_vector((const char *)data + i * bytes, 1, bytes, how, what);
}

/* Positions of the block that the list has; those past its count may lie past its end. */
static int64_t listed_rows(const lgh_block_rows *block) {
    const int64_t left = block->live_count ? *block->live_count - block->first : block->rows;
    return left < 0 ? 0 : left < block->rows ? left : block->rows;
}

int fake_block_fits(const lgh_block_rows *block, int64_t launched, const char *what) {
    if (!fake_rule(block->rows == launched, what, "a block of another size than is launched") ||
        !fake_rule(block->first >= 0 && block->tokens >= 0, what, "a block that begins below 0"))
        return 0;
    if (!block->live)
        return fake_rule(!block->live_count, what, "a count without a list");
    return (!block->live_count ||
            fake_vector(block->live_count, 1, 4, FAKE_READ, "the live list's count")) &&
           fake_vector(block->live + block->first, listed_rows(block), 4, FAKE_READ,
                       "the live list");
}

int64_t fake_token_of(const lgh_block_rows *block, int64_t row) {
    if (!block->live)
        return block->first + row;
    if (row >= listed_rows(block))
        return FAKE_NO_TOKEN;
    const int64_t token = block->live[block->first + row];
    return token >= 0 && token < block->tokens ? token : FAKE_NO_TOKEN;
}

float fake_value_of(const lgh_device_value *value, int64_t token, const char *what) {
    if (!value->data)
        return value->host;
    const float *at = value->data + token * value->stride;
    return fake_rule(value->stride >= 0, what, "a stride below 0") &&
                   fake_vector(at, 1, 4, FAKE_READ, what)
               ? *at
               : NAN;
}

double fake_gradient_bound(const lgh_token_gradients *g, int64_t token) {
    const double temperature = (double)fake_value_of(&g->temperature, token, "temperature");
    const double sum = fabs((double)fake_value_of(&g->grad_logp, token, "grad_logp")) +
                       fabs((double)fake_value_of(&g->grad_lse, token, "grad_lse")) +
                       (double)g->entropy_weight *
                           fabs((double)fake_value_of(&g->grad_entropy, token, "grad_entropy"));
    const double bound = sum / temperature;
    return lgh_temperature_is_valid(temperature) && bound <= (double)FLT_MAX ? bound : 0;
}

double fake_token_scale(const lgh_token_gradients *g, int64_t token) {
    return exp2(lgh_scale_exponent(fake_gradient_bound(g, token)));
}

void fake_count(unsigned long long *counter, const char *what) {
    if (counter && fake_vector(counter, 1, 8, FAKE_READ, what))
        ++*counter;
}
