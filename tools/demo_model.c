/* demo_model.c - the demo's own layers, on the host: everything before the head, and Adam. */
#include "demo_model.h"

#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The inner loops below are written for the compiler to vectorise, which GCC 12 does for loops of
 * unknown length, and with a square root in them, only with these options. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-math-errno")
#endif

/* ---- Parameters ---------------------------------------------------------------------------- */

static int tensor_create(lgh_tool_tensor *tensor, size_t count, float scale, uint64_t *random) {
    tensor->value = calloc(4 * count, sizeof *tensor->value);
    if (tensor->value == NULL)
        return -1;
    tensor->gradient = tensor->value + count;
    tensor->mean = tensor->gradient + count;
    tensor->square = tensor->mean + count;
    tensor->count = count;
    for (size_t i = 0; i < count; ++i)
        tensor->value[i] = scale * lgh_tool_random_symmetric(random);
    return 0;
}

int lgh_tool_model_create(lgh_tool_model *model, const lgh_tool_model_shape *shape, uint64_t seed) {
    *model = (lgh_tool_model){.shape = *shape};
    size_t inputs = (size_t)shape->context * (size_t)shape->embedding;
    size_t hidden = (size_t)shape->hidden;
    size_t vocabulary = (size_t)shape->vocabulary;
    size_t batch = (size_t)shape->batch;
    model->input = malloc(2 * batch * (inputs + hidden) * sizeof *model->input);
    model->transposed = malloc(hidden * inputs * sizeof *model->transposed);
    /* Uniform in +-sqrt(3 / n) has the variance 1 / n that keeps the size of what passes through.
     */
    if (model->input == NULL || model->transposed == NULL ||
        tensor_create(&model->embedding, vocabulary * (size_t)shape->embedding, 1.0f, &seed) ||
        tensor_create(&model->layer, inputs * hidden, sqrtf(3.0f / (float)inputs), &seed) ||
        tensor_create(&model->bias, hidden, 0.0f, &seed) ||
        tensor_create(&model->head, vocabulary * hidden, 0.02f, &seed)) {
        lgh_tool_model_free(model);
        return -1;
    }
    model->dinput = model->input + batch * inputs;
    model->hidden = model->dinput + batch * inputs;
    model->dhidden = model->hidden + batch * hidden;
    return 0;
}

void lgh_tool_model_free(lgh_tool_model *model) {
    free(model->embedding.value);
    free(model->layer.value);
    free(model->bias.value);
    free(model->head.value);
    free(model->input);
    free(model->transposed);
    *model = (lgh_tool_model){0};
}

size_t lgh_tool_model_parameters(const lgh_tool_model *model) {
    return model->embedding.count + model->layer.count + model->bias.count + model->head.count;
}

/* ---- Forward ------------------------------------------------------------------------------- */

/* y += a x. */
static void add_scaled(float *restrict y, const float *restrict x, float a, size_t count) {
    for (size_t i = 0; i < count; ++i)
        y[i] += a * x[i];
}

/* to[r] += sum_i from[r][i] matrix[i], row by row. */
static void multiply(float *restrict to, const float *restrict from, const float *restrict matrix,
                     size_t rows, size_t inner, size_t columns) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t i = 0; i < inner; ++i)
            add_scaled(to + r * columns, matrix + i * columns, from[r * inner + i], columns);
}

void lgh_tool_model_forward(lgh_tool_model *model, const int32_t *contexts, int count) {
    size_t embedding = (size_t)model->shape.embedding;
    size_t inputs = (size_t)model->shape.context * embedding;
    size_t hidden = (size_t)model->shape.hidden;
    size_t rows = (size_t)count;
    for (size_t i = 0; i < rows * (size_t)model->shape.context; ++i)
        memcpy(model->input + i * embedding,
               model->embedding.value + (size_t)contexts[i] * embedding,
               embedding * sizeof *model->input);
    for (size_t r = 0; r < rows; ++r)
        memcpy(model->hidden + r * hidden, model->bias.value, hidden * sizeof *model->hidden);
    multiply(model->hidden, model->input, model->layer.value, rows, inputs, hidden);
    for (size_t i = 0; i < rows * hidden; ++i)
        model->hidden[i] = tanhf(model->hidden[i]);
}

