/* demo_data.h - the token stream of the demo: what is trained on, what is held out. */
#ifndef LGH_TOOL_DEMO_DATA_H
#define LGH_TOOL_DEMO_DATA_H

#include "demo_text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct lgh_tool_data {
    lgh_tool_vocabulary vocabulary;
    int32_t *tokens;
    size_t token_count;
    size_t *training; /* positions whose tokens are predicted in training */
    size_t training_count;
    size_t *held_out; /* positions kept from training; blocks of the text spread evenly */
    size_t held_out_count;
    size_t next; /* of the shuffled training positions */
    uint64_t random;
} lgh_tool_data;

/**
 * Builds the vocabulary, encodes the text and holds out a tenth of it, at most `held_out_limit`
 * positions. Returns 0, or -1 with the reason in `problem`.
 */
int lgh_tool_data_create(lgh_tool_data *data, const unsigned char *text, size_t length,
                         size_t words, size_t held_out_limit, uint64_t seed, char *problem,
                         size_t capacity);

void lgh_tool_data_free(lgh_tool_data *data);

/** Hands out the next `count` training positions; every one comes once before any comes again. */
void lgh_tool_data_draw(lgh_tool_data *data, size_t *positions, size_t count);

/** Writes the `context` tokens before each position, oldest first, and the tokens there. */
void lgh_tool_data_gather(const lgh_tool_data *data, const size_t *positions, size_t count,
                          int context, int32_t *contexts, int32_t *targets);

/**
 * Cross-entropy in nats of the held-out tokens under their frequencies in the training part, one
 * added to each count. A model that looks at no context can do no better than about this.
 */
int lgh_tool_data_unigram(const lgh_tool_data *data, double *cross_entropy);

#endif
