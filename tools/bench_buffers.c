/* bench_buffers.c - device memory that subjects share: inputs, and gradients. */
#include "bench_buffers.h"

#include "error.h"

#include <string.h>

/* ---- Inputs -------------------------------------------------------------------------------- */

static lgh_status place(lgh_tool_buffers *b, void **memory, void *from, size_t bytes) {
    if (b->borrows) {
        *memory = from;
        return LGH_SUCCESS;
    }
    FORWARD(lgh_tool_device_allocate(b->device, memory, bytes));
    return lgh_tool_device_copy(b->device, *memory, from, bytes);
}

static lgh_status place_inputs(lgh_tool_buffers *b, const lgh_tool_tensors *t) {
    const size_t n = (size_t)t->shape.tokens, d = (size_t)t->shape.hidden;
    const size_t v = (size_t)t->shape.vocab;
    FORWARD(place(b, &b->hidden, t->hidden, n * d * lgh_dtype_size(t->dtypes->hidden)));
    FORWARD(place(b, &b->weight, t->weight, v * d * lgh_dtype_size(t->dtypes->weight)));
    FORWARD(place(b, &b->targets, t->targets, n * sizeof *t->targets));
    FORWARD(place(b, &b->temperatures, t->temperatures, n * sizeof *t->temperatures));
    FORWARD(place(b, &b->grad_logp, t->grad_logp, n * sizeof *t->grad_logp));
    FORWARD(place(b, &b->grad_entropy, t->grad_entropy, n * sizeof *t->grad_entropy));
    FORWARD(place(b, &b->grad_lse, t->grad_lse, n * sizeof *t->grad_lse));
    FORWARD(place(b, &b->bias, t->bias, v * sizeof *t->bias));
    return place(b, &b->bias_bf16, t->bias_bf16, v * sizeof *t->bias_bf16);
}

static void release_inputs(const lgh_tool_buffers *b) {
    void *const inputs[] = {b->hidden,       b->weight,   b->targets, b->temperatures, b->grad_logp,
                            b->grad_entropy, b->grad_lse, b->bias,    b->bias_bf16};
    for (size_t i = 0; !b->borrows && i < sizeof inputs / sizeof inputs[0]; ++i)
        lgh_tool_device_free(b->device, inputs[i]);
}

/* ---- Outputs ------------------------------------------------------------------------------- */

/* An output, where its pointer is kept and how large it is. */
typedef struct output {
    void *pointer;
    size_t bytes;
} output;

#define OUTPUTS 4

static void list_outputs(lgh_tool_buffers *b, int has_dweight, output outputs[OUTPUTS]) {
    const lgh_tool_shape *s = &b->tensors->shape;
    const size_t n = (size_t)s->tokens, d = (size_t)s->hidden, v = (size_t)s->vocab;
    outputs[0] = (output){&b->dhidden, n * d * sizeof(float)};
    outputs[1] = (output){&b->dbias, v * sizeof(float)};
    outputs[2] = (output){&b->counters, 2 * sizeof(uint64_t)};
    outputs[3] = (output){&b->dweight, has_dweight ? v * d * sizeof(float) : 0};
}

static lgh_status allocate_outputs(lgh_tool_buffers *b, int has_dweight) {
    output outputs[OUTPUTS];
    list_outputs(b, has_dweight, outputs);
    for (int i = 0; i < OUTPUTS; ++i) {
        void *memory = NULL;
        if (outputs[i].bytes > 0)
            FORWARD(lgh_tool_device_allocate(b->device, &memory, outputs[i].bytes));
        memcpy(outputs[i].pointer, &memory, sizeof memory);
    }
    return LGH_SUCCESS;
}

lgh_status lgh_tool_buffers_clear(const lgh_tool_buffers *buffers) {
    lgh_tool_buffers b = *buffers;
    output outputs[OUTPUTS];
    list_outputs(&b, b.dweight != NULL, outputs);
    for (int i = 0; i < OUTPUTS; ++i) {
        void *memory;
        memcpy(&memory, outputs[i].pointer, sizeof memory);
        if (outputs[i].bytes > 0)
            FORWARD(lgh_tool_device_clear(b.device, memory, outputs[i].bytes));
    }
    return LGH_SUCCESS;
}

/* ---- Both ---------------------------------------------------------------------------------- */

static lgh_status open_buffers(lgh_tool_buffers *b, int has_dweight) {
    FORWARD(place_inputs(b, b->tensors));
    FORWARD(allocate_outputs(b, has_dweight));
    return lgh_tool_buffers_clear(b);
}

lgh_status lgh_tool_buffers_open(lgh_tool_buffers *buffers, const lgh_tool_device *device,
                                 const lgh_tool_tensors *tensors, int has_dweight) {
    *buffers = (lgh_tool_buffers){
        .device = device, .tensors = tensors, .borrows = device->type == LGH_DEVICE_CPU};
    lgh_status status = open_buffers(buffers, has_dweight);
    if (status != LGH_SUCCESS)
        lgh_tool_buffers_close(buffers);
    return status;
}

void lgh_tool_buffers_close(lgh_tool_buffers *b) {
    if (!b->device)
        return;
    lgh_tool_device_free(b->device, b->dweight);
    lgh_tool_device_free(b->device, b->counters);
    lgh_tool_device_free(b->device, b->dbias);
    lgh_tool_device_free(b->device, b->dhidden);
    release_inputs(b);
    *b = (lgh_tool_buffers){.device = NULL};
}
