/* chunked_config.h - how the chunked engine divides a plan's work: pure arithmetic, no device. */
#ifndef LGH_CHUNKED_CONFIG_H
#define LGH_CHUNKED_CONFIG_H

#include "loggerhead/loggerhead.h"

#include "text.h"

/** Columns and rows at a time. The chunks, which decide the bits of the results, depend on D, V,
 *  dtypes and live_lists alone; the blocks also on the workspace. */
typedef struct lgh__chunked_config {
    int64_t forward_chunk; /* vocabulary entries, all of a small vocabulary */
    int64_t backward_chunk;
    int64_t forward_block; /* most tokens */
    int64_t backward_block;
    int vocab_outer;    /* backward: vocabulary chunks are the outer loop, token blocks the inner */
    int gathers_hidden; /* a block's rows of hidden are brought together first */
    int scales_hidden;  /* for FP16 gradients, dweight is a product with rows of their own */
    int stages_dhidden; /* dhidden is summed in FP32 in the workspace */
} lgh__chunked_config;

/** Offsets into a workspace, and its size; 0 bytes of a part are no offset. */
typedef struct lgh__forward_layout {
    size_t logits; /* FP32 [block, forward_chunk] */
    size_t stats;  /* lgh_stored_stats [block] */
    size_t hidden; /* [block, D] of the weight's dtype, where hidden is gathered */
    size_t bias;   /* FP32 [chunks, forward_chunk], where there is a bias */
    size_t bytes;
} lgh__forward_layout;

typedef struct lgh__backward_layout {
    size_t logits;  /* FP32 [block, backward_chunk], overwritten by gradients */
    size_t hidden;  /* [block, D] of the weight's dtype, where hidden is gathered */
    size_t bias;    /* FP32 [chunks, backward_chunk], where there is a bias */
    size_t scale;   /* lgh_gradient_scale, where hidden is scaled */
    size_t scaled;  /* [block, D] of the weight's dtype, likewise */
    size_t dweight; /* FP32 [backward_chunk, D] for a 16-bit dweight */
    size_t dhidden; /* FP32 [block or, where the vocabulary is outer, tokens, D], where staged */
    size_t bytes;
    size_t beyond_budget;
} lgh__backward_layout;

/** Fails with LGH_ERROR_WORKSPACE if the budget does not hold one smallest block. */
lgh_status lgh__chunked_config_choose(lgh__chunked_config *config, const lgh_plan_options *options);

/** The wider of the two chunks. */
int64_t lgh__chunked_widest(const lgh__chunked_config *config);

/** The row stride, in elements, of a chunk's logits, and of its gradients, which lie where the FP32
 *  logits did. */
int64_t lgh__chunk_stride(int64_t chunk);
int64_t lgh__gradient_stride(const lgh_plan_options *options, int64_t chunk);

lgh__forward_layout lgh__chunked_forward_layout(const lgh__chunked_config *config,
                                                const lgh_plan_options *options, int64_t tokens);
lgh__backward_layout lgh__chunked_backward_layout(const lgh__chunked_config *config,
                                                  const lgh_plan_options *options, int64_t tokens);

/** Rows of each token block but the last, for `tokens` tokens in blocks of at most `most`: as even
 *  as whole tiles of a matrix product allow. */
int64_t lgh__token_block(int64_t tokens, int64_t most);

void lgh__chunked_config_describe(const lgh__chunked_config *config, lgh__text *text);

#endif