/* ---- Backward ------------------------------------------------------------------------------ */

static void clear(float *values, size_t count) {
    memset(values, 0, count * sizeof *values);
}

static void transpose(float *restrict to, const float *restrict from, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c)
            to[c * rows + r] = from[r * columns + c];
}

/* Through tanh, in place: its derivative is 1 - tanh^2. */
static void through_tanh(float *restrict gradient, const float *restrict value, size_t count) {
    for (size_t i = 0; i < count; ++i)
        gradient[i] *= 1.0f - value[i] * value[i];
}

static void layer_gradients(lgh_tool_model *model, size_t rows, size_t inputs, size_t hidden) {
    clear(model->layer.gradient, model->layer.count);
    clear(model->bias.gradient, model->bias.count);
    for (size_t r = 0; r < rows; ++r) {
        const float *gradient = model->dhidden + r * hidden;
        add_scaled(model->bias.gradient, gradient, 1.0f, hidden);
        for (size_t i = 0; i < inputs; ++i)
            add_scaled(model->layer.gradient + i * hidden, gradient, model->input[r * inputs + i],
                       hidden);
    }
}

void lgh_tool_model_backward(lgh_tool_model *model, const int32_t *contexts, int count) {
    size_t embedding = (size_t)model->shape.embedding;
    size_t context = (size_t)model->shape.context;
    size_t inputs = context * embedding;
    size_t hidden = (size_t)model->shape.hidden;
    size_t rows = (size_t)count;
    through_tanh(model->dhidden, model->hidden, rows * hidden);
    layer_gradients(model, rows, inputs, hidden);
    transpose(model->transposed, model->layer.value, inputs, hidden);
    clear(model->dinput, rows * inputs);
    multiply(model->dinput, model->dhidden, model->transposed, rows, hidden, inputs);
    clear(model->embedding.gradient, model->embedding.count);
    for (size_t i = 0; i < rows * context; ++i)
        add_scaled(model->embedding.gradient + (size_t)contexts[i] * embedding,
                   model->dinput + i * embedding, 1.0f, embedding);
}

/* ---- Adam ---------------------------------------------------------------------------------- */

#define DECAY_MEAN 0.9f
#define DECAY_SQUARE 0.99f
#define SMALLEST 1e-8f

static void adam(float *restrict value, const float *restrict gradient, float *restrict mean,
                 float *restrict square, size_t count, float rate, float square_scale) {
    for (size_t i = 0; i < count; ++i) {
        float g = gradient[i];
        mean[i] = DECAY_MEAN * mean[i] + (1.0f - DECAY_MEAN) * g;
        square[i] = DECAY_SQUARE * square[i] + (1.0f - DECAY_SQUARE) * g * g;
        value[i] -= rate * mean[i] / (sqrtf(square[i] * square_scale) + SMALLEST);
    }
}

void lgh_tool_model_update(lgh_tool_model *model, float learning_rate) {
    lgh_tool_tensor *tensors[] = {&model->embedding, &model->layer, &model->bias, &model->head};
    float steps = (float)++model->steps;
    /* Both means start at 0 and are too small at first by these factors. */
    float rate = learning_rate / (1.0f - powf(DECAY_MEAN, steps));
    float square_scale = 1.0f / (1.0f - powf(DECAY_SQUARE, steps));
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i)
        adam(tensors[i]->value, tensors[i]->gradient, tensors[i]->mean, tensors[i]->square,
             tensors[i]->count, rate, square_scale);
}

void lgh_tool_to_bf16(const float *from, uint16_t *to, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        to[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
