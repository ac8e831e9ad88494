/* demo_head.h - the demo's head and loss: every call that the demo makes to the library. */
#ifndef LGH_TOOL_DEMO_HEAD_H
#define LGH_TOOL_DEMO_HEAD_H

#include "loggerhead/loggerhead.h"

#include <stddef.h>
#include <stdint.h>

/* In the order of the words of --device. */
typedef enum lgh_tool_device {
    LGH_TOOL_DEVICE_AUTO, /* the GPU if there is one that works, else the CPU */
    LGH_TOOL_DEVICE_CPU,
    LGH_TOOL_DEVICE_CUDA
} lgh_tool_device;

typedef struct lgh_tool_head {
    lgh_context *context;
    lgh_plan *training;
    lgh_plan *scoring;
    size_t hidden_size;
    size_t vocab_size;
    size_t batch;  /* the most tokens of a training call */
    size_t scored; /* the most tokens of a scoring call */
    void *hidden;  /* device memory, BF16 */
    void *weight;  /* BF16 */
    void *targets; /* INT32 */
    void *results; /* FP32: the four vectors that follow */
    float *logp;
    float *lse;
    float *entropy;
    float *logp_at_one;
    void *dhidden; /* FP32 */
    void *dweight; /* FP32 */
    void *workspace;
    size_t workspace_bytes;
    size_t training_bytes; /* of workspace that training needs */
    size_t scoring_bytes;
    uint16_t *rounded; /* host memory: hidden or weight on its way to the device */
    lgh_status no_gpu; /* with AUTO: what kept the GPU out; LGH_SUCCESS otherwise */
    char device_name[128];
} lgh_tool_head;

/* What lgh_forward wrote, copied to the host; NULL: not wanted. */
typedef struct lgh_tool_scores {
    float *logp;
    float *entropy;
    float *logp_at_one;
} lgh_tool_scores;

/*
 * Every function returns 0, or -1 after it has printed the library's text to stderr.
 */

/** Opens a device. lgh_tool_head_close is due whether this succeeds or not. */
int lgh_tool_head_open(lgh_tool_head *head, lgh_tool_device device);

/** Makes the plans and buffers: training calls of `batch` tokens, scoring calls of `scored`. */
int lgh_tool_head_prepare(lgh_tool_head *head, int hidden_size, int vocab_size, size_t batch,
                          size_t scored);

void lgh_tool_head_close(lgh_tool_head *head);

/** Rounds the FP32 weight to BF16 and sends it to the device. */
int lgh_tool_head_set_weight(lgh_tool_head *head, const float *weight);

/**
 * Forward, then backward of the mean negative log-prob of `count` tokens: logp and entropy of each,
 * and the gradients of hidden [count, D] and weight [V, D].
 */
int lgh_tool_head_train(lgh_tool_head *head, const float *hidden, const int32_t *targets,
                        size_t count, lgh_tool_scores scores, float *dhidden, float *dweight);

/** Forward alone, at a temperature. */
int lgh_tool_head_score(lgh_tool_head *head, const float *hidden, const int32_t *targets,
                        size_t count, float temperature, lgh_tool_scores scores);

#endif
