/* demo_model.h - the demo's own layers, on the host: everything before the head, and Adam. */
#ifndef LGH_TOOL_DEMO_MODEL_H
#define LGH_TOOL_DEMO_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* Parameters with their gradient and Adam's two running means. */
typedef struct lgh_tool_tensor {
    float *value;
    float *gradient;
    float *mean;
    float *square;
    size_t count;
} lgh_tool_tensor;

typedef struct lgh_tool_model_shape {
    int context;   /* K tokens that a prediction sees */
    int embedding; /* E floats for each of them */
    int hidden;    /* D */
    int vocabulary;
    int batch; /* the most tokens of one call */
} lgh_tool_model_shape;

/* hidden = tanh([e(t - K) .. e(t - 1)] layer + bias); the head's logits are hidden . head_v. */
typedef struct lgh_tool_model {
    lgh_tool_model_shape shape;
    lgh_tool_tensor embedding; /* [V, E] */
    lgh_tool_tensor layer;     /* [K E, D] */
    lgh_tool_tensor bias;      /* [D] */
    lgh_tool_tensor head;      /* [V, D], FP32; the library reads a BF16 copy and writes gradient */
    float *input;              /* [batch, K E], gathered embeddings */
    float *dinput;             /* [batch, K E] */
    float *hidden;             /* [batch, D] */
    float *dhidden;            /* [batch, D], which the library writes */
    float *transposed;         /* [D, K E], of layer */
    int64_t steps;             /* updates so far */
} lgh_tool_model;

/** Returns 0, or -1 when out of memory. */
int lgh_tool_model_create(lgh_tool_model *model, const lgh_tool_model_shape *shape, uint64_t seed);
void lgh_tool_model_free(lgh_tool_model *model);

/** All parameters, the head's among them. */
size_t lgh_tool_model_parameters(const lgh_tool_model *model);

/** Writes model->hidden for `count` contexts of K tokens each. */
void lgh_tool_model_forward(lgh_tool_model *model, const int32_t *contexts, int count);

/** After that call: turns model->dhidden into the gradients of everything but the head. */
void lgh_tool_model_backward(lgh_tool_model *model, const int32_t *contexts, int count);

/** One step of Adam on every tensor. */
void lgh_tool_model_update(lgh_tool_model *model, float learning_rate);

/** Rounds to BF16, to nearest, ties to even. The values must be finite. */
void lgh_tool_to_bf16(const float *from, uint16_t *to, size_t count);

#endif
