/* demo_head.c - the demo's head and loss: every call that the demo makes to the library. */
#include "demo_head.h"

#include "demo_model.h"

#include <stdio.h>
#include <stdlib.h>

/* Makes a library call; when it fails, prints the library's text and returns -1 from the caller. */
#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != LGH_SUCCESS)                                                                 \
            return report();                                                                       \
    } while (0)

static int report(void) {
    fprintf(stderr, "loggerhead demo: %s\n", lgh_last_error());
    return -1;
}

/* ---- Opening ------------------------------------------------------------------------------- */

int lgh_tool_head_open(lgh_tool_head *head, lgh_tool_device device) {
    *head = (lgh_tool_head){0};
    lgh_context_options options = LGH_CONTEXT_OPTIONS_INIT;
    options.type = device == LGH_TOOL_DEVICE_CPU ? LGH_DEVICE_CPU : LGH_DEVICE_CUDA;
    lgh_status status = lgh_context_create(&head->context, &options);
    if (status != LGH_SUCCESS && device == LGH_TOOL_DEVICE_AUTO) {
        head->no_gpu = status;
        options.type = LGH_DEVICE_CPU;
        status = lgh_context_create(&head->context, &options);
    }
    CHECK(status);
    CHECK(lgh_context_device_name(head->context, head->device_name, sizeof head->device_name));
    return 0;
}

static int create_plans(lgh_tool_head *head) {
    lgh_plan_options options = LGH_PLAN_OPTIONS_INIT;
    options.hidden_size = (int64_t)head->hidden_size;
    options.vocab_size = (int64_t)head->vocab_size;
    options.targets_dtype = LGH_INT32;
    options.max_tokens = (int64_t)head->batch;
    CHECK(lgh_plan_create(&head->training, head->context, &options));

    options.max_tokens = (int64_t)head->scored;
    options.outputs = LGH_OUTPUT_ALL;
    options.dhidden_dtype = LGH_DTYPE_NONE;
    options.dweight_dtype = LGH_DTYPE_NONE;
    CHECK(lgh_plan_create(&head->scoring, head->context, &options));
    return 0;
}

static int measure_workspace(lgh_tool_head *head) {
    size_t forward = 0;
    size_t backward = 0;
    int64_t batch = (int64_t)head->batch;
    CHECK(lgh_plan_workspace_size(head->training, LGH_PASS_FORWARD, batch, &forward, NULL));
    CHECK(lgh_plan_workspace_size(head->training, LGH_PASS_BACKWARD, batch, &backward, NULL));
    CHECK(lgh_plan_workspace_size(head->scoring, LGH_PASS_FORWARD, (int64_t)head->scored,
                                  &head->scoring_bytes, NULL));
    head->training_bytes = forward > backward ? forward : backward;
    head->workspace_bytes =
        head->training_bytes > head->scoring_bytes ? head->training_bytes : head->scoring_bytes;
    return 0;
}

static int allocate(lgh_tool_head *head, void **memory, size_t bytes) {
    CHECK(lgh_memory_allocate(head->context, bytes, memory));
    return 0;
}

static int allocate_buffers(lgh_tool_head *head) {
    size_t tokens = head->batch > head->scored ? head->batch : head->scored;
    size_t rows = head->vocab_size > tokens ? head->vocab_size : tokens;
    if (allocate(head, &head->hidden, tokens * head->hidden_size * sizeof(uint16_t)) ||
        allocate(head, &head->weight, head->vocab_size * head->hidden_size * sizeof(uint16_t)) ||
        allocate(head, &head->targets, tokens * sizeof(int32_t)) ||
        allocate(head, &head->results, 4 * tokens * sizeof(float)) ||
        allocate(head, &head->dhidden, head->batch * head->hidden_size * sizeof(float)) ||
        allocate(head, &head->dweight, head->vocab_size * head->hidden_size * sizeof(float)) ||
        allocate(head, &head->workspace, head->workspace_bytes))
        return -1;
    head->logp = head->results;
    head->lse = head->logp + tokens;
    head->entropy = head->lse + tokens;
    head->logp_at_one = head->entropy + tokens;
    head->rounded = malloc(rows * head->hidden_size * sizeof *head->rounded);
    if (head->rounded == NULL)
        fprintf(stderr, "loggerhead demo: out of memory\n");
    return head->rounded == NULL ? -1 : 0;
}

int lgh_tool_head_prepare(lgh_tool_head *head, int hidden_size, int vocab_size, size_t batch,
                          size_t scored) {
    head->hidden_size = (size_t)hidden_size;
    head->vocab_size = (size_t)vocab_size;
    head->batch = batch;
    head->scored = scored;
    if (create_plans(head) != 0 || measure_workspace(head) != 0)
        return -1;
    return allocate_buffers(head);
}

