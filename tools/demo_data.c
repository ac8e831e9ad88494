/* demo_data.c - the token stream of the demo: what is trained on, what is held out. */
#include "demo_data.h"

#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define HELD_OUT_SHARE 10 /* one block of so many */
#define LONGEST_BLOCK 512
#define SHORTEST_BLOCK 8
#define LEAST_TOKENS 400 /* fewer say nothing about anything */

/* Blocks, so that held-out text is text; many, so that it is like the rest. */
static size_t block_length(size_t tokens) {
    size_t length = tokens / (HELD_OUT_SHARE * 8);
    if (length < SHORTEST_BLOCK)
        return SHORTEST_BLOCK;
    return length > LONGEST_BLOCK ? LONGEST_BLOCK : length;
}

/* Keeps the first positions of every held-out block, so that limit bounds their sum; the rest of
 * such a block goes unused. */
static void split(lgh_tool_data *data, size_t limit) {
    size_t block = block_length(data->token_count);
    size_t held_out_blocks = data->token_count / (block * HELD_OUT_SHARE) + 1;
    size_t kept = limit / held_out_blocks > 0 ? limit / held_out_blocks : 1;
    for (size_t i = 0; i < data->token_count; ++i) {
        int is_held_out = i / block % HELD_OUT_SHARE == HELD_OUT_SHARE / 2;
        if (!is_held_out)
            data->training[data->training_count++] = i;
        else if (i % block < kept && data->held_out_count < limit)
            data->held_out[data->held_out_count++] = i;
    }
}

static void shuffle(size_t *positions, size_t count, uint64_t *random) {
    for (size_t i = count; i > 1; --i) {
        size_t j = (size_t)(lgh_tool_random(random) % i);
        size_t kept = positions[i - 1];
        positions[i - 1] = positions[j];
        positions[j] = kept;
    }
}

static int encode_all(lgh_tool_data *data, const unsigned char *text, size_t length) {
    data->tokens = malloc(length * sizeof *data->tokens + 1);
    if (data->tokens == NULL)
        return -1;
    data->token_count = lgh_tool_encode(&data->vocabulary, text, length, data->tokens);
    data->training = malloc(data->token_count * sizeof *data->training + 1);
    data->held_out = malloc(data->token_count * sizeof *data->held_out + 1);
    return data->training == NULL || data->held_out == NULL ? -1 : 0;
}

int lgh_tool_data_create(lgh_tool_data *data, const unsigned char *text, size_t length,
                         size_t words, size_t held_out_limit, uint64_t seed, char *problem,
                         size_t capacity) {
    *data = (lgh_tool_data){.random = seed};
    if (lgh_tool_vocabulary_build(&data->vocabulary, text, length, words) != 0 ||
        encode_all(data, text, length) != 0) {
        snprintf(problem, capacity, "out of memory for a text of %zu bytes", length);
        goto build;
    }
    if (data->token_count < LEAST_TOKENS) {
        snprintf(problem, capacity, "the text has %zu tokens; the demo needs %d or more",
                 data->token_count, LEAST_TOKENS);
        goto build;
    }
    split(data, held_out_limit);
    shuffle(data->training, data->training_count, &data->random);
    return 0;
build:
    lgh_tool_data_free(data);
    return -1;
}

void lgh_tool_data_free(lgh_tool_data *data) {
    lgh_tool_vocabulary_free(&data->vocabulary);
    free(data->tokens);
    free(data->training);
    free(data->held_out);
    *data = (lgh_tool_data){0};
}

void lgh_tool_data_draw(lgh_tool_data *data, size_t *positions, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (data->next == data->training_count) {
            shuffle(data->training, data->training_count, &data->random);
            data->next = 0;
        }
        positions[i] = data->training[data->next++];
    }
}

void lgh_tool_data_gather(const lgh_tool_data *data, const size_t *positions, size_t count,
                          int context, int32_t *contexts, int32_t *targets) {
    for (size_t i = 0; i < count; ++i) {
        targets[i] = data->tokens[positions[i]];
        for (int k = 0; k < context; ++k) {
            size_t back = (size_t)(context - k);
            /* Before the beginning there are line ends. */
            *contexts++ = positions[i] >= back ? data->tokens[positions[i] - back] : '\n';
        }
    }
}

int lgh_tool_data_unigram(const lgh_tool_data *data, double *cross_entropy) {
    size_t vocabulary = (size_t)lgh_tool_vocabulary_size(&data->vocabulary);
    size_t *counts = calloc(vocabulary, sizeof *counts);
    if (counts == NULL)
        return -1;
    for (size_t i = 0; i < data->training_count; ++i)
        ++counts[data->tokens[data->training[i]]];
    double total = (double)(data->training_count + vocabulary);
    double sum = 0;
    for (size_t i = 0; i < data->held_out_count; ++i)
        sum -= log((double)(counts[data->tokens[data->held_out[i]]] + 1) / total);
    free(counts);
    *cross_entropy = sum / (double)data->held_out_count;
    return 0;
}