void lgh_tool_head_close(lgh_tool_head *head) {
    void *const memory[] = {head->hidden,  head->weight,  head->targets,  head->results,
                            head->dhidden, head->dweight, head->workspace};
    for (size_t i = 0; head->context != NULL && i < sizeof memory / sizeof memory[0]; ++i)
        lgh_memory_free(head->context, memory[i]);
    free(head->rounded);
    lgh_plan_destroy(head->scoring);
    lgh_plan_destroy(head->training);
    lgh_context_destroy(head->context);
    *head = (lgh_tool_head){0};
}

/* ---- Calls --------------------------------------------------------------------------------- */

static lgh_const_matrix read_matrix(const void *data, size_t rows, size_t columns) {
    return (lgh_const_matrix){data, (int64_t)rows, (int64_t)columns, (int64_t)columns, LGH_BF16};
}

static lgh_matrix write_matrix(void *data, size_t rows, size_t columns) {
    return (lgh_matrix){data, (int64_t)rows, (int64_t)columns, (int64_t)columns, LGH_FP32};
}

static int copy(lgh_tool_head *head, void *to, const void *from, size_t bytes) {
    CHECK(lgh_memory_copy(head->context, to, from, bytes, NULL));
    return 0;
}

static int send_rounded(lgh_tool_head *head, void *to, const float *values, size_t count) {
    lgh_tool_to_bf16(values, head->rounded, count);
    return copy(head, to, head->rounded, count * sizeof *head->rounded);
}

static int send_tokens(lgh_tool_head *head, const float *hidden, const int32_t *targets,
                       size_t count) {
    if (send_rounded(head, head->hidden, hidden, count * head->hidden_size) != 0)
        return -1;
    return copy(head, head->targets, targets, count * sizeof *targets);
}

static int fetch(lgh_tool_head *head, float *to, const float *from, size_t count) {
    return to == NULL ? 0 : copy(head, to, from, count * sizeof *to);
}

static int fetch_scores(lgh_tool_head *head, lgh_tool_scores scores, size_t count) {
    if (fetch(head, scores.logp, head->logp, count) != 0 ||
        fetch(head, scores.entropy, head->entropy, count) != 0)
        return -1;
    return fetch(head, scores.logp_at_one, head->logp_at_one, count);
}

int lgh_tool_head_set_weight(lgh_tool_head *head, const float *weight) {
    return send_rounded(head, head->weight, weight, head->vocab_size * head->hidden_size);
}

static lgh_forward_args forward_args(const lgh_tool_head *head, size_t count) {
    lgh_forward_args args = LGH_FORWARD_ARGS_INIT;
    args.hidden = read_matrix(head->hidden, count, head->hidden_size);
    args.weight = read_matrix(head->weight, head->vocab_size, head->hidden_size);
    args.targets = head->targets;
    args.logp = head->logp;
    args.lse = head->lse;
    args.entropy = head->entropy;
    return args;
}

static int backward(lgh_tool_head *head, const lgh_forward_args *forward, size_t count) {
    lgh_backward_args args = LGH_BACKWARD_ARGS_INIT;
    args.hidden = forward->hidden;
    args.weight = forward->weight;
    args.targets = forward->targets;
    args.lse = forward->lse;
    args.grad_logp.host = -1.0f / (float)count; /* loss = - mean logp */
    args.dhidden = write_matrix(head->dhidden, count, head->hidden_size);
    args.dweight = write_matrix(head->dweight, head->vocab_size, head->hidden_size);
    CHECK(lgh_backward(head->training, &args, head->workspace, head->workspace_bytes, NULL));
    return 0;
}

int lgh_tool_head_train(lgh_tool_head *head, const float *hidden, const int32_t *targets,
                        size_t count, lgh_tool_scores scores, float *dhidden, float *dweight) {
    if (send_tokens(head, hidden, targets, count) != 0)
        return -1;
    lgh_forward_args args = forward_args(head, count);
    CHECK(lgh_forward(head->training, &args, head->workspace, head->workspace_bytes, NULL));
    if (backward(head, &args, count) != 0 || fetch_scores(head, scores, count) != 0 ||
        fetch(head, dhidden, head->dhidden, count * head->hidden_size) != 0)
        return -1;
    return fetch(head, dweight, head->dweight, head->vocab_size * head->hidden_size);
}

int lgh_tool_head_score(lgh_tool_head *head, const float *hidden, const int32_t *targets,
                        size_t count, float temperature, lgh_tool_scores scores) {
    if (send_tokens(head, hidden, targets, count) != 0)
        return -1;
    lgh_forward_args args = forward_args(head, count);
    args.temperature.host = temperature;
    args.logp_at_one = head->logp_at_one;
    CHECK(lgh_forward(head->scoring, &args, head->workspace, head->workspace_bytes, NULL));
    return fetch_scores(head, scores, count);
}
